package hetzner

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/framework"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/fault"
)

// Faults make a simulated cloud misbehave. They do not exist on a real cloud: specs that need them have the label FakeOnly.
type Faults struct {
	rules fault.Rules
	ccm   *framework.CCM
}

// Add adds a fault rule for the CCM's requests until the spec ends or the returned function is called. It sets Client.
func (fs Faults) Add(f fault.Rule) (name string, remove func()) {
	GinkgoHelper()
	f.Client = framework.Current().CCM.UserAgent
	rule, err := fs.rules.Add(context.Background(), f)
	Expect(err).NotTo(HaveOccurred())
	remove = func() {
		GinkgoHelper()
		Expect(fs.rules.Remove(context.Background(), rule.Name)).Error().NotTo(HaveOccurred())
	}
	DeferCleanup(remove) // other specs may use the cloud
	return rule.Name, remove
}

// Await waits until a fault has been applied n times in all. A CCM that makes other calls ends the spec as not exercised.
func (fs Faults) Await(ctx context.Context, name string, n int) {
	GinkgoHelper()
	wait, cancel := context.WithTimeout(ctx, framework.Timeout)
	defer cancel()
	status, err := fs.rules.Await(wait, name, uint64(n))
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		calls := status.Method + " " + cmp.Or(status.Operation, status.Route, status.Resource, "all")
		fs.ccm.NotExercised(strings.TrimSpace(calls)+", "+string(status.Effect.Kind), int(status.Applied), n)
	}
	Expect(err).NotTo(HaveOccurred())
}

// Applied returns how many requests a fault has been applied to.
func (fs Faults) Applied(name string) int {
	GinkgoHelper()
	status, ok, err := fs.rules.Get(context.Background(), name)
	Expect(err).NotTo(HaveOccurred())
	Expect(ok).To(BeTrue(), "there is no fault %s", name)
	return int(status.Applied)
}

// Hold holds one of the CCM's requests until the spec ends: the n-th that the rule selects, counted from 1. If
// carriedOut, the cloud carries it out and holds only the answer; otherwise it never carries it out. The returned
// function waits until the request has arrived, but not until it is carried out.
func (fs Faults) Hold(f fault.Rule, n int, carriedOut bool) (await func(context.Context)) {
	GinkgoHelper()
	f.Effect = fault.Latency(24 * time.Hour)
	f.Effect.After = carriedOut
	f.From, f.To = n, n
	name, _ := fs.Add(f)
	return func(ctx context.Context) { GinkgoHelper(); fs.Await(ctx, name, 1) }
}

// CountWrites counts the requests with the token that change something from now on. The journal does not distinguish the CCMs of one spec:
// give each another token.
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
