package ccm_test

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/fake"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	cloudprovider "k8s.io/cloud-provider"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm"
)

// The tests of this file hold the guards against races: what waits, what is read again, and in which order.
// scripts/mutate/named.txt removes each guard; a test of this file must fail then.

// The list that all Services share still shows the copied label that a person has removed.
func TestSeveralLoadBalancersAreNotJudgedByAnOldList(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "instant", 1)
	svc := newService("web", map[string]string{"hostname": "web.example.org"}, 80)
	w.ensure(w.provider(), svc)
	made := w.create(hcloud.LoadBalancerCreateOpts{Name: "stranger", Labels: w.theLoadBalancer().Labels})
	cloud := w.provider()
	w.expectError(cloud, svc)
	w.setLabels(made, map[string]string{})
	if _, err := w.tryEnsure(cloud, svc); err != nil {
		t.Errorf("at once after the label was removed: %v", err)
	}
}

// The list that all Services share is up to three seconds old. It is not used after a write, also if it was fetched
// while the write was on its way.
func TestASyncSeesTheWritesOfTheLastOne(t *testing.T) {
	t.Parallel()
	for name, listed := range map[string]bool{"the list is older than the write": false, "the list is fetched during the write": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, "instant", 1)
			cloud := w.provider()
			svc, other := newService("web", nil, 80), newService("other", nil, 81)
			w.ensure(cloud, svc)
			w.ensure(cloud, other)
			w.clock.Step(5 * time.Second)
			setPorts(svc, 80, 443)
			var once sync.Once
			w.wire.setIntercept(func(r *http.Request) *http.Response {
				if listed && strings.HasSuffix(r.URL.Path, "/add_service") {
					once.Do(func() {
						w.clock.Step(5 * time.Second)
						w.ensure(cloud, other)
					})
				}
				return nil
			})
			w.ensure(cloud, svc)
			w.wire.take()
			if _, err := w.tryEnsure(cloud, svc); err != nil {
				t.Error(err)
			}
			if extra := writes(w.wire.take()); len(extra) > 0 {
				t.Errorf("a sync at once after another one writes %v", extra)
			}
		})
	}
}

// Between the look at the routes and the deletion of a stale one, another worker has replaced it.
func TestARouteThatWasReplacedIsNotDeleted(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "instant", 1)
	cloud := w.provider()
	w.addRoute("10.244.1.0/24", "10.0.99.99")
	routes, _ := cloud.Routes()
	seen, err := routes.ListRoutes(t.Context(), "")
	if err != nil || len(seen) != 1 {
		t.Fatal(seen, err)
	}
	if err := routes.CreateRoute(t.Context(), "", "",
		&cloudprovider.Route{TargetNode: "node-1", DestinationCIDR: "10.244.1.0/24"}); err != nil {
		t.Fatal(err)
	}
	if err := routes.DeleteRoute(t.Context(), "", seen[0]); err != nil {
		t.Errorf("deleting a route that is gone: %v", err)
	}
	if got, want := w.networkRoutes(), []string{"10.244.1.0/24 via " + w.privateIP(0)}; !slices.Equal(got, want) {
		t.Errorf("routes %v, want %v", got, want)
	}
}

// A Node and its route appear while the routes are read.
func TestTheComparisonReadsNodesAfterRoutes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "instant", 2)
	cloud := w.provider()
	known := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	for i, n := range w.nodes {
		n.Spec.PodCIDRs = []string{"10.244." + itoa(int64(i+1)) + ".0/24"}
	}
	w.must(known.Add(w.nodes[0]))
	_, services := listers()
	r := ccm.NewResync(cloud, fake.NewClientset(), corelisters.NewNodeLister(known), services)
	var once sync.Once
	w.wire.setIntercept(func(req *http.Request) *http.Response {
		if strings.HasPrefix(req.URL.Path, "/v1/networks/") {
			once.Do(func() {
				w.addRoute("10.244.2.0/24", w.privateIP(1))
				w.must(known.Add(w.nodes[1]))
			})
		}
		return nil
	})
	r.Routes(t.Context())
	for _, c := range w.wire.take() {
		if strings.HasSuffix(c, "delete_route") {
			t.Errorf("the route of a new Node was deleted: %v", w.networkRoutes())
		}
	}
	if len(w.networkRoutes()) != 2 {
		t.Errorf("routes %v, want those of two Nodes", w.networkRoutes())
	}
}

