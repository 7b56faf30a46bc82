package e2e

import (
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/framework"
)

var _ = Describe("Node", Label("node"), func() {
	It("initializes a node of the cloud: provider ID, addresses, labels, and no taint", func(ctx SpecContext) {
		env := framework.NewEnv(ctx, suite, framework.Options{})
		server := env.CreateServer(ctx, "node-1")

		n := env.AwaitInitialized(ctx, "node-1")
		Expect(n.Spec.ProviderID).To(Equal(fmt.Sprintf("ccm-from-scratch://%d", server.ID)))
		Expect(framework.AddressesOf(n, corev1.NodeHostName)).To(ConsistOf("node-1"))
		Expect(framework.AddressesOf(n, corev1.NodeExternalIP)).To(ConsistOf(server.PublicNet.IPv4.IP.String()))
		Expect(framework.AddressesOf(n, corev1.NodeInternalIP)).To(ConsistOf(server.PrivateNet[0].IP.String()))
		Expect(n.Labels).To(And(
			HaveKeyWithValue(corev1.LabelInstanceTypeStable, framework.ServerType),
			HaveKeyWithValue(corev1.LabelTopologyRegion, string(framework.NetworkZone)),
			HaveKeyWithValue(corev1.LabelTopologyZone, framework.Location),
		))
	})
})
