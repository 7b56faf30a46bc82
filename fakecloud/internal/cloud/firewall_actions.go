package cloud

import (
	"fmt"
	"slices"
)

// onFirewall starts actions on a firewall. start returns their ids. Errors: not_found, conflict, and those of start.
func (p Project) onFirewall(id int64, start func(*Tx, *Firewall) ([]int64, error)) (actions []int64, st *State, err error) {
	st, err = p.update(func(tx *Tx) error {
		f, err := tx.freeFirewall(id)
		if err != nil {
			return err
		}
		actions, err = start(tx, f)
		tx.refreshFirewall(id)
		return err
	})
	return actions, st, err
}

// SetFirewallRules replaces the rules. It starts an action for the rules, and one for each server that has the firewall, as
// in the API document's example. Errors: not_found, conflict, invalid_input.
func (p Project) SetFirewallRules(id int64, rules []FirewallRule) ([]int64, *State, error) {
	return p.onFirewall(id, func(tx *Tx, _ *Firewall) ([]int64, error) {
		if err := checkFirewallRules(rules); err != nil {
			return nil, err
		}
		set := tx.startSettingRules(id, rules)
		actions := []int64{set}
		for s := range tx.Servers.All() {
			if s.shows(id) {
				actions = append(actions, tx.Start(ActionSpec{
					Command: "apply_firewall", Resources: []Ref{{KindFirewall, id}, s.Ref()}, Locks: []Ref{s.Ref()}, After: set,
				}).ID)
			}
		}
		return actions, nil
	})
}

func (tx *Tx) startSettingRules(id int64, rules []FirewallRule) int64 {
	set := func(tx *Tx, change func(*Firewall)) {
		tx.Firewalls.Update(id, change)
		tx.refreshFirewall(id)
	}
	tx.Firewalls.Update(id, func(f *Firewall) { f.setting = true })
	ref := []Ref{{KindFirewall, id}}
	return tx.Start(ActionSpec{
		Command: "set_firewall_rules", Resources: ref, Locks: ref,
		Effect: func(tx *Tx) {
			set(tx, func(f *Firewall) { f.Rules, f.setting = rules, false })
			tx.refilterAll(id)
		},
		Failed: func(tx *Tx) { set(tx, func(f *Firewall) { f.setting = false }) },
	}).ID
}

// ApplyFirewall applies a firewall to more resources, each with an action of its own.
// Errors: not_found, conflict, invalid_input, firewall_resource_not_found (404), firewall_already_applied,
// private_net_only_server, resource_limit_exceeded.
func (p Project) ApplyFirewall(id int64, to []FirewallTarget) ([]int64, *State, error) {
	return p.onFirewall(id, func(tx *Tx, f *Firewall) (actions []int64, err error) {
		f = f.Clone()
		for i, t := range to {
			if t, err = tx.findFirewallTarget(f, t, fmt.Sprintf("apply_to.%d.", i), false); err != nil {
				return nil, err
			}
			f.AppliedTo = append(f.AppliedTo, t)
			actions = append(actions, tx.startApplying(id, t, 0))
		}
		tx.Firewalls.Put(f)
		return actions, nil
	})
}

// startApplying starts the action that applies a firewall to a resource, which the firewall has already. after is the id
// of an action that must end first, 0 for none.
func (tx *Tx) startApplying(id int64, t FirewallTarget, after int64) int64 {
	return tx.startOnFirewall("apply_firewall", id, t, after, true)
}

// startSelected starts the action that applies a firewall to a server which one of its label selectors has begun to select.
// That of a new server waits for its creation. If it fails, the server shows the firewall as pending from then on.
func (tx *Tx) startSelected(id int64, s *Server, selector string) {
	var after int64
	if s.Status == ServerInitializing {
		after, _ = tx.Actions.LockedBy(s.Ref())
	}
	tx.Start(ActionSpec{
		Command: "apply_firewall", Resources: []Ref{s.Ref(), {KindFirewall, id}}, Locks: []Ref{s.Ref()}, After: after,
		Effect: func(tx *Tx) {
			tx.Firewalls.Update(id, func(f *Firewall) {
				if i := f.target(FirewallTarget{Selector: selector}); i >= 0 {
					f.AppliedTo[i].coming = withID(f.AppliedTo[i].coming, s.ID, false)
				}
			})
			tx.refreshFirewallsOf(s.ID)
		},
	})
}

// startOnFirewall starts an action on a firewall and one of its resources. If keeps, the resource stays when the action
// succeeds, and goes when it fails; else it is the other way round. Meanwhile, other actions of a server are locked
// (packer-plugin-hcloud pull request 209). Actions of one firewall on several servers run at the same time.
func (tx *Tx) startOnFirewall(command string, id int64, t FirewallTarget, after int64, keeps bool) int64 {
	resources := []Ref{{KindFirewall, id}}
	var locks []Ref
	if t.Server != 0 {
		locks = []Ref{{KindServer, t.Server}}
		resources = slices.Concat(locks, resources)
	}
	end := func(stays bool) func(*Tx) {
		return func(tx *Tx) {
			tx.Firewalls.Update(id, func(f *Firewall) {
				i := f.target(t)
				switch {
				case i < 0: // the server is gone
				case stays:
					f.AppliedTo[i].pending, f.AppliedTo[i].filters = false, true
				default:
					f.AppliedTo = slices.Delete(f.AppliedTo, i, i+1)
				}
			})
			tx.refreshFirewall(id)
		}
	}
	return tx.Start(ActionSpec{
		Command: command, Resources: resources, Locks: locks, After: after,
		Effect: end(keeps), Failed: end(!keeps),
	}).ID
}

// RemoveFirewall removes a firewall from resources, each with an action of its own.
// Errors: not_found, conflict, firewall_resource_not_found (404), firewall_managed_by_label_selector,
// firewall_already_removed.
func (p Project) RemoveFirewall(id int64, from []FirewallTarget) ([]int64, *State, error) {
	return p.onFirewall(id, func(tx *Tx, f *Firewall) (actions []int64, err error) {
		f = f.Clone()
		for _, t := range from {
			i := f.target(t)
			if i < 0 {
				return nil, tx.errNotApplied(f, t)
			}
			if f.AppliedTo[i].pending {
				return nil, ErrConflict("firewall has changed during request")
			}
			f.AppliedTo[i].pending = true
			actions = append(actions, tx.startOnFirewall("remove_firewall", id, t, 0, false))
		}
		tx.Firewalls.Put(f)
		return actions, nil
	})
}

// errNotApplied says why a firewall cannot be removed from a resource. hcloud-go has the code of a resource that is not
// there; the document has none.
func (tx *Tx) errNotApplied(f *Firewall, t FirewallTarget) error {
	s, ok := tx.Servers.Get(t.Server)
	if t.Server != 0 && !ok {
		return errNoFirewallResource(t.Server, false)
	}
	if t.Server != 0 && s.shows(f.ID) {
		return ErrOperation("firewall_managed_by_label_selector", "firewall is applied via a label selector and cannot be removed manually")
	}
	return ErrOperation("firewall_already_removed", "firewall was already removed from the resource")
}
