package plane

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"runtime"
	"runtime/debug"
	"testing"
	"time"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/dataplane"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/cloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/cputime"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/simclock"
)

// targetCost is what a target takes of the process, on average, from the creation of its server to its deletion.
type targetCost struct {
	cpu           time.Duration
	allocs, bytes uint64
}

func (c targetCost) least(o targetCost) targetCost {
	return targetCost{min(c.cpu, o.cpu), min(c.allocs, o.allocs), min(c.bytes, o.bytes)}
}

// grows reports whether a cost is not about the same as with fewer targets. The way through a tree may be longer.
func (c targetCost) grows(few targetCost) bool {
	return c.cpu > 2*few.cpu || c.allocs > few.allocs*3/2 || c.bytes > few.bytes*3/2
}

// startStill starts a cloud with a data plane and a clock that stands still: each target gets one probe. The probe fails.
func startStill(tb testing.TB) (*cloud.Cloud, *Balancers) {
	tb.Helper()
	core := cloud.New(cloud.Options{
		Clock: simclock.NewAt(time.Date(2026, 11, 24, 0, 0, 0, 0, time.UTC), 0), LoadBalancerIPv4: netip.MustParsePrefix("127.66.0.0/16"),
	})
	tb.Cleanup(core.Close)
	plane := StartBalancers(core, Options{
		Logger:   slog.New(slog.DiscardHandler),
		Resolver: func(dataplane.Target, uint16) (string, error) { return "", errors.New("no program is this server") },
	})
	tb.Cleanup(plane.Close)
	return core, plane
}

// selecting is a cloud with a data plane and a load balancer that selects servers.
type selecting struct {
	project cloud.Project
	events  *cloud.Subscription
	serial  int
}

func newSelecting(tb testing.TB, targets int) *selecting {
	tb.Helper()
	core, _ := startStill(tb)
	s := &selecting{}
	s.project, _ = core.Project(1)
	servers := make([]int64, targets)
	for i := range servers {
		servers[i] = s.create(tb)
	}
	s.events, _ = core.Subscribe()
	tb.Cleanup(s.events.Close)
	tcp, port := "tcp", 8080
	if _, _, _, err := s.project.CreateLoadBalancer(cloud.CreateLoadBalancer{
		Name: "lb", Type: "lb11", Location: "fsn1", Targets: []cloud.TargetInput{{Type: "label_selector", Selector: "role=web"}},
		Services: []cloud.ServiceInput{{
			Protocol: &tcp, ListenPort: &port, DestinationPort: &port, HealthCheck: &cloud.HealthCheckInput{Retries: new(1)},
		}},
	}); err != nil {
		tb.Fatal(err)
	}
	s.awaitHealth(tb, servers...)
	return s
}

func (s *selecting) create(tb testing.TB) int64 {
	tb.Helper()
	s.serial++
	created, _, err := s.project.CreateServer(cloud.CreateServer{
		Name: fmt.Sprint("web-", s.serial), ServerType: "cx23", Image: "debian-13", Location: "fsn1", StartAfterCreate: true,
		IPv4: cloud.ServerPublicIP{Enabled: true}, Labels: map[string]string{"role": "web"},
	})
	if err != nil {
		tb.Fatal(err)
	}
	return created.Server.ID
}

// awaitHealth waits until the data plane reports the health of servers: its work for new targets ends with that.
func (s *selecting) awaitHealth(tb testing.TB, servers ...int64) {
	tb.Helper()
	for len(servers) > 0 {
		e, err := s.events.Next(tb.Context())
		if err != nil {
			tb.Fatal(err)
		}
		lb, ok := e.New.(*cloud.LoadBalancer)
		for ok && len(servers) > 0 && unhealthy(lb, servers[0]) {
			servers = servers[1:]
		}
	}
}

func unhealthy(lb *cloud.LoadBalancer, server int64) bool {
	for t := range lb.TargetsOf(server) {
		return t.Health[0].Status == cloud.HealthUnhealthy
	}
	return false
}

// replace creates servers one by one. Each becomes a target, and is deleted.
func (s *selecting) replace(tb testing.TB, servers int) {
	tb.Helper()
	for range servers {
		id := s.create(tb)
		s.awaitHealth(tb, id)
		if _, _, err := s.project.DeleteServer(id); err != nil {
			tb.Fatal(err)
		}
	}
}

// cost returns the least cost of a target in some measurements.
func (s *selecting) cost(t *testing.T) (least targetCost) {
	t.Helper()
	const servers = 30
	for i := range 4 {
		runtime.GC()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		start := cputime.Used()
		s.replace(t, servers)
		used := cputime.Used() - start
		runtime.ReadMemStats(&after)
		now := targetCost{used / servers, (after.Mallocs - before.Mallocs) / servers, (after.TotalAlloc - before.TotalAlloc) / servers}
		if least = now.least(least); i == 0 {
			least = now
		}
	}
	return least
}

// The cost is that of the whole process: the cloud, its events, the data plane and the report of the target's health.
//
//nolint:paralleltest // it measures the process
func TestTheCostOfATargetDoesNotGrowWithTheOthers(t *testing.T) {
	// The cost of a collection depends on the live memory, not on the work.
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	fewest := newSelecting(t, 200)
	few := fewest.cost(t)
	for _, n := range []int{400, 800, 1600} {
		among := newSelecting(t, n)
		many := among.cost(t)
		for range 20 { // again, so that a busy machine does not decide
			if many.grows(few) {
				few, many = few.least(fewest.cost(t)), many.least(among.cost(t))
			}
		}
		t.Logf("among %d targets: %+v, among 200: %+v", n, many, few)
		if many.grows(few) {
			t.Errorf("a target among %d others costs %+v, and %+v among 200", n, many, few)
		}
	}
}
