package api_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
)

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
	done(must(client.PrimaryIP.Assign(ctx, hcloud.PrimaryIPAssignOpts{ID: ip.ID, AssigneeID: s.ID, AssigneeType: "server"}))(t),
		"assign_primary_ip")
	if got := getServer(t, client, s.ID); got.PublicNet.IPv4.IP.String() != addr {
		t.Errorf("the server has %s", got.PublicNet.IPv4.IP)
	}
	_, _, err := client.PrimaryIP.Assign(ctx, hcloud.PrimaryIPAssignOpts{ID: ip.ID, AssigneeID: s.ID, AssigneeType: "server"})
	wantError(t, "assign again", err, http.StatusUnprocessableEntity, hcloud.ErrorCodePrimaryIPAlreadyAssigned)
	_, err = client.PrimaryIP.Delete(ctx, ip)
	wantError(t, "delete", err, http.StatusUnprocessableEntity, "must_be_unassigned")
	done(must(client.PrimaryIP.ChangeDNSPtr(ctx, hcloud.PrimaryIPChangeDNSPtrOpts{ID: ip.ID, IP: addr, DNSPtr: "a.example.com"}))(t),
		"change_dns_ptr")
	if got := getServer(t, client, s.ID).PublicNet.IPv4.DNSPtr; got != "a.example.com" {
		t.Errorf("the server shows the name %q", got)
	}
	done(must(client.PrimaryIP.Unassign(ctx, ip.ID))(t), "unassign_primary_ip")
	done(must(client.PrimaryIP.ChangeProtection(ctx, hcloud.PrimaryIPChangeProtectionOpts{ID: ip.ID, Delete: true}))(t),
		"change_protection")
	_, err = client.PrimaryIP.Delete(ctx, ip)
	wantError(t, "delete a protected one", err, http.StatusLocked, hcloud.ErrorCodeProtected)

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
		ip := must(client.PrimaryIP.Create(ctx, hcloud.PrimaryIPCreateOpts{Name: "ip", Type: hcloud.PrimaryIPTypeIPv6, Location: "fsn1",
			AssigneeType: "server"}))(t).PrimaryIP
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
