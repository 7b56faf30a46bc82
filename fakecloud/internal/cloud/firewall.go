package cloud

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/store"
)

// KindFirewall is the kind of firewalls.
const KindFirewall store.Kind = "firewall"

// Limits of firewalls (API document, create_firewall and apply_firewall_to_resources).
const (
	MaxRulesPerFirewall   = 50
	MaxIPsPerFirewallRule = 100
	MaxFirewallsPerServer = 5
	// MaxEffectiveRules applies to one firewall (https://docs.hetzner.com/cloud/firewalls/faq). No source says how they are counted, or
	// gives the error: here, each IP of a rule is an effective rule, and more are invalid_input.
	MaxEffectiveRules = 500
	// MaxSelectorsPerFirewall and MaxFirewallSelector are limits of the simulation: the document and the product's pages name
	// none. They bound what one firewall costs a server. Labels as long as possible still fit into a selector of ten
	// requirements.
	MaxSelectorsPerFirewall = 50
	MaxFirewallSelector     = 4096 // bytes
)

// Firewall limits the traffic of the servers that it is applied to, directly or by a label selector.
//
// Reproduced: the rules and their limits, the resources and their expansion as labels and public addresses change, the status of the
// firewall on each server (pending while an action runs), no change while rules are set (conflict), and the targets that load balancers
// reach ([State.Refusal]). Left out: the rules for outbound traffic, and all packets that no load balancer sends.
type Firewall struct {
	store.Meta
	// Rules are those that the firewall shows: those for `in` before those for `out`. They are replaced as a whole.
	Rules []FirewallRule `json:"rules,omitzero"`

	inForce []FirewallRule // the rules that filter: while an action sets Rules, those before it
	setting bool           // whether an action that sets the rules is running
	targets store.Ascending[FirewallTarget]
	applied int // how many targets there have been
}

// ServerFirewall is a firewall on a server's public interface.
type ServerFirewall struct {
	ID      int64 `json:"id,omitzero"`
	Pending bool  `json:"pending,omitzero"`

	Filters bool `json:"filters,omitzero"` // its rules are in force
}

// Clone implements Object.
func (f *Firewall) Clone() *Firewall {
	c := *f
	c.targets.Share()
	return &c
}

// Ref returns the reference to the firewall.
func (f *Firewall) Ref() Ref { return Ref{KindFirewall, f.ID} }

// filteredBy reports whether the rules of a firewall are in force on the server.
func (s *Server) filteredBy(firewall int64) bool {
	return slices.ContainsFunc(s.Firewalls, func(f ServerFirewall) bool { return f.ID == firewall && f.Filters })
}

// shows reports whether the server shows a firewall, be it applied or pending.
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
			ValidateLabels(in.Labels), checkFirewallRules(in.Rules), RequireUniqueName(&tx.Firewalls, in.Name, 0),
			tx.checkLimit(&tx.Firewalls),
		); err != nil {
			return err
		}
		f = &Firewall{Meta: tx.NewMeta(in.Name, in.Labels), targets: store.NewAscending(lessTarget)}
		added, err := tx.addTargets(f, in.ApplyTo, true)
		if err != nil {
			return err
		}
		tx.Firewalls.Put(f)
		if len(in.Rules) > 0 {
			actions = append(actions, tx.startSettingRules(f.ID, in.Rules))
		}
		for _, t := range added {
			actions = append(actions, tx.startApplying(f.ID, t))
		}
		tx.refreshFirewall(f.ID, added)
		f, _ = tx.Firewalls.Get(f.ID)
		return nil
	})
	return f, actions, st, err
}

// addTargets adds the resources that a firewall is to be applied to, and returns them. The creation of a firewall has errors of
// its own.
func (tx *Tx) addTargets(f *Firewall, to []FirewallTarget, creating bool) ([]FirewallTarget, error) {
	selectors := 0
	for range f.selectors() {
		selectors++
	}
	for _, t := range to {
		if t.Server == 0 {
			selectors++
		}
	}
	if selectors > MaxSelectorsPerFirewall {
		return nil, ErrLimitExceeded("firewall_selector_limit",
			fmt.Sprintf("the firewall would have %d label selectors: must have at most %d", selectors, MaxSelectorsPerFirewall))
	}
	added := make([]FirewallTarget, len(to))
	for i, t := range to {
		t, err := tx.findFirewallTarget(f, t, fmt.Sprintf("apply_to.%d.", i), creating)
		if err != nil {
			return nil, err
		}
		added[i] = f.add(t)
		tx.indexTarget(f.ID, t, true)
	}
	return added, nil
}

// findFirewallTarget checks a resource that a firewall is to be applied to. prefix is the path of its fields.
func (tx *Tx) findFirewallTarget(f *Firewall, t FirewallTarget, prefix string, creating bool) (FirewallTarget, error) {
	t.pending = true
	if t.Server == 0 {
		field := prefix + "label_selector.selector"
		if len(t.Selector) > MaxFirewallSelector {
			return t, ErrField(field, fmt.Sprintf("has %d bytes: must have at most %d", len(t.Selector), MaxFirewallSelector))
		}
		selector, err := store.ParseSelector(t.Selector)
		if err != nil {
			return t, ErrField(field, err.Error())
		}
		t.selector = &selector
	}
	if _, ok := f.targets.Get(t); ok {
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

// checkFirewallsOf returns an error if a server cannot have one more firewall.
func checkFirewallsOf(s *Server) error {
	if n := len(s.Firewalls) + 1; n > MaxFirewallsPerServer {
		return errTooManyFirewalls(fmt.Sprintf("server %d", s.ID), n)
	}
	return nil
}

// errTooManyFirewalls is the error of a server that would have too many firewalls. The document has no code for it.
func errTooManyFirewalls(server string, n int) error {
	return ErrLimitExceeded("firewall_server_limit",
		fmt.Sprintf("%s would have %d firewalls: must have at most %d", server, n, MaxFirewallsPerServer))
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
	return onFree(p, inFirewalls, id, func(tx *Tx, _ *Firewall) error { return setMeta(&tx.Firewalls, id, in) })
}

// DeleteFirewall deletes a firewall that is applied to nothing. Errors: not_found, conflict, resource_in_use.
func (p Project) DeleteFirewall(id int64) error {
	_, err := onFree(p, inFirewalls, id, func(tx *Tx, f *Firewall) error {
		if f.targets.Len() > 0 {
			return ErrResourceInUse(fmt.Sprintf("firewall with ID %d is still in use", id)) // the real API's message
		}
		tx.Firewalls.Delete(id)
		return nil
	})
	return err
}
