package cloud

import (
	"cmp"
	"iter"
	"slices"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/store"
)

// FirewallTarget is a server or a label selector that a firewall is applied to.
type FirewallTarget struct {
	Server   int64  `json:"server,omitzero"` // 0 for a label selector
	Selector string `json:"selector,omitzero"`

	order    int  // of applying
	pending  bool // an action that applies or removes it is running
	filters  bool // the rules are in force: from the end of the action that applies it to the end of the one that removes it
	selector *store.Selector
	selected *store.IDSet // the servers that the selector selects; nil for none
	coming   *store.IDSet // the servers to which an action of their own has yet to apply the firewall; nil for none
}

// lessTarget orders the targets of a firewall: label selectors come first.
func lessTarget(a, b FirewallTarget) bool {
	return cmp.Or(cmp.Compare(a.Server, b.Server), cmp.Compare(a.Selector, b.Selector)) < 0
}

// Servers returns the ascending ids of the servers that the selector selects.
func (t FirewallTarget) Servers() []int64 { return t.selected.Items() }

// selects reports whether the selector selects the server.
func (t FirewallTarget) selects(server int64) bool { return t.selected.Has(server) }

// AppliedTo returns the targets in the order of applying.
func (f *Firewall) AppliedTo() []FirewallTarget {
	all := f.targets.Items()
	slices.SortFunc(all, func(a, b FirewallTarget) int { return cmp.Compare(a.order, b.order) })
	return all
}

// add adds a target and returns it.
func (f *Firewall) add(t FirewallTarget) FirewallTarget {
	f.applied++
	t.order = f.applied
	f.targets.Set(t)
	return t
}

// selectors yields the targets that are label selectors. The caller may not change the firewall meanwhile, except a clone.
func (f *Firewall) selectors() iter.Seq[FirewallTarget] {
	return func(yield func(FirewallTarget) bool) {
		f.targets.Ascend(FirewallTarget{}, func(t FirewallTarget) bool { return t.Server == 0 && yield(t) })
	}
}

