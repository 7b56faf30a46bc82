package specs

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/framework"
	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/hetzner"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/journal"
)

// incidentRequests is how many requests the CCM sends while an incident lasts, unless it sends none for the quiet time.
const incidentRequests = 40

// These are the incidents of fakecloud/INCIDENTS.md that concern a CCM. A CCM orders no servers.
var _ = DescribeTable("An incident in the cloud costs no node, no target, no request and no money, and ends with the work done, when",
	framework.Needs(framework.FaultTolerance, framework.CarefulDeletion), framework.Long,
	Label(framework.OwnCloud, framework.Incident, "fault", "fake-only"), rehearse,
	Entry("the account may own no further load balancer", "limit-load-balancers=1"),
	Entry("someone else uses up the rate limit", "rate-limit=24h"),
	Entry("a proxy refuses requests as too many", "rate-limit-no-headers=24h"),
	Entry("the token is revoked for a while", "token-revoked=24h"),
	Entry("the token is that of another project", "token-of-another-project"),
	Entry("the token may only read", "token-read-only"),
	Entry("the answers to writes are lost", "answers-lost"),
	Entry("actions hang", "actions-hang"),
	Entry("actions fail", "actions-fail"),
	Entry("actions take a hundred times as long", "actions-slow=100"),
	Entry("the API answers with errors in bursts", "server-errors=503@2s@3s"),
	Entry("writes meet conflicts", "conflicts"),
	Entry("writes meet locks", "conflicts=0.7@locked"),
	Entry("connections are refused", "connections-refused=24h"),
	Entry("connections are cut in the middle of an answer", "connections-cut"),
	Entry("all lists are empty although everything is there", "lists-empty=24h"),
	Entry("a server vanishes and comes back", "server-vanishes=node-3@24h"),
	Entry("the API of next month is here", "api-of-next-month"),
	Entry("load balancers take no further target", "load-balancer-full"),
)

// A CCM that respects the issuer's limits asks for another certificate after minutes only, so this spec does not wait for one.
var _ = Describe("An incident in the cloud costs no node, no target, no request and no money, and ends with the work done", func() {
	It("when certificates are not issued", framework.Needs(framework.FaultTolerance, framework.ManagedCertificates, framework.PortSettings,
		framework.SettingUpdates), framework.Long, Label(framework.OwnCloud, framework.Incident, "fault", "fake-only"),
		rehearseWithoutCertificates)
})

// rehearseWithoutCertificates wants HTTPS on a Service that serves, while no certificate is issued.
func rehearseWithoutCertificates(ctx SpecContext) {
	env := hetzner.NewEnv(ctx, hetzner.Options{CCM: shortTimeouts})
	env.Nodes.Workers(ctx, 2)
	env.Services.Create(ctx, "web")
	address := env.Traffic.AwaitServed(ctx, "web")
	env.CCM.AwaitIdle(ctx)
	card := env.StartIncident(ctx, "certificate-not-issued")
	load, begin := env.Traffic.Load(ctx, address, framework.Port), time.Now()
	wantHTTPS := func(domain string) func(*corev1.Service) {
		return func(s *corev1.Service) {
			s.Spec.Ports = []corev1.ServicePort{
				framework.ServicePort(framework.Port), framework.ServicePort(8081), framework.ServicePort(443),
			}
			annotate(map[string]string{"protocol.443": "https", "certificate-type": "managed",
				"http-managed-certificate-domains": domain})(s)
		}
	}

	By("during the incident")
	env.Services.Update(ctx, "web", wantHTTPS("shop.example.com"))
	env.Traffic.AwaitAnswer(ctx, "web", address, 8081)
	card.AwaitMet(ctx)
	card.AwaitRequests(ctx, incidentRequests)
	orders := env.Cloud.Journal.Entries(journal.Filter{Client: card.Client, Since: card.Since, Method: "POST", Route: "/certificates*"})
	if len(orders) > 2 {
		card.Wrong("it ordered %d certificates at an issuer that limits failed orders", len(orders))
	}

	By("after the incident")
	card.End(ctx)
	env.Services.Update(ctx, "web", wantHTTPS("www.example.com"))
	awaitHTTPS(ctx, env, "web", "www.example.com", env.Cloud.Roots(ctx))
	Eventually(env.Cloud.Certificates).WithArguments(ctx).
		Should(HaveExactElements(HaveField("DomainNames", ConsistOf("www.example.com"))), "the failed certificate is still there")
	if result := load.Since(ctx, begin, "during and after the incident"); len(result.Lost) > 0 {
		card.Wrong("requests to the port that was there: %v", result)
	}
	card.Expect()
}