// The lister of the comparison does not know yet that the Service is deleted. Nothing would delete a load balancer that it
// makes.
func TestTheComparisonMakesNothingForAServiceThatIsReleased(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		release func(w *world, lbs cloudprovider.LoadBalancer, svc *corev1.Service) error
		// during makes the release happen when the comparison has begun.
		during bool
	}{
		"its load balancer is gone already": {release: func(w *world, lbs cloudprovider.LoadBalancer, svc *corev1.Service) error {
			w.deleteLoadBalancer(w.theLoadBalancer())
			deleted := svc.DeepCopy()
			deleted.DeletionTimestamp = w.nowPtr()
			_, _, _ = lbs.GetLoadBalancer(t.Context(), "", deleted)
			w.clock.Step(5 * time.Minute) // it was the only one: an empty list is believed after a while
			_, exists, err := lbs.GetLoadBalancer(t.Context(), "", deleted)
			if exists {
				t.Error("the load balancer still exists")
			}
			return err
		}},
		"another one has its name": {release: func(_ *world, lbs cloudprovider.LoadBalancer, svc *corev1.Service) error {
			return lbs.EnsureLoadBalancerDeleted(t.Context(), "", svc)
		}},
		"it is deleted while the comparison runs": {during: true, release: func(_ *world, lbs cloudprovider.LoadBalancer,
			svc *corev1.Service) error {
			return lbs.EnsureLoadBalancerDeleted(t.Context(), "", svc)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, "instant", 1)
			cloud := w.provider()
			lbs, _ := cloud.LoadBalancer()
			svc := newService("web", nil, 80)
			w.ensure(cloud, svc)
			nodes, services := listers(w.nodes[0], svc.DeepCopy())
			release := func() { w.must(tc.release(w, lbs, svc)) }
			hook := &hookedServices{ServiceLister: services}
			r := ccm.NewResync(cloud, fake.NewClientset(svc.DeepCopy()), nodes, hook)
			if tc.during {
				hook.read = release
			} else {
				release()
			}
			r.LoadBalancers(t.Context())
			w.expectNone()
		})
	}
}

// hookedServices calls read, if it is set, when the comparison first reads a Service.
type hookedServices struct {
	corelisters.ServiceLister
	read func()
}

func (h *hookedServices) Services(namespace string) corelisters.ServiceNamespaceLister {
	if read := h.read; read != nil {
		h.read = nil
		read()
	}
	return h.ServiceLister.Services(namespace)
}

// Only one sync of a Service is at work: two would send the same operations, or opposite ones.
func TestSyncsOfOneServiceDoNotOverlap(t *testing.T) {
	t.Parallel()
	for name, other := range map[string]func(context.Context, cloudprovider.LoadBalancer, *ccm.Resync, *corev1.Service,
		[]*corev1.Node) error{
		"ensure": func(ctx context.Context, lbs cloudprovider.LoadBalancer, _ *ccm.Resync, svc *corev1.Service,
			nodes []*corev1.Node) error {
			_, err := lbs.EnsureLoadBalancer(ctx, "", svc, nodes)
			return err
		},
		"update": func(ctx context.Context, lbs cloudprovider.LoadBalancer, _ *ccm.Resync, svc *corev1.Service,
			nodes []*corev1.Node) error {
			return lbs.UpdateLoadBalancer(ctx, "", svc, nodes)
		},
		"get": func(ctx context.Context, lbs cloudprovider.LoadBalancer, _ *ccm.Resync, svc *corev1.Service, _ []*corev1.Node) error {
			_, _, err := lbs.GetLoadBalancer(ctx, "", svc)
			return err
		},
		"delete": func(ctx context.Context, lbs cloudprovider.LoadBalancer, _ *ccm.Resync, svc *corev1.Service, _ []*corev1.Node) error {
			return lbs.EnsureLoadBalancerDeleted(ctx, "", svc)
		},
		"comparison": func(ctx context.Context, _ cloudprovider.LoadBalancer, r *ccm.Resync, _ *corev1.Service, _ []*corev1.Node) error {
			r.LoadBalancers(ctx)
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, "instant", 2)
				cloud := w.provider()
				svc := newService("web", nil, 80)
				w.ensure(cloud, svc)
				w.clock.Step(time.Minute)
				r, _ := w.resyncOf(cloud, svc)
				lbs, _ := cloud.LoadBalancer()
				setPorts(svc, 80, 443)
				release := w.holdFirst(http.MethodPost)
				done := make(chan error, 2)
				go func() { _, err := w.tryEnsure(cloud, svc); done <- err }()
				synctest.Wait()
				w.wire.take()
				go func() { done <- other(t.Context(), lbs, r, svc, w.nodes) }()
				synctest.Wait()
				if calls := w.wire.take(); len(calls) > 0 {
					t.Errorf("during another sync it sends %v", calls)
				}
				release()
				for range 2 {
					if err := <-done; err != nil {
						t.Error(err)
					}
				}
			})
		})
	}
}

