package api_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
)

// newWireClient returns a client, over a real socket, of a cloud whose clock only the test moves.
func newWireClient(t *testing.T, o fakecloud.Options) (*hcloud.Client, *wire) {
	t.Helper()
	w := newWire(t, o)
	if o.APIDate != "" {
		// The API document is of July 2026 and knows nothing of what was gone by then.
		w.handler = w.cloud.Handler()
	}
	s := httptest.NewServer(w.handler)
	t.Cleanup(s.Close)
	return hcloud.NewClient(hcloud.WithEndpoint(s.URL+"/v1"), hcloud.WithToken(fakecloud.DefaultToken)), w
}

// must fails the test if a call failed, and returns its first result.
func must[T any](v T, _ *hcloud.Response, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func wantError(t *testing.T, what string, err error, status int, code hcloud.ErrorCode) {
	t.Helper()
	var e hcloud.Error
	if !errors.As(err, &e) || e.Code != code || e.Response().StatusCode != status {
		t.Errorf("%s: got %v, want %d %s", what, err, status, code)
	}
}

// serverOpts is a request that works.
func serverOpts(name string) hcloud.ServerCreateOpts {
	return hcloud.ServerCreateOpts{
		Name: name, ServerType: &hcloud.ServerType{Name: "cx23"}, Image: &hcloud.Image{Name: "debian-13"},
		Location: &hcloud.Location{Name: "fsn1"},
	}
}

func getServer(t *testing.T, client *hcloud.Client, id int64) *hcloud.Server {
	t.Helper()
	s := must(client.Server.GetByID(t.Context(), id))(t)
	if s == nil {
		t.Fatalf("server %d is gone", id)
	}
	return s
}

func TestTheLifeOfAServerOverTheWire(t *testing.T) {
	t.Parallel()
	client, w := newWireClient(t, fakecloud.Options{Actions: "1s"})
	ctx := t.Context()
	group := must(client.PlacementGroup.Create(ctx, hcloud.PlacementGroupCreateOpts{Name: "my group", Type: hcloud.PlacementGroupTypeSpread}))(t)
	_, ipRange, _ := net.ParseCIDR("10.0.0.0/16")
	network := must(client.Network.Create(ctx, hcloud.NetworkCreateOpts{
		Name: "net", IPRange: ipRange,
		Subnets: []hcloud.NetworkSubnet{{Type: hcloud.NetworkSubnetTypeCloud, IPRange: ipRange, NetworkZone: hcloud.NetworkZoneEUCentral}},
	}))(t)
	opts := serverOpts("node-1")
	opts.PlacementGroup, opts.Networks = group.PlacementGroup, []*hcloud.Network{network}
	opts.Labels, opts.UserData = map[string]string{"role": "node"}, "#cloud-config\n"

	created := must(client.Server.Create(ctx, opts))(t)
	s := created.Server
	if s.Status != hcloud.ServerStatusInitializing || !s.Locked || created.RootPassword == "" {
		t.Errorf("created: status %s, locked %v, password %q", s.Status, s.Locked, created.RootPassword)
	}
	if created.Action.Command != "create_server" || created.Action.Status != hcloud.ActionStatusRunning {
		t.Errorf("action: %+v", created.Action)
	}
	var next []string
	for _, a := range created.NextActions {
		next = append(next, a.Command)
	}
	if !slices.Equal(next, []string{"start_server", "attach_to_network"}) {
		t.Errorf("next actions: %v", next)
	}
	if s.PublicNet.IPv4.IP.To4() == nil || s.PublicNet.IPv6.Network == nil || s.PublicNet.IPv4.ID == 0 {
		t.Errorf("public net: %+v", s.PublicNet)
	}
	if o := s.PublicNet.IPv4.IP.To4(); s.PublicNet.IPv4.DNSPtr != fmt.Sprintf("static.%d.%d.%d.%d.clients.your-server.de", o[3], o[2], o[1], o[0]) {
		t.Errorf("reverse DNS: %s", s.PublicNet.IPv4.DNSPtr)
	}
	_, _, err := client.Server.Poweroff(ctx, s)
	wantError(t, "power off while it is created", err, http.StatusLocked, hcloud.ErrorCodeLocked)

	w.clock.Step(3 * time.Second)
	s = getServer(t, client, s.ID)
	if s.Status != hcloud.ServerStatusRunning || s.Locked || len(s.PrivateNet) != 1 || s.PrivateNet[0].Network.ID != network.ID {
		t.Errorf("running: status %s, locked %v, networks %+v", s.Status, s.Locked, s.PrivateNet)
	}
	if s.ServerType.Name != "cx23" || s.Image.Name != "debian-13" || s.Location.Name != "fsn1" || s.PlacementGroup.Name != "my group" ||
		s.Labels["role"] != "node" || s.PrimaryDiskSize != s.ServerType.Disk || s.IncludedTraffic == 0 {
		t.Errorf("server: %+v", s)
	}

	action := must(client.Server.Shutdown(ctx, s))(t)
	w.clock.Step(2 * time.Second)
	if err := client.Action.WaitFor(ctx, action); err != nil {
		t.Fatal(err)
	}
	if got := getServer(t, client, s.ID).Status; got != hcloud.ServerStatusOff {
		t.Errorf("after the shutdown: %s", got)
	}
	if deleting := must(client.Server.DeleteWithResult(ctx, s))(t); deleting.Action.Command != "delete_server" {
		t.Errorf("deleting: %+v", deleting.Action)
	}
	if got := getServer(t, client, s.ID).Status; got != hcloud.ServerStatusDeleting {
		t.Errorf("while it is deleted: %s", got)
	}
	w.clock.Step(time.Second)
	if gone := must(client.Server.GetByID(ctx, s.ID))(t); gone != nil {
		t.Errorf("after its deletion: %+v", gone)
	}
	group.PlacementGroup = must(client.PlacementGroup.GetByID(ctx, group.PlacementGroup.ID))(t)
	if len(group.PlacementGroup.Servers) != 0 {
		t.Errorf("placement group: %v", group.PlacementGroup.Servers)
	}
	if ips := must(client.PrimaryIP.List(ctx, hcloud.PrimaryIPListOpts{}))(t); len(ips) != 0 {
		t.Errorf("%d primary IPs stay", len(ips))
	}
	actions := must(client.Server.Action.List(ctx, hcloud.ActionListOpts{Sort: []string{"command:desc"}}))(t)
	if len(actions) != 5 || actions[0].Command != "start_server" {
		t.Errorf("actions of servers: %v", actions)
	}
}

func TestEveryActionOfAServerOverTheWire(t *testing.T) {
	t.Parallel()
	client, w := newWireClient(t, fakecloud.Options{Actions: "1s"})
	ctx := t.Context()
	group := must(client.PlacementGroup.Create(ctx, hcloud.PlacementGroupCreateOpts{Name: "g", Type: hcloud.PlacementGroupTypeSpread}))(t).PlacementGroup
	iso := must(client.ISO.List(ctx, hcloud.ISOListOpts{Architecture: []hcloud.Architecture{hcloud.ArchitectureX86}}))(t)[0]
	s := must(client.Server.Create(ctx, serverOpts("a")))(t).Server
	w.clock.Step(time.Minute)
	off := func() {
		must(client.Server.Poweroff(ctx, s))(t)
		w.clock.Step(time.Second)
	}
	yes, no := true, false
	ptr, description := "a.example.com", "my image"
	for _, c := range []struct {
		command string
		before  func()
		do      func() (*hcloud.Action, *hcloud.Response, error)
		done    func(*hcloud.Server) bool
	}{
		{
			"stop_server", nil,
			func() (*hcloud.Action, *hcloud.Response, error) { return client.Server.Poweroff(ctx, s) },
			func(s *hcloud.Server) bool { return s.Status == hcloud.ServerStatusOff },
		},
		{
			"start_server", nil,
			func() (*hcloud.Action, *hcloud.Response, error) { return client.Server.Poweron(ctx, s) },
			func(s *hcloud.Server) bool { return s.Status == hcloud.ServerStatusRunning },
		},
		{
			"reboot_server", nil,
			func() (*hcloud.Action, *hcloud.Response, error) { return client.Server.Reboot(ctx, s) }, nil,
		},
		{
			"reset_server", nil,
			func() (*hcloud.Action, *hcloud.Response, error) { return client.Server.Reset(ctx, s) }, nil,
		},
		{
			"change_server_type", off,
			func() (*hcloud.Action, *hcloud.Response, error) {
				return client.Server.ChangeType(ctx, s, hcloud.ServerChangeTypeOpts{ServerType: &hcloud.ServerType{Name: "cx33"}, UpgradeDisk: false})
			},
			func(s *hcloud.Server) bool {
				return s.ServerType.Name == "cx33" && s.PrimaryDiskSize < s.ServerType.Disk && s.Status == hcloud.ServerStatusRunning
			},
		},
		{
			"add_to_placement_group", off,
			func() (*hcloud.Action, *hcloud.Response, error) {
				return client.Server.AddToPlacementGroup(ctx, s, group)
			},
			func(s *hcloud.Server) bool { return s.PlacementGroup != nil && s.PlacementGroup.Servers[0] == s.ID },
		},
		{
			"remove_from_placement_group", nil,
			func() (*hcloud.Action, *hcloud.Response, error) {
				return client.Server.RemoveFromPlacementGroup(ctx, s)
			},
			func(s *hcloud.Server) bool { return s.PlacementGroup == nil },
		},
		{
			"rebuild_server", nil,
			func() (*hcloud.Action, *hcloud.Response, error) {
				out, resp, err := client.Server.RebuildWithResult(ctx, s, hcloud.ServerRebuildOpts{Image: &hcloud.Image{Name: "ubuntu-24.04"}})
				if err == nil && out.RootPassword == "" {
					err = errors.New("no password")
				}
				return out.Action, resp, err
			},
			func(s *hcloud.Server) bool { return s.Image.Name == "ubuntu-24.04" },
		},
		{
			"enable_backup", nil,
			func() (*hcloud.Action, *hcloud.Response, error) { return client.Server.EnableBackup(ctx, s, "") },
			func(s *hcloud.Server) bool { return s.BackupWindow != "" },
		},
		{
			"create_image", nil,
			func() (*hcloud.Action, *hcloud.Response, error) {
				out, resp, err := client.Server.CreateImage(ctx, s, &hcloud.ServerCreateImageOpts{
					Type: hcloud.ImageTypeBackup, Description: &description, Labels: map[string]string{"a": "b"},
				})
				if err == nil && (out.Image.Status != hcloud.ImageStatusCreating || out.Image.Description != description || out.Image.BoundTo.ID != s.ID) {
					err = fmt.Errorf("image %+v", out.Image)
				}
				return out.Action, resp, err
			},
			nil,
		},
		{
			"disable_backup", nil,
			func() (*hcloud.Action, *hcloud.Response, error) { return client.Server.DisableBackup(ctx, s) },
			func(s *hcloud.Server) bool { return s.BackupWindow == "" },
		},
		{
			"attach_iso", nil,
			func() (*hcloud.Action, *hcloud.Response, error) { return client.Server.AttachISO(ctx, s, iso) },
			func(s *hcloud.Server) bool { return s.ISO != nil && s.ISO.ID == iso.ID },
		},
		{
			"detach_iso", nil,
			func() (*hcloud.Action, *hcloud.Response, error) { return client.Server.DetachISO(ctx, s) },
			func(s *hcloud.Server) bool { return s.ISO == nil },
		},
		{
			"enable_rescue", nil,
			func() (*hcloud.Action, *hcloud.Response, error) {
				out, resp, err := client.Server.EnableRescue(ctx, s, hcloud.ServerEnableRescueOpts{Type: hcloud.ServerRescueTypeLinux64})
				if err == nil && out.RootPassword == "" {
					err = errors.New("no password")
				}
				return out.Action, resp, err
			},
			func(s *hcloud.Server) bool { return s.RescueEnabled },
		},
		{
			"disable_rescue", nil,
			func() (*hcloud.Action, *hcloud.Response, error) { return client.Server.DisableRescue(ctx, s) },
			func(s *hcloud.Server) bool { return !s.RescueEnabled },
		},
		{
			"reset_password", nil,
			func() (*hcloud.Action, *hcloud.Response, error) {
				out, resp, err := client.Server.ResetPassword(ctx, s)
				if err == nil && out.RootPassword == "" {
					err = errors.New("no password")
				}
				return out.Action, resp, err
			},
			nil,
		},
		{
			"request_console", nil,
			func() (*hcloud.Action, *hcloud.Response, error) {
				out, resp, err := client.Server.RequestConsole(ctx, s)
				if err == nil && (!strings.HasPrefix(out.WSSURL, "wss://") || out.Password == "") {
					err = fmt.Errorf("console %+v", out)
				}
				return out.Action, resp, err
			},
			nil,
		},
		{
			"change_dns_ptr", nil,
			func() (*hcloud.Action, *hcloud.Response, error) {
				return client.Server.ChangeDNSPtr(ctx, s, s.PublicNet.IPv4.IP.String(), &ptr)
			},
			func(s *hcloud.Server) bool { return s.PublicNet.IPv4.DNSPtr == ptr },
		},
		{
			"change_protection", nil,
			func() (*hcloud.Action, *hcloud.Response, error) {
				return client.Server.ChangeProtection(ctx, s, hcloud.ServerChangeProtectionOpts{Delete: &yes, Rebuild: &yes})
			},
			func(s *hcloud.Server) bool { return s.Protection.Delete && s.Protection.Rebuild },
		},
	} {
		if c.before != nil {
			c.before()
		}
		action := must(c.do())(t)
		if action.Command != c.command || action.Status != hcloud.ActionStatusRunning || action.Resources[0].ID != s.ID {
			t.Errorf("%s: %+v", c.command, action)
		}
		if !getServer(t, client, s.ID).Locked {
			t.Errorf("%s: the server is not locked", c.command)
		}
		w.clock.Step(time.Second)
		if action = must(client.Server.Action.GetByID(ctx, action.ID))(t); action.Status != hcloud.ActionStatusSuccess || action.Progress != 100 {
			t.Errorf("%s: %+v", c.command, action)
		}
		if now := getServer(t, client, s.ID); now.Locked || c.done != nil && !c.done(now) {
			t.Errorf("%s has no effect: %+v", c.command, now)
		}
	}
	_, _, err := client.Server.DeleteWithResult(ctx, s)
	wantError(t, "delete", err, http.StatusLocked, hcloud.ErrorCodeProtected)
	must(client.Server.ChangeProtection(ctx, s, hcloud.ServerChangeProtectionOpts{Delete: &no, Rebuild: &no}))(t)
	w.clock.Step(time.Second)
	must(client.Server.DeleteWithResult(ctx, s))(t)
}

func TestErrorsOfServersOverTheWire(t *testing.T) {
	t.Parallel()
	client, w := newWireClient(t, fakecloud.Options{})
	ctx := t.Context()
	running := must(client.Server.Create(ctx, serverOpts("running")))(t).Server
	stopped := serverOpts("stopped")
	no := false
	stopped.StartAfterCreate = &no
	stopped.PublicNet = &hcloud.ServerCreatePublicNet{}
	off := must(client.Server.Create(ctx, stopped))(t).Server
	if off.Status != hcloud.ServerStatusOff || !off.PublicNet.IPv4.IsUnspecified() || !off.PublicNet.IPv6.IsUnspecified() {
		t.Errorf("server without interfaces: %s, %+v", off.Status, off.PublicNet)
	}

	_, _, err := client.Server.Create(ctx, serverOpts("running"))
	wantError(t, "name in use", err, http.StatusConflict, hcloud.ErrorCodeUniquenessError)
	for name, change := range map[string]func(*hcloud.ServerCreateOpts){
		"not a hostname":      func(o *hcloud.ServerCreateOpts) { o.Name = "not_a_hostname" },
		"no such server type": func(o *hcloud.ServerCreateOpts) { o.ServerType = &hcloud.ServerType{ID: 4711} },
		"no such image":       func(o *hcloud.ServerCreateOpts) { o.Image = &hcloud.Image{ID: 4711} },
		"user data too long":  func(o *hcloud.ServerCreateOpts) { o.UserData = strings.Repeat("x", 32<<10+1) },
		"volumes":             func(o *hcloud.ServerCreateOpts) { o.Volumes = []*hcloud.Volume{{ID: 1}} },
		"firewalls": func(o *hcloud.ServerCreateOpts) {
			o.Firewalls = []*hcloud.ServerCreateFirewall{{Firewall: hcloud.Firewall{ID: 1}}}
		},
	} {
		o := serverOpts("new")
		change(&o)
		_, _, err := client.Server.Create(ctx, o)
		wantError(t, name, err, http.StatusUnprocessableEntity, hcloud.ErrorCodeInvalidInput)
	}
	_, _, err = client.Server.ChangeType(ctx, running, hcloud.ServerChangeTypeOpts{ServerType: &hcloud.ServerType{Name: "cx33"}})
	wantError(t, "change the type of a running server", err, http.StatusUnprocessableEntity, hcloud.ErrorCodeServerNotStopped)
	_, _, err = client.Server.ChangeType(ctx, off, hcloud.ServerChangeTypeOpts{ServerType: &hcloud.ServerType{Name: "cax11"}})
	wantError(t, "another architecture", err, http.StatusUnprocessableEntity, hcloud.ErrorCodeInvalidServerType)
	_, _, err = client.Server.Poweron(ctx, off)
	wantError(t, "power on without an interface", err, http.StatusUnprocessableEntity, hcloud.ErrorUnsupportedError)
	_, _, err = client.Server.Poweron(ctx, &hcloud.Server{ID: 1})
	wantError(t, "server that is not there", err, http.StatusNotFound, hcloud.ErrorCodeNotFound)

	for body, want := range map[string]string{
		`{`:  "json_error",
		`{}`: "invalid_input",
		`{"name": "a", "server_type": "cx23", "image": "debian-13", "start_after_create": "yes"}`:      "invalid_input",
		`{"name": "a", "server_type": "cx23", "image": "debian-13", "public_net": {"ipv4": "1"}}`:      "invalid_input",
		`{"name": "a", "server_type": "cx23", "image": "debian-13", "firewalls": [{}]}`:                "invalid_input",
		`{"name": "a", "server_type": "cx23", "image": "debian-13", "labels": {"hetzner.cloud/a":""}}`: "invalid_input",
	} {
		status := http.StatusUnprocessableEntity
		if want == "json_error" {
			status = http.StatusBadRequest
		}
		if got := w.refused(http.MethodPost, "/servers", body, status); got != want {
			t.Errorf("%s: %s", body, got)
		}
	}
	if fields := w.do(http.MethodPost, "/servers", `{"name": "_", "networks": ["x"]}`, http.StatusUnprocessableEntity)["error"].(map[string]any)["details"].(map[string]any)["fields"].([]any); len(fields) != 4 {
		t.Errorf("every wrong field is told: %v", fields)
	}
}

func TestListsOfServers(t *testing.T) {
	t.Parallel()
	client, _ := newWireClient(t, fakecloud.Options{})
	ctx := t.Context()
	no := false
	for i, name := range []string{"c", "a", "b"} {
		o := serverOpts(name)
		o.Labels = map[string]string{"n": fmt.Sprint(i)}
		if name == "b" {
			o.StartAfterCreate = &no
		}
		must(client.Server.Create(ctx, o))(t)
	}
	for want, opts := range map[string]hcloud.ServerListOpts{
		"c a b":  {},
		"a b c":  {Sort: []string{"name"}},
		"c b a":  {Sort: []string{"name:desc"}},
		"b a c":  {Sort: []string{"created:desc", "id:desc"}},
		"c a":    {Status: []hcloud.ServerStatus{hcloud.ServerStatusRunning}},
		"b":      {Status: []hcloud.ServerStatus{hcloud.ServerStatusOff, hcloud.ServerStatusStarting}},
		"a":      {Name: "a"},
		"":       {Name: "d"},
		"a b":    {ListOpts: hcloud.ListOpts{LabelSelector: "n!=0"}},
		"c a  2": {ListOpts: hcloud.ListOpts{PerPage: 2}},
	} {
		var got []string
		for _, s := range must(client.Server.List(ctx, opts))(t) {
			got = append(got, s.Name)
		}
		if strings.Join(got, " ") != strings.TrimSuffix(want, "  2") {
			t.Errorf("%+v: %v, want %s", opts, got, want)
		}
	}
	_, _, err := client.Server.List(ctx, hcloud.ServerListOpts{Status: []hcloud.ServerStatus{"happy"}})
	wantError(t, "no such status", err, http.StatusUnprocessableEntity, hcloud.ErrorCodeInvalidInput)
	s := must(client.Server.GetByName(ctx, "a"))(t)
	s = must(client.Server.Update(ctx, s, hcloud.ServerUpdateOpts{Name: "z", Labels: map[string]string{"k": "v"}}))(t)
	if s.Name != "z" || s.Labels["k"] != "v" || len(s.Labels) != 1 {
		t.Errorf("update: %+v", s)
	}
	_, _, err = client.Server.Update(ctx, s, hcloud.ServerUpdateOpts{Name: "not_a_hostname"})
	wantError(t, "rename", err, http.StatusUnprocessableEntity, hcloud.ErrorCodeInvalidInput)
}

func TestMetricsOverTheWire(t *testing.T) {
	t.Parallel()
	client, w := newWireClient(t, fakecloud.Options{})
	ctx := t.Context()
	s := must(client.Server.Create(ctx, serverOpts("a")))(t).Server
	w.clock.Step(2 * time.Hour)
	now := w.clock.Now()
	m := must(client.Server.GetMetrics(ctx, s, hcloud.ServerGetMetricsOpts{
		Types: []hcloud.ServerMetricType{hcloud.ServerMetricCPU, hcloud.ServerMetricDisk, hcloud.ServerMetricNetwork},
		Start: now.Add(-time.Hour), End: now, Step: 60,
	}))(t)
	var names []string
	for name, values := range m.TimeSeries {
		names = append(names, name)
		if len(values) != 60 || values[0].Value == "" || values[0].Timestamp != float64(now.Add(-time.Hour).Unix()) {
			t.Errorf("%s: %d values, the first %+v", name, len(values), values[0])
		}
	}
	slices.Sort(names)
	if want := []string{
		"cpu", "disk.0.bandwidth.read", "disk.0.bandwidth.write", "disk.0.iops.read", "disk.0.iops.write",
		"network.0.bandwidth.in", "network.0.bandwidth.out", "network.0.pps.in", "network.0.pps.out",
	}; !slices.Equal(names, want) || m.Step != 60 {
		t.Errorf("step %v, series %v", m.Step, names)
	}
	path := fmt.Sprintf("/servers/%d/metrics", s.ID)
	period := "&start=2026-11-20T12:00:00Z&end=2026-11-20T13:00:00Z"
	for query, ok := range map[string]bool{
		"?type=cpu,disk" + period:                                            true,
		"?type=cpu&type=disk" + period:                                       true,
		"?type=cpu&step=7" + period:                                          true,
		"?type=cpu&start=2026-11-20T12:00:00+01:00&end=2026-11-20T13:00:00Z": true,
		"?type=ram" + period:                                                 false,
		"?" + period[1:]:                                                     false,
		"?type=cpu":                                                          false,
		"?type=cpu&step=-1" + period:                                         false,
		"?type=cpu&step=0" + period:                                          false,
		"?type=cpu&step=NaN" + period:                                        false,
		"?type=cpu&start=yesterday&end=2026-11-20T13:00:00Z":                 false,
		"?type=cpu&start=2026-11-20T13:00:00Z&end=2026-11-20T12:00:00Z":      false,
	} {
		if ok {
			w.do(http.MethodGet, path+query, nil, http.StatusOK)
		} else if got := w.refused(http.MethodGet, path+query, nil, http.StatusUnprocessableEntity); got != "invalid_input" {
			t.Errorf("%s: %s", query, got)
		}
	}
}

func TestPrimaryIPsOverTheWire(t *testing.T) {
	t.Parallel()
	client, w := newWireClient(t, fakecloud.Options{Actions: "1s"})
	ctx := t.Context()
	no := false
	opts := serverOpts("a")
	opts.StartAfterCreate, opts.PublicNet = &no, &hcloud.ServerCreatePublicNet{EnableIPv6: true}
	s := must(client.Server.Create(ctx, opts))(t).Server
	w.clock.Step(time.Second)

	created := must(client.PrimaryIP.Create(ctx, hcloud.PrimaryIPCreateOpts{
		Name: "ip", Type: hcloud.PrimaryIPTypeIPv4, Location: "fsn1", AutoDelete: &no, Labels: map[string]string{"a": "b"},
	}))(t)
	ip := created.PrimaryIP
	if created.Action != nil || ip.AssigneeType != "unassigned" || ip.AssigneeID != 0 || ip.Location.Name != "fsn1" || ip.AutoDelete {
		t.Errorf("created: %+v", ip)
	}
	addr := ip.IP.String()
	done := func(a *hcloud.Action, command string) {
		t.Helper()
		if a == nil || a.Command != command || a.Status != hcloud.ActionStatusRunning {
			t.Fatalf("action %+v, want %s", a, command)
		}
		w.clock.Step(time.Second)
		if a := must(client.PrimaryIP.Action.GetByID(ctx, a.ID))(t); a.Status != hcloud.ActionStatusSuccess {
			t.Fatalf("action %+v", a)
		}
	}
	done(must(client.PrimaryIP.Assign(ctx, hcloud.PrimaryIPAssignOpts{ID: ip.ID, AssigneeID: s.ID, AssigneeType: "server"}))(t), "assign_primary_ip")
	if got := getServer(t, client, s.ID); got.PublicNet.IPv4.IP.String() != addr {
		t.Errorf("the server has %s", got.PublicNet.IPv4.IP)
	}
	_, _, err := client.PrimaryIP.Assign(ctx, hcloud.PrimaryIPAssignOpts{ID: ip.ID, AssigneeID: s.ID, AssigneeType: "server"})
	wantError(t, "assign again", err, http.StatusUnprocessableEntity, hcloud.ErrorCodePrimaryIPAlreadyAssigned)
	_, err = client.PrimaryIP.Delete(ctx, ip)
	wantError(t, "delete", err, http.StatusUnprocessableEntity, "must_be_unassigned")
	done(must(client.PrimaryIP.ChangeDNSPtr(ctx, hcloud.PrimaryIPChangeDNSPtrOpts{ID: ip.ID, IP: addr, DNSPtr: "a.example.com"}))(t), "change_dns_ptr")
	if got := getServer(t, client, s.ID).PublicNet.IPv4.DNSPtr; got != "a.example.com" {
		t.Errorf("the server shows the name %q", got)
	}
	done(must(client.PrimaryIP.Unassign(ctx, ip.ID))(t), "unassign_primary_ip")
	done(must(client.PrimaryIP.ChangeProtection(ctx, hcloud.PrimaryIPChangeProtectionOpts{ID: ip.ID, Delete: true}))(t), "change_protection")
	_, err = client.PrimaryIP.Delete(ctx, ip)
	wantError(t, "delete what is protected", err, http.StatusLocked, hcloud.ErrorCodeProtected)

	labels := map[string]string{"c": "d"}
	updated := must(client.PrimaryIP.Update(ctx, ip, hcloud.PrimaryIPUpdateOpts{Name: "renamed", Labels: &labels}))(t)
	if updated.Name != "renamed" || updated.Labels["c"] != "d" || !updated.Protection.Delete {
		t.Errorf("updated: %+v", updated)
	}
	v6 := s.PublicNet.IPv6.Network.String()
	for query, want := range map[string]string{
		"": "2", "?ip=" + addr: "renamed", "?ip=192.0.2.1": "0", "?ip=nonsense": "0", "?name=renamed": "renamed",
		"?label_selector=c=d": "renamed", "?ip=" + strings.TrimSuffix(v6, "/64") + "1": "1", "?ip=" + v6: "1", "?sort=created:desc": "2",
	} {
		list := names(w.get("/primary_ips"+query), "primary_ips")
		if got := fmt.Sprint(len(list)); got != want && (len(list) != 1 || list[0] != want) {
			t.Errorf("%s: %v, want %s", query, list, want)
		}
	}
	if got := w.refused(http.MethodGet, "/primary_ips?sort=name", nil, http.StatusUnprocessableEntity); got != "invalid_input" {
		t.Errorf("sort by name: %s", got)
	}

	done(must(client.PrimaryIP.ChangeProtection(ctx, hcloud.PrimaryIPChangeProtectionOpts{ID: ip.ID}))(t), "change_protection")
	if _, err := client.PrimaryIP.Delete(ctx, ip); err != nil {
		t.Fatal(err)
	}
	withServer := must(client.PrimaryIP.Create(ctx, hcloud.PrimaryIPCreateOpts{
		Name: "other", Type: hcloud.PrimaryIPTypeIPv4, AssigneeType: "server", AssigneeID: &s.ID,
	}))(t)
	done(withServer.Action, "assign_primary_ip")
	if got := must(client.PrimaryIP.GetByName(ctx, "other"))(t); got.AssigneeID != s.ID || got.AssigneeType != "server" {
		t.Errorf("assigned at its creation: %+v", got)
	}
	for _, body := range []string{
		`{"name": "x", "type": "ipv4"}`, `{"name": "x", "type": "ipv5", "location": "fsn1"}`,
		fmt.Sprintf(`{"name": "x", "type": "ipv4", "assignee_id": %d}`, s.ID), `{"name": "", "type": "ipv4", "location": "fsn1"}`,
		`{"name": "x", "type": "ipv4", "location": "fsn1", "assignee_type": "load_balancer", "assignee_id": 1}`,
	} {
		if got := w.refused(http.MethodPost, "/primary_ips", body, http.StatusUnprocessableEntity); got != "invalid_input" {
			t.Errorf("%s: %s", body, got)
		}
	}
}

func TestPlacementGroupsOverTheWire(t *testing.T) {
	t.Parallel()
	client, w := newWireClient(t, fakecloud.Options{})
	ctx := t.Context()
	for _, name := range []string{"b", "a"} {
		out := must(client.PlacementGroup.Create(ctx, hcloud.PlacementGroupCreateOpts{
			Name: name, Type: hcloud.PlacementGroupTypeSpread, Labels: map[string]string{"is": name},
		}))(t)
		if out.Action != nil || out.PlacementGroup.Name != name {
			t.Errorf("created: %+v", out)
		}
	}
	for query, want := range map[string]string{
		"": "b a", "?sort=name": "a b", "?type=spread": "b a", "?name=a": "a", "?label_selector=is=b": "b", "?sort=created:desc&sort=id": "b a",
	} {
		if got := strings.Join(names(w.get("/placement_groups"+query), "placement_groups"), " "); got != want {
			t.Errorf("%s: %s, want %s", query, got, want)
		}
	}
	w.refused(http.MethodGet, "/placement_groups?type=pack", nil, http.StatusUnprocessableEntity)
	g := must(client.PlacementGroup.GetByName(ctx, "a"))(t)
	opts := serverOpts("s")
	opts.PlacementGroup = g
	s := must(client.Server.Create(ctx, opts))(t).Server
	g = must(client.PlacementGroup.Update(ctx, g, hcloud.PlacementGroupUpdateOpts{Name: "c", Labels: map[string]string{}}))(t)
	if g.Name != "c" || len(g.Labels) != 0 || !slices.Equal(g.Servers, []int64{s.ID}) {
		t.Errorf("updated: %+v", g)
	}
	if got := getServer(t, client, s.ID).PlacementGroup; got == nil || got.Name != "c" {
		t.Errorf("the server shows %+v", got)
	}
	_, _, err := client.PlacementGroup.Update(ctx, g, hcloud.PlacementGroupUpdateOpts{Name: "b"})
	wantError(t, "name in use", err, http.StatusConflict, hcloud.ErrorCodeUniquenessError)
	if _, err := client.PlacementGroup.Delete(ctx, g); err != nil {
		t.Fatal(err)
	}
	if got := getServer(t, client, s.ID).PlacementGroup; got != nil {
		t.Errorf("the server shows the deleted group %+v", got)
	}
}

func TestEarlierDatesOfTheAPI(t *testing.T) {
	t.Parallel()
	for date, want := range map[string]struct {
		datacenter   bool
		assigneeType string
		deletes      bool // an assigned Primary IP
	}{
		"":           {false, "unassigned", false},
		"2026-08-15": {false, "server", false},
		"2026-06-15": {true, "server", false},
		"2026-04-15": {true, "server", true},
	} {
		client, w := newWireClient(t, fakecloud.Options{APIDate: date})
		ctx := context.Background()
		no := false
		opts := serverOpts("a")
		opts.StartAfterCreate = &no
		s := must(client.Server.Create(ctx, opts))(t).Server
		ip := must(client.PrimaryIP.Create(ctx, hcloud.PrimaryIPCreateOpts{Name: "ip", Type: hcloud.PrimaryIPTypeIPv6, Location: "fsn1"}))(t).PrimaryIP
		shown := w.get(fmt.Sprintf("/primary_ips/%d", ip.ID))["primary_ip"].(map[string]any)
		server := w.get(fmt.Sprintf("/servers/%d", s.ID))["server"].(map[string]any)
		for what, object := range map[string]map[string]any{"primary IP": shown, "server": server} {
			d, ok := object["datacenter"].(map[string]any)
			if ok != want.datacenter || ok && d["location"].(map[string]any)["name"] != "fsn1" {
				t.Errorf("%s: datacenter of a %s: %v", date, what, d)
			}
		}
		if got := shown["assignee_type"]; got != want.assigneeType {
			t.Errorf("%s: assignee_type %s", date, got)
		}
		if _, err := client.PrimaryIP.Delete(ctx, &hcloud.PrimaryIP{ID: s.PublicNet.IPv4.ID}); (err == nil) != want.deletes {
			t.Errorf("%s: deleting an assigned Primary IP: %v", date, err)
		}
	}
}
