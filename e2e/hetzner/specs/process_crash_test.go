package specs

import (
	"context"
	"maps"
	"net/http"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/framework"
	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/hetzner"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/fault"
)

// crashPoint says during which request a CCM is killed.
type crashPoint struct {
	request fault.Rule
	// nth of these requests; 0 is the first.
	nth int
	// carriedOut reports whether the cloud has carried out the request. If nil, the cloud does not carry it out.
	carriedOut func(context.Context, *hetzner.Env) bool
	// annotations make the CCM send that request.
	annotations map[string]string
}

// Annotations that make the CCM create a load balancer in several steps.
var (
	// inSteps cannot be part of the creation of a load balancer: the network and the targets follow.
	inSteps = map[string]string{hetzner.Annotation + "private-ipv4": "10.0.0.200", hetzner.Annotation + "use-private-ip": "true"}
	// withCertificate needs a certificate before the load balancer.
	withCertificate = map[string]string{
		hetzner.Annotation + "protocol":                         "https",
		hetzner.Annotation + "certificate-type":                 "managed",
		hetzner.Annotation + "http-managed-certificate-domains": "example.org",
	}
)

// The requests of the crash points.
var (
	creatingLoadBalancer = fault.Rule{Operation: "create_load_balancer"}
	readingLoadBalancer  = fault.Rule{Operation: "get_load_balancer"}
	attaching            = fault.Rule{Operation: "attach_load_balancer_to_network"}
	addingTarget         = fault.Rule{Operation: "add_load_balancer_target"}
	orderingCertificate  = fault.Rule{Operation: "create_certificate"}
	deletingCertificate  = fault.Rule{Operation: "delete_certificate"}
	addingRoute          = fault.Rule{Operation: "add_network_route"}
	deletingRoute        = fault.Rule{Operation: "delete_network_route"}
	askingForAction      = fault.Rule{Method: http.MethodGet, Route: "/actions/{id}"}
)

func certificates(n int) func(context.Context, *hetzner.Env) bool {
	return func(ctx context.Context, env *hetzner.Env) bool { return len(env.Cloud.Certificates(ctx)) == n }
}

func routes(n int) func(context.Context, *hetzner.Env) bool {
	return func(ctx context.Context, env *hetzner.Env) bool { return len(env.Routes.List(ctx)) == n }
}

func targets(n int) func(context.Context, *hetzner.Env) bool {
	return func(ctx context.Context, env *hetzner.Env) bool {
		all := env.LoadBalancers.List(ctx)
		return len(all) == 1 && len(all[0].Targets) == n
	}
}

func attached(ctx context.Context, env *hetzner.Env) bool {
	all := env.LoadBalancers.List(ctx)
	return len(all) == 1 && len(all[0].PrivateNet) == 1
}

// longTimeout makes a CCM wait for an answer until it is killed.
var longTimeout = framework.CCMOptions{Env: map[string]string{"HCLOUD_REQUEST_TIMEOUT": "10m"}}

// compareSoon makes a CCM compare the cloud with the cluster often, so that specs soon see that it is idle.
var compareSoon = map[string]string{"HCLOUD_RESYNC_INTERVAL": "500ms"}

// killsCCM calls act, waits for the request of the CCM, and kills it.
func (m crashPoint) killsCCM(ctx context.Context, env *hetzner.Env, act func()) {
	GinkgoHelper()
	arrived := env.Cloud.Faults.Hold(m.request, max(m.nth, 1), m.carriedOut != nil)
	act()
	arrived(ctx)
	if m.carriedOut != nil {
		Eventually(func() bool { return m.carriedOut(ctx, env) }).WithContext(ctx).Should(BeTrue(), "the request was not carried out")
	}
	env.CCM.Crash(ctx)
}