// holdFirst makes the first request with this method wait until release is called.
func (w *world) holdFirst(method string) (release func()) {
	held := make(chan struct{})
	var once sync.Once
	w.wire.setIntercept(func(r *http.Request) *http.Response {
		first := false
		if r.Method == method {
			once.Do(func() { first = true })
		}
		if first {
			<-held
		}
		return nil
	})
	return func() { close(held) }
}

// Two Services ask for the same load balancer at the same time.
func TestTwoServicesDoNotAdoptTheSameLoadBalancer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "instant", 1)
		w.create(hcloud.LoadBalancerCreateOpts{Name: "edge"})
		cloud := w.provider()
		release := w.holdFirst(http.MethodPut)
		failed := map[string]bool{}
		var mu sync.Mutex
		var both sync.WaitGroup
		for i, name := range []string{"first", "second"} {
			both.Go(func() {
				_, err := w.tryEnsure(cloud, newService(name, map[string]string{"name": "edge"}, int32(80+i)))
				mu.Lock()
				defer mu.Unlock()
				failed[name] = err != nil
			})
			synctest.Wait()
		}
		release()
		both.Wait()
		if failed["first"] || !failed["second"] {
			t.Errorf("failed: %v, want only the second", failed)
		}
		if lb := w.theLoadBalancer(); lb.Labels[ccm.LabelServiceUID] != "uid-first" || !slices.Equal(listenPorts(lb), []int{80}) {
			t.Errorf("labels %v, ports %v", lb.Labels, listenPorts(lb))
		}
	})
}

// A sync waits for another one, and has the Service as it was before.
func TestASyncThatWaitedHasTheServiceAsItIsNow(t *testing.T) {
	t.Parallel()
	for name, sync := range map[string]func(lbs cloudprovider.LoadBalancer, svc *corev1.Service, nodes []*corev1.Node) error{
		"update": func(lbs cloudprovider.LoadBalancer, svc *corev1.Service, nodes []*corev1.Node) error {
			return lbs.UpdateLoadBalancer(t.Context(), "", svc, nodes)
		},
		"ensure": func(lbs cloudprovider.LoadBalancer, svc *corev1.Service, nodes []*corev1.Node) error {
			_, err := lbs.EnsureLoadBalancer(t.Context(), "", svc, nodes)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, "instant", 2)
			cloud := w.provider()
			svc := newService("web", nil, 80)
			w.ensure(cloud, svc)
			before := svc.DeepCopy()
			annotate(svc, map[string]string{"disable-public-network": "true"})
			r, _ := w.resyncOf(cloud, svc)
			r.LoadBalancers(t.Context())
			if w.theLoadBalancer().PublicNet.Enabled {
				t.Fatal("the comparison has not made the Service private")
			}
			seen := w.watch()
			lbs, _ := cloud.LoadBalancer()
			w.must(sync(lbs, before, w.nodes))
			if w.theLoadBalancer().PublicNet.Enabled || len(seen.ports) > 0 {
				t.Errorf("a sync with the Service as it was before exposes it: %v", seen)
			}
		})
	}
}

