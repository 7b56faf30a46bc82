package cloud

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/store"
)

// targetServer is a server as a target of a firewall, or of the label selectors of a load balancer. An owner may have thousands.
type targetServer struct{ owner, server int64 }

// noteTargets notes servers that may be other targets of a load balancer or firewall now.
func (tx *Tx) noteTargets(owner int64, servers ...int64) {
	if tx.cloud.saver == nil && tx.cloud.events.subscribers == 0 {
		return
	}
	for _, id := range servers {
		tx.targets = append(tx.targets, targetServer{owner, id})
	}
}

// noteSelected notes the servers of each label selector whose set of servers changed.
func (tx *Tx) noteSelected(lb *LoadBalancer, before []LoadBalancerTarget) {
	sets := func(targets []LoadBalancerTarget) map[string]Selected {
		all := map[string]Selected{}
		for _, t := range targets {
			if t.Type == "label_selector" {
				all[t.Selector] = t.Targets
			}
		}
		return all
	}
	was, is := sets(before), sets(lb.Targets)
	for _, pair := range [][2]map[string]Selected{{was, is}, {is, was}} {
		for selector, set := range pair[0] {
			if set != pair[1][selector] {
				for t := range set.All() {
					tx.noteTargets(lb.ID, t.Server)
				}
			}
		}
	}
}

// SelectedAs yields a server as a target of the load balancer's label selectors, with the selector.
func (lb *LoadBalancer) SelectedAs(server int64) iter.Seq2[string, *LoadBalancerTarget] {
	return func(yield func(string, *LoadBalancerTarget) bool) {
		for i := range lb.Targets {
			t := &lb.Targets[i]
			if selected, ok := t.Targets.get(server); ok && !yield(t.Selector, selected) {
				return
			}
		}
	}
}

// TargetsOf returns the targets that concern a server: itself, and the label selectors that select it.
func (f *Firewall) TargetsOf(server int64) (all []FirewallTarget) {
	for t := range f.selectors() {
		if t.selects(server) || t.coming.Has(server) {
			all = append(all, t)
		}
	}
	if t, ok := f.targets.Get(FirewallTarget{Server: server}); ok {
		all = append(all, t)
	}
	return all
}

// WithoutServers returns the load balancer without the servers that its label selectors select.
func (lb *LoadBalancer) WithoutServers() *LoadBalancer {
	targets := slices.Clone(lb.Targets)
	for i := range targets {
		targets[i].Targets = Selected{}
	}
	return lb.withTargets(targets)
}

// WithoutServers returns the firewall with its label selectors only. They select no server.
func (f *Firewall) WithoutServers() *Firewall {
	c := *f
	c.targets = store.NewAscending(lessTarget)
	for t := range f.selectors() {
		t.selected, t.coming = nil, nil
		c.targets.Set(t)
	}
	return &c
}

// savedTargetServer is a separate line: a change of one server costs the same for any number of targets. The line of the load balancer or
// firewall lacks these servers.
type savedTargetServer struct {
	LoadBalancer int64                 `json:"load_balancer,omitzero"`
	Firewall     int64                 `json:"firewall,omitzero"`
	Selected     []LoadBalancerTarget  `json:"selected,omitzero"` // each with its selector
	Targets      []savedFirewallTarget `json:"targets,omitzero"`
}

// entry returns the line. ok is false if there is none.
func (t targetServer) entry(project int64, st *State) (e entry, ok bool) {
	var saved savedTargetServer
	if lb, exists := st.LoadBalancers.Get(t.owner); exists {
		saved.LoadBalancer = t.owner
		for selector, s := range lb.SelectedAs(t.server) {
			c := *s
			c.Selector = selector
			saved.Selected = append(saved.Selected, c)
		}
	} else if f, exists := st.Firewalls.Get(t.owner); exists {
		saved.Firewall = t.owner
		for _, has := range f.TargetsOf(t.server) {
			if has.Server != 0 {
				saved.Targets = append(saved.Targets, saveFirewallTarget(has))
				continue
			}
			s := savedFirewallTarget{FirewallTarget: FirewallTarget{Selector: has.Selector}}
			if has.selects(t.server) {
				s.Selected = []int64{t.server}
			}
			if has.coming.Has(t.server) {
				s.Coming = []int64{t.server}
			}
			saved.Targets = append(saved.Targets, s)
		}
	}
	key := entryKey{lineTarget, project, t.owner, strconv.FormatInt(t.server, 10)}
	return entry{key, saved}, len(saved.Selected)+len(saved.Targets) > 0
}

// targetServers yields all servers with a line.
func (st *State) targetServers(yield func(targetServer) bool) {
	for lb := range st.LoadBalancers.All() {
		for _, id := range serversOf(lb.Targets) {
			if !yield(targetServer{lb.ID, id}) {
				return
			}
		}
	}
	for f := range st.Firewalls.All() {
		ids := f.servers()
		for t := range f.selectors() {
			ids = append(ids, t.coming.Items()...)
		}
		slices.Sort(ids)
		for _, id := range slices.Compact(ids) {
			if !yield(targetServer{f.ID, id}) {
				return
			}
		}
	}
}

func (l *loader) targetServer(saved *savedTargetServer) error {
	if f, ok := l.tx.Firewalls.Get(saved.Firewall); ok {
		return l.firewallTargets(f, saved.Targets)
	}
	lb, ok := l.tx.LoadBalancers.Get(saved.LoadBalancer)
	if !ok {
		return fmt.Errorf("load_balancer %d, firewall %d: must have a line before", saved.LoadBalancer, saved.Firewall)
	}
	for _, t := range saved.Selected {
		i := slices.IndexFunc(lb.Targets, func(of LoadBalancerTarget) bool {
			return of.Type == "label_selector" && of.Selector == t.Selector
		})
		if i < 0 {
			return fmt.Errorf("selected: the load balancer must have the label selector %.64q", t.Selector)
		}
		t.Selector = ""
		lb.Targets[i].Targets.add(&t)
		if err := l.health(lb, &t); err != nil {
			return err
		}
	}
	return nil
}

// health checks the health of a target. With a data plane, the health is unknown until the first probe.
func (l *loader) health(lb *LoadBalancer, t *LoadBalancerTarget) error {
	if !t.hasHealthFor(lb.Services) {
		return errors.New("targets: must have a health for each service, in the order of the services")
	}
	if l.cloud.healthRule == HealthReported {
		for i, h := range t.Health {
			t.Health[i] = TargetHealth{ListenPort: h.ListenPort, Status: HealthUnknown, Since: h.Since}
		}
	}
	return nil
}
