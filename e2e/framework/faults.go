package framework

import (
	"context"
	"errors"
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/cloud"
)

// Faults make the cloud misbehave towards the CCM.
type Faults struct {
	env *Env
}

// Fault is a fault that a spec began.
type Fault struct {
	env     *Env
	name    string
	what    cloud.Fault
	removed bool
}

// Add begins a fault. It ends with the spec at the latest.
func (fs Faults) Add(ctx context.Context, f cloud.Fault) *Fault {
	GinkgoHelper()
	faulty := Capability[cloud.Faulty](fs.env)
	name, err := faulty.AddFault(ctx, f)
	if errors.Is(err, errors.ErrUnsupported) {
		Skip(fmt.Sprintf("%sFaulty for the effect %s", unsupportedCloud, f.Effect))
	}
	Expect(err).NotTo(HaveOccurred())
	added := &Fault{env: fs.env, name: name, what: f}
	DeferCleanup(added.Remove) // other specs may use the cloud
	return added
}

// Met returns how many calls of the CCM have met the fault.
func (f *Fault) Met(ctx context.Context) int {
	GinkgoHelper()
	n, err := Capability[cloud.Faulty](f.env).Met(ctx, f.name)
	Expect(err).NotTo(HaveOccurred())
	return n
}

// notExercised begins the reason of a spec that ends without a call that could fail.
const notExercised = "not exercised: "

// Await waits until n calls meet the fault. A CCM that makes other calls meanwhile, or none, has not failed the spec, but the spec shows
// nothing: it ends as not exercised, with the calls that were seen. Await also fails if one of the checks fails meanwhile: a CCM that did
// something forbidden may make no further call.
func (f *Fault) Await(ctx context.Context, n int, checks ...func()) {
	GinkgoHelper()
	wait := NewGomega(func(string, ...int) {}) // it returns false where Gomega's own Eventually fails the spec
	if wait.Eventually(func() int {
		for _, check := range checks {
			check()
		}
		return f.Met(ctx)
	}).WithContext(ctx).WithTimeout(Timeout / 2).WithPolling(Polling).
		Should(BeNumerically(">=", n)) {
		return
	}
	f.env.CCM.NotExercised(fmt.Sprintf("%s %s, %s", f.what.Calls, f.what.About, f.what.Effect), f.Met(ctx), n)
}

// NotExercised ends a spec for which the CCM made only some of the calls that are to fail, with the calls that were seen.
func (c *CCM) NotExercised(calls string, met, n int) {
	GinkgoHelper()
	AddReportEntry("calls of the CCM", ReportEntryVisibilityFailureOrVerbose, LastLines(c.requestsText(), 60))
	end := Skip
	if c.env.suite.CCM.Name == OurCCM {
		end = Fail // our own specs must show something
	}
	end(fmt.Sprintf("%sof the CCM's calls that are to fail (%s), %d of %d came", notExercised, calls, met, n))
}

// Remove ends the fault.
func (f *Fault) Remove(ctx context.Context) {
	GinkgoHelper()
	if !f.removed {
		f.removed = true
		Expect(Capability[cloud.Faulty](f.env).RemoveFault(ctx, f.name)).To(Succeed())
	}
}
