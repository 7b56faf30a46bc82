package plane

import (
	"net/netip"
	"reflect"
	"slices"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/dataplane"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/cloud"
)

// balancer is what the data plane knows of a load balancer of the cloud.
type balancer struct {
	project int64
	holders map[netip.Addr][]holder // by address: which targets of the cloud are the engine's target
	servers map[int64][]netip.Addr  // the addresses of a server's targets; 0 has those of targets of type ip
	failed  error                   // of the latest attempt to apply it
	shown   []dataplane.Endpoint    // the endpoints in the log
}

// holder is a server with the address of a target, or 0 for a target of type ip.
type holder struct {
	server  int64
	private bool
}

// replaceAll replaces the holders of all targets. It returns their addresses in the order of the targets.
func (b *balancer) replaceAll(lb *cloud.LoadBalancer) (addresses []netip.Addr) {
	b.holders, b.servers = map[netip.Addr][]holder{}, map[int64][]netip.Addr{}
	for t := range lb.Backends() {
		if t.IP.IsValid() && b.use(t) {
			addresses = append(addresses, t.IP)
		}
	}
	return addresses
}

// replace replaces the holders that are some servers. It returns the addresses that these had or have, each once.
func (b *balancer) replace(lb *cloud.LoadBalancer, servers []int64) (addresses []netip.Addr) {
	for _, server := range servers {
		for _, address := range b.servers[server] {
			others := slices.DeleteFunc(b.holders[address], func(h holder) bool { return h.server == server })
			if b.holders[address] = others; len(others) == 0 {
				delete(b.holders, address)
			}
			addresses = append(addresses, address)
		}
		delete(b.servers, server)
		for t := range lb.TargetsOf(server) {
			if t.IP.IsValid() {
				b.use(t)
				addresses = append(addresses, t.IP)
			}
		}
	}
	seen := make(map[netip.Addr]bool, len(addresses))
	return slices.DeleteFunc(addresses, func(a netip.Addr) bool {
		again := seen[a]
		seen[a] = true
		return again
	})
}

// use adds a target's holder. It reports whether the address is new.
func (b *balancer) use(t *cloud.LoadBalancerTarget) bool {
	u, known := holder{t.Server, t.UsePrivateIP}, b.holders[t.IP]
	if !slices.Contains(known, u) {
		b.holders[t.IP] = append(known, u)
		b.servers[t.Server] = append(b.servers[t.Server], t.IP)
	}
	return len(known) == 0
}

// holder returns who has the address of a target: a server at its public or private address, or else a target of type ip.
func (b *balancer) holder(address netip.Addr) (h holder) {
	for _, u := range b.holders[address] {
		if h.server == 0 || h.private && !u.private && u.server != 0 {
			h = u
		}
	}
	return h
}

// target returns the holder as a target of the cloud.
func (h holder) target(address netip.Addr) *cloud.LoadBalancerTarget {
	return &cloud.LoadBalancerTarget{Server: h.server, IP: address, UsePrivateIP: h.private}
}

// rerouted is a load balancer with the changes that some events make to its traffic.
type rerouted struct {
	project, id int64
	wholly      bool    // more changes than its targets
	servers     []int64 // whose targets may have changed, 0 for those of type ip; sorted, each once
	changed     bool
}

// reroutedBy returns the load balancers with changed traffic, in the order of the changes. A change of health, labels or protection does
// not change traffic. Servers enter or leave a label selector with an event of the server in the same transaction.
func reroutedBy(events []cloud.Event) []*rerouted {
	var out []*rerouted
	known := map[int64]*rerouted{}
	of := func(project, id int64) *rerouted {
		if known[id] == nil {
			known[id] = &rerouted{project: project, id: id}
			out = append(out, known[id])
		}
		return known[id]
	}
	for i := range events {
		e := &events[i]
		switch e.Kind {
		case cloud.KindLoadBalancer:
			before, _ := e.Old.(*cloud.LoadBalancer)
			after, _ := e.New.(*cloud.LoadBalancer)
			of(e.Project, e.ID).add(before, after)
		case cloud.KindCertificate:
			before, _ := e.Old.(*cloud.Certificate)
			after, _ := e.New.(*cloud.Certificate)
			if after == nil || before != nil && before.Certificate == after.Certificate {
				continue
			}
			for _, u := range after.UsedBy {
				c := of(e.Project, u.ID)
				c.changed, c.wholly = true, true
			}
		}
	}
	out = slices.DeleteFunc(out, func(c *rerouted) bool { return !c.changed })
	if len(out) == 0 {
		return nil
	}
	for i := range events {
		for _, version := range []any{events[i].Old, events[i].New} {
			if s, ok := version.(*cloud.Server); ok {
				for _, id := range s.LoadBalancers {
					if c := known[id]; c != nil && c.changed {
						c.servers = append(c.servers, s.ID)
					}
				}
			}
		}
	}
	for _, c := range out {
		slices.Sort(c.servers)
		c.servers = slices.Compact(c.servers)
	}
	return out
}

// add adds the change from one version of the load balancer to the next.
func (c *rerouted) add(before, after *cloud.LoadBalancer) {
	switch {
	case before == nil || after == nil || before.Name != after.Name:
		c.changed, c.wholly = true, true
	case before.Revision != after.Revision:
		c.changed = true
		was, is := before.LoadBalancerSettings, after.LoadBalancerSettings
		if was != is && !reflect.DeepEqual(was, is) {
			c.wholly = true
			return
		}
		c.addTargets(before.Targets, after.Targets)
	}
}

// addTargets adds the servers of the targets between those that are the same at both ends of two lists.
func (c *rerouted) addTargets(before, after []cloud.LoadBalancerTarget) {
	same := func(a, b *cloud.LoadBalancerTarget) bool {
		return a.Type == b.Type && a.Server == b.Server && a.Selector == b.Selector && a.IP == b.IP && a.UsePrivateIP == b.UsePrivateIP
	}
	for len(before) > 0 && len(after) > 0 && same(&before[0], &after[0]) {
		before, after = before[1:], after[1:]
	}
	for len(before) > 0 && len(after) > 0 && same(&before[len(before)-1], &after[len(after)-1]) {
		before, after = before[:len(before)-1], after[:len(after)-1]
	}
	for _, t := range slices.Concat(before, after) {
		if t.Type != "label_selector" {
			c.servers = append(c.servers, t.Server)
		}
		for selected := range t.Targets.All() {
			c.servers = append(c.servers, selected.Server)
		}
	}
}
