package loadbalancer_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/plan"
)

// vanish removes a Service from the cluster as one does who removes its finalizer by force.
func (w *world) vanish(name string) {
	w.t.Helper()
	w.must(w.services.Delete(newService(name, nil)))
}

func TestASharedLoadBalancerKeepsItsSettingsWhenItsOwnerGoes(t *testing.T) {
	t.Parallel()
	w := newSharingWorld(t, "instant", 3)
	for i, n := range w.nodes {
		n.Labels = map[string]string{"pool": []string{"a", "a", "b"}[i]}
	}
	settings := map[string]string{"type": "lb21", "use-private-ip": "true", "disable-public-network": "true",
		"algorithm-type": "least_connections", "node-selector": "pool in (a), !spot"}
	first, second := newService("first", share, 80), newService("second", share, 443)
	annotate(first, settings)
	annotate(second, map[string]string{"disable-public-network": "true"})
	w.ensure(w.provider(), first)
	w.ensure(w.provider(), second)
	expect := func(name string, nodes int) {
		t.Helper()
		lb := w.theLoadBalancer()
		if got := targetIDs(lb); lb.LoadBalancerType.Name != name || lb.PublicNet.Enabled || lb.Algorithm.Type != "least_connections" ||
			len(got) != nodes || slices.Contains(got, serverIDs(w.nodes[2:3])[0]) || !lb.Targets[0].UsePrivateIP {
			t.Errorf("type %s, public %t, algorithm %s, targets %v; want %s and %d targets", lb.LoadBalancerType.Name, lb.PublicNet.Enabled,
				lb.Algorithm.Type, got, name, nodes)
		}
	}
	expect("lb21", 2)

	annotate(second, map[string]string{"type": "lb11"})
	w.expectUnmet(second, "type", `must be "lb21", or absent`)
	delete(second.Annotations, plan.AnnotationPrefix+"type")
	w.remove(w.provider(), first)
	_, node := w.addServer("node-4")
	node.Labels = map[string]string{"pool": "a"}
	w.ensure(w.provider(), second)
	expect("lb21", 3)

	annotate(second, map[string]string{"type": "lb31"})
	w.ensure(w.provider(), second)
	expect("lb31", 3)
	delete(second.Annotations, plan.AnnotationPrefix+"type")
	w.ensure(w.provider(), second)
	expect("lb31", 3)
	w.remove(w.provider(), second)
	w.expectNone()
}

func TestAGuestMustNotContradict(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		owner, guest map[string]string
		reason       string
	}{
		"another value":       {map[string]string{"type": "lb21"}, map[string]string{"type": "lb31"}, `must be "lb21", or absent`},
		"the owner has none":  {nil, map[string]string{"node-selector": "pool=a"}, "must be absent"},
		"the same":            {map[string]string{"type": "lb21"}, map[string]string{"type": " lb21"}, ""},
		"the default":         {nil, map[string]string{"disable-public-network": "0", "type": "lb11"}, ""},
		"other words":         {map[string]string{"disable-public-network": "FALSE"}, map[string]string{"disable-public-network": "0"}, ""},
		"settings of its own": {nil, map[string]string{"hostname": "b.example.com", "protocol": "http"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newSharingWorld(t, "instant", 1)
			first, second := newService("first", share, 80), newService("second", share, 443)
			annotate(first, tc.owner)
			annotate(second, tc.guest)
			w.ensure(w.provider(), first)
			if tc.reason == "" {
				w.ensure(w.provider(), second)
				w.expectPorts(first, 80, 443)
				return
			}
			w.expectUnmet(second, "differs from load balancer", tc.reason)
			w.expectPorts(first, 80)
		})
	}
}

// A user who may make Services in one namespace must not get the ports of a load balancer of another one.
func TestOnlyServicesOfOneNamespaceShareUnlessTheOwnerAllowsMore(t *testing.T) {
	t.Parallel()
	for allowed, joins := range map[string]bool{"": false, "team-c": false, "team-b": true, "team-c, team-b": true, "*": true} {
		t.Run(allowed, func(t *testing.T) {
			t.Parallel()
			w := newSharingWorld(t, "instant", 1)
			first, second := newService("first", share, 80), newService("second", share, 443)
			second.Namespace = "team-b"
			if allowed != "" {
				annotate(first, map[string]string{"shared-namespaces": allowed})
			}
			w.ensure(w.provider(), first)
			if joins {
				w.ensure(w.provider(), second)
				w.expectPorts(first, 80, 443)
				return
			}
			w.expectUnmet(second, "default/first", "shared-namespaces", "team-b")
			w.expectPorts(first, 80)
		})
	}
}

