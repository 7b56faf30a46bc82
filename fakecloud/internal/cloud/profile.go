package cloud

import (
	"fmt"
	"time"
)

// Profile says how long an action takes.
type Profile interface {
	// Duration returns the time that an action with this command takes. With 0, the action ends before
	// the request is answered.
	Duration(command string) time.Duration
}

type profileFunc func(string) time.Duration

func (f profileFunc) Duration(command string) time.Duration { return f(command) }

// ProfileInstant ends every action at once.
var ProfileInstant Profile = profileFunc(func(string) time.Duration { return 0 })

// ProfileFixed makes every action take the same time.
func ProfileFixed(d time.Duration) Profile {
	return profileFunc(func(string) time.Duration { return d })
}

// ProfileRealistic makes actions take about as long as in the real cloud. The figures are rounded
// observations of users, not promises.
var ProfileRealistic Profile = profileFunc(func(command string) time.Duration {
	if d, ok := realisticDurations[command]; ok {
		return d
	}
	return time.Second
})

var realisticDurations = map[string]time.Duration{
	"create_server":               7 * time.Second,
	"start_server":                2 * time.Second,
	"stop_server":                 2 * time.Second,
	"shutdown_server":             1 * time.Second,
	guestShutdown:                 5 * time.Second,
	"reboot_server":               5 * time.Second,
	"reset_server":                3 * time.Second,
	"delete_server":               2 * time.Second,
	"rebuild_server":              15 * time.Second,
	"change_server_type":          30 * time.Second,
	"create_image":                30 * time.Second,
	"attach_to_network":           3 * time.Second,
	"detach_from_network":         2 * time.Second,
	"create_load_balancer":        2 * time.Second,
	"delete_load_balancer":        1 * time.Second,
	"change_load_balancer_type":   4 * time.Second,
	"create_certificate":          10 * time.Second,
	"issue_certificate":           10 * time.Second,
	"change_protection":           0,
	"change_dns_ptr":              500 * time.Millisecond,
	"add_route":                   1 * time.Second,
	"delete_route":                1 * time.Second,
	"add_subnet":                  1 * time.Second,
	"delete_subnet":               1 * time.Second,
	"assign_primary_ip":           1 * time.Second,
	"unassign_primary_ip":         1 * time.Second,
	"enable_rescue":               1 * time.Second,
	"disable_rescue":              1 * time.Second,
	"add_to_placement_group":      1 * time.Second,
	"remove_from_placement_group": 1 * time.Second,
	"enable_backup":               500 * time.Millisecond,
	"disable_backup":              1 * time.Second,
	"attach_iso":                  1 * time.Second,
	"detach_iso":                  1 * time.Second,
	"reset_password":              2 * time.Second,
	"request_console":             0,
	"enable_public_interface":     1 * time.Second,
	"disable_public_interface":    1 * time.Second,
	"add_service":                 500 * time.Millisecond,
	"update_service":              500 * time.Millisecond,
	"delete_service":              500 * time.Millisecond,
	"add_target":                  500 * time.Millisecond,
	"remove_target":               500 * time.Millisecond,
	"change_algorithm":            500 * time.Millisecond,
	"set_firewall_rules":          1 * time.Second,
}

// ParseProfile reads "instant", "realistic" or a duration such as "250ms".
func ParseProfile(s string) (Profile, error) {
	switch s {
	case "instant":
		return ProfileInstant, nil
	case "realistic":
		return ProfileRealistic, nil
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 {
		return nil, fmt.Errorf("action profile %q: must be instant, realistic or a duration such as 250ms", s)
	}
	return ProfileFixed(d), nil
}
