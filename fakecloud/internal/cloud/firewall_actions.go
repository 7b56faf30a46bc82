package cloud

import "fmt"

// onFirewall starts actions on a firewall. start returns their ids. Errors: not_found, conflict, and those of start.
func (p Project) onFirewall(id int64, start func(*Tx, *Firewall) ([]int64, error)) (actions []int64, st *State, err error) {
	st, err = onFree(p, inFirewalls, id, func(tx *Tx, f *Firewall) (err error) {
		actions, err = start(tx, f)
		return err
	})
	return actions, st, err
}

// SetFirewallRules replaces the rules. The firewall shows the new ones at once. They are in force at the end of the action: at once, too,
// unless a fault rule says otherwise. It starts an action for the rules, and one for each server that has the firewall, as in the API
// document's example. Errors: not_found, conflict, invalid_input.
func (p Project) SetFirewallRules(id int64, rules []FirewallRule) ([]int64, *State, error) {
	return p.onFirewall(id, func(tx *Tx, f *Firewall) ([]int64, error) {
		if err := checkFirewallRules(rules); err != nil {
			return nil, err
		}
		set := tx.startSettingRules(id, rules)
		actions, servers := []int64{set}, f.servers()
		for _, server := range servers {
			ref := Ref{KindServer, server}
			actions = append(actions, tx.Start(ActionSpec{
				Command: "apply_firewall", Resources: []Ref{{KindFirewall, id}, ref}, After: set,
			}).ID)
		}
		tx.refreshServers(servers, id)
		return actions, nil
	})
}

// startSettingRules starts the action that sets the rules. The caller updates the firewall's servers. If the action fails, the
// firewall shows the rules before it again.
func (tx *Tx) startSettingRules(id int64, rules []FirewallRule) int64 {
	rules = inBeforeOut(rules)
	tx.Firewalls.Update(id, func(f *Firewall) { f.Rules, f.setting = rules, true })
	return tx.Start(ActionSpec{Command: "set_firewall_rules", Resources: []Ref{{KindFirewall, id}}, Does: ruleChange{id}}).ID
}

type ruleChange struct{ Firewall int64 }

func (e ruleChange) end(tx *Tx) {
	e.finish(tx, func(f *Firewall) { f.inForce, f.setting = f.Rules, false })
}

func (e ruleChange) failed(tx *Tx, _ *Error) {
	e.finish(tx, func(f *Firewall) { f.Rules, f.setting = f.inForce, false })
}

func (e ruleChange) finish(tx *Tx, change func(*Firewall)) {
	if f, ok := tx.Firewalls.Update(e.Firewall, change); ok {
		servers := f.servers()
		tx.refreshServers(servers, e.Firewall)
		tx.refilterAll(servers, e.Firewall)
	}
}

// ApplyFirewall applies a firewall to more resources, with one action for each.
// Errors: not_found, conflict, invalid_input, firewall_resource_not_found (404), firewall_already_applied,
// private_net_only_server, resource_limit_exceeded.
func (p Project) ApplyFirewall(id int64, to []FirewallTarget) ([]int64, *State, error) {
	return p.onFirewall(id, func(tx *Tx, f *Firewall) (actions []int64, err error) {
		f = f.Clone()
		added, err := tx.addTargets(f, to, false)
		if err != nil {
			return nil, err
		}
		for _, t := range added {
			actions = append(actions, tx.startApplying(id, t))
		}
		tx.Firewalls.Put(f)
		tx.refreshFirewall(id, added)
		return actions, nil
	})
}

// startApplying starts the action that applies a firewall to a resource. The firewall must list the resource already.
func (tx *Tx) startApplying(id int64, t FirewallTarget) int64 {
	return tx.startOnFirewall("apply_firewall", id, t, true)
}

// applyToNewServer applies firewalls to a server that is being created, and returns the actions. They begin with its creation, and lock the
// server until their end, so that clients must wait for them as for the other next actions.
func (tx *Tx) applyToNewServer(server int64, firewalls []int64) (actions []int64) {
	for _, id := range firewalls {
		t := FirewallTarget{Server: server, pending: true}
		tx.Firewalls.Update(id, func(f *Firewall) { t = f.add(t) })
		actions = append(actions, tx.startApplying(id, t))
	}
	tx.refreshFirewallsOf(server, firewalls...)
	return actions
}

