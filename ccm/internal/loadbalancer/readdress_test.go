package loadbalancer_test

import (
	"bytes"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/fake"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm"
)

// Before the first health check, a target may serve. After a minute without one, it changes.
func TestTargetsKeepTheirAddressUntilTheirFirstHealthCheck(t *testing.T) {
	t.Parallel()
	for name, checked := range map[string]bool{"they are checked": true, "they are never checked": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, cloud, svc := newServingWorld(t, "instant", 3, nil, 80)
			if !checked {
				w.wire.setIntercept(w.unchecked)
			}
			annotate(svc, map[string]string{"use-private-ip": "true"})
			for now := range 120 {
				w.ensure(cloud, svc)
				lb := w.theLoadBalancer()
				private := slices.ContainsFunc(lb.Targets, func(t hcloud.LoadBalancerTarget) bool { return t.UsePrivateIP })
				if n := len(healthyTargets(lb)); n < 2 && private && checked || private && !checked && now < 60 {
					t.Fatalf("after %d s: %d healthy targets, and some have changed their address", now, n)
				}
				w.clock.Step(time.Second)
			}
			w.expectPrivateTargets()
			w.expectEvent("in turns")
		})
	}
}

// A target without its health check must not be the only one if others come as soon as they have their routes. After a minute, it is.
func TestATargetKeepsItsAddressWhileOthersWaitForTheirRoutes(t *testing.T) {
	t.Parallel()
	for name, routes := range map[string]bool{"they get them": true, "they never get them": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, "instant", 3)
			for _, node := range w.nodes[1:] {
				node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeNetworkUnavailable, Status: corev1.ConditionTrue,
					Reason: "NoRouteCreated"}}
			}
			cloud, svc := w.provider(), newService("web", nil, 80)
			w.ensure(cloud, svc)
			w.clock.Step(time.Minute) // health checks
			annotate(svc, map[string]string{"use-private-ip": "true"})
			for now := range 120 {
				if routes && now == 30 {
					for _, node := range w.nodes {
						node.Status.Conditions = nil
					}
				}
				w.ensure(cloud, svc)
				if n := len(healthyTargets(w.theLoadBalancer())); n == 0 && (routes || now < 60) {
					t.Fatalf("after %d s: no target is healthy", now)
				}
				w.clock.Step(time.Second)
			}
			w.expectPrivateTargets()
		})
	}
}

// For another private address, the load balancer leaves its network for a moment, with all private targets. What is public serves on.
func TestAPublicTargetKeepsItsAddressWhileTheLoadBalancerIsInNoNetwork(t *testing.T) {
	t.Parallel()
	t.Run("public", func(t *testing.T) { t.Parallel(); changesPrivateAddress(t, false) })
	t.Run("private", func(t *testing.T) { t.Parallel(); changesPrivateAddress(t, true) })
}

// changesPrivateAddress gives a load balancer another private address, and takes its public interface away if hides is set.
func changesPrivateAddress(t *testing.T, hides bool) {
	t.Helper()
	w := newWorld(t, "instant", 3)
	private := func(on, address string) map[string]string {
		return map[string]string{"use-private-ip": on, "private-ipv4": address}
	}
	cloud, svc := w.provider(), newService("web", private("true", "10.0.0.101"), 80)
	w.ensure(cloud, svc)
	w.clock.Step(time.Minute) // health checks
	annotate(svc, private("false", "10.0.0.101"))
	w.ensure(cloud, svc) // the first one is public
	w.clock.Step(time.Minute)
	later := private("true", "10.0.0.102")
	if hides {
		later["disable-public-network"] = "true"
		w.expectHidden(cloud, svc, later)
		return
	}
	annotate(svc, later)
	for now := range 120 {
		w.ensure(cloud, svc)
		w.expectHealthy(now, 1)
	}
	w.expectPrivateTargets()
	if lb := w.theLoadBalancer(); len(lb.PrivateNet) != 1 || lb.PrivateNet[0].IP.String() != "10.0.0.102" {
		t.Errorf("network %+v, want the new address", lb.PrivateNet)
	}
}

// The Service asks for private addresses in a network in which no server is. What serves by its public address continues.
func TestPublicTargetsStayUntilTheirServersAreInTheNetwork(t *testing.T) {
	t.Parallel()
	t.Run("public", func(t *testing.T) { t.Parallel(); asksForPrivateAddresses(t, false) })
	t.Run("private", func(t *testing.T) { t.Parallel(); asksForPrivateAddresses(t, true) })
}

// asksForPrivateAddresses does so in a network in which the servers are not until later, and hides the load balancer if hides is set.
func asksForPrivateAddresses(t *testing.T, hides bool) {
	t.Helper()
	w := newWorld(t, "instant", 3)
	other := w.otherNetwork()
	svc := newService("web", nil, 80)
	w.ensure(w.provider(), svc)
	w.clock.Step(time.Minute) // health checks
	cloud := w.provider(func(c *ccm.Config) { c.Network = "other" })
	annotate(svc, map[string]string{"use-private-ip": "true"})
	if hides {
		w.expectHidden(cloud, svc, map[string]string{"disable-public-network": "true"})
		return
	}
	for now := range 600 {
		if now == 300 {
			w.expectEvent("Warning", "keep their public addresses")
			for _, id := range serverIDs(w.nodes) {
				w.attach(other, id)
			}
			w.clock.Step(time.Hour) // what is known of servers is old
		}
		_, _ = w.tryEnsure(cloud, svc)
		w.expectHealthy(now, 2)
	}
	w.expectPrivateTargets()
}

