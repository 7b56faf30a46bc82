// Package e2e holds the specs of the whole: a Kubernetes cluster, a cloud and the cloud-controller-manager. Run them with
// `make e2e`.
package e2e

import (
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/cloud/example"
	_ "github.com/ccm-from-scratch/ccm-from-scratch/e2e/conformance" // the specs that know no cloud
	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/framework"
	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/hetzner"
)

// suite is what the specs of this process share.
var suite *framework.Suite

func TestE2E(t *testing.T) {
	framework.Register(framework.DefaultDriver, hetzner.Driver{})
	framework.Register("example", example.Driver{})
	RegisterFailHandler(Fail)
	RunSpecs(t, "ccm-from-scratch")
}

// The first process prepares what all processes share. scripts/e2e.sh says in one line what a slow start waits for; Ginkgo shows
// goroutines only of one that hangs.
var _ = SynchronizedBeforeSuite(func(ctx SpecContext) {
	Expect(framework.Prepare(ctx)).To(Succeed())
}, func(ctx SpecContext) {
	var err error
	suite, err = framework.StartSuite(ctx, GinkgoParallelProcess())
	DeferCleanup(suite.Stop)
	Expect(err).NotTo(HaveOccurred())
}, PollProgressAfter(5*time.Minute))

var _ = ReportAfterSuite("writes the table of all specs", func(report Report) {
	Expect(framework.WriteSummary(report)).To(Succeed())
})
