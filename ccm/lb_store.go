package ccm

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"k8s.io/utils/clock"
)

// maxLoadBalancerAge is the maximum age of cached load balancers and certificates.
const maxLoadBalancerAge = 3 * time.Second

// lbStore finds the load balancers of Services. One list of all load balancers with an ownership
// label serves all Services that are synced at the same time, for example because a node was added.
// After a write for a Service, its load balancers are read again.
type lbStore struct {
	client   *hcloud.Client
	evidence *evidence
	all      *ttlCache[map[string][]*hcloud.LoadBalancer] // by owner UID

	mu      sync.Mutex
	written map[string]bool // UIDs of Services with a write since the list was fetched
}

func newLBStore(client *hcloud.Client, clk clock.PassiveClock, e *evidence) *lbStore {
	s := &lbStore{client: client, evidence: e, written: map[string]bool{}}
	s.all = newTTLCache(clk, maxLoadBalancerAge, s.listAll)
	return s
}

func (s *lbStore) listAll(ctx context.Context) (map[string][]*hcloud.LoadBalancer, error) {
	s.mu.Lock()
	clear(s.written) // the next list contains these writes
	s.mu.Unlock()
	lbs, err := s.client.LoadBalancer.AllWithOpts(ctx, hcloud.LoadBalancerListOpts{
		ListOpts: hcloud.ListOpts{LabelSelector: labelServiceUID, PerPage: 50}})
	if err != nil {
		return nil, fmt.Errorf("listing load balancers: %w", err)
	}
	byUID := map[string][]*hcloud.LoadBalancer{}
	for _, lb := range lbs {
		uid := lb.Labels[labelServiceUID]
		byUID[uid] = append(byUID[uid], lb)
	}
	s.evidence.sawLoadBalancers(byUID)
	return byUID, nil
}

// refresh fetches the list.
func (s *lbStore) refresh(ctx context.Context) (map[string][]*hcloud.LoadBalancer, error) {
	s.all.forget()
	return s.all.get(ctx)
}

// find returns the load balancers with the Service's ownership label. The data are at most
// maxLoadBalancerAge old, and never older than this process's last write for the Service.
func (s *lbStore) find(ctx context.Context, uid string) ([]*hcloud.LoadBalancer, error) {
	s.mu.Lock()
	stale, others := s.written[uid], len(s.written) > 1
	s.mu.Unlock()
	switch {
	case stale && !others:
		return s.findNow(ctx, uid)
	case stale:
		s.all.forget() // one list for this Service and the other changed ones
	}
	byUID, err := s.all.get(ctx)
	if err != nil {
		return nil, err
	}
	return byUID[uid], nil
}

// findNow is find without the cache. If the token changes during the request, the answer may be about another
// project, and nothing that is visible with the new token makes it true: that is an error.
func (s *lbStore) findNow(ctx context.Context, uid string) ([]*hcloud.LoadBalancer, error) {
	token := s.evidence.currentToken()
	lbs, err := s.client.LoadBalancer.AllWithOpts(ctx, hcloud.LoadBalancerListOpts{
		ListOpts: hcloud.ListOpts{LabelSelector: ownerSelector(uid)}})
	if err != nil {
		return nil, fmt.Errorf("listing load balancers with the label %s: %w", ownerSelector(uid), err)
	}
	if token != s.evidence.currentToken() {
		return nil, fmt.Errorf("listing load balancers with the label %s: the token changed during the request; will try again", ownerSelector(uid))
	}
	return lbs, nil
}

// writing must be called before a write for the Service, and the returned function after the write,
// because a list that is fetched in between may lack the write.
func (s *lbStore) writing(uid string) (written func()) {
	mark := func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.written[uid] = true
	}
	mark()
	return mark
}
