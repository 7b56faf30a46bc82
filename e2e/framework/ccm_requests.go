package framework

import (
	"context"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/journal"
)

// Requests returns how many requests the CCM has sent.
func (c *CCM) Requests() int {
	return c.env.Cloud.Journal.Count(journal.Filter{Client: c.env.suite.CCM.UserAgent})
}

// AwaitRequests waits until the CCM has sent n more requests that the filter selects.
func (c *CCM) AwaitRequests(ctx context.Context, n int, filter journal.Filter) {
	GinkgoHelper()
	filter.Client = c.env.suite.CCM.UserAgent
	before := c.env.Cloud.Journal.Count(filter)
	Eventually(func() int { return c.env.Cloud.Journal.Count(filter) - before }).
		WithContext(ctx).WithTimeout(Timeout).WithPolling(Polling).Should(BeNumerically(">=", n))
}

// ServerReads returns how many requests about servers the CCM has sent.
func (c *CCM) ServerReads() int {
	return c.env.Cloud.Journal.Count(journal.Filter{Client: c.env.suite.CCM.UserAgent, Method: "GET", Route: "/servers*"})
}

// Writes returns how many requests that change something the CCM has sent. Specs that count them need the feature
// CallBudgets.
func (c *CCM) Writes() int {
	return c.env.Cloud.Journal.Count(c.writes())
}

func (c *CCM) writes() journal.Filter {
	return journal.Filter{Client: c.env.suite.CCM.UserAgent, Writes: true}
}

// ServiceWrites returns how many requests that change load balancers or certificates the CCM has sent: what it does
// for Services, apart from routes. Where specs share a cloud, it counts the requests about what the spec has or had;
// a creation that was refused is not among them. Specs that count writes need the feature CallBudgets.
func (c *CCM) ServiceWrites() int {
	GinkgoHelper()
	return len(c.ownWrites(context.Background(), isServiceWrite))
}

// AwaitServiceWrites waits until ServiceWrites is n.
func (c *CCM) AwaitServiceWrites(ctx context.Context, n int) {
	GinkgoHelper()
	Eventually(c.ServiceWrites).WithContext(ctx).WithTimeout(Timeout).WithPolling(Polling).Should(Equal(n))
}

// isServiceWrite reports whether a request that changes something changes what Services have in the cloud.
func isServiceWrite(r journal.Entry) bool {
	return strings.HasPrefix(r.Route, "/load_balancers") || strings.HasPrefix(r.Route, "/certificates")
}

// ownWrites returns the CCM's requests that change something of the spec's, as far as they are selected.
func (c *CCM) ownWrites(ctx context.Context, selected func(journal.Entry) bool) []journal.Entry {
	GinkgoHelper()
	writes := c.env.Cloud.Journal.Entries(c.writes())
	return c.env.setup.ownRequests(ctx, slices.DeleteFunc(writes, func(r journal.Entry) bool { return !selected(r) }))
}

// ExpectNoServiceWrites waits until the CCM is idle, and fails if it then changes a load balancer or certificate of the
// spec's within the quiet time of its file.
func (c *CCM) ExpectNoServiceWrites(ctx context.Context) {
	GinkgoHelper()
	c.AwaitIdle(ctx)
	c.awaitQuiet(ctx, isServiceWrite, func() {
		Fail("the CCM wrote although nothing had changed:\n" + c.env.Cloud.journalText(c.writes()))
	})
}

// ExpectNoWrites waits until the CCM is idle, and fails if it then changes anything of the spec's within the quiet time
// of its file.
func (c *CCM) ExpectNoWrites(ctx context.Context) {
	GinkgoHelper()
	c.AwaitIdle(ctx)
	c.awaitQuiet(ctx, anyWrite, func() {
		Fail("the CCM wrote although nothing had changed:\n" + c.env.Cloud.journalText(c.writes()))
	})
}

// AwaitIdle waits until the CCM has changed nothing of the spec's for the quiet time of its file: it has done its work. The
// quiet time of a CCM that was started, or replaces one that was killed, counts from when it has begun, and anew when it asks
// the cloud for something that it has not asked for since.
func (c *CCM) AwaitIdle(ctx context.Context) {
	GinkgoHelper()
	c.awaitBegin(ctx)
	c.awaitQuiet(ctx, anyWrite, func() {})
	c.start = nil
}

func anyWrite(journal.Entry) bool { return true }

// awaitQuiet waits until no selected request has changed anything of the spec's for the quiet time, on the cloud's
// clock. It calls changed for each change. Where requests are unknown, a change is one of the load balancers and
// certificates.
func (c *CCM) awaitQuiet(ctx context.Context, selected func(journal.Entry) bool, changed func()) {
	GinkgoHelper()
	look := func() any {
		if !c.env.Cloud.Simulated() {
			return c.settingsInCloud(ctx)
		}
		var last uint64
		for _, r := range c.ownWrites(ctx, selected) {
			last = r.Seq
		}
		return last
	}
	before, operations, since := look(), c.operationsSinceStart(), c.env.Cloud.now(ctx)
	Eventually(func() time.Duration {
		current, now := look(), c.env.Cloud.now(ctx)
		if n := c.operationsSinceStart(); n != operations {
			operations, since = n, now
		}
		if !reflect.DeepEqual(current, before) {
			before, since = current, now
			changed()
		}
		return c.quiet(operations) - now.Sub(since)
	}).WithContext(ctx).WithTimeout(Timeout+c.quiet(0)).WithPolling(Polling).Should(BeNumerically("<=", 0), func() string {
		return "the CCM does not stop writing:\n" + c.env.Cloud.journalText(c.writes())
	})
}

// quiet returns the time without a change after which the CCM has done its work. It is five times as long for a CCM that has
// asked for one thing only since its start: many read their network when the process starts, and all else when their
// controllers run.
func (c *CCM) quiet(operations int) time.Duration {
	if c.start != nil && operations < 2 {
		return 5 * c.env.suite.quiet()
	}
	return c.env.suite.quiet()
}

// settingsInCloud returns the spec's load balancers and certificates without what the cloud changes by itself.
func (c *CCM) settingsInCloud(ctx context.Context) any {
	GinkgoHelper()
	var lbs []*hcloud.LoadBalancer
	for _, lb := range c.env.LoadBalancers.List(ctx) {
		lbs = append(lbs, Settings(lb))
	}
	var certificates []int64
	for _, c := range c.env.Cloud.Certificates(ctx) {
		certificates = append(certificates, c.ID)
	}
	return []any{lbs, certificates}
}
