package framework

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/fault"
)

// Faults make a simulated cloud misbehave. On a real cloud there are none: specs that need them have the label FakeOnly.
type Faults struct {
	rules fault.Rules
	env   *Env
}

// Add makes the cloud misbehave towards the CCM until the spec ends or the returned function is
// called. Client is set to the CCM's.
func (fs Faults) Add(f fault.Rule) (name string, remove func()) {
	GinkgoHelper()
	f.Client = fs.env.suite.CCM.UserAgent
	rule, err := fs.rules.Add(context.Background(), f)
	Expect(err).NotTo(HaveOccurred())
	remove = func() {
		GinkgoHelper()
		_, err := fs.rules.Remove(context.Background(), rule.Name)
		Expect(err).NotTo(HaveOccurred())
	}
	if fs.env.Cloud.Fake == nil { // which others will use
		DeferCleanup(remove)
	}
	return rule.Name, remove
}

// Await waits until a fault has been applied n times in all.
func (fs Faults) Await(ctx context.Context, name string, n int) {
	GinkgoHelper()
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	_, err := fs.rules.Await(ctx, name, uint64(n))
	Expect(err).NotTo(HaveOccurred(), "the fault %s was not met %d times", name, n)
}

// Applied returns how many requests a fault has been applied to.
func (fs Faults) Applied(name string) int {
	GinkgoHelper()
	status, ok, err := fs.rules.Get(context.Background(), name)
	Expect(err).NotTo(HaveOccurred())
	Expect(ok).To(BeTrue(), "there is no fault %s", name)
	return int(status.Applied)
}

// Hold keeps one of the CCM's requests from being answered until the spec ends: the n-th that the
// rule selects, counted from 1. If carriedOut, the cloud does what the request asks for and keeps
// only the answer; else the request is not carried out, whatever becomes of its sender. The
// returned function waits until the request has arrived; if it is to be carried out, that follows
// at once, but is not waited for.
func (fs Faults) Hold(f fault.Rule, n int, carriedOut bool) (await func(context.Context)) {
	GinkgoHelper()
	f.Effect = fault.Latency(24 * time.Hour)
	f.Effect.After = carriedOut
	f.From, f.To = n, n
	name, _ := fs.Add(f)
	return func(ctx context.Context) {
		GinkgoHelper()
		fs.Await(ctx, name, 1)
	}
}

// CountWrites counts, from now on, the requests with a token that change something: CCMs of one spec
// look alike in the journal but may have tokens of their own.
func (fs Faults) CountWrites(token string) (count func() int) {
	GinkgoHelper()
	// A rule that changes nothing, and counts.
	rule, err := fs.rules.Add(context.Background(), fault.Rule{Token: token, Writes: true, Effect: fault.Latency(1)})
	Expect(err).NotTo(HaveOccurred())
	return func() int {
		status, _, err := fs.rules.Get(context.Background(), rule.Name)
		Expect(err).NotTo(HaveOccurred())
		return int(status.Matched)
	}
}