// The load balancer of another cluster leads to that cluster's nodes.
func TestAServiceDoesNotJoinTheLoadBalancerOfAnotherCluster(t *testing.T) {
	t.Parallel()
	w := newSharingWorld(t, "instant", 1)
	first, second := newService("first", share, 80), newService("second", share, 443)
	w.ensure(w.provider(), first)
	w.vanish("first")
	w.expectUnmet(second, "uid-first", "this cluster does not have")
	w.expectPorts(first, 80)
}

// The redirect occupies port 80.
func TestARedirectBesideAnotherServicesPort80(t *testing.T) {
	t.Parallel()
	https := map[string]string{"protocol": "https", "http-certificates": "web", "http-redirect-http": "true"}
	t.Run("the port was first", func(t *testing.T) {
		t.Parallel()
		w := newSharingWorld(t, "instant", 1)
		w.uploadCertificate("web")
		first, second := newService("first", share, 80), newService("second", share, 443)
		annotate(second, https)
		w.ensure(w.provider(), first)
		w.expectUnmet(second, "Port 443", "without http-redirect-http", "uid-first")
		w.expectPorts(first, 80, 443)
		setPorts(first, 8080)
		w.ensure(w.provider(), first)
		w.ensure(w.provider(), second)
		redirects := func(s hcloud.LoadBalancerService) bool { return s.HTTP.RedirectHTTP }
		if s := w.theLoadBalancer().Services; !slices.ContainsFunc(s, redirects) {
			t.Errorf("no redirect: %+v", s)
		}
	})
	t.Run("the redirect was first", func(t *testing.T) {
		t.Parallel()
		w := newSharingWorld(t, "instant", 1)
		w.uploadCertificate("web")
		first, second := newService("first", share, 443), newService("second", share, 80, 8080)
		annotate(first, https)
		w.ensure(w.provider(), first)
		w.expectUnmet(second, "Port 80", "uid-first")
		w.expectPorts(first, 443, 8080)
	})
}

// A deletion cannot be undone: what the one asks for that shared it first counts, and what the last one asks for itself.
func TestALoadBalancerIsKeptIfOneOfItsOwnersAsksForIt(t *testing.T) {
	t.Parallel()
	for _, keeper := range []string{"first", "second"} {
		t.Run(keeper, func(t *testing.T) {
			t.Parallel()
			w := newSharingWorld(t, "instant", 1)
			first, second := newService("first", share, 80), newService("second", share, 443)
			w.ensure(w.provider(), first)
			if keeper == "first" {
				annotate(first, map[string]string{"keep-on-delete": "true"})
				w.ensure(w.provider(), first)
			}
			w.ensure(w.provider(), second)
			if keeper == "second" {
				annotate(second, map[string]string{"keep-on-delete": "true"})
				w.expectUnmet(second, "keep-on-delete", "differs from load balancer")
			}
			w.remove(w.provider(), first)
			w.remove(w.provider(), second)
			w.expectEvent("Normal KeptCloudLoadBalancer", "belongs to no Service any more")
			lb := w.theLoadBalancer()
			for key := range lb.Labels {
				t.Errorf("label %s is left", key)
			}
			if len(lb.Services) > 0 {
				t.Errorf("ports %v are left", listenPorts(lb))
			}
		})
	}
}

// Its owner removes the guest in the same moment in which the guest ends.
func TestALoadBalancerOutlivesAGuestThatIsRemovedTwice(t *testing.T) {
	t.Parallel()
	w := newSharingWorld(t, "instant", 1)
	first, second := w.shared()
	id := w.theLoadBalancer().ID
	w.vanish("second")
	w.wire.setIntercept(func(r *http.Request) *http.Response {
		if strings.HasSuffix(r.URL.Path, "/"+itoa(id)) {
			w.wire.setIntercept(nil)
			w.ensure(w.provider(), first)
		}
		return nil
	})
	second.DeletionTimestamp = w.nowPtr()
	if err := tryRemove(t.Context(), w.provider(), second); err != nil || len(w.loadBalancers()) != 1 {
		t.Fatalf("%v, %d load balancers are left", err, len(w.loadBalancers()))
	}
	w.expectPorts(first, 80)
}

func TestAGuestThatVanishedNeitherInheritsNorKeepsItsPorts(t *testing.T) {
	t.Parallel()
	w := newSharingWorld(t, "instant", 1)
	first, second := w.shared()
	w.vanish("second")
	third := newService("third", share, 443)
	w.ensure(w.provider(), first)
	w.expectPorts(first, 80)
	w.ensure(w.provider(), third)
	w.expectPorts(first, 80, 443)
	if isGuest(w.theLoadBalancer(), second) {
		t.Errorf("labels %v", w.theLoadBalancer().Labels)
	}
	w.vanish("third")
	w.remove(w.provider(), first)
	w.expectNone()
}
