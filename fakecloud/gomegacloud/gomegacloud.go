// Package gomegacloud has Gomega matchers for a simulated cloud and its resources:
//
//	Eventually(ctx, gomegacloud.LoadBalancer(client, "web")).Should(gomegacloud.BeHealthy())
//	Expect(cloud).To(gomegacloud.HaveRequested("create_load_balancer", 1))
//
// A cloud is a *fakecloud.Cloud, or a *remote.Client for one in another process.
package gomegacloud

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"github.com/onsi/gomega"
	"github.com/onsi/gomega/format"
	"github.com/onsi/gomega/types"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/journal"
)

// Cloud is HaveRequested's view of a cloud.
type Cloud interface{ Journal() journal.Journal }

// HaveRequested succeeds if the journal of a cloud has n requests of an operation of the API document, such as create_server. n is a
// number, or a matcher for one. The failure shows the requests.
func HaveRequested(operation string, n any) types.GomegaMatcher {
	return HaveRequests(journal.Filter{Operation: operation}, n)
}

// HaveRequests succeeds if the journal of a cloud has n requests that a filter selects. n is a number, or a matcher for one.
func HaveRequests(f journal.Filter, n any) types.GomegaMatcher {
	number, ok := n.(types.GomegaMatcher)
	if !ok {
		number = gomega.BeNumerically("==", n)
	}
	return &requests{filter: f, number: number}
}

type requests struct {
	filter  journal.Filter
	number  types.GomegaMatcher
	entries []journal.Entry
}

// requestTimeout is how long the journal of a cloud in another process may take to answer.
const requestTimeout = 10 * time.Second

// Match implements types.GomegaMatcher.
func (m *requests) Match(actual any) (bool, error) {
	cloud, ok := actual.(Cloud)
	if !ok {
		return false, fmt.Errorf("HaveRequested needs a cloud with a journal, not\n%s", format.Object(actual, 1))
	}
	ctx, cancel := context.WithTimeout(context.Background(), requestTimeout)
	defer cancel()
	var err error
	if m.entries, err = cloud.Journal().Entries(ctx, m.filter); err != nil {
		return false, err
	}
	return m.number.Match(len(m.entries))
}

// FailureMessage implements types.GomegaMatcher.
func (m *requests) FailureMessage(any) string {
	return m.describe(m.number.FailureMessage(len(m.entries)))
}

// NegatedFailureMessage implements types.GomegaMatcher.
func (m *requests) NegatedFailureMessage(any) string {
	return m.describe(m.number.NegatedFailureMessage(len(m.entries)))
}

func (m *requests) describe(message string) string {
	var text strings.Builder
	fmt.Fprintf(&text, "the number of requests: %s\nThe requests of %+v:", message, m.filter)
	for _, e := range m.entries {
		fmt.Fprintf(&text, "\n%v", e)
	}
	return text.String()
}

// HaveStatus succeeds if the field Status of a value from hcloud-go, such as a *hcloud.Server, is the given one: a constant of hcloud-go, a
// string, or a matcher.
func HaveStatus(status any) types.GomegaMatcher {
	if _, ok := status.(types.GomegaMatcher); !ok {
		status = gomega.BeEquivalentTo(status)
	}
	return gomega.HaveField("Status", status)
}

// BeHealthy succeeds if a *hcloud.LoadBalancer has targets, and each is healthy on all ports of its services. Servers that a label
// selector selects count, and not the selector. The failure names those that are not healthy.
func BeHealthy() types.GomegaMatcher { return &healthy{} }

type healthy struct{ problems []string }

// Match implements types.GomegaMatcher.
func (m *healthy) Match(actual any) (bool, error) {
	lb, ok := actual.(*hcloud.LoadBalancer)
	if !ok || lb == nil {
		return false, fmt.Errorf("BeHealthy needs a *hcloud.LoadBalancer, not\n%s", format.Object(actual, 1))
	}
	m.problems = nil
	targets := flatten(lb.Targets)
	if len(targets) == 0 {
		m.problems = append(m.problems, "it has no target")
	}
	if len(lb.Services) == 0 {
		m.problems = append(m.problems, "it has no service, without which targets have no health")
	}
	for _, t := range targets {
		m.look(lb, t)
	}
	return len(m.problems) == 0, nil
}

// look adds the problems of one target.
func (m *healthy) look(lb *hcloud.LoadBalancer, t hcloud.LoadBalancerTarget) {
	status := map[int]hcloud.LoadBalancerTargetHealthStatusStatus{}
	for _, h := range t.HealthStatus {
		status[h.ListenPort] = h.Status
	}
	for _, s := range lb.Services {
		switch is := status[s.ListenPort]; is {
		case hcloud.LoadBalancerTargetHealthStatusStatusHealthy:
		case "":
			m.problems = append(m.problems, fmt.Sprintf("%s has no health on port %d", name(t), s.ListenPort))
		default:
			m.problems = append(m.problems, fmt.Sprintf("%s is %s on port %d", name(t), is, s.ListenPort))
		}
	}
}

// flatten returns targets with the servers of label selectors instead of these.
func flatten(targets []hcloud.LoadBalancerTarget) (all []hcloud.LoadBalancerTarget) {
	for _, t := range targets {
		if t.Type == hcloud.LoadBalancerTargetTypeLabelSelector {
			all = append(all, t.Targets...)
			continue
		}
		all = append(all, t)
	}
	return all
}

func name(t hcloud.LoadBalancerTarget) string {
	switch {
	case t.Server != nil && t.Server.Server != nil:
		return fmt.Sprintf("server %d", t.Server.Server.ID)
	case t.IP != nil:
		return "address " + t.IP.IP
	}
	return "a target"
}

// FailureMessage implements types.GomegaMatcher.
func (m *healthy) FailureMessage(actual any) string {
	return fmt.Sprintf("load balancer %s is not healthy:\n%s", actual.(*hcloud.LoadBalancer).Name, strings.Join(m.problems, "\n"))
}

// NegatedFailureMessage implements types.GomegaMatcher.
func (m *healthy) NegatedFailureMessage(actual any) string {
	return fmt.Sprintf("all targets of load balancer %s are healthy", actual.(*hcloud.LoadBalancer).Name)
}

// errMissing is the error of the functions for Eventually if there is nothing of that name or id.
var errMissing = errors.New("does not exist")

// Server returns a function for Eventually(ctx, …) that gets a server by its name or id.
func Server(c *hcloud.Client, idOrName string) func(context.Context) (*hcloud.Server, error) {
	return getter("server", idOrName, c.Server.Get)
}

// LoadBalancer returns a function for Eventually(ctx, …) that gets a load balancer by its name or id.
func LoadBalancer(c *hcloud.Client, idOrName string) func(context.Context) (*hcloud.LoadBalancer, error) {
	return getter("load balancer", idOrName, c.LoadBalancer.Get)
}

// Volume returns a function for Eventually(ctx, …) that gets a volume by its name or id.
func Volume(c *hcloud.Client, idOrName string) func(context.Context) (*hcloud.Volume, error) {
	return getter("volume", idOrName, c.Volume.Get)
}

func getter[T any](
	kind, idOrName string, get func(context.Context, string) (*T, *hcloud.Response, error),
) func(context.Context) (*T, error) {
	return func(ctx context.Context) (*T, error) {
		found, _, err := get(ctx, idOrName)
		if err == nil && found == nil {
			err = fmt.Errorf("%s %q %w", kind, idOrName, errMissing)
		}
		return found, err
	}
}
