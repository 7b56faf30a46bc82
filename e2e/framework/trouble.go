package framework

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
)

// AwaitStill waits until the CCM has compared the cloud with the cluster n times in a row without
// writing: what it had to do is done, and it does not think otherwise. Unlike a time without
// writes it proves that the CCM looked. It needs HCLOUD_NETWORK, whose routes each comparison reads.
func (e *Env) AwaitStill(ctx context.Context, n int) {
	GinkgoHelper()
	if !e.Simulated() || !e.Subject.Has(Repair) {
		e.expectCloudStays(ctx)
		return
	}
	after := e.Journal.Last()
	Eventually(func() int {
		looks := 0
		for _, r := range e.Journal.Entries(fakecloud.JournalFilter{Client: e.Subject.UserAgent, Since: after}) {
			switch {
			case r.Method != http.MethodGet && (e.Cloud != nil || e.owned.wrote(r)):
				looks = 0
			case r.Route == "/networks/{id}" && r.Status == http.StatusOK:
				looks++
			}
		}
		return looks
	}).WithContext(ctx).WithTimeout(Timeout).WithPolling(Polling).Should(BeNumerically(">=", n), func() string {
		return "the CCM does not come to rest:\n" + e.journalText(fakecloud.JournalFilter{Client: e.Subject.UserAgent, Writes: true, Since: after})
	})
}

// Hold keeps one of the CCM's requests from being answered until the spec ends: the n-th that the
// rule selects, counted from 1. If carriedOut, the cloud does what the request asks for and keeps
// only the answer; else the request is not carried out, whatever becomes of its sender. The
// returned function waits until the request has arrived; if it is to be carried out, that follows
// at once, but is not waited for.
func (e *Env) Hold(f fakecloud.Fault, n int, carriedOut bool) (await func(context.Context)) {
	GinkgoHelper()
	f.Effect = fakecloud.Latency(24 * time.Hour)
	f.Effect.After = carriedOut
	f.From, f.To = n, n
	name, _ := e.Fault(f)
	return func(ctx context.Context) {
		GinkgoHelper()
		e.AwaitFault(ctx, name, 1)
	}
}

// ExpectEnd waits until the CCM has ended by itself and returns its exit code.
func (c *CCM) ExpectEnd(ctx context.Context) int {
	GinkgoHelper()
	Eventually(c.Done()).WithContext(ctx).WithTimeout(Timeout).Should(BeClosed(), "the process still runs")
	return c.ExitCode()
}

// CountWrites counts, from now on, the requests with a token that change something: CCMs of one spec
// look alike in the journal but may have tokens of their own.
func (e *Env) CountWrites(token string) (count func() int) {
	GinkgoHelper()
	// A rule that changes nothing, and counts.
	rule, err := e.Faults.Add(fakecloud.Fault{Token: token, Writes: true, Effect: fakecloud.Latency(1)})
	Expect(err).NotTo(HaveOccurred())
	return func() int {
		status, _ := e.Faults.Get(rule.Name)
		return int(status.Matched)
	}
}

// AwaitGone waits until a Service is gone from the cluster, which its finalizer delays until
// everything of it is gone from the cloud.
func (e *Env) AwaitGone(ctx context.Context, service string) {
	GinkgoHelper()
	Eventually(func() []string { return e.serviceNames(ctx) }).WithContext(ctx).
		WithTimeout(Timeout).WithPolling(Polling).ShouldNot(ContainElement(service))
}

// Certificates returns all certificates of the cloud; where specs share it, those of the spec.
func (e *Env) Certificates(ctx context.Context) []*hcloud.Certificate {
	GinkgoHelper()
	all, err := e.HCloud.Certificate.All(ctx)
	Expect(err).NotTo(HaveOccurred())
	if e.Cloud != nil {
		return all
	}
	mine := slices.DeleteFunc(all, func(c *hcloud.Certificate) bool { return !e.owned.isCertificate(c.ID, c.Labels[e.Subject.OwnerLabel]) })
	for i, c := range mine {
		if e.Kind != Existing || c.Labels[LabelRun] == e.run() {
			continue
		}
		if tagged, _, err := e.HCloud.Certificate.Update(ctx, c, hcloud.CertificateUpdateOpts{Labels: e.tagged(c.Labels)}); err == nil {
			mine[i] = tagged // else as with tagLoadBalancer
		}
	}
	return mine
}

// ExpectNothingOfServices fails if the cloud has anything that is made for Services.
func (e *Env) ExpectNothingOfServices(ctx context.Context) {
	GinkgoHelper()
	Expect(e.LoadBalancers(ctx)).To(BeEmpty(), "load balancers are left")
	Expect(e.Certificates(ctx)).To(BeEmpty(), "certificates are left")
}

// AwaitExactRoutes waits until the network has the routes of these nodes, which are named like their
// servers, and no others, and until no condition keeps pods off the nodes. (A node whose route was
// there before the route controller looked has no such condition.)
func (e *Env) AwaitExactRoutes(ctx context.Context, servers ...*hcloud.Server) {
	GinkgoHelper()
	var want []string
	for _, s := range servers {
		want = append(want, e.RouteOf(ctx, s.Name, s))
	}
	e.AwaitRoutes(ctx, want...)
	for _, s := range servers {
		e.AwaitNode(ctx, s.Name, func(g Gomega, n *corev1.Node) {
			g.Expect(conditionOf(n, corev1.NodeNetworkUnavailable)).NotTo(Equal(corev1.ConditionTrue), "NetworkUnavailable of %s", n.Name)
		})
	}
}

// conditionOf returns the status of a node's condition, "" if it has none of the type.
func conditionOf(n *corev1.Node, kind corev1.NodeConditionType) corev1.ConditionStatus {
	for _, c := range n.Status.Conditions {
		if c.Type == kind {
			return c.Status
		}
	}
	return ""
}

// ListenPorts returns the ports of a load balancer, sorted.
func ListenPorts(lb *hcloud.LoadBalancer) []int {
	var ports []int
	for _, s := range lb.Services {
		ports = append(ports, s.ListenPort)
	}
	slices.Sort(ports)
	return ports
}

// TargetIDs returns the ids of the servers that are a load balancer's targets, sorted; a server that
// is a target twice is in it twice.
func TargetIDs(lb *hcloud.LoadBalancer) []int64 {
	var ids []int64
	for _, t := range lb.Targets {
		if t.Server != nil {
			ids = append(ids, t.Server.Server.ID)
		}
	}
	slices.Sort(ids)
	return ids
}

// IDs returns the ids of servers, sorted.
func IDs(servers ...*hcloud.Server) []int64 {
	var ids []int64
	for _, s := range servers {
		ids = append(ids, s.ID)
	}
	slices.Sort(ids)
	return ids
}

// UnusedAddress returns an address on this machine where nothing listens, and nobody else begins to:
// loopback addresses of that part of the network belong to this process.
func (e *Env) UnusedAddress() string {
	b := e.loopback(purposeEndpoints).Addr().As4()
	b[2], b[3] = byte(e.specs>>8), byte(e.specs)
	return net.JoinHostPort(netip.AddrFrom4(b).String(), "8443")
}
