package cloud

import (
	"cmp"
	"fmt"
	"slices"
)

// KindFirewall is the kind of firewalls.
const KindFirewall Kind = "firewall"

// Limits of firewalls (API document, create_firewall and apply_firewall_to_resources).
const (
	MaxRulesPerFirewall   = 50
	MaxIPsPerFirewallRule = 100
	MaxFirewallsPerServer = 5
	// MaxEffectiveRules applies to one firewall (https://docs.hetzner.com/cloud/firewalls/faq). No source says how they are
	// counted or what the error is: here, each IP of a rule is an effective rule, and more are invalid_input.
	MaxEffectiveRules = 500
)

// Firewall limits the traffic of the servers that it is applied to, directly or by a label selector.
//
// Reproduced: the rules and their limits, the resources and their expansion as labels and public addresses change, the
// status of the firewall on each server (pending while an action runs), no change while rules are set (conflict), and what
// load balancers reach ([State.Reaches]). Left out: the rules for outbound traffic, and all packets that no load balancer
// sends.
type Firewall struct {
	Meta
	Rules []FirewallRule // replaced as a whole
	// AppliedTo is in the order of applying.
	AppliedTo []FirewallTarget
	// setting is whether an action that sets the rules is running.
	setting bool
}

// FirewallTarget is a server or a label selector that a firewall is applied to.
type FirewallTarget struct {
	Server   int64 // 0 for a label selector
	Selector string

	pending  bool // an action that applies or removes it is running
	filters  bool // the rules are in force: from the end of the action that applies it to the end of the one that removes it
	selector *Selector
	selected *idSet // the servers that the selector selects; nil for none
	coming   *idSet // the servers to which an action of their own has yet to apply the firewall; nil for none
}

// Servers returns the ascending ids of the servers that the selector selects.
func (t FirewallTarget) Servers() []int64 {
	if t.selected == nil {
		return nil
	}
	return t.selected.Items()
}

// selects reports whether the selector selects the server.
func (t FirewallTarget) selects(server int64) bool { return hasID(t.selected, server) }

// ServerFirewall is a firewall on a server's public interface.
type ServerFirewall struct {
	ID      int64
	Pending bool

	filters bool // its rules are in force
}

// Clone implements Object.
func (f *Firewall) Clone() *Firewall {
	c := *f
	c.AppliedTo = slices.Clone(f.AppliedTo)
	return &c
}

// Ref returns the reference to the firewall.
func (f *Firewall) Ref() Ref { return Ref{KindFirewall, f.ID} }

// target returns the number of the target that names the same resource, or -1.
func (f *Firewall) target(t FirewallTarget) int {
	return slices.IndexFunc(f.AppliedTo, func(has FirewallTarget) bool { return has.Server == t.Server && has.Selector == t.Selector })
}

// filters reports whether the rules are in force on a server that shows the firewall.
func (f *Firewall) filters(s *Server) bool {
	return slices.ContainsFunc(f.AppliedTo, func(t FirewallTarget) bool {
		return t.filters && (t.Server == s.ID || t.Server == 0 && t.selector.Matches(s.Labels) && !hasID(t.coming, s.ID))
	})
}

// shows reports whether the server shows a firewall, which is applied or pending.
func (s *Server) shows(firewall int64) bool {
	return slices.ContainsFunc(s.Firewalls, func(f ServerFirewall) bool { return f.ID == firewall })
}

// hasPublicInterface reports whether a firewall can be applied to the server.
func (s *Server) hasPublicInterface() bool { return s.PublicIPv4 != 0 || s.PublicIPv6 != 0 }

// CreateFirewall is the input of POST /firewalls.
type CreateFirewall struct {
	Name    string
	Labels  map[string]string
	Rules   []FirewallRule
	ApplyTo []FirewallTarget
}

