package ccm

import (
	"context"
	"fmt"
	"net/netip"
	"sync"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
)

// networkResolver resolves HCLOUD_NETWORK, an ID or a name, to an ID. It does so once, when the ID is
// first needed, so that the CCM can start before the cloud is reachable.
type networkResolver struct {
	client   *hcloud.Client
	idOrName string

	mu sync.Mutex
	id int64
}

// configured reports whether a network is configured.
func (r *networkResolver) configured() bool { return r.idOrName != "" }

// ID returns the network's ID, or 0 if none is configured.
func (r *networkResolver) ID(ctx context.Context) (int64, error) {
	if !r.configured() {
		return 0, nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.id != 0 {
		return r.id, nil
	}
	network, _, err := r.client.Network.Get(ctx, r.idOrName)
	if err != nil {
		return 0, fmt.Errorf("finding the network HCLOUD_NETWORK=%q: %w", r.idOrName, err)
	}
	if network == nil {
		return 0, fmt.Errorf("HCLOUD_NETWORK=%q: the project of this token has no network with that ID or name", r.idOrName)
	}
	r.id = network.ID
	return r.id, nil
}

// privateIP returns the server's address in the network, or the zero Addr if it is not attached.
func privateIP(s *hcloud.Server, networkID int64) netip.Addr {
	for _, n := range s.PrivateNet {
		if n.Network != nil && n.Network.ID == networkID {
			if a, ok := netip.AddrFromSlice(n.IP); ok {
				return a.Unmap()
			}
		}
	}
	return netip.Addr{}
}

// publicIPv4 returns the server's public IPv4 address, or the zero Addr if it has none.
func publicIPv4(s *hcloud.Server) netip.Addr {
	if s.PublicNet.IPv4.IsUnspecified() {
		return netip.Addr{}
	}
	a, _ := netip.AddrFromSlice(s.PublicNet.IPv4.IP)
	return a.Unmap()
}

// publicIPv6 returns the first address of the server's public IPv6 network, or the zero Addr if it
// has none. The API gives a server a /64, and images configure <network>::1.
func publicIPv6(s *hcloud.Server) netip.Addr {
	if s.PublicNet.IPv6.IsUnspecified() {
		return netip.Addr{}
	}
	a, ok := netip.AddrFromSlice(s.PublicNet.IPv6.IP)
	if !ok {
		return netip.Addr{}
	}
	b := a.As16()
	b[15] |= 1
	return netip.AddrFrom16(b)
}
