package framework

import (
	"context"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/cloud"
)

// beginTimeout bounds the wait of AwaitIdle for the first request of a CCM. It ends the wait for a CCM that has nothing to ask the cloud
// for, and leaves time for a start on a busy host.
const beginTimeout = 30 * time.Second

// start is the last start of the CCM, or the end of a process that another one replaces. A CCM that is still starting changes nothing, just
// as an idle one.
//
// The start is over when a later request of the CCM arrives at the cloud and, if the CCM elects a leader, its Lease is renewed. That holds
// for any CCM, whatever its first request is.
type start struct {
	// since is when it was. last is the number of the last request before.
	since time.Time
	last  uint64
	// elects says that the CCM elects a leader. renewed is when its Lease was last renewed before, zero for never.
	elects  bool
	renewed time.Time
}

// begun reports whether the start is over. requests are those that the cloud answered since the start. Some of them may have arrived
// earlier, from a process that was killed. renewed is the time of the Lease's last renewal.
func (s *start) begun(requests []cloud.Request, renewed time.Time) bool {
	return (!s.elects || renewed.After(s.renewed)) &&
		slices.ContainsFunc(requests, func(r cloud.Request) bool { return !r.Time.Before(s.since) })
}

// NoteRestart notes that the CCM starts again with the hosts that it runs on. The owner of its Lease is unknown until the API server
// answers.
func (c *CCM) NoteRestart() { c.noteStart(false, time.Time{}) }

// noteStart notes that the CCM starts now. renewed is when its Lease was last renewed before.
func (c *CCM) noteStart(elects bool, renewed time.Time) {
	GinkgoHelper()
	if c.env.Recorded() { // elsewhere the requests are unknown
		c.start = &start{since: c.env.clock(), last: c.env.since, elects: elects, renewed: renewed}
		for _, r := range c.requestsAfter(0, nil) {
			c.start.last = r.Seq
		}
	}
}

// awaitBegin waits until the start of the CCM is over, or its process exits. After beginTimeout, it assumes that the CCM has nothing to ask
// for, and says so in the report of the spec.
func (c *CCM) awaitBegin(ctx context.Context) {
	GinkgoHelper()
	if c.start == nil || c.ended() {
		return
	}
	wait := NewGomega(func(string, ...int) {}) // it returns false where Gomega's own Eventually fails the spec
	if !wait.Eventually(func() bool {
		var renewed time.Time
		if c.start.elects {
			renewed = c.renewed(ctx)
		}
		return c.ended() || c.start.begun(c.requestsAfter(c.start.last, nil), renewed)
	}).WithContext(ctx).WithTimeout(beginTimeout).WithPolling(Polling).Should(BeTrue()) {
		AddReportEntry("the CCM has sent no request, or renewed no Lease, within "+beginTimeout.String()+" after its start",
			ReportEntryVisibilityFailureOrVerbose)
	}
}

// kindsSinceStart returns the number of different kinds of requests that the CCM sent since its start, or 0 if it was idle since. The
// controllers of a CCM start one after the other: each new kind of request shows that one of them still starts.
func (c *CCM) kindsSinceStart() int {
	GinkgoHelper()
	if c.start == nil {
		return 0
	}
	kinds := map[string]bool{}
	for _, r := range c.requestsAfter(c.start.last, nil) {
		kinds[r.Kind] = true
	}
	return len(kinds)
}

// ended reports whether the CCM's process exited. It is false for pods: the kubelet starts them again.
func (c *CCM) ended() bool {
	if c.Process == nil {
		return false
	}
	select {
	case <-c.Done():
		return true
	default:
		return false
	}
}

// renewed returns the time of the last renewal of the leader's Lease, or zero without a Lease. The name of the Lease is that of
// k8s.io/cloud-provider.
func (c *CCM) renewed(ctx context.Context) time.Time {
	GinkgoHelper()
	leases := c.env.Kube.CoordinationV1().Leases(metav1.NamespaceSystem)
	lease, err := leases.Get(ctx, "cloud-controller-manager", metav1.GetOptions{})
	Expect(client.IgnoreNotFound(err)).To(Succeed())
	if err != nil || lease.Spec.RenewTime == nil {
		return time.Time{}
	}
	return lease.Spec.RenewTime.Time
}