// idleNodes creates two nodes. It returns when the CCM has done all that it does for them, such as routes: then the next
// requests are about the Service.
func idleNodes(ctx context.Context, env *hetzner.Env) []*hcloud.Server {
	GinkgoHelper()
	servers := env.Nodes.Create(ctx, "node-1", "node-2")
	env.CCM.AwaitIdle(ctx)
	return servers
}

// service creates the Service "web" with the annotations.
func (m crashPoint) service(ctx context.Context, env *hetzner.Env) {
	GinkgoHelper()
	env.Services.Create(ctx, "web", func(svc *corev1.Service) { maps.Copy(svc.Annotations, m.annotations) })
}

// expectComplete waits until "web" has one complete load balancer.
func (m crashPoint) expectComplete(ctx context.Context, env *hetzner.Env, servers []int64) {
	GinkgoHelper()
	address := env.Services.AwaitIngress(ctx, "web")
	if m.annotations[hetzner.Annotation+"protocol"] == "" {
		env.Traffic.AwaitAnswer(ctx, "web", address, framework.Port)
	}
	env.CCM.AwaitIdle(ctx)
	Expect(env.LoadBalancers.List(ctx)).To(HaveLen(1))
	lb := env.LoadBalancers.Of(ctx, "web")
	Expect(hetzner.ListenPorts(lb)).To(Equal([]int{framework.Port}))
	Expect(hetzner.TargetIDs(lb)).To(Equal(servers))
	Expect(lb.PrivateNet).To(HaveLen(1))
	if want := m.annotations[hetzner.Annotation+"private-ipv4"]; want != "" {
		Expect(lb.PrivateNet[0].IP.String()).To(Equal(want))
	}
	if m.annotations[hetzner.Annotation+"certificate-type"] == "" {
		Expect(env.Cloud.Certificates(ctx)).To(BeEmpty())
		return
	}
	Expect(env.Cloud.Certificates(ctx)).To(HaveLen(1))
	Expect(lb.Services[0].HTTP.Certificates).To(HaveLen(1))
	Expect(lb.Services[0].HTTP.Certificates[0].ID).To(Equal(env.Cloud.Certificates(ctx)[0].ID))
}

