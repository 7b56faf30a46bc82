package ccm

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"k8s.io/utils/clock"
)

// maxNetworkAge is the age from which confirm asks the API again.
const maxNetworkAge = 30 * time.Second

// networkResolver resolves HCLOUD_NETWORK, an ID or a name, to an ID. It does so when the ID is first
// needed, so that the CCM can start before the cloud is reachable. A network can be deleted and made
// anew under its name. So an ID is resolved again once something shows that it may be gone.
type networkResolver struct {
	client   *hcloud.Client
	clock    clock.PassiveClock
	idOrName string

	resolving keyLock // held during a request, with the empty key

	mu sync.Mutex
	id int64
	at time.Time // time at which the API confirmed id
}

// configured reports whether a network is configured.
func (r *networkResolver) configured() bool { return r.idOrName != "" }

// ID returns the network's ID, or 0 if none is configured.
func (r *networkResolver) ID(ctx context.Context) (int64, error) { return r.resolve(ctx, false) }

// confirm is ID for a caller to which the cached ID looks wrong, because a server is not attached to that
// network. It asks the API again unless it did so within maxNetworkAge.
func (r *networkResolver) confirm(ctx context.Context) (int64, error) { return r.resolve(ctx, true) }

func (r *networkResolver) resolve(ctx context.Context, confirm bool) (int64, error) {
	if !r.configured() {
		return 0, nil
	}
	unlock, err := r.resolving.lock(ctx, "")
	if err != nil {
		return 0, err
	}
	defer unlock()
	r.mu.Lock()
	id, at := r.id, r.at
	r.mu.Unlock()
	if id != 0 && (!confirm || r.clock.Since(at) < maxNetworkAge) {
		return id, nil
	}
	network, _, err := r.client.Network.Get(ctx, r.idOrName)
	if err != nil {
		return 0, fmt.Errorf("finding the network HCLOUD_NETWORK=%q: %w", r.idOrName, err)
	}
	if network == nil {
		r.forget()
		return 0, fmt.Errorf("HCLOUD_NETWORK=%q: the project of this token has no network with that ID or name", r.idOrName)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.id, r.at = network.ID, r.clock.Now()
	return r.id, nil
}

// forget makes the next call of ID ask the API.
func (r *networkResolver) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.id = 0
}