// servers returns the ascending ids of the servers that have the firewall, directly or by a label selector.
func (f *Firewall) servers() []int64 {
	var ids []int64
	for _, t := range f.targets.Items() {
		if t.Server != 0 {
			ids = append(ids, t.Server)
		} else {
			ids = append(ids, t.Servers()...)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// filters reports whether the rules are in force on a server that shows the firewall.
func (f *Firewall) filters(s *Server) bool {
	if t, ok := f.targets.Get(FirewallTarget{Server: s.ID}); ok && t.filters {
		return true
	}
	for t := range f.selectors() {
		if t.filters && t.selector.Matches(s.Labels) && !t.coming.Has(s.ID) {
			return true
		}
	}
	return false
}

// indexTarget updates the index of label selectors after a target was added to a firewall or removed from it.
func (tx *Tx) indexTarget(firewall int64, t FirewallTarget, added bool) {
	if t.Server != 0 {
		return
	}
	entry := selectorTerm{kind: KindFirewall, owner: firewall, selector: t.Selector}
	if added {
		tx.indexSelectors(entry, nil, t.selector.Terms())
	} else {
		tx.indexSelectors(entry, t.selector.Terms(), nil)
	}
}

// refreshFirewall updates the servers that targets of a firewall concern, after these were added, changed or removed.
func (tx *Tx) refreshFirewall(id int64, targets []FirewallTarget) {
	var servers []int64
	for _, t := range targets {
		if t.Server != 0 {
			servers = append(servers, t.Server)
		} else {
			servers = append(servers, tx.serversWith(t.selector)...)
		}
	}
	slices.Sort(servers)
	tx.refreshServers(slices.Compact(servers), id)
}

// serversWith returns the ids of the servers that a selector matches.
func (st *State) serversWith(selector *store.Selector) (ids []int64) {
	if found, ok := st.Servers.Candidates(*selector); ok {
		for _, id := range found.IDs(0, found.Len()) {
			if s, ok := st.Servers.Get(id); found.Exact || ok && selector.Matches(s.Labels) {
				ids = append(ids, id)
			}
		}
		return ids
	}
	for s := range st.Servers.All() {
		if selector.Matches(s.Labels) {
			ids = append(ids, s.ID)
		}
	}
	return ids
}

func (tx *Tx) refreshServers(servers []int64, firewall int64) {
	for _, id := range servers {
		tx.refreshFirewallsOf(id, firewall)
	}
}

// refreshFirewallsOf updates what firewalls and a server show of each other, after the server was created, after its labels or
// public addresses changed, or after firewalls changed that it may not show yet. What is applied directly precedes what a label
// selector selects, and the oldest firewalls precede others. A server that has the maximum of firewalls is not selected by
// more: its cost does not depend on how many they are.
func (tx *Tx) refreshFirewallsOf(server int64, changed ...int64) {
	s, ok := tx.Servers.Get(server)
	if !ok {
		return
	}
	has := slices.Clone(changed)
	for _, f := range s.Firewalls {
		has = append(has, f.ID)
	}
	slices.Sort(has)
	has = slices.Compact(has)
	var now []ServerFirewall
	for _, id := range has {
		f, ok := tx.Firewalls.Get(id)
		if !ok {
			continue
		}
		tx.noteTargets(f.ID, server)
		if t, ok := f.targets.Get(FirewallTarget{Server: server}); ok {
			now = append(now, ServerFirewall{id, f.setting || t.pending, f.filters(s)})
		}
	}
	now = tx.refreshSelected(s, has, now)
	slices.SortFunc(now, func(a, b ServerFirewall) int { return cmp.Compare(a.ID, b.ID) })
	if !slices.Equal(s.Firewalls, now) {
		other := !slices.Equal(filtering(s.Firewalls), filtering(now))
		tx.Servers.Update(server, func(s *Server) { s.Firewalls = now })
		if other {
			tx.refilter(server)
		}
	}
}

// refreshSelected adds the firewalls that select a server by label to now, those that are applied to it directly. has are the ascending ids
// of the server's firewalls before, and of the direct ones.
func (tx *Tx) refreshSelected(s *Server, has []int64, now []ServerFirewall) []ServerFirewall {
	var terms []string
	if s.hasPublicInterface() {
		terms = tx.termsOf(s)
	}
	var id int64
	for {
		var next int64
		room := len(terms) > 0 && len(now) < MaxFirewallsPerServer
		if room {
			next = tx.selecting(KindFirewall, terms, id)
		}
		if len(has) > 0 && (next == 0 || has[0] <= next) {
			next, has = has[0], has[1:]
		}
		if next == 0 {
			return now
		}
		id = next
		f, ok := tx.Firewalls.Get(id)
		if !ok {
			continue
		}
		_, direct := f.targets.Get(FirewallTarget{Server: s.ID})
		if shown, ok := tx.refreshSelectors(f, s, room && !direct); ok {
			now = append(now, shown)
		}
	}
}

// refreshSelectors updates the label selectors of a firewall for a server. If one of them selects it, it returns the firewall as the server
// shows it: pending until one of the selectors is applied.
func (tx *Tx) refreshSelectors(f *Firewall, s *Server, selectable bool) (shown ServerFirewall, selected bool) {
	changed := f // cloned before it is changed
	pending := true
	for t := range f.selectors() {
		selects := selectable && t.selector.Matches(s.Labels)
		if selects != t.selects(s.ID) {
			if changed == f {
				changed = f.Clone()
			}
			t.selected = t.selected.With(s.ID, selects)
			if selects && !t.pending && !s.filteredBy(f.ID) {
				t.coming = t.coming.With(s.ID, true)
				tx.startSelected(f.ID, s.Ref(), t.Selector)
			}
			changed.targets.Set(t)
		}
		if selects {
			selected = true
			pending = pending && (t.pending || t.coming.Has(s.ID))
		}
	}
	if changed != f {
		tx.noteTargets(f.ID, s.ID)
		tx.Firewalls.Put(changed)
	}
	return ServerFirewall{f.ID, f.setting || pending, changed.filters(s)}, selected
}

// leaveFirewalls removes a server that is about to be deleted from its firewalls.
func (tx *Tx) leaveFirewalls(server int64) {
	s, ok := tx.Servers.Get(server)
	if !ok {
		return
	}
	for _, shown := range s.Firewalls {
		tx.noteTargets(shown.ID, server)
		tx.Firewalls.Update(shown.ID, func(f *Firewall) {
			f.targets.Delete(FirewallTarget{Server: server})
			for _, t := range slices.Collect(f.selectors()) {
				if t.selects(server) || t.coming.Has(server) {
					t.selected, t.coming = t.selected.With(server, false), t.coming.With(server, false)
					f.targets.Set(t)
				}
			}
		})
	}
}