// The answer to a change of a route is lost. The network shows whether the change was made.
func TestARouteWhoseAnswerIsLostIsReadAgain(t *testing.T) {
	t.Parallel()
	for _, verb := range []string{"add_route", "delete_route"} {
		for _, arrives := range []bool{true, false} {
			t.Run(verb, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, "instant", 1)
				cloud := w.provider()
				routes, _ := cloud.Routes()
				route := &cloudprovider.Route{TargetNode: "node-1", DestinationCIDR: "10.244.1.0/24"}
				change := func() error { return routes.CreateRoute(t.Context(), "", "", route) }
				if verb == "delete_route" {
					w.must(change())
					all, err := routes.ListRoutes(t.Context(), "")
					if err != nil || len(all) != 1 {
						t.Fatal(all, err)
					}
					change = func() error { return routes.DeleteRoute(t.Context(), "", all[0]) }
				}
				lost := 0
				w.wire.setIntercept(func(r *http.Request) *http.Response {
					if !strings.HasSuffix(r.URL.Path, verb) || lost > 0 {
						return nil
					}
					lost++
					if arrives {
						if resp, err := w.fake.Transport().RoundTrip(r); err == nil {
							_ = resp.Body.Close()
						}
					}
					return apiError(http.StatusBadGateway, "bad_gateway")
				})
				if err := change(); (err == nil) != arrives {
					t.Errorf("the request arrived: %t; got %v", arrives, err)
				}
				w.must(change())
				want := map[string]int{"add_route": 1, "delete_route": 0}[verb]
				if got := w.networkRoutes(); len(got) != want || lost != 1 {
					t.Errorf("routes %v, want %d; %d answers lost", got, want, lost)
				}
			})
		}
	}
}

// A change of a route waits for the one before it to the same destination, and does not repeat it.
func TestChangesOfOneRouteWaitForEachOther(t *testing.T) {
	t.Parallel()
	const destination = "10.244.2.0/24"
	create := func(ctx context.Context, routes cloudprovider.Routes, _ *cloudprovider.Route) error {
		return routes.CreateRoute(ctx, "", "", &cloudprovider.Route{TargetNode: "node-2", DestinationCIDR: destination})
	}
	remove := func(ctx context.Context, routes cloudprovider.Routes, seen *cloudprovider.Route) error {
		return routes.DeleteRoute(ctx, "", seen)
	}
	for name, tc := range map[string]struct {
		exists        bool // before
		first, second func(context.Context, cloudprovider.Routes, *cloudprovider.Route) error
		writes        int
		left          bool
	}{
		"it is created twice":            {false, create, create, 1, true},
		"it is deleted twice":            {true, remove, remove, 1, false},
		"it is created while it goes":    {true, remove, create, 2, true},
		"it is deleted and was replaced": {false, create, remove, 1, true}, // what was seen is another route
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, "realistic", 2)
				routes, _ := w.provider().Routes()
				w.must(create(t.Context(), routes, nil)) // shows how long such actions take
				all, err := routes.ListRoutes(t.Context(), "")
				w.must(err)
				seen := *all[0]
				w.must(remove(t.Context(), routes, &seen))
				if tc.exists {
					w.must(create(t.Context(), routes, nil))
				}
				if name == "it is deleted and was replaced" {
					seen.Name = destination + " via 10.0.99.99"
				}
				w.wire.take()
				held := make(chan struct{})
				w.wire.setIntercept(func(r *http.Request) *http.Response {
					if r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/actions") {
						<-held
					}
					return nil
				})
				done := make(chan error, 2)
				go func() { done <- tc.first(t.Context(), routes, &seen) }()
				synctest.Wait()
				go func() { done <- tc.second(t.Context(), routes, &seen) }()
				synctest.Wait()
				close(held)
				for range 2 {
					if err := <-done; err != nil {
						t.Error(err)
					}
				}
				if sent := writes(w.wire.take()); len(sent) != tc.writes || (len(w.networkRoutes()) == 1) != tc.left {
					t.Errorf("sent %v, want %d requests; routes %v", sent, tc.writes, w.networkRoutes())
				}
			})
		})
	}
}
