package budget

import (
	"net/http"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/fault"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/journal"
)

// leave makes other programs of the project use up its rate limit, except for so many requests.
func (c *cluster) leave(remaining int) {
	c.t.Helper()
	for range fakecloud.RealRateLimit {
		_, resp, err := c.api.Location.GetByID(c.t.Context(), 1)
		c.must(err)
		if resp.Meta.Ratelimit.Remaining <= remaining {
			return
		}
	}
}

// limited is a cluster with 5 Nodes whose CCM knows the rate limit.
func limited(t *testing.T, test func(c *cluster)) {
	t.Helper()
	inBubble(t, 5, false, func(c *cluster) {
		c.start(false)
		time.Sleep(time.Minute)
		c.must(c.fake.SetRateLimit(t.Context(), fakecloud.RealRateLimit))
		c.ensure(c.addServices(1, nil))
		test(c)
	})
}

// insist syncs all Services at once, whatever comes of it, and again after each pause.
func (c *cluster) insist(services []*corev1.Service, total, pause time.Duration) {
	lbs, _ := c.cloud.LoadBalancer()
	for end := time.Now().Add(total); time.Now().Before(end); time.Sleep(pause) {
		var work sync.WaitGroup
		for _, svc := range services {
			work.Go(func() { _, _ = lbs.EnsureLoadBalancer(c.t.Context(), "kubernetes", svc, c.currentNodes()) })
		}
		work.Wait()
	}
}

func refused(entries []journal.Entry) (n int) {
	for _, e := range entries {
		if e.Status == http.StatusTooManyRequests {
			n++
		}
	}
	return n
}

func TestBelowTheReserveUrgentWorkGoesFirst(t *testing.T) {
	t.Parallel()
	limited(t, func(c *cluster) {
		normal := summary(c.during(func() {
			c.notReady(5)
			time.Sleep(time.Minute)
		}))
		if normal["list_servers"] < 3 {
			t.Fatalf("with enough left, questions about nodes that are NotReady: %v", normal)
		}
		c.ready(5)
		time.Sleep(time.Minute)

		c.leave(100)
		c.ensure(c.addServices(1, nil)) // its answers show the CCM how little is left
		c.notReady(5)
		low := c.during(func() { time.Sleep(time.Minute) })
		t.Logf("below the reserve, in a minute: %v", summary(low))
		if n := len(low); n > 6 {
			t.Errorf("%d periodic requests in a minute, want at most one in 10 s", n)
		}
		start := time.Now()
		all := c.during(func() { c.ensure(c.addServices(3, nil)) })
		t.Logf("three Services: %v, %v", time.Since(start), summary(all))
		if took := time.Since(start); took > 10*time.Second || refused(all) > 0 {
			t.Errorf("three new Services took %v: %v", took, summary(all))
		}
		if n := c.metric("ccm_api_requests_held_back_total")["node-lifecycle exists"]; n < 5 {
			t.Errorf("the metric counts %v requests that were held back", n)
		}

		time.Sleep(5 * time.Minute) // the reserve fills up
		later := c.during(func() { time.Sleep(10 * time.Minute) })
		if len(later) < 2 || refused(later) > 0 {
			t.Errorf("with enough left again: %v", summary(later))
		}
	})
}

func TestWithNothingLeftNothingSpins(t *testing.T) {
	t.Parallel()
	limited(t, func(c *cluster) {
		c.leave(1)
		c.notReady(5)
		start := time.Now()
		all := c.during(func() {
			c.ensure(c.addServices(5, nil))
		})
		took := time.Since(start)
		t.Logf("five new Services with nothing left: %v, %d requests, %d of them refused: %v", took, len(all), refused(all), summary(all))
		// The CCM does not know yet that others have used up the limit: its first requests show it.
		const first = 6
		if n := refused(all); n > first {
			t.Errorf("%d requests were refused", n)
		}
		if seconds := int(took / time.Second); len(all) > seconds+2*first {
			t.Errorf("%d requests in %v: more than one per second", len(all), took)
		}
	})
}

// A proxy in front of the API may answer so, and the limit of requests at the same time.
func TestUnder429WithoutHeadersNothingSpins(t *testing.T) {
	t.Parallel()
	inBubble(t, 5, false, func(c *cluster) {
		services := c.serving(time.Minute, 5)
		_, err := c.fake.Faults().Add(c.t.Context(), fault.Rule{Name: "429", Client: ccm.ProviderName,
			Effect: fault.HTTPStatus(http.StatusTooManyRequests)})
		c.must(err)
		c.notReady(5)
		all := c.during(func() { c.insist(services, 20*time.Minute, 5*time.Second) })
		t.Logf("in 20 minutes: %v", summary(all))
		// Without a pause, these are 1,200: five Services in 240 rounds. With it, they are 67, and a few more if several of the Services
		// send at the end of a pause before the first one is refused.
		if n := len(all); n > 100 {
			t.Errorf("%d requests in 20 minutes in which each is refused", n)
		}
		_, err = c.fake.Faults().Remove(c.t.Context(), "429")
		c.must(err)
		start := time.Now()
		c.ensure(c.addServices(1, nil))
		if took := time.Since(start); took > 25*time.Second {
			t.Errorf("after the end of the refusals a new Service took %v", took)
		}
	})
}

// A Secret is mistaken, and the hour of the other project's users begins.
func TestTheTokenOfAnotherProjectCostsThatProjectLittle(t *testing.T) {
	t.Parallel()
	inBubble(t, 5, false, func(c *cluster) {
		services := c.serving(time.Minute, 30)
		c.stop()
		time.Sleep(time.Minute)
		var err error
		_, c.token, err = c.fake.AddProject(c.t.Context(), "other", "")
		c.must(err)
		c.start(false)
		all := c.during(func() { c.insist(services, time.Hour, 30*time.Second) }) // as the error asks
		t.Logf("in an hour: %v", summary(all))
		if n := len(all); n > 360 {
			t.Errorf("%d requests in an hour, want at most a tenth of the rate limit", n)
		}
	})
}
