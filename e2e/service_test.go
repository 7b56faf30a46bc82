package e2e

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/framework"
)

var _ = Describe("Service", Label("service"), func() {
	It("gets a load balancer whose address answers from outside of the cluster", Label("dataplane"), func(ctx SpecContext) {
		env := framework.NewEnv(ctx, suite, framework.Options{})
		env.CreateNodes(ctx, "node-1", "node-2")
		env.CreateService(ctx, "web")
		env.AwaitServed(ctx, "web")
		Expect(env.LoadBalancers(ctx)).To(HaveLen(1))
		env.Settled(ctx)
		env.ExpectNoWrites(ctx)
	})
})
