package loadbalancer_test

import (
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

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/plan"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/resync"
)

// The tests of this file hold the guards against races: what waits, what is read again, and in which order.
// scripts/mutate/named.txt removes each guard; a test of this file must fail then.

// The list that all Services share still shows the copied label that a person has removed.
func TestSeveralLoadBalancersAreNotJudgedByAnOldList(t *testing.T) {
	t.Parallel()
	w, _, svc := newServingWorld(t, "instant", 1, map[string]string{"hostname": "web.example.org"}, 80)
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
			w.expectNoWrites()
		})
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
	r := w.newComparison(cloud, fake.NewClientset(), corelisters.NewNodeLister(known), services)
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
	r.SyncRoutes(t.Context())
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
	ended := func(_ *world, lbs cloudprovider.LoadBalancer, svc *corev1.Service) error {
		return lbs.EnsureLoadBalancerDeleted(t.Context(), "", doomed(svc))
	}
	for name, tc := range map[string]struct {
		release func(w *world, lbs cloudprovider.LoadBalancer, svc *corev1.Service) error
		// during makes the release happen when the comparison has begun.
		during bool
	}{
		"its load balancer is gone already": {release: func(w *world, lbs cloudprovider.LoadBalancer, svc *corev1.Service) error {
			w.deleteLoadBalancer(w.theLoadBalancer())
			deleted := doomed(svc)
			_, _, _ = lbs.GetLoadBalancer(t.Context(), "", deleted)
			w.clock.Step(5 * time.Minute) // it was the only one: an empty list is believed after a while
			_, exists, err := lbs.GetLoadBalancer(t.Context(), "", deleted)
			if exists {
				t.Error("the load balancer still exists")
			}
			return err
		}},
		"another one has its name":                {release: ended},
		"it is deleted while the comparison runs": {release: ended, during: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, "instant", 1)
			cloud := w.provider()
			svc := newService("web", nil, 80)
			w.ensure(cloud, svc)
			nodes, services := listers(w.nodes[0], svc.DeepCopy())
			release := func() { w.must(tc.release(w, controllerOf(cloud), svc)) }
			hook := &hookedServices{ServiceLister: services}
			r := w.newComparison(cloud, fake.NewClientset(svc.DeepCopy()), nodes, hook)
			if tc.during {
				hook.read = release
			} else {
				release()
			}
			r.SyncLoadBalancers(t.Context())
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
	for name, other := range map[string]func(*world, cloudprovider.LoadBalancer, *resync.Comparison, *corev1.Service) error{
		"ensure": func(w *world, lbs cloudprovider.LoadBalancer, _ *resync.Comparison, svc *corev1.Service) error {
			_, err := lbs.EnsureLoadBalancer(w.t.Context(), "", svc, w.nodes)
			return err
		},
		"update": func(w *world, lbs cloudprovider.LoadBalancer, _ *resync.Comparison, svc *corev1.Service) error {
			return lbs.UpdateLoadBalancer(w.t.Context(), "", svc, w.nodes)
		},
		"get": func(w *world, lbs cloudprovider.LoadBalancer, _ *resync.Comparison, svc *corev1.Service) error {
			_, _, err := lbs.GetLoadBalancer(w.t.Context(), "", svc)
			return err
		},
		"delete": func(w *world, lbs cloudprovider.LoadBalancer, _ *resync.Comparison, svc *corev1.Service) error {
			return lbs.EnsureLoadBalancerDeleted(w.t.Context(), "", doomed(svc))
		},
		"comparison": func(w *world, _ cloudprovider.LoadBalancer, r *resync.Comparison, _ *corev1.Service) error {
			r.SyncLoadBalancers(w.t.Context())
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w, cloud, svc := newServingWorld(t, "instant", 2, nil, 80)
				w.clock.Step(time.Minute)
				r, _ := w.resyncOf(cloud, svc)
				setPorts(svc, 80, 443)
				release := w.holdFirst(http.MethodPost)
				done := make(chan error, 2)
				go func() { _, err := w.tryEnsure(cloud, svc); done <- err }()
				synctest.Wait()
				w.wire.take()
				go func() { done <- other(w, controllerOf(cloud), r, svc) }()
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
		if lb := w.theLoadBalancer(); lb.Labels[plan.LabelServiceUID] != "uid-first" || !slices.Equal(listenPorts(lb), []int{80}) {
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
			w, cloud, svc := newServingWorld(t, "instant", 2, nil, 80)
			before := svc.DeepCopy()
			annotate(svc, map[string]string{"disable-public-network": "true"})
			r, _ := w.resyncOf(cloud, svc)
			r.SyncLoadBalancers(t.Context())
			if w.theLoadBalancer().PublicNet.Enabled {
				t.Fatal("the comparison has not made the Service private")
			}
			seen := w.watch()
			w.must(sync(controllerOf(cloud), before, w.nodes))
			if w.theLoadBalancer().PublicNet.Enabled || len(seen.ports) > 0 {
				t.Errorf("a sync with the Service as it was before exposes it: %v", seen)
			}
		})
	}
}
