package cloud

import (
	"iter"
	"slices"

	"github.com/tidwall/btree"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/store"
)

// Selected is the set of the servers that a label selector selects, by ascending ID. Versions of a load
// balancer share the unchanged parts, so that the cost of a change does not depend on the size of the set.
// The zero value is empty.
type Selected struct {
	tree *btree.BTreeG[selectedServer]
}

type selectedServer struct {
	id     int64
	target *LoadBalancerTarget // load balancers may share it
}

// Len returns the number of servers.
func (s Selected) Len() int {
	if s.tree == nil {
		return 0
	}
	return s.tree.Len()
}

// All yields the servers as targets, by ascending ID, for reading only.
func (s Selected) All() iter.Seq[*LoadBalancerTarget] {
	return func(yield func(*LoadBalancerTarget) bool) {
		if s.tree != nil {
			s.tree.Scan(func(n selectedServer) bool { return yield(n.target) })
		}
	}
}

func (s Selected) get(server int64) (*LoadBalancerTarget, bool) {
	if s.tree == nil {
		return nil, false
	}
	n, ok := s.tree.Get(selectedServer{id: server})
	return n.target, ok
}

// targetFinder finds a server's target in the sets of label selectors. It remembers the last one, because load
// balancers share sets.
type targetFinder struct {
	server int64
	set    Selected
	target *LoadBalancerTarget // in set; nil if it is not there
}

func (f *targetFinder) find(s Selected) *LoadBalancerTarget {
	if s != f.set {
		f.set = s
		f.target, _ = s.get(f.server)
	}
	return f.target
}

// add adds a target to a set that nobody else has.
func (s *Selected) add(t *LoadBalancerTarget) {
	if s.tree == nil {
		s.tree = store.NewTree(func(a, b selectedServer) bool { return a.id < b.id })
	}
	s.tree.Set(selectedServer{t.Server, t})
}

// with returns the set with a target added. It replaces the target of the same server.
func (s Selected) with(t *LoadBalancerTarget) Selected {
	if s.tree != nil {
		s.tree = store.CopyTree(s.tree)
	}
	s.add(t)
	return s
}

// without returns the set without a server.
func (s Selected) without(server int64) Selected {
	if s.tree != nil {
		s.tree = store.CopyTree(s.tree)
		s.tree.Delete(selectedServer{id: server})
	}
	return s
}

// sharedTargets lets load balancers share memory when one change of a server changes several of them.
// They share the target, and also the whole set if they shared it before. Many load balancers with one
// selector thus need about as much memory as one.
type sharedTargets struct {
	sets []sharedSet
}

// sharedSet is the change of the set of one label selector.
type sharedSet struct {
	before, after Selected
	target        *LoadBalancerTarget
	selector      string
	network       int64
}

// maxSharedSets limits the search in sharedTargets.
const maxSharedSets = 8

// find returns the set with the server added, if an earlier load balancer had the same set, selector and
// services.
func (all *sharedTargets) find(lb *LoadBalancer, t *LoadBalancerTarget) (Selected, bool) {
	for i := range all.sets {
		s := &all.sets[i]
		if s.before == t.Targets && s.selector == t.Selector && s.target.UsePrivateIP == t.UsePrivateIP && s.network == lb.network() &&
			s.target.hasHealthFor(lb.Services) {
			return s.after, true
		}
	}
	return Selected{}, false
}

// hasHealthFor reports whether a target has a health for each service, in their order.
func (t *LoadBalancerTarget) hasHealthFor(services []LoadBalancerService) bool {
	return slices.EqualFunc(t.Health, services, func(h TargetHealth, s LoadBalancerService) bool { return h.ListenPort == s.ListenPort })
}

// add returns the set of a label selector with a target added. Load balancers may share the set.
func (all *sharedTargets) add(lb *LoadBalancer, selector *LoadBalancerTarget, t *LoadBalancerTarget) Selected {
	before := selector.Targets
	for i := range all.sets {
		s := &all.sets[i]
		if s.target.IP == t.IP && s.target.UsePrivateIP == t.UsePrivateIP && slices.Equal(s.target.Health, t.Health) {
			t = s.target
			if s.before == before {
				return s.after
			}
		}
	}
	after := before.with(t)
	if len(all.sets) < maxSharedSets {
		all.sets = append(all.sets, sharedSet{before, after, t, selector.Selector, lb.network()})
	}
	return after
}

// selectorTerms returns the terms of all label selectors, sorted and unique.
func (lb *LoadBalancer) selectorTerms() []string {
	var terms []string
	for i := range lb.Targets {
		if t := &lb.Targets[i]; t.Type == "label_selector" {
			terms = append(terms, t.selector.Terms()...)
		}
	}
	slices.Sort(terms)
	return slices.Compact(terms)
}

// relinkSelectors updates the index after the targets of a load balancer changed.
func (tx *Tx) relinkSelectors(lb int64, before, after []string) {
	if !slices.Equal(before, after) {
		tx.indexSelectors(selectorTerm{kind: KindLoadBalancer, owner: lb}, before, after)
	}
}

// loadBalancersFor returns the ascending IDs of the load balancers that a change of a server may affect:
// the server is a target, or a label selector may select it now.
func (st *State) loadBalancersFor(s *Server) []int64 {
	ids := slices.Clone(s.LoadBalancers)
	for _, term := range st.termsOf(s) {
		st.selectors.Ascend(selectorTerm{kind: KindLoadBalancer, term: term}, func(e selectorTerm) bool {
			if e.kind != KindLoadBalancer || e.term != term {
				return false
			}
			ids = append(ids, e.owner)
			return true
		})
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}
