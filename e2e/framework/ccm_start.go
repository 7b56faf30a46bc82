package framework

import (
	"context"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/cloud"
)

// beginTimeout is how long AwaitIdle waits until a CCM that was started has begun. It ends the wait for one that has nothing
// to ask the cloud for, and is long for one that starts on a busy host.
const beginTimeout = 30 * time.Second

// start is the last start of the CCM, or the end of a process that another one replaces. Until the CCM has begun, a cloud
// without changes does not show that the CCM has done its work.
//
// A CCM has begun when a request of it has arrived at the cloud since the start and, if it elects a leader, its Lease was
// renewed since the start. That holds for any CCM, whatever it asks for first.
type start struct {
	// since is when it was. last is the number of the last request before.
	since time.Time
	last  uint64
	// elects says that the CCM elects a leader. renewed is when its Lease was last renewed before, zero for never.
	elects  bool
	renewed time.Time
}

// begun reports whether the CCM has begun. requests are those that were answered since the start: a process that was killed can
// leave one that has arrived before. renewed is when the Lease was last renewed.
func (s *start) begun(requests []cloud.Request, renewed time.Time) bool {
	return (!s.elects || renewed.After(s.renewed)) &&
		slices.ContainsFunc(requests, func(r cloud.Request) bool { return !r.Time.Before(s.since) })
}

// NoteRestart notes that the CCM starts anew with the hosts that it runs on. Whether it holds its Lease is not known before the API
// server answers.
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

// awaitBegin waits until a CCM that was started has begun, unless it has ended. After beginTimeout, it assumes that the CCM
// has nothing to ask for, and says so in the report of the spec.
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

// kindsSinceStart returns the number of different kinds of requests that the CCM has sent since its
// start; 0 if it was idle since. The controllers of a CCM start one after the other: one that asks for something for the
// first time still begins.
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

// ended reports whether the process that was started last has ended. Pods are started anew.
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

// renewed returns when the Lease of the CCM's leader was last renewed, zero if there is none. Its name is that of
// k8s.io/cloud-provider.
func (c *CCM) renewed(ctx context.Context) time.Time {
	GinkgoHelper()
	leases := c.env.Kube.CoordinationV1().Leases(metav1.NamespaceSystem)
	lease, err := leases.Get(ctx, "cloud-controller-manager", metav1.GetOptions{})
	Expect(ignoreNotFound(err)).To(Succeed())
	if err != nil || lease.Spec.RenewTime == nil {
		return time.Time{}
	}
	return lease.Spec.RenewTime.Time
}
