package inventory

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"k8s.io/utils/clock"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/apicall"
)

// maxNetworkAge is the age at which Confirm asks the API again.
const maxNetworkAge = 30 * time.Second

// Network resolves HCLOUD_NETWORK, an ID or a name, to an ID. It does so when the ID is first
// needed, so that the CCM can start before the cloud is reachable. A network can be deleted, and another one made
// under its name. So an ID is resolved again once something shows that it may be gone.
type Network struct {
	client   *hcloud.Client
	clock    clock.PassiveClock
	IDOrName string

	resolving apicall.KeyLock // held during a request, with the empty key

	known atomic.Pointer[confirmed] // nil: the API must be asked
}

// confirmed is an ID, and the time at which the API confirmed it.
type confirmed struct {
	id int64
	at time.Time
}

// NewNetwork returns the network with this ID or name; "": none.
func NewNetwork(client *hcloud.Client, clk clock.PassiveClock, idOrName string) *Network {
	return &Network{client: client, clock: clk, IDOrName: idOrName}
}

// Configured reports whether a network is configured.
func (r *Network) Configured() bool { return r.IDOrName != "" }

// ID returns the network's ID, or 0 if none is configured.
func (r *Network) ID(ctx context.Context) (int64, error) { return r.resolve(ctx, false) }

// Confirm is ID for a caller that doubts the cached ID, because a server is not attached to that
// network. It asks the API again unless it did so within maxNetworkAge.
func (r *Network) Confirm(ctx context.Context) (int64, error) { return r.resolve(ctx, true) }

func (r *Network) resolve(ctx context.Context, confirm bool) (int64, error) {
	if !r.Configured() {
		return 0, nil
	}
	unlock, err := r.resolving.Lock(ctx, "")
	if err != nil {
		return 0, err
	}
	defer unlock()
	if known := r.known.Load(); known != nil && (!confirm || r.clock.Since(known.at) < maxNetworkAge) {
		return known.id, nil
	}
	network, _, err := r.client.Network.Get(ctx, r.IDOrName)
	if err != nil {
		return 0, fmt.Errorf("finding the network HCLOUD_NETWORK=%q: %w", r.IDOrName, err)
	}
	if network == nil {
		r.Forget()
		return 0, fmt.Errorf("HCLOUD_NETWORK=%q: the project of this token has no network with that ID or name", r.IDOrName)
	}
	r.known.Store(&confirmed{network.ID, r.clock.Now()})
	return network.ID, nil
}

// Forget makes the next call of ID ask the API.
func (r *Network) Forget() { r.known.Store(nil) }