// rehearse gives a CCM work during an incident, and judges what users feel: nodes, targets, lost requests, what costs money.
func rehearse(ctx SpecContext, scenario string) {
	env := hetzner.NewEnv(ctx, hetzner.Options{CCM: shortTimeouts})
	name, _, _ := strings.Cut(scenario, "=")
	if name == "api-of-next-month" {
		Expect(env.Cloud.Fake.SetTokenDate(ctx, env.Cloud.Fake.Token(), "2026-06-30")).To(Succeed())
	}
	servers := env.Nodes.Create(ctx, "node-1", "node-2", "node-3")
	was := map[string]*corev1.Node{}
	for _, s := range servers {
		was[s.Name] = env.Nodes.AwaitInitialized(ctx, s.Name)
	}
	env.Services.Create(ctx, "stays")
	address := env.Traffic.AwaitServed(ctx, "stays")
	lb := env.LoadBalancers.AwaitTargets(ctx, "stays", hetzner.Healthy("node-1", "node-2", "node-3"))
	env.CCM.AwaitIdle(ctx)
	card := env.StartIncident(ctx, scenario)

	By("during the incident")
	load, begin := env.Traffic.Load(ctx, address, framework.Port), time.Now()
	if name != "server-vanishes" { // the node of a server that is proven to be gone may go
		env.Nodes.Crash(ctx, env.Nodes.Simulated("node-2"))
	}
	targets := servers
	if name == "load-balancer-full" { // it concerns targets that are added: those of a new load balancer are in its creation
		targets = append(slices.Clone(servers), env.Servers.Create(ctx, "node-4"))
		env.Nodes.AwaitInitialized(ctx, "node-4")
	}
	env.Services.Create(ctx, "comes")
	if name != "api-of-next-month" { // which a request does not show
		card.AwaitMet(ctx)
	}
	card.AwaitRequests(ctx, incidentRequests)
	judge := func(when string) {
		for _, s := range servers {
			if now := env.Nodes.Get(ctx, s.Name); now == nil || now.UID != was[s.Name].UID {
				card.Wrong("%s, node %s was deleted", when, s.Name)
			}
		}
		balancers := allBalancers(ctx, env.Cloud.Fake)
		if b, ok := balancers[lb.ID]; !ok {
			card.Wrong("%s, the load balancer that serves was deleted", when)
		} else if len(b) < len(servers) {
			card.Wrong("%s, the load balancer that serves has the targets %v, and had %d", when, b, len(servers))
		}
		if len(balancers) > 2 {
			card.Wrong("%s, %d load balancers cost money for two Services", when, len(balancers))
		}
	}
	judge("during the incident")

	By("after the incident")
	card.End(ctx)
	env.Nodes.Simulated("node-2").PowerOn()
	env.Nodes.AwaitReady(ctx, "node-2", true)
	for _, service := range []string{"comes", "stays"} {
		env.LoadBalancers.Await(ctx, service, func(g Gomega, lb *hcloud.LoadBalancer) {
			g.Expect(hetzner.ListenPorts(lb)).To(Equal([]int{framework.Port}))
			g.Expect(hetzner.TargetIDs(lb)).To(Equal(hetzner.IDs(targets...)))
		})
	}
	env.CCM.AwaitIdle(ctx)
	judge("after the incident")
	result := load.Since(ctx, begin, "during and after the incident")
	if len(result.Lost) > 0 {
		card.Wrong("requests to the Service that was there: %v", result)
	}
	client := framework.Current().CCM.UserAgent
	for _, r := range env.Cloud.Journal.Entries(journal.Filter{Client: client, Since: card.Since, Method: "DELETE"}) {
		if done := max(r.Status, r.Handled); done < 300 && strings.HasSuffix(r.Path, fmt.Sprint(lb.ID)) {
			card.Wrong("it sent %s %s", r.Method, r.Path)
		}
	}
	card.Expect()
}

// allBalancers returns the ids of the targets of all load balancers, of all projects, whatever the API says.
func allBalancers(ctx SpecContext, cloud *fakecloud.Cloud) map[int64][]int64 {
	GinkgoHelper()
	type balancer struct {
		ID      int64
		Targets []struct{ Server struct{ ID int64 } }
	}
	all := map[int64][]int64{}
	for _, lb := range everywhere[balancer](ctx, cloud, "load_balancer") {
		all[lb.ID] = []int64{}
		for _, t := range lb.Targets {
			all[lb.ID] = append(all[lb.ID], t.Server.ID)
		}
	}
	return all
}

// everywhere returns all resources of a kind, of all projects, whatever the API says.
func everywhere[T any](ctx SpecContext, cloud *fakecloud.Cloud, kind string) (all []T) {
	GinkgoHelper()
	text, err := cloud.State(ctx, fakecloud.Selection{Kinds: []string{kind}})
	Expect(err).NotTo(HaveOccurred())
	var state struct {
		Projects []struct{ Resources map[string][]T } // of the kind only
	}
	Expect(json.Unmarshal(text, &state)).To(Succeed())
	for _, p := range state.Projects {
		for _, resources := range p.Resources {
			all = append(all, resources...)
		}
	}
	return all
}