// startSelected starts the action that applies a firewall to a server that one of its label selectors newly selects. It locks the server
// (packer-plugin-hcloud pull request 209). For a new server, it begins with the creation of the server and usually ends before it, because
// a client does not know that it has to wait for this action: released clients attach and delete a server right after its creation. If the
// action fails, the server shows the firewall as pending from then on.
func (tx *Tx) startSelected(id int64, server Ref, selector string) {
	tx.Start(ActionSpec{
		Command: "apply_firewall", Resources: []Ref{server, {KindFirewall, id}}, Does: selection{id, server.ID, selector},
	})
}

type selection struct {
	Firewall, Server int64
	Selector         string
}

func (e selection) end(tx *Tx) {
	tx.Firewalls.Update(e.Firewall, func(f *Firewall) {
		if t, ok := f.targets.Get(FirewallTarget{Selector: e.Selector}); ok {
			t.coming = t.coming.With(e.Server, false)
			f.targets.Set(t)
		}
	})
	tx.refreshFirewallsOf(e.Server, e.Firewall)
}

// startOnFirewall starts an action on a firewall and one of its resources. If keeps, the resource stays when the action
// succeeds, and goes when it fails; else it is the other way round. Meanwhile, other actions of a server are locked
// (packer-plugin-hcloud pull request 209). Actions of one firewall on several servers run at the same time.
func (tx *Tx) startOnFirewall(command string, id int64, t FirewallTarget, keeps bool) int64 {
	resources := []Ref{{KindFirewall, id}}
	if t.Server != 0 {
		resources = []Ref{{KindServer, t.Server}, {KindFirewall, id}}
	}
	return tx.Start(ActionSpec{Command: command, Resources: resources, Does: targetChange{id, t.Server, t.Selector, keeps}}).ID
}

// targetChange ends an action on a firewall and one of its resources.
type targetChange struct {
	Firewall, Server int64
	Selector         string
	Keeps            bool
}

func (e targetChange) end(tx *Tx)              { e.finish(tx, e.Keeps) }
func (e targetChange) failed(tx *Tx, _ *Error) { e.finish(tx, !e.Keeps) }

func (e targetChange) finish(tx *Tx, stays bool) {
	id := e.Firewall
	f, ok := tx.Firewalls.Get(id)
	if !ok {
		return
	}
	t, ok := f.targets.Get(FirewallTarget{Server: e.Server, Selector: e.Selector})
	if !ok {
		return // the server is gone
	}
	tx.Firewalls.Update(id, func(f *Firewall) {
		if stays {
			t.pending, t.filters = false, true
			f.targets.Set(t)
		} else {
			f.targets.Delete(t)
		}
	})
	if !stays {
		tx.indexTarget(id, t, false)
		tx.noteTargets(f.ID, append(t.Servers(), t.coming.Items()...)...)
	}
	tx.refreshFirewall(id, []FirewallTarget{t})
}

// RemoveFirewall removes a firewall from resources, with one action for each.
// Errors: not_found, conflict, firewall_resource_not_found (404), firewall_managed_by_label_selector,
// firewall_already_removed.
func (p Project) RemoveFirewall(id int64, from []FirewallTarget) ([]int64, *State, error) {
	return p.onFirewall(id, func(tx *Tx, f *Firewall) (actions []int64, err error) {
		f = f.Clone()
		removed := make([]FirewallTarget, len(from))
		for i, t := range from {
			has, ok := f.targets.Get(t)
			if !ok {
				return nil, tx.errNotApplied(f, t)
			}
			if has.pending {
				return nil, ErrConflict("firewall has changed during request")
			}
			has.pending = true
			f.targets.Set(has)
			removed[i] = has
			actions = append(actions, tx.startOnFirewall("remove_firewall", id, has, false))
		}
		tx.Firewalls.Put(f)
		tx.refreshFirewall(id, removed)
		return actions, nil
	})
}

// errNotApplied says why a firewall cannot be removed from a resource. hcloud-go has the code of a resource that is not
// there; the document has none.
func (tx *Tx) errNotApplied(f *Firewall, t FirewallTarget) error {
	if s, ok := tx.Servers.Get(t.Server); ok && s.shows(f.ID) { // terraform-provider-hcloud issue 911
		return ErrOperation("firewall_managed_by_label_selector",
			fmt.Sprintf("firewall with ID %d has been applied via label selector.", f.ID))
	} else if t.Server != 0 && !ok {
		return errNoFirewallResource(t.Server, false)
	}
	return ErrOperation("firewall_already_removed", "firewall was already removed from the resource")
}
