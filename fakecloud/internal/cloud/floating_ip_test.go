package cloud

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"
)

// checkFloatingIPs checks that Floating IPs and servers agree, and that no address belongs to two resources.
// It adds the addresses to held.
func checkFloatingIPs(t *testing.T, st *State, held map[netip.Addr]int64) {
	t.Helper()
	for f := range st.FloatingIPs.All() {
		if other, twice := held[f.IP.Addr()]; twice {
			t.Errorf("%s belongs to Floating IP %d and %d", f.IP, f.ID, other)
		}
		held[f.IP.Addr()] = f.ID
		if f.Server == 0 {
			continue
		}
		if s, ok := st.Servers.Get(f.Server); !ok || !slices.Contains(s.FloatingIPs, f.ID) {
			t.Errorf("Floating IP %d is assigned to server %d, which does not show it", f.ID, f.Server)
		}
	}
	for s := range st.Servers.All() {
		if !slices.IsSorted(s.FloatingIPs) {
			t.Errorf("server %d has the Floating IPs %v", s.ID, s.FloatingIPs)
		}
		for _, id := range s.FloatingIPs {
			if f, ok := st.FloatingIPs.Get(id); !ok || f.Server != s.ID {
				t.Errorf("server %d shows Floating IP %d, which is not assigned to it", s.ID, id)
			}
		}
	}
}

// floatingIPOperations are the operations of the model on Floating IPs.
func (m *model) floatingIPOperations() []func() {
	id := func() int64 { st := m.View(); return m.one(idsOf(&st.FloatingIPs)) }
	return []func(){
		func() {
			in := CreateFloatingIP{Type: []IPType{IPv4, IPv6}[m.rnd.IntN(2)], HomeLocation: "fsn1"}
			if m.coin() {
				in.HomeLocation, in.Server = "", m.server()
			}
			_, _, _, _ = m.CreateFloatingIP(in)
		},
		func() { _, _, _ = m.AssignFloatingIP(id(), m.server()) },
		func() { _, _, _ = m.UnassignFloatingIP(id()) },
		func() { _ = m.DeleteFloatingIP(id(), m.coin()) },
	}
}

func mustFloatingIP(t *testing.T, p Project, in CreateFloatingIP) *FloatingIP {
	t.Helper()
	f, _, _, err := p.CreateFloatingIP(in)
	check(t, err)
	return f
}

// csi-driver issue 418; the Ansible collection's changelog, 5.3.0.
func TestAServerIsLockedWhileItsFloatingIPChanges(t *testing.T) {
	t.Parallel()
	p, clk := serverCloud(t, Options{})
	s := offServer(t, p, clk, smallServer("a")).ID
	f := mustFloatingIP(t, p, CreateFloatingIP{Type: IPv6, HomeLocation: "fsn1"})
	did(p.AssignFloatingIP(f.ID, s))(t)
	_, _, err := p.DeleteServer(s)
	wantCode(t, "deletion while it is assigned", err, "locked")
	clk.Step(time.Second)
	did(p.UnassignFloatingIP(f.ID))(t)
	_, _, err = p.DeleteServer(s)
	wantCode(t, "deletion while it is unassigned", err, "locked")
	clk.Step(time.Second)
	did(p.DeleteServer(s))(t)
	_, _, err = p.AssignFloatingIP(f.ID, s)
	wantCode(t, "assignment while it is deleted", err, "locked")
}

func TestAnIPv6FloatingIPHasAtMostAHundredReverseDNSEntries(t *testing.T) {
	t.Parallel()
	p, _ := serverCloud(t, Options{Profile: ProfileInstant})
	f := mustFloatingIP(t, p, CreateFloatingIP{Type: IPv6, HomeLocation: "fsn1"})
	ip := f.IP.Addr()
	for i := range MaxDNSPtrsPerFloatingIP {
		ip = ip.Next()
		did(p.ChangeFloatingIPDNSPtr(f.ID, ChangeDNSPtr{IP: ip, Ptr: new(fmt.Sprintf("h%d.example.com", i))}))(t)
	}
	_, _, err := p.ChangeFloatingIPDNSPtr(f.ID, ChangeDNSPtr{IP: ip.Next(), Ptr: new("more.example.com")})
	wantCode(t, "one more", err, "resource_limit_exceeded")
	if _, _, err := p.ChangeFloatingIPDNSPtr(f.ID, ChangeDNSPtr{IP: ip}); err != nil {
		t.Errorf("removing one: %v", err)
	}
	if got, _ := p.View().FloatingIPs.Get(f.ID); len(got.DNSPtr) != MaxDNSPtrsPerFloatingIP-1 {
		t.Errorf("%d entries", len(got.DNSPtr))
	}
}
