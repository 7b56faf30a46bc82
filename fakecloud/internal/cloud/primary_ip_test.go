package cloud

import (
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
	did(p.DeleteServer(s.ID))(t)
	clk.Step(time.Second)
	if n := p.View().PrimaryIPs.Len(); n != 0 || p.cloud.ips.v4.used.Len()+p.cloud.ips.v6.used.Len() != 0 {
		t.Errorf("%d primary IPs stay", n)
	}
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
		check(t, err)
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