// CreateFirewall creates a firewall. It starts an action for the rules, if there are any, and one for each resource.
// Errors: invalid_input, uniqueness_error, resource_limit_exceeded, server_already_added, incompatible_network_type,
// firewall_resource_not_found (422).
func (p Project) CreateFirewall(in CreateFirewall) (f *Firewall, actions []int64, st *State, err error) {
	st, err = p.update(func(tx *Tx) error {
		if err := cmp.Or(
			ValidateLabels(in.Labels), checkFirewallRules(in.Rules), RequireUniqueName(&tx.Firewalls, in.Name, 0), tx.checkLimit(&tx.Firewalls),
		); err != nil {
			return err
		}
		f = &Firewall{Meta: tx.NewMeta(in.Name, in.Labels), Rules: in.Rules}
		for i, t := range in.ApplyTo {
			t, err := tx.findFirewallTarget(f, t, fmt.Sprintf("apply_to.%d.", i), true)
			if err != nil {
				return err
			}
			f.AppliedTo = append(f.AppliedTo, t)
		}
		tx.Firewalls.Put(f)
		if len(in.Rules) > 0 {
			actions = append(actions, tx.startSettingRules(f.ID, in.Rules))
		}
		for _, t := range f.AppliedTo {
			actions = append(actions, tx.startApplying(f.ID, t, 0))
		}
		tx.refreshFirewall(f.ID)
		f, _ = tx.Firewalls.Get(f.ID)
		return nil
	})
	return f, actions, st, err
}

// findFirewallTarget checks a resource that a firewall is to be applied to. prefix is the path of its fields. The creation
// of a firewall has errors of its own.
func (tx *Tx) findFirewallTarget(f *Firewall, t FirewallTarget, prefix string, creating bool) (FirewallTarget, error) {
	t.pending = true
	if t.Server == 0 {
		selector, err := ParseSelector(t.Selector)
		if err != nil {
			return t, ErrField(prefix+"label_selector.selector", err.Error())
		}
		t.selector = &selector
	}
	if f.target(t) >= 0 {
		if creating {
			return t, ErrOperation("server_already_added", "the resource is named more than once")
		}
		return t, ErrOperation("firewall_already_applied", "firewall was already applied on resource")
	}
	if t.Server == 0 {
		return t, nil
	}
	s, ok := tx.Servers.Get(t.Server)
	switch {
	case !ok:
		return t, errNoFirewallResource(t.Server, creating)
	case !s.hasPublicInterface() && creating:
		return t, ErrOperation("incompatible_network_type", fmt.Sprintf("server %d has no public network interface", s.ID))
	case !s.hasPublicInterface():
		return t, ErrOperation("private_net_only_server", fmt.Sprintf("server %d has no public network interface", s.ID))
	}
	return t, checkFirewallsOf(s)
}

// checkFirewallsOf returns an error if a server cannot have one more firewall. The document has no code for it.
func checkFirewallsOf(s *Server) error {
	if len(s.Firewalls) >= MaxFirewallsPerServer {
		return ErrLimitExceeded("firewall_server_limit", fmt.Sprintf("server %d has %d firewalls, which is the maximum", s.ID, MaxFirewallsPerServer))
	}
	return nil
}

// errNoFirewallResource is firewall_resource_not_found: 422 for a new firewall, else 404 (API document).
func errNoFirewallResource(server int64, creating bool) error {
	err := &Error{Code: "firewall_resource_not_found", Status: 404, Message: fmt.Sprintf("server with ID '%d' not found", server)}
	if creating {
		err.Status = 422
	}
	return err
}

// UpdateFirewall changes name and labels. Errors: not_found, conflict, invalid_input, uniqueness_error.
func (p Project) UpdateFirewall(id int64, in UpdateResource) (*State, error) {
	return p.update(func(tx *Tx) error {
		if _, err := tx.freeFirewall(id); err != nil {
			return err
		}
		return setMeta(&tx.Firewalls, id, in)
	})
}

