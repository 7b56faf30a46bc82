package specs

import (
	"fmt"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/framework"
	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/hetzner"
)

// annotate sets the CCM's annotations by their names without prefix. An empty value removes one.
func annotate(values map[string]string) func(*corev1.Service) {
	return func(s *corev1.Service) {
		for name, value := range values {
			if value == "" {
				delete(s.Annotations, hetzner.Annotation+name)
				continue
			}
			s.Annotations[hetzner.Annotation+name] = value
		}
	}
}

var _ = Describe("A setting of a Service", Label("service"), func() {
	It("is named in a condition of the Service while it is wrong, and in an event if the cloud cannot do it",
		framework.Needs(framework.Conditions), func(ctx SpecContext) {
			env := hetzner.NewEnv(ctx, hetzner.Options{})
			awaitReady := func(status metav1.ConditionStatus, message string) {
				GinkgoHelper()
				env.Services.Await(ctx, "web", func(g Gomega, s *corev1.Service) {
					g.Expect(s.Status.Conditions).To(ContainElement(And(HaveField("Type", hetzner.Annotation+"Ready"),
						HaveField("Status", status), HaveField("Message", ContainSubstring(message)))))
				})
			}
			env.Services.Create(ctx, "web", annotate(map[string]string{"algorithm-type": "fastest"}), func(s *corev1.Service) {
				s.Spec.SessionAffinity, s.Spec.LoadBalancerIP = corev1.ServiceAffinityClientIP, "192.0.2.1"
				s.Spec.LoadBalancerSourceRanges = []string{"192.0.2.0/24"}
				s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: "dns", Port: 53, Protocol: corev1.ProtocolUDP})
			})
			awaitReady(metav1.ConditionFalse, "must be round_robin or least_connections")
			env.Services.Update(ctx, "web", annotate(map[string]string{"algorithm-type": ""}))
			env.Services.AwaitIngress(ctx, "web")
			awaitReady(metav1.ConditionTrue, "")
			for _, field := range []string{"sessionAffinity", "loadBalancerIP", "loadBalancerSourceRanges"} {
				env.Services.AwaitEvent(ctx, "web", "IgnoredSetting", ContainSubstring(field))
			}
			env.Services.AwaitEvent(ctx, "web", "PortsSkipped", ContainSubstring("53/UDP"))
		})

	It("takes effect without disturbing traffic: type, algorithm, name and reverse DNS", framework.Needs(framework.ReverseDNS),
		Label("dataplane", framework.FakeOnly), func(ctx SpecContext) {
			env := hetzner.NewEnv(ctx, hetzner.Options{})
			env.Nodes.Workers(ctx, 1)
			env.Services.Create(ctx, "web")
			address := env.Traffic.AwaitServed(ctx, "web")
			before := env.LoadBalancers.Of(ctx, "web")
			Expect(before.LoadBalancerType.Name).To(Equal("lb11"))
			Expect(before.Algorithm.Type).To(Equal(hcloud.LoadBalancerAlgorithmTypeRoundRobin))
			client, url := env.Traffic.Client(framework.ClientOptions{KeepAlive: true}), framework.URL("http", address, framework.Port)
			first, err := env.Traffic.GetURL(ctx, client, url)
			Expect(err).NotTo(HaveOccurred())
			load := env.Traffic.Load(ctx, address, framework.Port)

			env.Services.Update(ctx, "web", annotate(map[string]string{
				"type": "lb21", "algorithm-type": "least_connections", "name": env.Unique("front"), "ipv4-rdns": "front.example.com",
			}))
			env.LoadBalancers.Await(ctx, "web", func(g Gomega, lb *hcloud.LoadBalancer) {
				g.Expect(lb.ID).To(Equal(before.ID))
				g.Expect(lb.LoadBalancerType.Name).To(Equal("lb21"))
				g.Expect(lb.Algorithm.Type).To(Equal(hcloud.LoadBalancerAlgorithmTypeLeastConnections))
				g.Expect(lb.Name).To(Equal(env.Unique("front")))
				g.Expect(lb.PublicNet.IPv4.DNSPtr).To(Equal("front.example.com"))
			})
			last, err := env.Traffic.GetURL(ctx, client, url)
			Expect(err).NotTo(HaveOccurred())
			Expect(last.Peer).To(Equal(first.Peer), "the connection was cut")
			load.ExpectUndisturbed(ctx)
			env.CCM.ExpectNoServiceWrites(ctx)
		})

	It("reaches the load balancer and returns to its default: health checks", framework.Needs(framework.HealthChecks),
		Label(framework.OwnCloud), func(ctx SpecContext) {
			env := hetzner.NewEnv(ctx, hetzner.Options{CCM: map[string]string{
				// The defaults of the API instead of the suite's.
				"HCLOUD_LOAD_BALANCERS_HEALTH_CHECK_INTERVAL": "",
				"HCLOUD_LOAD_BALANCERS_HEALTH_CHECK_TIMEOUT":  "",
				"HCLOUD_LOAD_BALANCERS_HEALTH_CHECK_RETRIES":  "",
			}})
			set := map[string]string{
				"health-check-protocol": "https", "health-check-port": "31999", "health-check-interval": "7s",
				"health-check-timeout": "4s", "health-check-retries": "5", "health-check-http-domain": "health.example.com",
				"health-check-http-path": "/ready?deep=1", "http-status-codes": "200,3??",
			}
			service := env.Services.Create(ctx, "web", annotate(set))
			Expect(hetzner.ServiceOn(env.LoadBalancers.Of(ctx, "web"),
				framework.Port).HealthCheck).To(Equal(hcloud.LoadBalancerServiceHealthCheck{
				Protocol: hcloud.LoadBalancerServiceProtocolHTTP, Port: 31999,
				Interval: 7 * time.Second, Timeout: 4 * time.Second, Retries: 5,
				HTTP: &hcloud.LoadBalancerServiceHealthCheckHTTP{
					Domain: "health.example.com", Path: "/ready?deep=1", StatusCodes: []string{"200", "3??"}, TLS: true,
				},
			}))

			for name := range set {
				set[name] = ""
			}
			env.Services.Update(ctx, "web", annotate(set))
			env.LoadBalancers.Await(ctx, "web", func(g Gomega, lb *hcloud.LoadBalancer) {
				check := hetzner.ServiceOn(lb, framework.Port).HealthCheck
				g.Expect(check.HTTP).To(Or(BeNil(), HaveField("TLS", BeFalse())))
				check.HTTP = nil
				g.Expect(check).To(Equal(hcloud.LoadBalancerServiceHealthCheck{
					Protocol: hcloud.LoadBalancerServiceProtocolTCP, Port: int(service.Spec.Ports[0].NodePort),
					Interval: 15 * time.Second, Timeout: 10 * time.Second, Retries: 3,
				}))
			})
			env.CCM.ExpectNoServiceWrites(ctx)
		})

	It("cannot change later, and the Service says so: the location", framework.Needs(framework.Events, framework.SettingEvents),
		Label(framework.OwnCloud), func(ctx SpecContext) {
			env := hetzner.NewEnv(ctx, hetzner.Options{CCM: map[string]string{"HCLOUD_LOAD_BALANCERS_LOCATION": ""}})
			env.Services.Create(ctx, "web")
			env.Services.AwaitEvent(ctx, "web", "InvalidSettings", And(
				ContainSubstring("location"), ContainSubstring("is missing"), ContainSubstring("network-zone")))
			Expect(env.LoadBalancers.List(ctx)).To(BeEmpty())

			env.Services.Update(ctx, "web", annotate(map[string]string{"location": "nbg1"}))
			lb := env.LoadBalancers.Of(ctx, "web")
			Expect(lb.Location.Name).To(Equal("nbg1"))
			env.Services.Update(ctx, "web", annotate(map[string]string{"location": "hel1"}))
			env.Services.AwaitEvent(ctx, "web", "LocationCannotChange", And(ContainSubstring("nbg1"), ContainSubstring("hel1")))
			Expect(hetzner.Settings(env.LoadBalancers.Of(ctx, "web"))).To(Equal(hetzner.Settings(lb)))
		})

	// The rest of the cluster knows the load balancer only by the Service's status.
	It("selects the addresses that the Service's status shows", framework.Needs(framework.IngressChoice), func(ctx SpecContext) {
		env := hetzner.NewEnv(ctx, hetzner.Options{})
		env.Services.Create(ctx, "web")
		lb := env.LoadBalancers.Of(ctx, "web")
		v4, v6, private := lb.PublicNet.IPv4.IP.String(), lb.PublicNet.IPv6.IP.String(), lb.PrivateNet[0].IP.String()
		vip := corev1.LoadBalancerIPModeVIP
		ingress := func(addresses ...string) []corev1.LoadBalancerIngress {
			var all []corev1.LoadBalancerIngress
			for _, a := range addresses {
				all = append(all, corev1.LoadBalancerIngress{IP: a, IPMode: &vip})
			}
			return all
		}
		shows := func(want []corev1.LoadBalancerIngress) {
			GinkgoHelper()
			env.Services.Await(ctx, "web", func(g Gomega, s *corev1.Service) { g.Expect(s.Status.LoadBalancer.Ingress).To(Equal(want)) })
		}
		shows(ingress(v4, v6, private))
		before := hetzner.Settings(env.LoadBalancers.Of(ctx, "web"))
		env.Services.Update(ctx, "web", annotate(map[string]string{"ipv6-disabled": "true"}))
		shows(ingress(v4, private))
		env.Services.Update(ctx, "web", annotate(map[string]string{"disable-private-ingress": "true"}))
		shows(ingress(v4))
		env.Services.Update(ctx, "web", annotate(map[string]string{"hostname": "lb.example.com"}))
		shows([]corev1.LoadBalancerIngress{{Hostname: "lb.example.com"}})
		env.Services.Update(ctx, "web", annotate(map[string]string{"hostname": "", "ipv6-disabled": "", "disable-private-ingress": ""}))
		shows(ingress(v4, v6, private))
		Expect(hetzner.Settings(env.LoadBalancers.Of(ctx, "web"))).To(Equal(before), "the load balancer does not depend on what is shown")
	})

	It("is ignored, and an event names it, if it does not exist", framework.Needs(framework.SettingEvents), func(ctx SpecContext) {
		env := hetzner.NewEnv(ctx, hetzner.Options{})
		env.Services.Create(ctx, "web", annotate(map[string]string{"algorithm": "least_connections"}))
		env.Services.AwaitEvent(ctx, "web", "UnknownAnnotation", ContainSubstring(hetzner.Annotation+"algorithm"))
		Expect(env.LoadBalancers.Of(ctx, "web").Algorithm.Type).To(Equal(hcloud.LoadBalancerAlgorithmTypeRoundRobin))
	})

	DescribeTable("stays as it is, and a Warning event names it, until it is valid:", framework.Needs(framework.SettingEvents),
		func(ctx SpecContext, name, invalid, corrected, allowed string, companions map[string]string) {
			env := hetzner.NewEnv(ctx, hetzner.Options{})
			env.Services.Create(ctx, "web", annotate(companions))
			before := hetzner.Settings(env.LoadBalancers.Of(ctx, "web"))
			env.Services.Update(ctx, "web", annotate(map[string]string{name: invalid}))
			event := env.Services.AwaitEvent(ctx, "web", "InvalidSettings", And(
				ContainSubstring(hetzner.Annotation+name), ContainSubstring(fmt.Sprintf("%q", invalid)), ContainSubstring(allowed)))
			Expect(event.Type).To(Equal(corev1.EventTypeWarning))
			Expect(hetzner.Settings(env.LoadBalancers.Of(ctx, "web"))).To(Equal(before))

			By("changing a port, which does not have to wait")
			env.Services.Update(ctx, "web", func(s *corev1.Service) { s.Spec.Ports[0].Port = 9090 })
			env.LoadBalancers.Await(ctx, "web", func(g Gomega, lb *hcloud.LoadBalancer) {
				g.Expect(hetzner.ListenPorts(lb)).To(ConsistOf(9090))
			})

			By("correcting the setting")
			env.Services.Update(ctx, "web", annotate(map[string]string{name: corrected}))
			env.Services.AwaitEvents(ctx, "web", "EnsuredLoadBalancer", 2)
		},
		Entry("a choice", "algorithm-type", "fastest", "least_connections", "round_robin or least_connections", nil),
		Entry("a boolean", "uses-proxyprotocol", "maybe", "true", "true or false", nil),
		Entry("a duration", "health-check-interval", "2s", "4s", "from 3s to 60s", nil),
		Entry("a fraction of a second", "health-check-timeout", "1500ms", "2s", "whole seconds", nil),
		Entry("a number", "health-check-retries", "0", "1", "from 1 to 5", nil),
		Entry("a label selector", "node-selector", "pool notin (web", "pool notin (web)", "label selector", nil),
		Entry("an address", Label(framework.OwnCloud), "private-ipv4", "10.0.0.256", "10.0.0.77", "IPv4 address", nil),
		Entry("a DNS name", "ipv4-rdns", "under_score", "web.example.com", "DNS name", nil),
		Entry("status codes", "http-status-codes", "200;204", "200,204", "separated by commas", nil),
		Entry("a type, which only the cloud knows", "type", "lb99", "lb21", "lb11", nil),
		Entry("a setting that needs another one", "http-redirect-http", "true", "false", "protocol https", nil),
		Entry("a setting that contradicts another one", Label(framework.OwnCloud), "use-private-ip", "false", "true",
			"disable-public-network",
			map[string]string{"disable-public-network": "true"}),
	)

	It("keeps the cloud unchanged if it is invalid from the start, until it is corrected", framework.Needs(framework.SettingEvents),
		Label("dataplane"), func(ctx SpecContext) {
			env := hetzner.NewEnv(ctx, hetzner.Options{})
			env.Nodes.Workers(ctx, 1)
			env.Services.Create(ctx, "web", annotate(map[string]string{"algorithm-type": "fastest", "health-check-retries": "9"}))
			for _, name := range []string{"algorithm-type", "health-check-retries"} { // both, at once
				env.Services.AwaitEvent(ctx, "web", "InvalidSettings", ContainSubstring(name))
			}
			Expect(env.LoadBalancers.List(ctx)).To(BeEmpty())
			env.Services.Update(ctx, "web", annotate(map[string]string{"algorithm-type": "", "health-check-retries": ""}))
			env.Traffic.AwaitServed(ctx, "web")
		})

	DescribeTable("that only the cloud rejects is named in a Warning event:",
		framework.Needs(framework.SettingEvents),
		func(ctx SpecContext, name, invalid, corrected string) {
			env := hetzner.NewEnv(ctx, hetzner.Options{})
			env.Services.Create(ctx, "web", annotate(map[string]string{name: invalid}))
			event := env.Services.AwaitEvent(ctx, "web", "InvalidSettings", And(
				ContainSubstring(hetzner.Annotation+name), ContainSubstring(fmt.Sprintf("%q", invalid))))
			Expect(event.Type).To(Equal(corev1.EventTypeWarning))
			Expect(env.LoadBalancers.List(ctx)).To(BeEmpty())
			env.Services.Update(ctx, "web", annotate(map[string]string{name: corrected}))
			env.Services.AwaitIngress(ctx, "web")
		},
		Entry("a type", "type", "lb99", "lb11"),
		Entry("a location", "location", "mars1", "nbg1"),
		Entry("a network zone", "network-zone", "mars", "eu-central"),
	)
})
