package nodeinfo

import (
	"net"
	"net/netip"
	"testing"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
)

func TestPublicIPv6IsTheFirstAddressOfTheServersNetwork(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{"2001:db8:1:2::": "2001:db8:1:2::1", "2001:db8::1": "2001:db8::1"} {
		s := &hcloud.Server{PublicNet: hcloud.ServerPublicNet{IPv6: hcloud.ServerPublicNetIPv6{IP: net.ParseIP(in)}}}
		if got := PublicIPv6(s); got != netip.MustParseAddr(want) {
			t.Errorf("%s: %v", in, got)
		}
	}
}

func TestTheAddressesOfAServer(t *testing.T) {
	t.Parallel()
	attached := func(id int64, ip net.IP) hcloud.ServerPrivateNet {
		return hcloud.ServerPrivateNet{Network: &hcloud.Network{ID: id}, IP: ip}
	}
	server := &hcloud.Server{PrivateNet: []hcloud.ServerPrivateNet{{IP: net.ParseIP("10.0.0.9")}, attached(6, net.ParseIP("10.6.0.1")),
		attached(5, nil), attached(5, net.ParseIP("10.5.0.1"))}}
	for id, want := range map[int64]string{5: "10.5.0.1", 6: "10.6.0.1", 7: "invalid IP"} {
		if got := PrivateIP(server, id); got.String() != want {
			t.Errorf("network %d: %s, want %s", id, got, want)
		}
	}
	if v4, v6 := PublicIPv4(server), PublicIPv6(server); v4.IsValid() || v6.IsValid() {
		t.Errorf("a server without a public interface has %s, %s", v4, v6)
	}
}
