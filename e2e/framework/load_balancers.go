package framework

import (
	"context"
	"fmt"
	"slices"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/cloud"
)

// LoadBalancers are the cloud's load balancers, as far as they concern the spec.
type LoadBalancers struct {
	env *Env
}

// List returns the load balancers that concern the spec. On the embedded cluster, that is all of the cloud. If specs share a cloud, it is
// those that the spec created, and those of its Services.
func (lbs LoadBalancers) List(ctx context.Context) []cloud.LoadBalancer {
	GinkgoHelper()
	all, err := lbs.env.Cloud.LoadBalancers(ctx)
	Expect(err).NotTo(HaveOccurred())
	own := slices.DeleteFunc(all, func(lb cloud.LoadBalancer) bool { return !lbs.env.Owns(lb.ID, lb.Service) })
	// Only an existing cloud outlives the run: `make e2e-clean` finds the remains of a crash there.
	if tagger, ok := cloud.As[cloud.Tagger](lbs.env.Cloud); ok && lbs.env.suite.Kind == Existing {
		for _, lb := range own {
			lbs.env.created.tag(lb.ID, func() error { return tagger.Tag(ctx, lb.ID, RunName()) })
		}
	}
	return own
}

// Of returns the load balancer that has the address of a Service's status.
func (lbs LoadBalancers) Of(ctx context.Context, service string) cloud.LoadBalancer {
	GinkgoHelper()
	address := lbs.env.Services.AwaitIngress(ctx, service)
	for _, lb := range lbs.List(ctx) {
		if slices.Contains(lb.Addresses, address) {
			return lb
		}
	}
	Fail(fmt.Sprintf("no load balancer has the address %s of Service %s", address, service))
	return cloud.LoadBalancer{}
}

// Await waits until the Service's load balancer passes the checks.
func (lbs LoadBalancers) Await(ctx context.Context, service string, check func(Gomega, cloud.LoadBalancer)) cloud.LoadBalancer {
	GinkgoHelper()
	id := lbs.Of(ctx, service).ID
	var found cloud.LoadBalancer
	Eventually(func(g Gomega) {
		all := lbs.List(ctx)
		i := slices.IndexFunc(all, func(lb cloud.LoadBalancer) bool { return lb.ID == id })
		g.Expect(i).To(BeNumerically(">=", 0), "the load balancer %s is gone", id)
		check(g, all[i])
		found = all[i]
	}).WithContext(ctx).Should(Succeed())
	return found
}

// AwaitTargets waits until each port of a Service's load balancer has exactly the servers with these names as targets, and none that
// the cloud knows to be unhealthy. Where it tells the health, all must be healthy.
func (lbs LoadBalancers) AwaitTargets(ctx context.Context, service string, names ...string) cloud.LoadBalancer {
	GinkgoHelper()
	return lbs.Await(ctx, service, func(g Gomega, lb cloud.LoadBalancer) {
		servers, err := lbs.env.Cloud.Servers(ctx)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(lb.Ports).NotTo(BeEmpty())
		for _, p := range lb.Ports {
			g.Expect(targetNames(p, servers)).To(ConsistOf(names), "targets of port %d", p.Port)
			tells := slices.ContainsFunc(p.Targets, func(t cloud.Target) bool { return t.Health != cloud.Unknown })
			for _, t := range p.Targets {
				g.Expect(!tells || t.Health == cloud.Healthy).To(BeTrue(), "port %d: the target %+v is not healthy", p.Port, t)
			}
		}
	})
}

// targetNames returns the names of the servers that are targets of a port. For a target without a server, it returns the target's text.
func targetNames(p cloud.Port, servers []cloud.Server) (names []string) {
	for _, t := range p.Targets {
		i := slices.IndexFunc(servers, t.Is)
		if i < 0 {
			names = append(names, fmt.Sprintf("%+v", t))
			continue
		}
		names = append(names, servers[i].Name)
	}
	return names
}

// isTCP reports whether a port is one of TCP, which it is if the cloud does not say.
func isTCP(p cloud.Port) bool { return p.Protocol == "" || p.Protocol == corev1.ProtocolTCP }

// ListenPorts returns the TCP ports of a load balancer, sorted.
func ListenPorts(lb cloud.LoadBalancer) []int {
	var ports []int
	for _, p := range lb.Ports {
		if isTCP(p) {
			ports = append(ports, int(p.Port))
		}
	}
	slices.Sort(ports)
	return ports
}

// Settings returns a load balancer without the health of its targets, since the cloud changes that by itself.
func Settings(lb cloud.LoadBalancer) cloud.LoadBalancer {
	lb.Ports = slices.Clone(lb.Ports)
	for i := range lb.Ports {
		lb.Ports[i].Targets = slices.Clone(lb.Ports[i].Targets)
		for t := range lb.Ports[i].Targets {
			lb.Ports[i].Targets[t].Health = cloud.Unknown
		}
	}
	return lb
}