var _ = Describe("A CCM that is killed", framework.Needs(framework.CrashSafety), Label(framework.OwnCloud, "process", "fake-only"), func() {
	creating := []TableEntry{
		Entry("while it waits for an action of what it created", crashPoint{request: askingForAction, annotations: inSteps}),
		Entry("before it reads the address of what it created", crashPoint{request: readingLoadBalancer}),
		Entry("before the load balancer is attached to the network", crashPoint{request: attaching, annotations: inSteps}),
		Entry("when the load balancer is attached, before the answer", crashPoint{request: attaching, carriedOut: attached,
			annotations: inSteps}),
		Entry("between one target and the next", crashPoint{request: addingTarget, nth: 2, annotations: inSteps}),
		Entry("when the last target is added, before the answer", crashPoint{request: addingTarget, nth: 2, carriedOut: targets(2),
			annotations: inSteps}),
		Entry("before the certificate is ordered", crashPoint{request: orderingCertificate, annotations: withCertificate}),
		Entry("when the certificate is ordered, before the answer", crashPoint{request: orderingCertificate, carriedOut: certificates(1),
			annotations: withCertificate}),
		Entry("between the certificate and the load balancer", crashPoint{request: creatingLoadBalancer, annotations: withCertificate}),
	}

	DescribeTable("leaves a half-created load balancer that the next CCM completes and removes with its Service, if it is killed",
		Label("service"),
		func(ctx SpecContext, m crashPoint) {
			env := hetzner.NewEnv(ctx, hetzner.Options{NoCCM: true, CCM: compareSoon})
			env.CCM.Start(ctx, longTimeout)
			servers := idleNodes(ctx, env)
			m.killsCCM(ctx, env, func() { m.service(ctx, env) })

			env.CCM.Start(ctx, framework.CCMOptions{})
			m.expectComplete(ctx, env, hetzner.IDs(servers...))
			env.Services.Delete(ctx, "web")
			env.Services.AwaitGone(ctx, "web")
			env.Cloud.ExpectNothingOfServices(ctx)
		}, creating)

	DescribeTable("leaves a half-created load balancer that the next CCM removes if its Service is gone, if it is killed", Label("service"),
		func(ctx SpecContext, m crashPoint) {
			env := hetzner.NewEnv(ctx, hetzner.Options{NoCCM: true, CCM: compareSoon})
			env.CCM.Start(ctx, longTimeout)
			idleNodes(ctx, env)
			m.killsCCM(ctx, env, func() { m.service(ctx, env) })
			env.Services.Delete(ctx, "web")

			env.CCM.Start(ctx, framework.CCMOptions{})
			env.Services.AwaitGone(ctx, "web")
			env.CCM.AwaitIdle(ctx)
			env.Cloud.ExpectNothingOfServices(ctx)
		}, creating)

	DescribeTable("leaves a half-deleted load balancer that the next CCM removes, if it is killed", Label("service"),
		func(ctx SpecContext, m crashPoint) {
			env := hetzner.NewEnv(ctx, hetzner.Options{NoCCM: true, CCM: compareSoon})
			env.CCM.Start(ctx, longTimeout)
			servers := idleNodes(ctx, env)
			m.annotations = withCertificate
			m.service(ctx, env)
			m.expectComplete(ctx, env, hetzner.IDs(servers...))
			m.killsCCM(ctx, env, func() { env.Services.Delete(ctx, "web") })
			Expect(env.Services.Get(ctx, "web").Finalizers).NotTo(BeEmpty(), "the Service is gone before its load balancer")

			env.CCM.Start(ctx, framework.CCMOptions{})
			env.Services.AwaitGone(ctx, "web")
			env.CCM.AwaitIdle(ctx)
			env.Cloud.ExpectNothingOfServices(ctx)
		},
		Entry("while it waits for the deletion", crashPoint{request: askingForAction}),
		Entry("between the load balancer and its certificate", crashPoint{request: deletingCertificate}),
		Entry("when the certificate is deleted, before the answer", crashPoint{request: deletingCertificate, carriedOut: certificates(0)}),
	)

	DescribeTable("leaves routes that the next CCM corrects, if it is killed", framework.Needs(framework.NodeRoutes), Label("route"),
		func(ctx SpecContext, m crashPoint) {
			env := hetzner.NewEnv(ctx, hetzner.Options{NoCCM: true, CCM: compareSoon})
			stays, goes := env.Servers.Create(ctx, "stays"), env.Servers.Create(ctx, "goes")
			env.Nodes.AwaitPodCIDR(ctx, "stays")
			env.Nodes.AwaitPodCIDR(ctx, "goes")
			start := func() { env.CCM.Start(ctx, longTimeout) }
			remove := func() { env.Nodes.Delete(ctx, "goes") }
			if m.request == addingRoute {
				m.killsCCM(ctx, env, start)
				remove()
			} else {
				start()
				env.Routes.AwaitExactly(ctx, stays, goes)
				m.killsCCM(ctx, env, remove)
			}

			env.CCM.Start(ctx, framework.CCMOptions{})
			env.Routes.AwaitExactly(ctx, stays)
			env.CCM.AwaitIdle(ctx)
			env.Routes.AwaitExactly(ctx, stays)
		},
		Entry("before a route is added", crashPoint{request: addingRoute}),
		Entry("when a route is added, before the answer", crashPoint{request: addingRoute, carriedOut: routes(1)}),
		Entry("between one route and the next", crashPoint{request: addingRoute, nth: 2}),
		Entry("before a route is deleted", crashPoint{request: deletingRoute}),
		Entry("when a route is deleted, before the answer", crashPoint{request: deletingRoute, carriedOut: routes(1)}),
	)
})