// A server that is off is unhealthy with any address, and says nothing about the one that the Service asks for.
func TestAServerThatIsOffDoesNotHoldUpOtherAddresses(t *testing.T) {
	t.Parallel()
	w, cloud, svc := newServingWorld(t, "instant", 3, map[string]string{"use-private-ip": "true"}, 80)
	w.power(serverIDs(w.nodes)[2], false)
	w.clock.Step(time.Minute) // health checks
	annotate(svc, map[string]string{"use-private-ip": "false"})
	for range 2 { // two are public, and the one that is off is private
		w.ensure(cloud, svc)
		w.clock.Step(time.Minute)
	}
	annotate(svc, map[string]string{"use-private-ip": "true"})
	for now := range 1300 {
		_, _ = w.tryEnsure(cloud, svc) // that the server is off is known after 20 minutes
		w.expectHealthy(now, 1)
	}
	w.expectPrivateTargets()
}

// Kubelets change labels of their Nodes all the time. It holds up only targets that leave.
func TestATargetChangesItsAddressAlthoughItsNodeChanges(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "instant", 1)
	cloud, svc := w.provider(), newService("web", nil, 80)
	nodes := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	w.must(nodes.Add(w.nodes[0]))
	_, services := listers(svc)
	w.newComparison(cloud, fake.NewClientset(), corelisters.NewNodeLister(nodes), services)
	w.ensure(cloud, svc)
	w.clock.Step(time.Minute) // health checks
	annotate(svc, map[string]string{"use-private-ip": "true"})
	w.wire.setIntercept(func(*http.Request) *http.Response {
		now := w.nodes[0].DeepCopy()
		now.Labels = map[string]string{"gpu": "true"}
		if err := nodes.Update(now); err != nil {
			t.Error(err)
		}
		return nil
	})
	if _, err := w.tryEnsure(cloud, svc); err != nil || !w.theLoadBalancer().Targets[0].UsePrivateIP {
		t.Errorf("%v, targets %+v", err, w.theLoadBalancer().Targets)
	}
}

// unchecked answers as an API that knows nothing of the health of targets.
func (w *world) unchecked(r *http.Request) *http.Response {
	return w.answerWith(r, func(body []byte) []byte { return bytes.ReplaceAll(body, []byte(`"healthy"`), []byte(`"unknown"`)) })
}

// A firewall drops what comes to the public addresses. Only one target may find that out.
func TestTargetsKeepTheirAddressIfTheOtherDoesNotWork(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "instant", 4)
	var servers []hcloud.FirewallResource
	for _, id := range serverIDs(w.nodes) {
		servers = append(servers, hcloud.FirewallResource{Type: hcloud.FirewallResourceTypeServer,
			Server: &hcloud.FirewallResourceServer{ID: id}})
	}
	_, _, err := w.api.Firewall.Create(t.Context(), hcloud.FirewallCreateOpts{Name: "closed", ApplyTo: servers})
	w.must(err)
	cloud, svc := w.provider(), newService("web", map[string]string{"use-private-ip": "true"}, 80)
	w.ensure(cloud, svc)
	w.clock.Step(time.Minute) // health checks
	annotate(svc, map[string]string{"use-private-ip": "false"})
	for now := range 300 {
		_, err = w.tryEnsure(cloud, svc)
		w.expectHealthy(now, 3)
	}
	if err == nil || !strings.Contains(err.Error(), "keep their address") {
		t.Errorf("want an error about the address, got %v", err)
	}
	annotate(svc, map[string]string{"use-private-ip": "true"})
	w.ensure(cloud, svc)
	w.clock.Step(time.Minute)
	w.ensure(cloud, svc)
	if got := slices.Sorted(slices.Values(healthyTargets(w.theLoadBalancer()))); !slices.Equal(got, serverIDs(w.nodes)) {
		t.Errorf("after the Service has chosen private addresses again: %v", got)
	}
}

// expectHealthy ends the test unless so many targets are healthy after some seconds. Then one more passes.
func (w *world) expectHealthy(seconds, least int) {
	w.t.Helper()
	if n := len(healthyTargets(w.theLoadBalancer())); n < least {
		w.t.Fatalf("after %d s: %d healthy targets, want at least %d", seconds, n, least)
	}
	w.clock.Step(time.Second)
}

// expectPrivateTargets expects that all targets are private.
func (w *world) expectPrivateTargets() {
	w.t.Helper()
	for _, target := range w.theLoadBalancer().Targets {
		if !target.UsePrivateIP {
			w.t.Errorf("a target is public: %+v", target)
		}
	}
}

// expectHidden expects that the first sync with new annotations takes the public interface away.
func (w *world) expectHidden(cloud *ccm.Cloud, svc *corev1.Service, annotations map[string]string) {
	w.t.Helper()
	annotate(svc, annotations)
	_, _ = w.tryEnsure(cloud, svc)
	if lb := w.theLoadBalancer(); lb.PublicNet.Enabled {
		w.t.Errorf("a private Service is still public, with %+v", lb.Targets)
	}
}

// otherNetwork makes a network in which no server is.
func (w *world) otherNetwork() *hcloud.Network {
	w.t.Helper()
	return w.createNetwork("other", "192.168.0.0/16", "192.168.0.0/24")
}
