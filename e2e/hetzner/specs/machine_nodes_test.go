package specs

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/machine/v1alpha1"
	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/framework"
	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/hetzner"
)

// machinePool is a MachineDeployment that is the documented example, with its server types and its user data, and a Service
// with pods on its Machines only.
type machinePool struct {
	env     *hetzner.Env
	name    string
	names   []string // of the Machines, as answer has found them
	address string   // of the Service
}

// newMachinePool makes the Service. Pools of different names can be there at the same time.
func newMachinePool(ctx context.Context, name string) *machinePool {
	GinkgoHelper()
	p := &machinePool{name: name}
	p.env = hetzner.NewEnv(ctx, hetzner.Options{Pods: func(set *appsv1.DaemonSet) {
		set.Spec.Template.Spec.Affinity, set.Spec.Template.Spec.NodeSelector = nil, map[string]string{"example.org/pool": name}
	}})
	p.env.Machines.Start(ctx)
	p.env.Services.Create(ctx, "web", local, func(s *corev1.Service) {
		s.Annotations[hetzner.Annotation+"node-selector"] = "example.org/pool=" + name
	})
	return p
}

// create creates the MachineDeployment.
func (p *machinePool) create(ctx context.Context, n int32) {
	GinkgoHelper()
	d := p.env.Machines.Example("../../../ccm/machine/examples/hetzner-machinedeployment.yaml")
	d.Name, d.Spec.Replicas = p.name, &n
	d.Spec.Template.Spec.Metadata.Labels["example.org/pool"] = p.name
	p.env.Machines.Create(ctx, d)
}

// answer waits until n Machines, and nothing else, are healthy targets with routes, and answer.
func (p *machinePool) answer(ctx context.Context, n int) {
	GinkgoHelper()
	env := p.env
	p.names = env.Machines.Await(ctx, p.name, n)
	env.LoadBalancers.AwaitTargets(ctx, "web", hetzner.Healthy(p.names...))
	p.address = env.Traffic.AwaitServed(ctx, "web")
	env.Traffic.AwaitAnsweringNodes(ctx, p.address, framework.Port, p.names...)
	for _, name := range p.names {
		server, _, err := env.Cloud.Client.Server.GetByName(ctx, name)
		Expect(err).NotTo(HaveOccurred())
		Expect(env.Routes.List(ctx)).To(ContainElement(env.Routes.Of(ctx, name, server)))
	}
}

// exampleMachines are the decorators of the specs below. They run one after the other: nodes that join at the same time are
// too much for a laptop.
func exampleMachines() []any {
	return []any{
		framework.Needs(framework.Machines, framework.NodeRoutes, framework.NodeSelector), framework.BringsNodes(), Serial,
		Label(framework.RealNodes, framework.Dataplane, "machine"),
	}
}

var _ = Describe("The MachineDeployment of the example", exampleMachines(), Ordered, func() {
	var p *machinePool
	BeforeAll(func(ctx SpecContext) { p = newMachinePool(ctx, "workers") })

	It("makes Machines that become nodes, routes and targets that answer", func(ctx SpecContext) {
		p.create(ctx, 2)
		p.answer(ctx, 2)
	})

	It("has as many Machines as kubectl scale asks for", func(ctx SpecContext) {
		p.env.Machines.Scale(ctx, p.name, 3)
		p.answer(ctx, 3)
		p.env.Machines.Scale(ctx, p.name, 1)
		p.answer(ctx, 1)
	})

	It("leaves no server, node or route when it is deleted", func(ctx SpecContext) {
		server, _, err := p.env.Cloud.Client.Server.GetByName(ctx, p.names[0])
		Expect(err).NotTo(HaveOccurred())
		route := p.env.Routes.Of(ctx, p.names[0], server)
		p.env.Machines.Delete(ctx, p.name)
		Expect(serverNames(ctx, p.env)).NotTo(ContainElement(p.names[0]))
		p.env.Nodes.AwaitGone(ctx, p.names[0])
		Eventually(func() []string { return p.env.Routes.List(ctx) }).WithContext(ctx).ShouldNot(ContainElement(route))
	})
})

var _ = Describe("The MachineDeployment of the example", exampleMachines(), func() {
	It("replaces a Machine whose server was deleted", func(ctx SpecContext) {
		p := newMachinePool(ctx, "deleted")
		p.create(ctx, 1)
		p.answer(ctx, 1)
		gone := p.names[0]
		server, _, err := p.env.Cloud.Client.Server.GetByName(ctx, gone)
		Expect(err).NotTo(HaveOccurred())
		p.env.Servers.Delete(ctx, server)
		p.env.Nodes.AwaitGone(ctx, gone)
		p.answer(ctx, 1)
		Expect(p.names).NotTo(ContainElement(gone))
	})

	It("replaces its Machines without a lost request when their server type changes", func(ctx SpecContext) {
		p := newMachinePool(ctx, "changed")
		p.create(ctx, 1)
		p.answer(ctx, 1)
		before := p.names
		load, begin := p.env.Traffic.Load(ctx, p.address, framework.Port), time.Now()
		const otherType = "cx33"
		p.env.Machines.Change(ctx, p.name, func(d *v1alpha1.MachineDeployment) { p.env.Machines.SetServerType(d, otherType) })
		p.answer(ctx, 1)
		load.AwaitAnswers(ctx, time.Now(), 20)
		Expect(load.Since(ctx, begin, "during the change").Lost).To(BeEmpty())
		Expect(p.names).NotTo(ContainElements(before))
		server, _, err := p.env.Cloud.Client.Server.GetByName(ctx, p.names[0])
		Expect(err).NotTo(HaveOccurred())
		Expect(server.ServerType.Name).To(Equal(otherType))
	})
})
