package framework

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/journal"
)

// Writes returns how many requests that change something the CCM has sent.
func (c *CCM) Writes() int {
	return c.env.Cloud.Journal.Count(journal.Filter{Client: c.env.suite.CCM.UserAgent, Writes: true})
}

// ServiceWrites returns how many requests that change load balancers or certificates the CCM has sent: what it
// does for Services, apart from routes. Where specs share a cloud, it counts the requests about what the spec has
// or had; a creation that was refused is not among them. Where requests are unknown, it returns 0.
func (c *CCM) ServiceWrites() int {
	GinkgoHelper()
	if !c.env.Cloud.Simulated() {
		return 0
	}
	// Looking at what the CCM has created is how the spec learns what belongs to it.
	c.env.LoadBalancers.List(context.Background())
	c.env.Cloud.Certificates(context.Background())
	n := 0
	for _, route := range []string{"/load_balancers*", "/certificates*"} {
		for _, r := range c.env.Cloud.Journal.Entries(journal.Filter{Client: c.env.suite.CCM.UserAgent, Writes: true, Route: route}) {
			if c.env.setup.concerns(r) {
				n++
			}
		}
	}
	return n
}

// AwaitServiceWrites waits until ServiceWrites is n. Where nobody sees requests, it does nothing.
func (c *CCM) AwaitServiceWrites(ctx context.Context, n int) {
	GinkgoHelper()
	if !c.env.Cloud.Simulated() {
		return
	}
	Eventually(c.ServiceWrites).WithContext(ctx).WithTimeout(Timeout).WithPolling(Polling).Should(Equal(n))
}

// ExpectNoServiceWrites fails if the CCM changes a load balancer or certificate before it has
// compared what is there with what should be. There must be a load balancer. It needs
// HCLOUD_NETWORK: a comparison goes on with the network's routes when it is through with load
// balancers.
func (c *CCM) ExpectNoServiceWrites(ctx context.Context) {
	GinkgoHelper()
	before := c.ServiceWrites()
	c.AwaitRequests(ctx, 1, journal.Filter{Operation: "list_load_balancers"})
	c.AwaitRequests(ctx, 1, journal.Filter{Operation: "get_network"})
	Expect(c.ServiceWrites()).To(Equal(before), func() string {
		return "the CCM wrote although nothing had changed:\n" + c.env.Cloud.journalText(journal.Filter{Client: c.env.suite.CCM.UserAgent, Writes: true})
	})
}

// expectCloudStays fails if something of the spec's Services changes in the cloud within Quiet.
func (c *CCM) expectCloudStays(ctx context.Context) {
	GinkgoHelper()
	before, writes := c.settingsInCloud(ctx), 0
	if c.env.Cloud.Simulated() {
		writes = c.ServiceWrites()
	}
	Consistently(func(g Gomega) {
		g.Expect(c.settingsInCloud(ctx)).To(Equal(before))
		if c.env.Cloud.Simulated() {
			g.Expect(c.ServiceWrites()).To(Equal(writes))
		}
	}).WithContext(ctx).WithTimeout(Quiet).WithPolling(Polling).Should(Succeed(), "the CCM wrote although nothing had changed")
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

// WritesTo returns how many requests that change a load balancer the CCM has sent.
func (c *CCM) WritesTo(lb *hcloud.LoadBalancer) int {
	prefix := fmt.Sprintf("/v1/load_balancers/%d", lb.ID)
	n := 0
	for _, entry := range c.env.Cloud.Journal.Entries(journal.Filter{Client: c.env.suite.CCM.UserAgent, Writes: true}) {
		if entry.Path == prefix || strings.HasPrefix(entry.Path, prefix+"/") {
			n++
		}
	}
	return n
}

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

// ExpectNoWrites fails if the CCM changes anything in the cloud within Quiet, in which it must look
// at least once.
func (c *CCM) ExpectNoWrites(ctx context.Context) {
	GinkgoHelper()
	before, seen := c.Writes(), c.Requests()
	Consistently(c.Writes).WithContext(ctx).WithTimeout(Quiet).WithPolling(Polling).Should(Equal(before), func() string {
		return "the CCM wrote although nothing had changed:\n" + c.env.Cloud.journalText(journal.Filter{Client: c.env.suite.CCM.UserAgent, Writes: true})
	})
	Expect(c.Requests()).To(BeNumerically(">", seen), "the CCM did not even look")
}

// AwaitIdle waits until the CCM has compared the cloud with the cluster n times in a row without
// writing: what it had to do is done, and it does not think otherwise. Unlike a time without
// writes it proves that the CCM looked. It needs HCLOUD_NETWORK, whose routes each comparison reads.
func (c *CCM) AwaitIdle(ctx context.Context, n int) {
	GinkgoHelper()
	if !c.env.Cloud.Simulated() || !c.env.suite.CCM.Has(Repair) {
		c.expectCloudStays(ctx)
		return
	}
	after := c.env.Cloud.Journal.Last()
	Eventually(func() int {
		looks := 0
		for _, r := range c.env.Cloud.Journal.Entries(journal.Filter{Client: c.env.suite.CCM.UserAgent, Since: after}) {
			switch {
			case r.Method != http.MethodGet && (c.env.Cloud.Fake != nil || c.env.setup.concerns(r)):
				looks = 0
			case r.Route == "/networks/{id}" && r.Status == http.StatusOK:
				looks++
			}
		}
		return looks
	}).WithContext(ctx).WithTimeout(Timeout).WithPolling(Polling).Should(BeNumerically(">=", n), func() string {
		return "the CCM does not come to rest:\n" + c.env.Cloud.journalText(journal.Filter{Client: c.env.suite.CCM.UserAgent, Writes: true, Since: after})
	})
}
