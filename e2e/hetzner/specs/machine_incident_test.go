package specs

import (
	"slices"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/machine/v1alpha1"
	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/framework"
	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/hetzner"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
)

// These are the incidents of fakecloud/INCIDENTS.md that concern programs which order servers. Failed actions are left out: a server that
// fails to start exists and is stopped, and only a health check of the MachineDeployment replaces its Machine.
var _ = DescribeTable("An incident in the cloud costs no Machine and no server too many, and ends with the Machines that are wanted, when",
	framework.Needs(framework.Machines, framework.NodeRoutes), framework.Long,
	Label(framework.OwnCloud, framework.Incident, "machine", "fault", "fake-only"), rehearseWithMachines,
	Entry("the server type is sold out", "sold-out="+hetzner.ServerType+"@"+hetzner.Location),
	Entry("the server type retires everywhere", "retired="+hetzner.ServerType),
	Entry("the account may own no further server", "limit-servers=2"),
	Entry("the account may own no further Primary IP", "limit-primary-ips=1"),
	Entry("someone else uses up the rate limit", "rate-limit=24h"),
	Entry("the token is revoked for a while", "token-revoked=24h"),
	Entry("the token is that of another project", "token-of-another-project"),
	Entry("the token may only read", "token-read-only"),
	Entry("the answers to writes are lost", "answers-lost=1"),
	Entry("the API answers with errors in bursts", "server-errors=503@2s@3s"),
	Entry("connections are cut in the middle of an answer", "connections-cut"),
	Entry("all lists are empty although everything is there", "lists-empty=24h"),
	Entry("writes meet conflicts", "conflicts=1"), // the one that creates the server, too
)

// restless is how many requests a program sends without a rest that does not wait longer after each failure. Three Machines that are tried
// five times in the first three seconds cost half of them.
const restless = 200

// rehearseWithMachines wants one Machine more during an incident, while a Node is not ready. It judges the objects and their costs.
func rehearseWithMachines(ctx SpecContext, scenario string) {
	env := hetzner.NewEnv(ctx, hetzner.Options{})
	env.Machines.Start(ctx)
	env.Machines.Create(ctx, env.Machines.Deployment("pool", 2))
	names := env.Machines.Await(ctx, "pool", 2)
	was := map[string]types.UID{}
	for _, m := range env.Machines.List(ctx) {
		was[m.Name] = m.UID
	}
	card := env.StartIncident(ctx, scenario)
	card.Client = hetzner.MachineController

	By("during the incident")
	env.Nodes.Crash(ctx, env.Nodes.Simulated(names[1]))
	env.Machines.Scale(ctx, "pool", 3)
	card.AwaitMet(ctx, func() bool { // no list shows a retired type, and the API refuses nothing
		return slices.ContainsFunc(env.Machines.List(ctx), func(m v1alpha1.Machine) bool { return m.Status.FailureMessage != "" })
	})
	if card.AwaitRequests(ctx, restless); card.Requests() >= restless {
		card.Wrong("it sent %d requests without a rest", card.Requests())
	}
	judge := func(when string) {
		kept := map[types.UID]bool{}
		for _, m := range env.Machines.List(ctx) {
			kept[m.UID] = m.DeletionTimestamp == nil
		}
		servers := allServers(ctx, env.Cloud.Fake)
		for name, uid := range was {
			if !kept[uid] {
				card.Wrong("%s, Machine %s was replaced, whose server is there", when, name)
			}
			if !slices.Contains(servers, name) {
				card.Wrong("%s, the server of Machine %s was deleted", when, name)
			}
		}
		if len(servers) > 3 {
			card.Wrong("%s, the %d servers %v cost money for three Machines", when, len(servers), servers)
		}
	}
	judge("during the incident")

	By("after the incident")
	card.End(ctx)
	env.Nodes.Simulated(names[1]).PowerOn()
	env.Machines.Await(ctx, "pool", 3)
	judge("after the incident")
	env.Machines.Scale(ctx, "pool", 1)
	left := env.Machines.Await(ctx, "pool", 1)
	Expect(allServers(ctx, env.Cloud.Fake)).To(ConsistOf(left), "a server without a Machine costs money")
	card.Expect()
}

// allServers returns the names of all servers, of all projects, whatever the API says.
func allServers(ctx SpecContext, cloud *fakecloud.Cloud) (names []string) {
	GinkgoHelper()
	for _, s := range everywhere[struct{ Name string }](ctx, cloud, "server") {
		names = append(names, s.Name)
	}
	return names
}
