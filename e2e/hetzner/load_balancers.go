package hetzner

import (
	"context"
	"slices"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// LoadBalancers are the cloud's load balancers, as far as they concern the spec.
type LoadBalancers struct {
	env *Env
}

// List returns the load balancers that concern the spec. On the embedded cluster, that is all of the cloud. If specs share a cloud, it is
// those that the spec created, and those of its Services.
func (lbs LoadBalancers) List(ctx context.Context) []*hcloud.LoadBalancer {
	GinkgoHelper()
	all, err := lbs.env.Cloud.Client.LoadBalancer.All(ctx)
	Expect(err).NotTo(HaveOccurred())
	own := slices.DeleteFunc(all, func(lb *hcloud.LoadBalancer) bool { return !lbs.env.Owns(idOf(lb.ID), lbs.env.serviceOf(lb.Labels)) })
	for i, lb := range own {
		if !untagged(lb.Labels) {
			continue
		}
		opts := hcloud.LoadBalancerUpdateOpts{Labels: tagged(lb.Labels)}
		if tagged, _, err := lbs.env.Cloud.Client.LoadBalancer.Update(ctx, lb, opts); err == nil {
			own[i] = tagged
		}
	}
	return own
}

// Create creates a load balancer as a user would, without the CCM.
func (lbs LoadBalancers) Create(ctx context.Context, name string, change ...func(*hcloud.LoadBalancerCreateOpts)) *hcloud.LoadBalancer {
	GinkgoHelper()
	opts := hcloud.LoadBalancerCreateOpts{
		Name: name, LoadBalancerType: &hcloud.LoadBalancerType{Name: "lb11"}, Location: &hcloud.Location{Name: Location},
	}
	for _, c := range change {
		c(&opts)
	}
	opts.Labels = tagged(opts.Labels)
	result, _, err := lbs.env.Cloud.Client.LoadBalancer.Create(ctx, opts)
	Expect(err).NotTo(HaveOccurred())
	lbs.env.Created(idOf(result.LoadBalancer.ID))
	lbs.env.Cloud.Wait(ctx, result.Action)
	lb, _, err := lbs.env.Cloud.Client.LoadBalancer.GetByID(ctx, result.LoadBalancer.ID) // now it has its addresses
	Expect(err).NotTo(HaveOccurred())
	return lb
}

// Of returns the load balancer that has the address of a Service's status.
func (lbs LoadBalancers) Of(ctx context.Context, service string) *hcloud.LoadBalancer {
	GinkgoHelper()
	return lbs.Await(ctx, service, func(Gomega, *hcloud.LoadBalancer) {})
}

// Await waits until the Service's load balancer passes the checks.
func (lbs LoadBalancers) Await(ctx context.Context, service string, check func(Gomega, *hcloud.LoadBalancer)) *hcloud.LoadBalancer {
	GinkgoHelper()
	id := number(lbs.env.Env.LoadBalancers.Of(ctx, service).ID)
	var found *hcloud.LoadBalancer
	Eventually(func(g Gomega) {
		lb, _, err := lbs.env.Cloud.Client.LoadBalancer.GetByID(ctx, id)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(lb).NotTo(BeNil())
		check(g, lb)
		found = lb
	}).WithContext(ctx).Should(Succeed())
	return found
}

// AwaitTargets waits until a Service's load balancer has exactly these servers as targets, with the
// given health.
func (lbs LoadBalancers) AwaitTargets(ctx context.Context, service string, health map[string]string) *hcloud.LoadBalancer {
	GinkgoHelper()
	return lbs.Await(ctx, service, func(g Gomega, lb *hcloud.LoadBalancer) { g.Expect(lbs.TargetHealth(ctx, lb)).To(Equal(health)) })
}

// TargetHealth returns the health of a load balancer's targets of type server, by the server's name: "healthy" or
// "unhealthy" if all services agree, otherwise "mixed" or "unknown".
func (lbs LoadBalancers) TargetHealth(ctx context.Context, lb *hcloud.LoadBalancer) map[string]string {
	GinkgoHelper()
	servers, err := lbs.env.Cloud.Client.Server.All(ctx)
	Expect(err).NotTo(HaveOccurred())
	health := map[string]string{}
	for _, t := range lb.Targets {
		if t.Server == nil {
			continue
		}
		i := slices.IndexFunc(servers, func(s *hcloud.Server) bool { return s.ID == t.Server.Server.ID })
		if i < 0 {
			continue // deleted in between
		}
		status := "unknown"
		for n, h := range t.HealthStatus {
			switch s := string(h.Status); {
			case n == 0:
				status = s
			case s != status:
				status = "mixed"
			}
		}
		health[servers[i].Name] = status
	}
	return health
}

// Healthy returns the health "healthy" for each of the servers, for AwaitTargets.
func Healthy(names ...string) map[string]string {
	health := map[string]string{}
	for _, n := range names {
		health[n] = string(hcloud.LoadBalancerTargetHealthStatusStatusHealthy)
	}
	return health
}

// ServiceOn returns the service of a load balancer on a listen port; there must be one.
func ServiceOn(lb *hcloud.LoadBalancer, port int) hcloud.LoadBalancerService {
	GinkgoHelper()
	i := slices.IndexFunc(lb.Services, func(s hcloud.LoadBalancerService) bool { return s.ListenPort == port })
	Expect(i).To(BeNumerically(">=", 0), "load balancer %s does not listen on %d", lb.Name, port)
	return lb.Services[i]
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

// TargetIDs returns the ids of the servers that are a load balancer's targets, sorted. A server that
// is a target twice is listed twice.
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

// Settings returns a load balancer without the values that the cloud changes by itself: the health of its targets, and traffic.
func Settings(lb *hcloud.LoadBalancer) *hcloud.LoadBalancer {
	settings := *lb
	settings.Targets = slices.Clone(lb.Targets)
	for i := range settings.Targets {
		settings.Targets[i].HealthStatus = nil
	}
	settings.OutgoingTraffic, settings.IngoingTraffic = 0, 0
	return &settings
}

// addressesOf returns the public and private addresses of a load balancer.
func addressesOf(lb *hcloud.LoadBalancer) []string {
	all := []string{lb.PublicNet.IPv4.IP.String(), lb.PublicNet.IPv6.IP.String()}
	for _, n := range lb.PrivateNet {
		all = append(all, n.IP.String())
	}
	return all
}
