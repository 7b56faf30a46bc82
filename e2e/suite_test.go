// Package e2e holds the specs of the whole: a Kubernetes cluster, a cloud and the cloud-controller-manager. Run them with
// `make e2e`.
package e2e

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/cloud"
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
	framework.Register("least", least{})
	RegisterFailHandler(Fail)
	const name = "ccm-from-scratch"
	RunSpecs(t, name, framework.Shard(name)...)
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

// least is the driver of the example cloud with nothing but what each driver must have, and without traffic: as of a small emulator.
type least struct{ example.Driver }

// Start implements cloud.Driver.
func (d least) Start(ctx context.Context, o cloud.Options) (cloud.Cloud, error) {
	c, err := d.Driver.Start(ctx, o)
	return mute{c}, err
}

type mute struct{ cloud.Cloud }

// ForwardsNothing implements cloud.Mute.
func (mute) ForwardsNothing() {}
