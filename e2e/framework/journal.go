package framework

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
)

// CCMClient is a part of the User-Agent of our CCM, by which the journal tells it from the spec.
const CCMClient = "ccm-from-scratch"

// CCMWrites returns how many requests that change something the CCM has sent.
func (e *Env) CCMWrites() int {
	return e.Cloud.Journal().Count(fakecloud.JournalFilter{Client: CCMClient, Writes: true})
}

// ServiceWrites returns how many requests that change load balancers or certificates the CCM has
// sent: what it does for Services, apart from routes.
func (e *Env) ServiceWrites() int {
	n := 0
	for _, route := range []string{"/load_balancers*", "/certificates*"} {
		n += e.Cloud.Journal().Count(fakecloud.JournalFilter{Client: CCMClient, Writes: true, Route: route})
	}
	return n
}

// ExpectNoServiceWrites fails if the CCM changes a load balancer or certificate before it has
// compared what is there with what should be. There must be a load balancer. It needs
// HCLOUD_NETWORK: a comparison goes on with the network's routes when it is through with load
// balancers.
func (e *Env) ExpectNoServiceWrites(ctx context.Context) {
	GinkgoHelper()
	before := e.ServiceWrites()
	e.AwaitCCMRequests(ctx, 1, fakecloud.JournalFilter{Operation: "list_load_balancers"})
	e.AwaitCCMRequests(ctx, 1, fakecloud.JournalFilter{Operation: "get_network"})
	Expect(e.ServiceWrites()).To(Equal(before), func() string {
		return "the CCM wrote although nothing had changed:\n" + e.journalText(fakecloud.JournalFilter{Client: CCMClient, Writes: true})
	})
}

// CCMWritesTo returns how many requests that change a load balancer the CCM has sent.
func (e *Env) CCMWritesTo(lb *hcloud.LoadBalancer) int {
	prefix := fmt.Sprintf("/v1/load_balancers/%d", lb.ID)
	n := 0
	for _, entry := range e.Cloud.Journal().Entries(fakecloud.JournalFilter{Client: CCMClient, Writes: true}) {
		if entry.Path == prefix || strings.HasPrefix(entry.Path, prefix+"/") {
			n++
		}
	}
	return n
}

// CCMRequests returns how many requests the CCM has sent.
func (e *Env) CCMRequests() int {
	return e.Cloud.Journal().Count(fakecloud.JournalFilter{Client: CCMClient})
}

// AwaitCCMRequests waits until the CCM has sent n more requests that the filter selects.
func (e *Env) AwaitCCMRequests(ctx context.Context, n int, filter fakecloud.JournalFilter) {
	GinkgoHelper()
	filter.Client = CCMClient
	before := e.Cloud.Journal().Count(filter)
	Eventually(func() int { return e.Cloud.Journal().Count(filter) - before }).
		WithContext(ctx).WithTimeout(Timeout).WithPolling(Polling).Should(BeNumerically(">=", n))
}

// ExpectNoWrites fails if the CCM changes anything in the cloud within Quiet, in which it must look
// at least once.
func (e *Env) ExpectNoWrites(ctx context.Context) {
	GinkgoHelper()
	before, seen := e.CCMWrites(), e.CCMRequests()
	Consistently(e.CCMWrites).WithContext(ctx).WithTimeout(Quiet).WithPolling(Polling).Should(Equal(before), func() string {
		return "the CCM wrote although nothing had changed:\n" + e.journalText(fakecloud.JournalFilter{Client: CCMClient, Writes: true})
	})
	Expect(e.CCMRequests()).To(BeNumerically(">", seen), "the CCM did not even look")
}

// Settled waits until the CCM has not written for a while: what it had to do is done.
func (e *Env) Settled(ctx context.Context) {
	GinkgoHelper()
	last, since := e.CCMWrites(), time.Now()
	Eventually(func() time.Duration {
		if n := e.CCMWrites(); n != last {
			last, since = n, time.Now()
		}
		return time.Since(since)
	}).WithContext(ctx).WithTimeout(Timeout).WithPolling(Polling).Should(BeNumerically(">", 4*time.Second))
}

// Fault makes the cloud misbehave towards the CCM until the spec ends or the returned function is
// called. Client is set to the CCM's.
func (e *Env) Fault(f fakecloud.Fault) (name string, remove func()) {
	GinkgoHelper()
	f.Client = CCMClient
	rule, err := e.Cloud.Faults().Add(f)
	Expect(err).NotTo(HaveOccurred())
	return rule.Name, func() { e.Cloud.Faults().Remove(rule.Name) }
}

// AwaitFault waits until a fault has been applied n times in all.
func (e *Env) AwaitFault(ctx context.Context, name string, n int) {
	GinkgoHelper()
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	_, err := e.Cloud.Faults().Await(ctx, name, uint64(n))
	Expect(err).NotTo(HaveOccurred(), "the fault %s was not met %d times", name, n)
}

// FaultApplied returns how many requests a fault has been applied to.
func (e *Env) FaultApplied(name string) int {
	GinkgoHelper()
	status, ok := e.Cloud.Faults().Get(name)
	Expect(ok).To(BeTrue(), "there is no fault %s", name)
	return int(status.Applied)
}

func (e *Env) journalText(filter fakecloud.JournalFilter) string {
	var b strings.Builder
	for _, entry := range e.Cloud.Journal().Entries(filter) {
		fmt.Fprintf(&b, "%s %-6s %s%s → %d %s %s %s\n", entry.Time.Format("15:04:05.000"), entry.Method, entry.Path,
			query(entry.Query), entry.Status, entry.ErrorCode, entry.Fault, shortClient(entry.Client))
	}
	return b.String()
}

func query(q string) string {
	if q == "" {
		return ""
	}
	return "?" + q
}

func shortClient(userAgent string) string {
	name, _, _ := strings.Cut(userAgent, "/")
	return name
}
