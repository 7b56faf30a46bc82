package plane

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"k8s.io/utils/clock"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/dataplane"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/cloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/wire"
)

// BindInterval is how often, on the cloud's clock, the data plane retries ports that it could not bind.
const BindInterval = 10 * time.Second

func (d *Balancers) retry(ctx context.Context, ticker clock.Ticker) {
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C():
			d.rebind()
		case <-ctx.Done():
			return
		}
	}
}

func (d *Balancers) rebind() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.eachLoadBalancer(func(b *balancer, st *cloud.State, lb *cloud.LoadBalancer) {
		switch {
		case b.failed != nil:
			d.applyAll(b, st, lb)
		case d.engine.Rebind(lb.ID):
			d.logEndpoints(b, lb)
		}
	})
}

// eachLoadBalancer calls do for all load balancers in the state of the latest events.
func (d *Balancers) eachLoadBalancer(do func(b *balancer, st *cloud.State, lb *cloud.LoadBalancer)) {
	for _, project := range slices.Sorted(maps.Keys(d.states)) {
		st := d.states[project]
		for lb := range st.LoadBalancers.All() {
			do(d.balancers[lb.ID], st, lb)
		}
	}
}

// logEndpoints logs where a load balancer listens, as a warning if it has another port than in the cloud.
func (d *Balancers) logEndpoints(b *balancer, lb *cloud.LoadBalancer) {
	before := b.shown
	b.shown = d.engine.Endpoints(lb.ID)
	for _, e := range b.shown {
		if slices.Contains(before, e) {
			continue
		}
		asked := netip.AddrPortFrom(e.Address, e.Port)
		args := []any{"load_balancer", lb.Name, "id", lb.ID, "address", asked, "local", e.Local}
		if problem := displaced(e); problem != "" {
			d.log.Warn("load balancer listens on another port", append(args, "reason", problem)...)
			continue
		}
		d.log.Info("load balancer listens", args...)
	}
}

// displaced explains why a listener has another port than in the cloud, and says how to change that. It returns "" for the same port.
func displaced(e dataplane.Endpoint) string {
	if e.Local.Port() == e.Port {
		return ""
	}
	return fmt.Sprintf("port %d of %s is in use or not permitted: stop the program that uses it, or connect to %s; fakecloud retries "+
		"every %v",
		e.Port, e.Local.Addr(), e.Local, BindInterval)
}

// AllEndpoints returns where each service of each load balancer listens, for the control API.
func (d *Balancers) AllEndpoints() []wire.LoadBalancerEndpoint {
	out := []wire.LoadBalancerEndpoint{}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.eachLoadBalancer(func(b *balancer, st *cloud.State, lb *cloud.LoadBalancer) {
		at := map[netip.AddrPort]dataplane.Endpoint{}
		for _, e := range d.engine.Endpoints(lb.ID) {
			at[netip.AddrPortFrom(e.Address, e.Port)] = e
		}
		model := loadBalancerModel(st, lb)
		for _, address := range model.Addresses {
			for _, s := range model.Services {
				asked := netip.AddrPortFrom(address, s.ListenPort)
				shown := wire.LoadBalancerEndpoint{Project: b.project, ID: lb.ID, Name: lb.Name, Address: asked.String()}
				if e, ok := at[asked]; ok {
					shown.Local, shown.Error = e.Local.String(), displaced(e)
				}
				if b.failed != nil {
					shown.Error = b.failed.Error()
				}
				out = append(out, shown)
			}
		}
	})
	return out
}
