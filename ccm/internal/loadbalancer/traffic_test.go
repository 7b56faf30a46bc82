package loadbalancer_test

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/plan"
)

// traffic watches the project's load balancer after each API call of the CCM. It says what clients of the
// Service would have noticed.
type traffic struct {
	w     *world
	start *hcloud.LoadBalancer // nil: the load balancer is created while we watch

	fewest  int           // smallest number of server targets
	healthy int           // smallest number of healthy server targets
	exposed time.Duration // how long a listening port was reachable from the internet
	ports   []int         // ports that were reachable from the internet
	closed  []int         // ports of start that did not exist at some time
	lost    []string      // addresses of start that were missing

	was     *hcloud.LoadBalancer
	wasAt   time.Time
	private []string // private addresses that were seen
}

// watch starts to watch. The returned value is complete at any time.
func (w *world) watch() *traffic {
	tr := &traffic{w: w, fewest: 1 << 30, healthy: 1 << 30}
	if all := w.loadBalancers(); len(all) > 0 {
		tr.start = all[0]
	}
	w.wire.setObserve(tr.look)
	return tr
}

func (tr *traffic) look() {
	all, err := tr.w.api.LoadBalancer.All(tr.w.t.Context())
	if err != nil || len(all) == 0 {
		return
	}
	lb, now := all[0], tr.w.clock.Now()
	if tr.was != nil && reachable(tr.was) {
		tr.exposed += now.Sub(tr.wasAt)
	}
	tr.was, tr.wasAt = lb, now
	tr.fewest = min(tr.fewest, len(targetIDs(lb)))
	tr.healthy = min(tr.healthy, len(healthyTargets(lb)))
	if reachable(lb) {
		for _, p := range listenPorts(lb) {
			if !slices.Contains(tr.ports, p) {
				tr.ports = append(tr.ports, p)
			}
		}
	}
	for _, n := range lb.PrivateNet {
		if ip := n.IP.String(); !slices.Contains(tr.private, ip) {
			tr.private = append(tr.private, ip)
		}
	}
	if tr.start != nil {
		tr.compare(lb)
	}
}

// compare records the addresses and ports that the load balancer has lost.
func (tr *traffic) compare(lb *hcloud.LoadBalancer) {
	for _, p := range listenPorts(tr.start) {
		if !slices.Contains(listenPorts(lb), p) && !slices.Contains(tr.closed, p) {
			tr.closed = append(tr.closed, p)
		}
	}
	lose := func(ip net.IP) {
		if text := ip.String(); !slices.Contains(tr.lost, text) {
			tr.lost = append(tr.lost, text)
		}
	}
	if lb.ID != tr.start.ID || !lb.PublicNet.IPv4.IP.Equal(tr.start.PublicNet.IPv4.IP) || tr.start.PublicNet.Enabled &&
		!lb.PublicNet.Enabled {
		lose(tr.start.PublicNet.IPv4.IP)
	}
	for _, had := range tr.start.PrivateNet {
		if !slices.ContainsFunc(lb.PrivateNet, func(n hcloud.LoadBalancerPrivateNet) bool { return n.IP.Equal(had.IP) }) {
			lose(had.IP)
		}
	}
}

// healthyTargets returns the servers that are healthy on all ports.
func healthyTargets(lb *hcloud.LoadBalancer) (ids []int64) {
	for _, t := range lb.Targets {
		if t.Server != nil && len(t.HealthStatus) > 0 && plan.IsHealthy(t) {
			ids = append(ids, t.Server.Server.ID)
		}
	}
	return ids
}

// reachable reports whether a port of the load balancer is open to the internet.
func reachable(lb *hcloud.LoadBalancer) bool {
	return lb.PublicNet.Enabled && len(lb.Services) > 0
}

func (tr *traffic) String() string {
	return fmt.Sprintf("exposed for %v on ports %v, at least %d targets of which %d healthy, lost [%s], private addresses [%s]",
		tr.exposed, tr.ports, tr.fewest, tr.healthy, strings.Join(tr.lost, " "), strings.Join(tr.private, " "))
}
