package cloud

import (
	"net/netip"
	"testing"
	"time"
)

func TestAServersPrimaryIPsAreCreatedAndDeletedWithIt(t *testing.T) {
	t.Parallel()
	p, clk := serverCloud(t, Options{})
	s := runningServer(t, p, clk, smallServer("a"))
	v4, _ := p.View().PrimaryIPs.Get(s.PublicIPv4)
	v6, _ := p.View().PrimaryIPs.Get(s.PublicIPv6)
	for _, ip := range []*PrimaryIP{v4, v6} {
		if !ip.AutoDelete || ip.Assignee != s.Ref() || ip.Name == "" || ip.Location.Name != "fsn1" {
			t.Errorf("primary IP: %+v", ip)
		}
	}
	if v4.IP.Bits() != 32 || v6.IP.Bits() != 64 || len(v6.DNSPtr) != 0 {
		t.Errorf("addresses %s, %s", v4.IP, v6.IP)
	}
	if _, _, err := p.DeleteServer(s.ID); err != nil {
		t.Fatal(err)
	}
	clk.Step(time.Second)
	if n := p.View().PrimaryIPs.Len(); n != 0 || p.cloud.ips.v4.used.Len()+p.cloud.ips.v6.used.Len() != 0 {
		t.Errorf("%d primary IPs stay", n)
	}
}

func TestAPrimaryIPMovesBetweenServersThatAreOff(t *testing.T) {
	t.Parallel()
	p, clk := serverCloud(t, Options{})
	v6only := smallServer("a")
	v6only.IPv4.Enabled = false
	a := offServer(t, p, clk, v6only).ID
	v6only.Name = "b"
	b := offServer(t, p, clk, v6only).ID
	v6only.Name, v6only.Location = "elsewhere", "ash"
	elsewhere := offServer(t, p, clk, v6only).ID

	ip, action, _, err := p.CreatePrimaryIP(CreatePrimaryIP{Name: "ip", Type: IPv4, Assignee: a})
	if err != nil || action == 0 {
		t.Fatal(action, err)
	}
	if server(t, p, a).PublicIPv4 != 0 {
		t.Error("assigned before the action has ended")
	}
	_, _, err = p.PowerOnServer(a)
	wantCode(t, "power on while an IP is assigned", err, "locked")
	_, err = p.UpdatePrimaryIP(ip.ID, UpdatePrimaryIP{})
	wantCode(t, "update while it is assigned", err, "conflict")
	wantCode(t, "delete while it is assigned", p.DeletePrimaryIP(ip.ID, false), "conflict")
	clk.Step(time.Second)
	if server(t, p, a).PublicIPv4 != ip.ID {
		t.Fatal("not assigned")
	}

	_, _, err = p.AssignPrimaryIP(ip.ID, b)
	wantCode(t, "assign what is assigned", err, "primary_ip_already_assigned")
	wantCode(t, "delete what is assigned", p.DeletePrimaryIP(ip.ID, false), "must_be_unassigned")
	if _, _, err := p.PowerOnServer(a); err != nil {
		t.Fatal(err)
	}
	clk.Step(time.Second)
	_, _, err = p.UnassignPrimaryIP(ip.ID)
	wantCode(t, "unassign from a running server", err, "server_not_stopped")
	wantCode(t, "delete, as it was before 2026-05-01, from a running server", p.DeletePrimaryIP(ip.ID, true), "server_not_stopped")
	if _, _, err := p.PowerOffServer(a); err != nil {
		t.Fatal(err)
	}
	clk.Step(time.Second)
	if _, _, err := p.UnassignPrimaryIP(ip.ID); err != nil {
		t.Fatal(err)
	}
	clk.Step(time.Second)
	if server(t, p, a).PublicIPv4 != 0 {
		t.Error("the server still has the address")
	}
	_, _, err = p.UnassignPrimaryIP(ip.ID)
	wantCode(t, "unassign an unassigned one", err, "unsupported_error")
	_, _, err = p.AssignPrimaryIP(ip.ID, elsewhere)
	wantCode(t, "assign to a server elsewhere", err, "assignee_id")
	_, _, err = p.AssignPrimaryIP(ip.ID, 1)
	wantCode(t, "assign to an unknown server", err, "assignee_id")
	if _, _, err := p.AssignPrimaryIP(ip.ID, b); err != nil {
		t.Fatal(err)
	}
	clk.Step(time.Second)
	if server(t, p, b).PublicIPv4 != ip.ID {
		t.Error("not assigned to the other server")
	}
	if err := p.DeletePrimaryIP(ip.ID, true); err != nil {
		t.Fatal(err)
	}
	if server(t, p, b).PublicIPv4 != 0 {
		t.Error("the server still has the deleted address")
	}
	checkInvariants(t, p.View(), p.cloud)
}

