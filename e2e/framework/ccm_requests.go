package framework

import (
	"context"
	"reflect"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/cloud"
)

// Recorded reports whether the cloud remembers the CCM's requests. Elsewhere they are unknown, and specs look at the cloud's objects.
func (e *Env) Recorded() bool {
	_, ok := cloud.As[cloud.Recorder](e.Cloud)
	return ok
}

// requestsAfter returns the CCM's requests of this spec with a higher number that are selected; nil selects all. It skips a spec that
// counts requests where they are unknown.
func (c *CCM) requestsAfter(after uint64, selected func(cloud.Request) bool) []cloud.Request {
	GinkgoHelper()
	all, err := Capability[cloud.Recorder](c.env).Requests(context.Background(), max(after, c.env.since))
	Expect(err).NotTo(HaveOccurred())
	return slices.DeleteFunc(all, func(r cloud.Request) bool { return selected != nil && !selected(r) })
}

// Requests returns the number of the CCM's requests.
func (c *CCM) Requests() int { return len(c.requestsAfter(0, nil)) }

// ServerReads returns the number of the CCM's requests about servers.
func (c *CCM) ServerReads() int {
	return len(c.requestsAfter(0, func(r cloud.Request) bool { return r.About == cloud.AboutServers && !r.Write }))
}

// Writes returns the number of the CCM's requests that change something. Specs that count them need the feature CallBudgets.
func (c *CCM) Writes() int { return len(c.requestsAfter(0, anyWrite)) }

// ServiceWrites returns the number of the CCM's requests that change load balancers: its work for Services, without routes. If specs share
// a cloud, only requests about objects that belong or belonged to the spec count. A refused creation does not count then.
// Specs that count writes need the feature CallBudgets.
func (c *CCM) ServiceWrites() int {
	GinkgoHelper()
	return len(c.ownWrites(context.Background(), isServiceWrite))
}

// AwaitServiceWrites waits until ServiceWrites is n.
func (c *CCM) AwaitServiceWrites(ctx context.Context, n int) {
	GinkgoHelper()
	Eventually(c.ServiceWrites).WithContext(ctx).Should(Equal(n))
}

// isServiceWrite reports whether a request changes objects of Services in the cloud.
func isServiceWrite(r cloud.Request) bool { return r.Write && r.About == cloud.AboutLoadBalancers }

func anyWrite(r cloud.Request) bool { return r.Write }

// ownWrites returns the CCM's selected requests that change something of the spec's.
func (c *CCM) ownWrites(ctx context.Context, selected func(cloud.Request) bool) []cloud.Request {
	GinkgoHelper()
	writes := c.requestsAfter(0, selected)
	if c.env.suite.shared == nil {
		return writes
	}
	// List notes the load balancers that belong to the spec.
	c.env.LoadBalancers.List(ctx)
	c.env.otherIDs(ctx)
	return slices.DeleteFunc(writes, func(r cloud.Request) bool { return r.About != cloud.AboutLoadBalancers || !c.env.Owns(r.ID, "") })
}

// ExpectNoServiceWrites waits until the CCM is idle, and fails if it then changes a load balancer of the
// spec's within the quiet time of its file.
func (c *CCM) ExpectNoServiceWrites(ctx context.Context) {
	GinkgoHelper()
	c.expectNo(ctx, isServiceWrite)
}

// ExpectNoWrites waits until the CCM is idle, and fails if it then changes anything of the spec's within the quiet time of its file.
func (c *CCM) ExpectNoWrites(ctx context.Context) {
	GinkgoHelper()
	c.expectNo(ctx, anyWrite)
}

func (c *CCM) expectNo(ctx context.Context, writes func(cloud.Request) bool) {
	GinkgoHelper()
	c.AwaitIdle(ctx)
	c.awaitQuiet(ctx, writes, func() { Fail("the CCM wrote although nothing had changed:\n" + c.requestsText()) })
}

// AwaitIdle waits until the CCM is idle: it changed nothing that belongs to the spec during the quiet time of its description. After a
// start, or when another replica replaces one that was killed, the quiet time counts from the CCM's first request. It starts again each
// time the CCM sends a new kind of request.
func (c *CCM) AwaitIdle(ctx context.Context) {
	GinkgoHelper()
	c.awaitBegin(ctx)
	c.awaitQuiet(ctx, anyWrite, func() {})
	c.start = nil
}

// awaitQuiet waits for the quiet time to pass without a selected request that changes something of the spec's. It calls changed for each
// change. In a cloud that does not record requests, only changes of load balancers count.
func (c *CCM) awaitQuiet(ctx context.Context, selected func(cloud.Request) bool, changed func()) {
	GinkgoHelper()
	look := func() any {
		if !c.env.Recorded() {
			return c.settingsInCloud(ctx)
		}
		var last uint64
		for _, r := range c.ownWrites(ctx, selected) {
			last = r.Seq
		}
		return last
	}
	before, kinds, since := look(), c.kindsSinceStart(), c.env.clock()
	Eventually(func() time.Duration {
		current, now := look(), c.env.clock()
		if n := c.kindsSinceStart(); n != kinds {
			kinds, since = n, now
		}
		if !reflect.DeepEqual(current, before) {
			before, since = current, now
			changed()
		}
		return c.quiet(kinds) - now.Sub(since)
	}).WithContext(ctx).WithTimeout(Timeout+c.quiet(0)).Should(BeNumerically("<=", 0), func() string {
		return "the CCM does not stop writing:\n" + c.requestsText()
	})
}

// quiet returns how long the cloud must stay unchanged before the CCM counts as idle. The time is five times as long for a CCM that sent
// only one kind of request since its start: many read their network when the process starts, and everything else when their controllers
// run.
func (c *CCM) quiet(kinds int) time.Duration {
	if c.start != nil && kinds < 2 {
		return 5 * c.env.suite.QuietTime()
	}
	return c.env.suite.QuietTime()
}

// settingsInCloud returns the settings of the spec's load balancers, and the IDs of its other objects in the cloud. It leaves out the
// values that the cloud changes by itself.
func (c *CCM) settingsInCloud(ctx context.Context) any {
	GinkgoHelper()
	var lbs []cloud.LoadBalancer
	for _, lb := range c.env.LoadBalancers.List(ctx) {
		lbs = append(lbs, Settings(lb))
	}
	return []any{lbs, c.env.otherIDs(ctx)}
}

// requestsText returns the CCM's requests, a line each; "" where they are unknown.
func (c *CCM) requestsText() string {
	if !c.env.Recorded() {
		return ""
	}
	var b strings.Builder
	for _, r := range c.requestsAfter(0, nil) {
		b.WriteString(r.Time.Format("15:04:05.000") + " " + r.Text + "\n")
	}
	return b.String()
}
