package api_test

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
)

// newWireClient returns a client over a real socket. Only the test moves the cloud's clock.
func newWireClient(t *testing.T, o fakecloud.Options) (*hcloud.Client, *wire) {
	t.Helper()
	w := newWire(t, o)
	if o.APIDate != "" {
		// The API document is of July 2026. It does not have what was removed before.
		w.handler = w.cloud.Handler()
	}
	s := httptest.NewServer(w.handler)
	t.Cleanup(s.Close)
	return hcloud.NewClient(hcloud.WithEndpoint(s.URL+"/v1"), hcloud.WithToken(fakecloud.DefaultToken),
		hcloud.WithPollOpts(hcloud.PollOpts{BackoffFunc: hcloud.ConstantBackoff(0)}),
		hcloud.WithRetryOpts(hcloud.RetryOpts{BackoffFunc: hcloud.ConstantBackoff(0), MaxRetries: 5})), w
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

// serverOpts returns a valid request.
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
	group := must(client.PlacementGroup.Create(ctx, hcloud.PlacementGroupCreateOpts{Name: "my group",
		Type: hcloud.PlacementGroupTypeSpread}))(t)
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
	if o := s.PublicNet.IPv4.IP.To4(); s.PublicNet.IPv4.DNSPtr != fmt.Sprintf("static.%d.%d.%d.%d.clients.your-server.de", o[3], o[2], o[1],
		o[0]) {
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
		t.Errorf("%d primary IPs were not deleted", len(ips))
	}
	actions := must(client.Server.Action.List(ctx, hcloud.ActionListOpts{Sort: []string{"command:desc"}}))(t)
	if len(actions) != 5 || actions[0].Command != "start_server" {
		t.Errorf("actions of servers: %v", actions)
	}
}
