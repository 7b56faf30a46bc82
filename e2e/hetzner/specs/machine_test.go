package specs

import (
	"context"
	"encoding/json"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/machine/v1alpha1"
	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/framework"
	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/hetzner"
)

// serverNames returns the names of all servers.
func serverNames(ctx context.Context, env *hetzner.Env) (names []string) {
	GinkgoHelper()
	all, err := env.Cloud.Client.Server.All(ctx)
	Expect(err).NotTo(HaveOccurred())
	for _, s := range all {
		names = append(names, s.Name)
	}
	return names
}

var _ = Describe("A MachineDeployment", framework.Needs(framework.Machines, framework.NodeRoutes), framework.Long,
	Label(framework.OwnCloud, "machine", "dataplane"), func() {
		It("makes as many Machines as are wanted, which become nodes, routes and targets", func(ctx SpecContext) {
			env := hetzner.NewEnv(ctx, hetzner.Options{})
			env.Machines.Start(ctx)
			env.Services.Create(ctx, "web")
			env.Machines.Create(ctx, env.Machines.Deployment("pool", 2))
			for _, n := range []int{2, 3, 1} {
				env.Machines.Scale(ctx, "pool", int32(n))
				names := env.Machines.Await(ctx, "pool", n)
				env.LoadBalancers.AwaitTargets(ctx, "web", hetzner.Healthy(names...))
				Expect(serverNames(ctx, env)).To(ConsistOf(names))
				Eventually(func() int { return len(env.Routes.List(ctx)) }).WithContext(ctx).Should(Equal(n), "routes")
				for _, name := range names {
					Expect(env.Nodes.Get(ctx, name).Labels).To(HaveKeyWithValue("example.org/pool", "pool"))
				}
			}
			env.Machines.Delete(ctx, "pool")
			Expect(serverNames(ctx, env)).To(BeEmpty())
		}, SpecTimeout(5*time.Minute))
	})

var _ = Describe("A machine controller in two processes", framework.Needs(framework.Machines, framework.NodeRoutes),
	Label(framework.OwnCloud, "machine", "process"), func() {
		It("works in the one that leads, and in the other as soon as that ends", func(ctx SpecContext) {
			env := hetzner.NewEnv(ctx, hetzner.Options{})
			elects := []string{"--leader-elect", "--namespace=kube-system"}
			leader := func() string {
				lease, err := env.Kube.CoordinationV1().Leases("kube-system").Get(ctx, "machine-controller", metav1.GetOptions{})
				if err != nil || lease.Spec.HolderIdentity == nil {
					return ""
				}
				return *lease.Spec.HolderIdentity
			}
			first := env.Machines.Start(ctx, elects...)
			env.Machines.Create(ctx, env.Machines.Deployment("pool", 1))
			env.Machines.Await(ctx, "pool", 1)
			was := leader()
			Expect(was).NotTo(BeEmpty())

			second := env.Machines.Start(ctx, elects...)
			Eventually(second.Log).WithContext(ctx).Should(ContainSubstring("acquire leader lease"))
			env.Machines.Scale(ctx, "pool", 2)
			env.Machines.Await(ctx, "pool", 2)
			Expect(leader()).To(Equal(was))
			Expect(second.Log()).NotTo(ContainSubstring("Starting workers"), "it works while another leads")

			Expect(first.Stop(ctx)).To(Succeed())
			env.Machines.Scale(ctx, "pool", 1)
			names := env.Machines.Await(ctx, "pool", 1)
			Expect(leader()).NotTo(Equal(was))
			Expect(serverNames(ctx, env)).To(ConsistOf(names))
		}, SpecTimeout(3*time.Minute))
	})

var _ = Describe("The API of Machines", framework.Needs(framework.Machines), Label(framework.OwnCloud, "machine"), func() {
	DescribeTable("refuses", func(ctx SpecContext, change func(*v1alpha1.MachineDeployment), message string) {
		env := hetzner.NewEnv(ctx, hetzner.Options{NoCCM: true})
		d := env.Machines.Deployment("pool", 0)
		change(d)
		Expect(env.Machines.Client(ctx).Create(ctx, d)).To(MatchError(ContainSubstring(message)))
		good := env.Machines.Deployment("pool", 0)
		Expect(env.Machines.Client(ctx).Create(ctx, good)).To(Succeed(), "one without the mistake")
		Expect(env.Machines.Client(ctx).Delete(ctx, good)).To(Succeed())
	},
		Entry("a selector that the template does not match", func(d *v1alpha1.MachineDeployment) {
			d.Spec.Template.Metadata.Labels = map[string]string{"pool": "other"}
		}, "template.metadata.labels must contain selector.matchLabels"),
		Entry("a selector without labels", func(d *v1alpha1.MachineDeployment) { d.Spec.Selector.MatchLabels = map[string]string{} },
			"selector.matchLabels"),
		Entry("a negative number of replicas", func(d *v1alpha1.MachineDeployment) { d.Spec.Replicas = new(int32(-1)) }, "replicas"),
		Entry("a rolling change that could do nothing", func(d *v1alpha1.MachineDeployment) {
			Expect(json.Unmarshal([]byte(`{"maxSurge": 0, "maxUnavailable": "0%"}`), &d.Spec.Strategy)).To(Succeed())
		}, "must not both be 0"),
		Entry("a policy of deletion that does not exist", func(d *v1alpha1.MachineDeployment) { d.Spec.DeletePolicy = "Best" },
			"deletePolicy"),
		Entry("no provider", func(d *v1alpha1.MachineDeployment) { d.Spec.Template.Spec.ProviderSpec.CloudProvider = "" }, "cloudProvider"),
		Entry("a negative time", func(d *v1alpha1.MachineDeployment) {
			d.Spec.HealthCheck.UnhealthyTimeout = &metav1.Duration{Duration: -time.Second}
		}, "must be a duration"),
		Entry("a name that is too long for its Machines", func(d *v1alpha1.MachineDeployment) {
			d.Name = "a-name-of-forty-seven-characters-is-far-too-long"
		}, "at most 46 characters"),
	)

	It("refuses to change immutable fields", func(ctx SpecContext) {
		env := hetzner.NewEnv(ctx, hetzner.Options{NoCCM: true})
		c := env.Machines.Client(ctx)
		d := env.Machines.Deployment("pool", 0)
		Expect(c.Create(ctx, d)).To(Succeed())
		other := d.DeepCopy()
		other.Spec.Selector.MatchLabels, other.Spec.Template.Metadata.Labels = map[string]string{"a": "b"}, map[string]string{"a": "b"}
		Expect(c.Update(ctx, other)).To(MatchError(ContainSubstring("selector must not change")))
		Expect(c.Delete(ctx, d)).To(Succeed())

		m := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: d.Namespace, Name: "single"}, Spec: d.Spec.Template.Spec}
		m.Spec.ProviderID = "cloud://1"
		Expect(c.Create(ctx, m)).To(Succeed())
		for message, change := range map[string]func(*v1alpha1.Machine){
			"providerID must not change":     func(m *v1alpha1.Machine) { m.Spec.ProviderID = "cloud://2" },
			"providerID must not be removed": func(m *v1alpha1.Machine) { m.Spec.ProviderID = "" },
			"cloudProvider must not change":  func(m *v1alpha1.Machine) { m.Spec.ProviderSpec.CloudProvider = "other" },
		} {
			other := m.DeepCopy()
			change(other)
			Expect(c.Update(ctx, other)).To(MatchError(ContainSubstring(message)))
		}
		Expect(c.Delete(ctx, m)).To(Succeed())
	})
})
