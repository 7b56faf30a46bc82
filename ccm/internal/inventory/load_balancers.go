package inventory

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/apicall"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/gone"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/plan"
)

// MaxLoadBalancerAge is the maximum age of cached load balancers and certificates.
const MaxLoadBalancerAge = 3 * time.Second

// LoadBalancers finds the load balancers of Services. One list of all load balancers with an ownership
// label serves all Services that are synced at the same time, for example because a node was added.
// After a write for a Service, its load balancers are read again.
type LoadBalancers struct {
	client   *hcloud.Client
	evidence *Evidence
	all      *apicall.Cache[map[string][]*hcloud.LoadBalancer] // by owner UID

	mu      sync.Mutex
	written map[string]bool // UIDs of Services with a write since the list was fetched
	// asked holds the UIDs of Services that need no further question about load balancers of the production CCM, and
	// inherited those of the ones that have one, both with the token askedWith.
	asked, inherited map[string]bool
	askedWith        string

	crowded atomic.Bool // there were more load balancers than one page shows
}

// NewLoadBalancers returns the load balancers. The evidence sees their lists. defaults are those of Service annotations.
func NewLoadBalancers(client *hcloud.Client, clk clock.PassiveClock, e *Evidence, defaults map[string]string) *LoadBalancers {
	s := &LoadBalancers{client: client, evidence: e, written: map[string]bool{}, asked: map[string]bool{}, inherited: map[string]bool{}}
	s.all = apicall.NewCache(clk, MaxLoadBalancerAge, s.listAll)
	e.defaults = defaults
	e.visibleServices, e.listLoadBalancers = s.refresh, s.list
	return s
}

func (s *LoadBalancers) listAll(ctx context.Context) (map[string][]*hcloud.LoadBalancer, error) {
	s.mu.Lock()
	clear(s.written) // the next list contains these writes
	s.mu.Unlock()
	token := s.evidence.currentToken()
	lbs, err := s.list(ctx, plan.LabelServiceUID)
	if err != nil {
		return nil, err
	}
	byUID := map[string][]*hcloud.LoadBalancer{}
	for _, lb := range lbs {
		for _, uid := range servicesOf(lb) {
			byUID[uid] = append(byUID[uid], lb)
		}
	}
	visible, err := s.visible(ctx, byUID)
	if err != nil {
		return nil, err
	}
	s.evidence.question.Listed(gone.LoadBalancer, token, visible)
	return byUID, nil
}

