package fakecloud

import (
	"net/netip"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/dataplane"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/cloud"
)

// publicTargets are the targets of a load balancer that are servers with a public address, by that address.
type publicTargets struct {
	project int64
	targets map[netip.Addr]*cloud.LoadBalancerTarget
}

func (d *DataPlane) setPublic(project int64, lb *cloud.LoadBalancer) {
	f := publicTargets{project, map[netip.Addr]*cloud.LoadBalancerTarget{}}
	for t := range lb.Backends() {
		if t.Server != 0 && !t.UsePrivateIP {
			f.targets[t.IP] = t
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.behind[lb.ID] = f
}

func (d *DataPlane) forgetPublic(loadBalancer int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.behind, loadBalancer)
}

// passes is the engine's filter: it reports whether the firewalls of a target's server accept a connection of a load
// balancer, in the state of the latest event. A change of rules, of what a firewall is applied to, or of a server's labels
// thus decides about the next connection and probe. Established connections continue: Hetzner's firewalls are stateful,
// and it is not published what becomes of a connection when the rule that permitted it is removed.
func (d *DataPlane) passes(loadBalancer int64, t dataplane.Target, port uint16) bool {
	d.mu.Lock()
	f := d.behind[loadBalancer]
	st := d.states[f.project]
	d.mu.Unlock()
	target, ok := f.targets[t.Address]
	if !ok || st == nil {
		return true
	}
	lb, ok := st.LoadBalancers.Get(loadBalancer)
	return !ok || st.Reaches(lb, target, int(port))
}