// DeleteFirewall deletes a firewall that is applied to nothing. Errors: not_found, conflict, resource_in_use.
func (p Project) DeleteFirewall(id int64) error {
	_, err := p.update(func(tx *Tx) error {
		f, err := tx.freeFirewall(id)
		if err != nil {
			return err
		}
		if len(f.AppliedTo) > 0 {
			return ErrResourceInUse(fmt.Sprintf("firewall with ID %d is still in use", id)) // the real API's message
		}
		tx.Firewalls.Delete(id)
		return nil
	})
	return err
}

// freeFirewall returns a firewall that no action is changing. Errors: not_found, conflict.
func (tx *Tx) freeFirewall(id int64) (*Firewall, error) {
	f, err := tx.Firewalls.Find(id)
	if err != nil {
		return nil, err
	}
	return f, tx.RequireNoConflict(f.Ref())
}

// refreshFirewall updates all servers after a firewall has changed.
func (tx *Tx) refreshFirewall(id int64) {
	f, ok := tx.Firewalls.Get(id)
	if !ok {
		return
	}
	if slices.ContainsFunc(f.AppliedTo, func(t FirewallTarget) bool { return t.Server == 0 }) {
		for s := range tx.Servers.All() {
			tx.refreshFirewallsOf(s.ID)
		}
		return
	}
	for s := range tx.Servers.All() {
		if s.shows(id) || f.target(FirewallTarget{Server: s.ID}) >= 0 {
			tx.refreshFirewallsOf(s.ID)
		}
	}
}

// refreshFirewallsOf updates what firewalls and a server show of each other, after the server was created or deleted, or
// after its labels or public addresses changed. What is applied directly precedes what a label selector selects. A
// server that has the maximum of firewalls is not selected by more.
func (tx *Tx) refreshFirewallsOf(server int64) {
	s, exists := tx.Servers.Get(server)
	var now []ServerFirewall
	for f := range tx.Firewalls.All() {
		direct := f.target(FirewallTarget{Server: server})
		if direct >= 0 && exists {
			now = append(now, ServerFirewall{f.ID, f.setting || f.AppliedTo[direct].pending, f.filters(s)})
		}
	}
	for f := range tx.Firewalls.All() {
		if shown, ok := tx.refreshSelected(f, server, len(now) < MaxFirewallsPerServer); ok {
			now = append(now, shown)
		}
	}
	slices.SortFunc(now, func(a, b ServerFirewall) int { return cmp.Compare(a.ID, b.ID) })
	if exists && !slices.Equal(s.Firewalls, now) {
		other := !slices.Equal(filtering(s.Firewalls), filtering(now))
		tx.Servers.Update(server, func(s *Server) { s.Firewalls = now })
		if other {
			tx.refilter(server)
		}
	}
}

// refreshSelected updates what the label selectors of a firewall select of a server, and drops the server if it is gone.
// If one of them selects it, it returns what the server shows of the firewall.
func (tx *Tx) refreshSelected(f *Firewall, server int64, room bool) (shown ServerFirewall, selected bool) {
	s, exists := tx.Servers.Get(server)
	direct := f.target(FirewallTarget{Server: server})
	selectable := exists && direct < 0 && s.hasPublicInterface() && room
	changed := f // cloned before it is changed
	for i, t := range f.AppliedTo {
		if t.Server != 0 {
			continue
		}
		selects := selectable && t.selector.Matches(s.Labels)
		if selects != t.selects(server) {
			if changed == f {
				changed = f.Clone()
			}
			t.selected = withID(t.selected, server, selects)
			if selects && !t.pending && !slices.Contains(filtering(s.Firewalls), f.ID) {
				t.coming = withID(t.coming, server, true)
				tx.startSelected(f.ID, s, t.Selector)
			}
			changed.AppliedTo[i] = t
		}
		if selects && !selected {
			shown, selected = ServerFirewall{f.ID, f.setting || t.pending || hasID(t.coming, server), changed.filters(s)}, true
		}
	}
	if direct >= 0 && !exists {
		changed = f.Clone() // no selector selects the server
		changed.AppliedTo = slices.Delete(changed.AppliedTo, direct, direct+1)
	}
	if changed != f {
		tx.Firewalls.Put(changed)
	}
	return shown, selected
}
