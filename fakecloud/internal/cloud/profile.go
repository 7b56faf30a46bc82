package cloud

import (
	"fmt"
	"time"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/fault"
)

// Profile returns how long an action with a command takes. With 0, the action ends before the request is answered.
type Profile func(command string) time.Duration

// ProfileInstant ends every action at once.
var ProfileInstant = ProfileFixed(0)

// ProfileFixed makes every action take the same time.
func ProfileFixed(d time.Duration) Profile {
	return func(string) time.Duration { return d }
}

// ProfileRealistic makes actions take about as long as in the real cloud: see commands.
func ProfileRealistic(command string) time.Duration {
	if command == guestShutdown {
		return 5 * time.Second
	}
	if c, ok := commands[command]; ok {
		return c.usual
	}
	return time.Second
}

// ParseProfile reads "instant", "realistic" or a duration such as "250ms".
func ParseProfile(s string) (Profile, error) {
	switch s {
	case "instant":
		return ProfileInstant, nil
	case "realistic":
		return ProfileRealistic, nil
	}
	var d fault.Duration
	if err := d.UnmarshalText([]byte(s)); err != nil || d < 0 {
		return nil, fmt.Errorf("action profile %q: must be instant, realistic or a duration such as 250ms", s)
	}
	return ProfileFixed(time.Duration(d)), nil
}
