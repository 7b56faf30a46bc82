package framework

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
)

// CCMWrites returns how many requests that change something the CCM has sent.
func (e *Env) CCMWrites() int {
	return e.Journal.Count(fakecloud.JournalFilter{Client: e.Subject.UserAgent, Writes: true})
}

// ServiceWrites returns how many requests that change load balancers or certificates the CCM has
// sent: what it does for Services, apart from routes. Where specs share a cloud, these are the requests about
// what the spec has or had; what was refused to be created is nobody's.
func (e *Env) ServiceWrites() int {
	e.recognize()
	if !e.Simulated() {
		return 0 // nobody sees them: specs also look at what the cloud has
	}
	n := 0
	for _, route := range []string{"/load_balancers*", "/certificates*"} {
		filter := fakecloud.JournalFilter{Client: e.Subject.UserAgent, Writes: true, Route: route}
		if e.Cloud != nil {
			n += e.Journal.Count(filter)
			continue
		}
		for _, r := range e.Journal.Entries(filter) {
			if e.owned.wrote(r) {
				n++
			}
		}
	}
	return n
}

// AwaitServiceWrites waits until ServiceWrites is n. Where nobody sees requests, it does nothing.
func (e *Env) AwaitServiceWrites(ctx context.Context, n int) {
	GinkgoHelper()
	if !e.Simulated() {
		return
	}
	Eventually(e.ServiceWrites).WithContext(ctx).WithTimeout(Timeout).WithPolling(Polling).Should(Equal(n))
}

// recognize remembers which load balancers and certificates of a shared cloud are the spec's.
func (e *Env) recognize() {
	GinkgoHelper()
	if e.Cloud == nil {
		e.LoadBalancers(context.Background())
		e.Certificates(context.Background())
	}
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
		return "the CCM wrote although nothing had changed:\n" + e.journalText(fakecloud.JournalFilter{Client: e.Subject.UserAgent, Writes: true})
	})
}

// expectCloudStays fails if something of the spec's Services changes in the cloud within Quiet.
func (e *Env) expectCloudStays(ctx context.Context) {
	GinkgoHelper()
	before, writes := e.settingsInCloud(ctx), 0
	if e.Simulated() {
		writes = e.ServiceWrites()
	}
	Consistently(func(g Gomega) {
		g.Expect(e.settingsInCloud(ctx)).To(Equal(before))
		if e.Simulated() {
			g.Expect(e.ServiceWrites()).To(Equal(writes))
		}
	}).WithContext(ctx).WithTimeout(Quiet).WithPolling(Polling).Should(Succeed(), "the CCM wrote although nothing had changed")
}

// settingsInCloud returns the spec's load balancers and certificates without what the cloud changes by itself.
func (e *Env) settingsInCloud(ctx context.Context) any {
	GinkgoHelper()
	var lbs []*hcloud.LoadBalancer
	for _, lb := range e.LoadBalancers(ctx) {
		lbs = append(lbs, Settings(lb))
	}
	var certificates []int64
	for _, c := range e.Certificates(ctx) {
		certificates = append(certificates, c.ID)
	}
	return []any{lbs, certificates}
}

// Settings returns a load balancer without what the cloud changes by itself: the health of its targets, and traffic.
func Settings(lb *hcloud.LoadBalancer) *hcloud.LoadBalancer {
	settings := *lb
	settings.Targets = slices.Clone(lb.Targets)
	for i := range settings.Targets {
		settings.Targets[i].HealthStatus = nil
	}
	settings.OutgoingTraffic, settings.IngoingTraffic = 0, 0
	return &settings
}

// CCMWritesTo returns how many requests that change a load balancer the CCM has sent.
func (e *Env) CCMWritesTo(lb *hcloud.LoadBalancer) int {
	prefix := fmt.Sprintf("/v1/load_balancers/%d", lb.ID)
	n := 0
	for _, entry := range e.Journal.Entries(fakecloud.JournalFilter{Client: e.Subject.UserAgent, Writes: true}) {
		if entry.Path == prefix || strings.HasPrefix(entry.Path, prefix+"/") {
			n++
		}
	}
	return n
}

// CCMRequests returns how many requests the CCM has sent.
func (e *Env) CCMRequests() int {
	return e.Journal.Count(fakecloud.JournalFilter{Client: e.Subject.UserAgent})
}

// AwaitCCMRequests waits until the CCM has sent n more requests that the filter selects.
func (e *Env) AwaitCCMRequests(ctx context.Context, n int, filter fakecloud.JournalFilter) {
	GinkgoHelper()
	filter.Client = e.Subject.UserAgent
	before := e.Journal.Count(filter)
	Eventually(func() int { return e.Journal.Count(filter) - before }).
		WithContext(ctx).WithTimeout(Timeout).WithPolling(Polling).Should(BeNumerically(">=", n))
}

// ExpectNoWrites fails if the CCM changes anything in the cloud within Quiet, in which it must look
// at least once.
func (e *Env) ExpectNoWrites(ctx context.Context) {
	GinkgoHelper()
	before, seen := e.CCMWrites(), e.CCMRequests()
	Consistently(e.CCMWrites).WithContext(ctx).WithTimeout(Quiet).WithPolling(Polling).Should(Equal(before), func() string {
		return "the CCM wrote although nothing had changed:\n" + e.journalText(fakecloud.JournalFilter{Client: e.Subject.UserAgent, Writes: true})
	})
	Expect(e.CCMRequests()).To(BeNumerically(">", seen), "the CCM did not even look")
}

// Fault makes the cloud misbehave towards the CCM until the spec ends or the returned function is
// called. Client is set to the CCM's.
func (e *Env) Fault(f fakecloud.Fault) (name string, remove func()) {
	GinkgoHelper()
	f.Client = e.Subject.UserAgent
	rule, err := e.Faults.Add(f)
	Expect(err).NotTo(HaveOccurred())
	remove = func() { e.Faults.Remove(rule.Name) }
	if e.Cloud == nil { // which others will use
		DeferCleanup(remove)
	}
	return rule.Name, remove
}

// AwaitFault waits until a fault has been applied n times in all.
func (e *Env) AwaitFault(ctx context.Context, name string, n int) {
	GinkgoHelper()
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	_, err := e.Faults.Await(ctx, name, uint64(n))
	Expect(err).NotTo(HaveOccurred(), "the fault %s was not met %d times", name, n)
}

// FaultApplied returns how many requests a fault has been applied to.
func (e *Env) FaultApplied(name string) int {
	GinkgoHelper()
	status, ok := e.Faults.Get(name)
	Expect(ok).To(BeTrue(), "there is no fault %s", name)
	return int(status.Applied)
}

func (e *Env) journalText(filter fakecloud.JournalFilter) string {
	var b strings.Builder
	for _, entry := range e.Journal.Entries(filter) {
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