// visible returns the UIDs of the Services with visible load balancers: those with our label, and those
// of the production CCM that no Service has inherited yet. The latter cost one call for all Services that lack
// a load balancer for the first time.
func (s *LoadBalancers) visible(ctx context.Context, byUID map[string][]*hcloud.LoadBalancer) (map[string]bool, error) {
	visible := map[string]bool{}
	for uid := range byUID {
		visible[uid] = true
	}
	known := s.evidence.knownServices()
	s.mu.Lock()
	// It may be that of another project. And earlier answers do not prove that an empty list is a good one.
	if token := s.evidence.currentToken(); token != s.askedWith || len(byUID) == 0 {
		clear(s.asked)
		clear(s.inherited)
		s.askedWith = token
	}
	unknown := maps.Clone(known) // Services that are neither visible nor asked for yet
	maps.DeleteFunc(unknown, func(uid string, _ *corev1.Service) bool { return visible[uid] || s.asked[uid] })
	s.mu.Unlock()
	if len(unknown) > 0 {
		lbs, err := s.list(ctx, plan.LabelServiceUIDHcloud)
		if err != nil {
			return nil, err
		}
		s.mu.Lock()
		for uid := range known {
			s.asked[uid] = true
		}
		for _, lb := range lbs {
			if lb.Labels[plan.LabelServiceUID] == "" {
				s.inherited[lb.Labels[plan.LabelServiceUIDHcloud]] = true
			}
		}
		s.mu.Unlock()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for uid := range s.inherited {
		if visible[uid] {
			delete(s.inherited, uid) // it has our label now
		}
		visible[uid] = true
	}
	return visible, nil
}

// refresh fetches the list, and returns the UIDs of the Services with visible load balancers.
func (s *LoadBalancers) refresh(ctx context.Context) (map[string]bool, error) {
	s.all.Forget()
	byUID, err := s.all.Get(ctx)
	if err != nil {
		return nil, err
	}
	return s.visible(ctx, byUID)
}

// list fetches the load balancers that match; "": all of the project.
func (s *LoadBalancers) list(ctx context.Context, selector string) ([]*hcloud.LoadBalancer, error) {
	lbs, err := s.client.LoadBalancer.AllWithOpts(ctx, hcloud.LoadBalancerListOpts{
		ListOpts: hcloud.ListOpts{LabelSelector: selector, PerPage: 50}})
	if err != nil {
		return nil, fmt.Errorf("listing load balancers with the label %q: %w", selector, err)
	}
	return lbs, nil
}

// Find returns the load balancers with the Service's ownership label. The data are at most
// MaxLoadBalancerAge old, and never older than this process's last write for the Service.
func (s *LoadBalancers) Find(ctx context.Context, uid string) ([]*hcloud.LoadBalancer, error) {
	s.mu.Lock()
	stale, others := s.written[uid], len(s.written) > 1
	s.mu.Unlock()
	switch {
	case stale && !others:
		return s.FindBy(ctx, plan.OwnerSelector(uid))
	case stale:
		s.all.Forget() // one list for this Service and the other changed ones
	}
	byUID, err := s.all.Get(ctx)
	if err != nil {
		return nil, err
	}
	return byUID[uid], nil
}

// All returns the load balancers with an owner, at most MaxLoadBalancerAge old. Without such a list, it returns none, or fetches
// one if it must.
func (s *LoadBalancers) All(ctx context.Context, must bool) (all []*hcloud.LoadBalancer, err error) {
	byUID, known := s.all.Peek()
	if !known && must {
		byUID, err = s.all.Get(ctx)
	}
	for uid, lbs := range byUID {
		for _, lb := range lbs {
			if lb.Labels[plan.LabelServiceUID] == uid { // and not that of a guest
				all = append(all, lb)
			}
		}
	}
	return all, err
}

// LookUp returns the load balancers with the Service's label, as their owner or as a guest, from an answer about that. A Service
// that shows no address is probably new, and may yet be a guest that is no longer shared: one page of all load balancers answers both.
func (s *LoadBalancers) LookUp(ctx context.Context, svc *corev1.Service) ([]*hcloud.LoadBalancer, error) {
	uid := string(svc.UID)
	if len(svc.Status.LoadBalancer.Ingress) == 0 {
		if lbs, complete, err := s.onePage(ctx, uid); complete || err != nil {
			return lbs, err
		}
	}
	if lbs, err := s.FindBy(ctx, plan.OwnerSelector(uid)); err != nil || len(lbs) > 0 {
		return lbs, err
	}
	return s.FindBy(ctx, plan.LabelGuest+uid)
}

// FindBy returns the load balancers that match. If the token changes during the request, the answer may be about another
// project, and nothing that is visible with the new token makes it true: that is an error.
func (s *LoadBalancers) FindBy(ctx context.Context, selector string) ([]*hcloud.LoadBalancer, error) {
	token := s.evidence.currentToken()
	lbs, err := s.list(ctx, selector)
	if err == nil && token != s.evidence.currentToken() {
		return nil, fmt.Errorf("listing load balancers with the label %q: the token changed during the request; will try again", selector)
	}
	s.saw(lbs)
	return lbs, err
}

// saw tells the evidence of load balancers that an answer other than the list of all has shown.
func (s *LoadBalancers) saw(lbs []*hcloud.LoadBalancer) {
	for _, lb := range lbs {
		for _, uid := range servicesOf(lb) {
			s.evidence.SawLoadBalancer(uid)
		}
	}
}

// onePage returns the load balancers that the Service owns or shares, with one request. It reports false if the project has more
// load balancers than one page shows: a list of several pages proves nothing, because it lacks any that move to an earlier page
// meanwhile.
func (s *LoadBalancers) onePage(ctx context.Context, uid string) (lbs []*hcloud.LoadBalancer, complete bool, err error) {
	if s.crowded.Load() {
		return nil, false, nil
	}
	token := s.evidence.currentToken()
	all, resp, err := s.client.LoadBalancer.List(ctx, hcloud.LoadBalancerListOpts{ListOpts: hcloud.ListOpts{PerPage: 50}})
	switch {
	case err != nil:
		return nil, false, fmt.Errorf("listing load balancers: %w", err)
	case token != s.evidence.currentToken():
		return nil, false, errors.New("listing load balancers: the token changed during the request; will try again")
	case resp.Meta.Pagination == nil || resp.Meta.Pagination.NextPage != 0:
		s.crowded.Store(true)
		return nil, false, nil
	}
	s.saw(all)
	return slices.DeleteFunc(all, func(lb *hcloud.LoadBalancer) bool { return !plan.Serves(lb, uid) }), true, nil
}

// servicesOf returns the UIDs of the guests and of the owner. That one may be "".
func servicesOf(lb *hcloud.LoadBalancer) []string {
	return append(plan.GuestsOf(lb), lb.Labels[plan.LabelServiceUID])
}

// Written must be called after a write for the Service: a list that was fetched before may lack it.
func (s *LoadBalancers) Written(uid string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.written[uid] = true
}
