package cloud

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"testing"

	testclock "k8s.io/utils/clock/testing"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/longtest"
)

// selectingCloud returns a cloud whose clock stands still. Its load balancers have a service and select the
// label a. Its servers have the given label.
func selectingCloud(t *testing.T, balancers, servers int, label string) (Project, func(i int)) {
	t.Helper()
	c := New(Options{Clock: testclock.NewFakeClock(testNow)})
	t.Cleanup(c.Close)
	p, _ := c.Project(1)
	for i := range balancers {
		_, _, _, err := p.CreateLoadBalancer(CreateLoadBalancer{
			Name: fmt.Sprintf("lb-%d", i), Type: "lb11", Location: "fsn1",
			Services: []ServiceInput{tcp(80, 80)}, Targets: []TargetInput{selectorTarget("a")},
		})
		check(t, err)
	}
	create := func(i int) {
		did(p.CreateServer(CreateServer{
			Name: fmt.Sprintf("server-%d", i), ServerType: "cx23", Image: "debian-13", Location: "fsn1",
			Labels: map[string]string{label: ""}, IPv4: ServerPublicIP{Enabled: true}, StartAfterCreate: true,
		}))(t)
	}
	for i := range servers {
		create(i)
	}
	return p, create
}

// bytesOf returns how many bytes a call of f allocates: nine of ten calls allocate that many or more. The mean would be
// chance: a sync.Pool drops values.
func bytesOf(calls int, f func(i int)) int {
	each := make([]int, calls)
	for i := range each {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		f(i)
		runtime.ReadMemStats(&after)
		each[i] = int(after.TotalAlloc - before.TotalAlloc)
	}
	slices.Sort(each)
	return each[calls/10]
}

// Not parallel: it counts what the whole process allocates.
//
//nolint:paralleltest // see above
func TestTheCostOfAServerDoesNotGrowWithTheCloud(t *testing.T) {
	longtest.SkipRace(t)
	const calls = 50
	cost := func(balancers, servers int, label string) int {
		least := math.MaxInt
		for range 3 { // the rest of the process allocates, too
			_, create := selectingCloud(t, balancers, servers, label)
			least = min(least, bytesOf(calls, func(i int) { create(servers + i) }))
		}
		return least
	}
	few, many := cost(10, 50, "a"), cost(10, 1000, "a")
	if many > 2*few {
		t.Errorf("a server costs %d bytes after 1,000 targets and %d bytes after 50: the cost grows with the targets", many, few)
	}
	alone, passed := cost(0, 50, "b"), cost(100, 50, "b")
	if passed > alone+alone/10 {
		t.Errorf("a server costs %d bytes with 100 load balancers of other servers and %d bytes without: the cost grows with the load "+
			"balancers", passed, alone)
	}
	one, hundred := cost(1, 50, "a"), cost(100, 50, "a")
	const perBalancer = 1500
	if each := (hundred - one) / 99; each > perBalancer {
		t.Errorf("each load balancer that selects a server adds %d bytes to its creation, want at most %d", each, perBalancer)
	}
	t.Logf("bytes per server: %d after 50, %d after 1,000 with 10 load balancers; %d alone, %d passed; %d with one, %d with 100", few, many,
		alone, passed, one, hundred)
}

// Scheduled work stays in memory until it is due.
//
//nolint:paralleltest // it measures the heap of the whole process
func TestScheduledHealthKeepsNoLoadBalancerInMemory(t *testing.T) {
	heap := func() int {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc)
	}
	const servers = 500
	measure := func(balancers int) int {
		before := heap()
		p, _ := selectingCloud(t, balancers, servers, "a")
		used := heap() - before
		if got := len(p.cloud.queue); balancers > 0 && got < servers {
			t.Errorf("%d jobs wait, want at least one per server: this test measures nothing", got)
		}
		return used
	}
	measure(0) // allocate the memory that is needed once per process
	none, one := measure(0), measure(1)
	if more := (one - none) / servers; more > 1000 {
		t.Errorf("a load balancer that selects %d servers takes %d bytes for each, want at most 1000", servers, more)
	}
}