func TestTheAddressOfALoadBalancerTargetStays(t *testing.T) {
	t.Parallel()
	for name, private := range map[string]bool{"public": false, "private": true} {
		p, clk := serverCloud(t, Options{})
		s := offServer(t, p, clk, smallServer("a"))
		_, err := p.update(func(tx *Tx) error {
			lb := &LoadBalancer{Meta: tx.NewMeta("lb", nil), Targets: []LoadBalancerTarget{{
				Type: "label_selector", Selector: "a", UsePrivateIP: private,
				Targets: Selected{}.with(&LoadBalancerTarget{Type: "server", Server: s.ID, UsePrivateIP: private}),
			}}}
			tx.LoadBalancers.Put(lb)
			tx.Servers.Update(s.ID, func(s *Server) { s.LoadBalancers = []int64{lb.ID} })
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		want := "server_is_load_balancer_target"
		if private {
			want = ""
		}
		_, _, err = p.UnassignPrimaryIP(s.PublicIPv4)
		wantCode(t, name, err, want)
		if !private {
			_, _, err = p.UnassignPrimaryIP(s.PublicIPv6)
			wantCode(t, "IPv6", err, "")
		}
	}
}

func TestReverseDNS(t *testing.T) {
	t.Parallel()
	p, clk := serverCloud(t, Options{PublicIPv4: netip.MustParsePrefix("203.0.113.0/24")})
	s := runningServer(t, p, clk, smallServer("a"))
	v4, _ := p.View().PrimaryIPs.Get(s.PublicIPv4)
	v6, _ := p.View().PrimaryIPs.Get(s.PublicIPv6)
	one, two := v4.IP.Addr(), v6.IP.Addr().Next()
	entry := func(ip *PrimaryIP, a netip.Addr) string {
		ip, _ = p.View().PrimaryIPs.Get(ip.ID)
		return ip.DNSPtr.Of(a)
	}
	if got := entry(v4, one); got != "static.1.113.0.203.clients.your-server.de" {
		t.Errorf("default: %q", got)
	}
	name := "a.example.com"
	for _, change := range []func(netip.Addr, *string) error{
		func(a netip.Addr, ptr *string) error {
			_, _, err := p.ChangeServerDNSPtr(s.ID, ChangeDNSPtr{a, ptr})
			return err
		},
		func(a netip.Addr, ptr *string) error {
			ip := v4
			if a.Is6() {
				ip = v6
			}
			_, _, err := p.ChangePrimaryIPDNSPtr(ip.ID, ChangeDNSPtr{a, ptr})
			return err
		},
	} {
		for _, c := range []struct {
			ip   *PrimaryIP
			addr netip.Addr
			ptr  *string
			want string
		}{
			{v4, one, &name, name}, {v6, two, &name, name},
			{v4, one, nil, "static.1.113.0.203.clients.your-server.de"}, {v6, two, nil, ""},
		} {
			if err := change(c.addr, c.ptr); err != nil {
				t.Fatal(err)
			}
			clk.Step(time.Second)
			if got := entry(c.ip, c.addr); got != c.want {
				t.Errorf("%s: %q, want %q", c.addr, got, c.want)
			}
		}
		bad := "not a name"
		wantCode(t, "bad name", change(one, &bad), "dns_ptr")
		wantCode(t, "address of another", change(netip.MustParseAddr("192.0.2.1"), &name), "ip")
	}
}

func TestProtectionOfAPrimaryIPNeedsAutoDeleteOff(t *testing.T) {
	t.Parallel()
	p, clk := serverCloud(t, Options{})
	ip, _, _, err := p.CreatePrimaryIP(CreatePrimaryIP{Name: "ip", Type: IPv4, Location: "fsn1", AutoDelete: true})
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = p.ChangePrimaryIPProtection(ip.ID, true)
	wantCode(t, "protect what is deleted automatically", err, "delete")
	yes, no, name := true, false, "renamed"
	if _, err := p.UpdatePrimaryIP(ip.ID, UpdatePrimaryIP{UpdateResource{Name: &name}, &no}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := p.ChangePrimaryIPProtection(ip.ID, true); err != nil {
		t.Fatal(err)
	}
	clk.Step(time.Second)
	_, err = p.UpdatePrimaryIP(ip.ID, UpdatePrimaryIP{AutoDelete: &yes})
	wantCode(t, "delete automatically what is protected", err, "auto_delete")
	wantCode(t, "delete", p.DeletePrimaryIP(ip.ID, false), "protected")
	if _, _, err := p.ChangePrimaryIPProtection(ip.ID, false); err != nil {
		t.Fatal(err)
	}
	clk.Step(time.Second)
	if err := p.DeletePrimaryIP(ip.ID, false); err != nil {
		t.Fatal(err)
	}
	wantCode(t, "delete again", p.DeletePrimaryIP(ip.ID, false), "not_found")
}
