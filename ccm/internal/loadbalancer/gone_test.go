package loadbalancer_test

import (
	"errors"
	"io"
	"net/http"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	servicehelpers "k8s.io/cloud-provider/service/helpers"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/plan"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/resync"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
)

// After a change, a loss or a mistake in HCLOUD_CLUSTER_ID, a deletion finds nothing that it may touch. The load balancer that the
// Service shows must not be forgotten.
func TestAServiceStaysUntilItsLoadBalancerOfAnotherIDIsDecidedUpon(t *testing.T) {
	t.Parallel()
	for name, annotations := range map[string]map[string]string{"an address": nil, "a hostname": {"hostname": "web.example.org"}} {
		for _, later := range []string{"b", "", "aa"} {
			t.Run(name+", "+later, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, "instant", 1)
				svc := newService("web", annotations, 80)
				w.ensure(w.provider(func(c *ccm.Config) { c.ClusterID = "a" }), svc)
				mistaken := w.provider(func(c *ccm.Config) { c.ClusterID = later })
				w.eventsSoFar()
				gone := svc.DeepCopy()
				gone.DeletionTimestamp = w.nowPtr()
				if err := tryRemove(t.Context(), mistaken, gone); err == nil || len(w.loadBalancers()) != 1 {
					t.Errorf("the Service may go, and its load balancer stays: %v", err)
				}
				lbs, _ := mistaken.LoadBalancer()
				if err := lbs.EnsureLoadBalancerDeleted(t.Context(), "", gone); err == nil {
					t.Error("EnsureLoadBalancerDeleted has no error")
				}
				w.expectEvent("Warning CloudLoadBalancerOwnedByAnother", `HCLOUD_CLUSTER_ID="a"`, "correct HCLOUD_CLUSTER_ID", "finalizer")
				w.remove(w.provider(func(c *ccm.Config) { c.ClusterID = "a" }), gone)
				w.expectNone()
			})
		}
	}
}

// noLoadBalancers answers for a broken API: its lists of load balancers are empty.
func noLoadBalancers(r *http.Request) *http.Response {
	if r.Method != http.MethodGet || r.URL.Path != "/v1/load_balancers" {
		return nil
	}
	return emptyList("load_balancers")
}

// emptyList returns an answer that lists no resources.
func emptyList(resources string) *http.Response {
	body := `{"` + resources + `":[],"meta":{"pagination":{"page":1,"per_page":50,"previous_page":null,"next_page":null,` +
		`"last_page":1,"total_entries":0}}}`
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body))}
}

// The deletion does not believe what the creation doubts: that many have disappeared, or all of few.
func TestADeletionDoesNotBelieveEmptyLists(t *testing.T) {
	t.Parallel()
	for _, services := range []int{1, 2, 4} {
		for _, kind := range []corev1.ServiceType{corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeClusterIP} {
			t.Run(itoa(int64(services))+" "+string(kind), func(t *testing.T) {
				t.Parallel()
				w := newEvidenceWorld(t, 2, services)
				svc := w.services[0]
				if svc.Spec.Type = kind; kind == corev1.ServiceTypeLoadBalancer {
					svc.DeletionTimestamp = w.nowPtr()
				}
				cloud, _ := w.start()
				w.wire.setIntercept(noLoadBalancers)
				for range 4 {
					w.expectStays(cloud, svc)
					w.clock.Step(time.Minute)
				}
				w.expectEvent("Warning CloudAnswerDoubted", "5m0s")
				w.wire.setIntercept(nil)
				w.remove(cloud, svc)
				if n := len(w.loadBalancers()); n != services-1 {
					t.Errorf("%d load balancers, want %d", n, services-1)
				}
			})
		}
	}
}

// The request that deletes fails, and the API is broken from then on: its lists are empty, and it knows no ID. Two empty answers of one API
// prove nothing.
func TestADeletionThatHasBegunDoesNotBelieveAnAPIThatShowsNothing(t *testing.T) {
	t.Parallel()
	for name, servers := range map[string]bool{"no server either": false, "a server": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newEvidenceWorld(t, 2, 1)
			svc := w.services[0]
			svc.DeletionTimestamp = w.nowPtr()
			cloud, _ := w.start()
			w.gone(cloud) // it knows the project
			kube := fake.NewClientset(svc.DeepCopy())
			controllerOf(cloud).Kube = kube
			w.wire.setIntercept(func(r *http.Request) *http.Response {
				if r.Method == http.MethodDelete {
					return apiError(http.StatusServiceUnavailable, "unavailable")
				}
				return nil
			})
			w.expectStays(cloud, svc)
			now, err := kube.CoreV1().Services("default").Get(t.Context(), svc.Name, metav1.GetOptions{})
			w.must(err)
			*svc = *now
			w.wire.setIntercept(func(r *http.Request) *http.Response {
				resource := path.Base(r.URL.Path)
				switch {
				case r.Method != http.MethodGet || servers && strings.Contains(r.URL.Path, "/servers"):
					return nil
				case resource == "servers" || resource == "load_balancers" || resource == "certificates":
					return emptyList(resource)
				}
				return apiError(http.StatusNotFound, "not_found")
			})
			if err := tryRemove(t.Context(), cloud, svc); (err == nil) != servers {
				t.Errorf("the Service may go: %v", err)
			}
		})
	}
}

// An incident of the API ends between two lists of one deletion: the question for the label finds nothing, and the next list shows it.
func TestADeletionDoesNotBelieveListsThatContradictEachOther(t *testing.T) {
	t.Parallel()
	for lists := range 10 {
		w := newEvidenceWorld(t, 2, 1)
		svc := w.services[0]
		svc.DeletionTimestamp = w.nowPtr()
		cloud, _ := w.start()
		left := lists
		w.wire.setIntercept(func(r *http.Request) *http.Response {
			answer := noLoadBalancers(r)
			if left--; left < 0 {
				return nil
			}
			return answer
		})
		if err := tryRemove(t.Context(), cloud, svc); err == nil && len(w.loadBalancers()) > 0 {
			t.Errorf("%d empty lists: the Service may go, and leaves its load balancer behind", lists)
		}
	}
}

// A load balancer that was visible by the production CCM's label, as one that a person has released, is in none of the empty lists.
func TestWhatWasVisibleOnceMakesNoEmptyListBelievable(t *testing.T) {
	t.Parallel()
	w := newEvidenceWorld(t, 2, 2)
	for _, lb := range w.loadBalancers() {
		if lb.Labels[plan.LabelServiceUID] == string(w.services[0].UID) {
			delete(lb.Labels, plan.LabelServiceUID)
			w.setLabels(lb, lb.Labels)
		}
	}
	cloud, r := w.start()
	r.SyncLoadBalancers(t.Context())
	_, _ = w.tryEnsure(cloud, w.services[0]) // a person has to decide about it
	w.clock.Step(time.Minute)
	w.wire.setIntercept(noLoadBalancers)
	svc := w.services[1]
	svc.DeletionTimestamp = w.nowPtr()
	w.expectStays(cloud, svc)
}

// It was missing once, because a person had deleted the one before it or in an earlier incident. Since when it is missing counts from the
// last answer that showed it.
func TestALoadBalancerThatWasSeenIsNotMissingSinceEarlier(t *testing.T) {
	t.Parallel()
	for name, see := range map[string]func(*evidenceWorld, *ccm.Cloud, *resync.Comparison){
		"a person deleted the one before": nil,
		"an earlier incident": func(w *evidenceWorld, _ *ccm.Cloud, r *resync.Comparison) {
			r.SyncLoadBalancers(w.t.Context())
		},
		"an earlier incident, and a new Service since": func(w *evidenceWorld, cloud *ccm.Cloud, _ *resync.Comparison) {
			w.ensure(cloud, newService("new", nil, 80))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newEvidenceWorld(t, 2, 1)
			svc := w.services[0]
			cloud, r := w.start()
			if see != nil {
				w.wire.setIntercept(noLoadBalancers)
			} else {
				w.deleteLoadBalancer(w.loadBalancers()[0])
			}
			_, _ = w.tryEnsure(cloud, svc)
			w.wire.setIntercept(nil)
			w.clock.Step(3 * time.Minute)
			if see != nil {
				see(w, cloud, r)
			}
			w.clock.Step(3 * time.Minute)
			w.wire.setIntercept(noLoadBalancers)
			svc.DeletionTimestamp = w.nowPtr()
			w.expectStays(cloud, svc)
		})
	}
}

// What is really gone holds nothing up forever: a person has deleted the only load balancer.
func TestAServiceWhoseLoadBalancerAPersonDeletedGoesAfterAWhile(t *testing.T) {
	t.Parallel()
	for services, atOnce := range map[int]bool{1: false, 2: true} {
		w := newEvidenceWorld(t, 2, services)
		w.deleteLoadBalancer(w.loadBalancers()[0])
		cloud, _ := w.start()
		svc := w.services[0]
		svc.DeletionTimestamp = w.nowPtr()
		if err := tryRemove(t.Context(), cloud, svc); (err == nil) != atOnce {
			t.Errorf("at once: %v", err)
		}
		w.clock.Step(5 * time.Minute)
		if err := tryRemove(t.Context(), cloud, svc); err != nil {
			t.Errorf("after 5 minutes: %v", err)
		}
	}
}

// A Service that shows no address may have had a load balancer if it hides addresses, and else has had none.
func TestAnEmptyListIsDoubtedForAServiceThatHidesItsAddresses(t *testing.T) {
	t.Parallel()
	for hides, settings := range map[bool]map[string]string{
		true: {"disable-public-network": "true", "disable-private-ingress": "true"}, false: nil,
	} {
		w := newEvidenceWorld(t, 1, 0)
		svc := newService("web", settings, 80)
		svc.Finalizers, svc.DeletionTimestamp = []string{servicehelpers.LoadBalancerCleanupFinalizer}, w.nowPtr()
		w.services = []*corev1.Service{svc}
		cloud, _ := w.start()
		if err := tryRemove(t.Context(), cloud, svc); (err != nil) != hides {
			t.Errorf("it hides its addresses: %t, and at once: %v", hides, err)
		}
		w.clock.Step(5 * time.Minute)
		if err := tryRemove(t.Context(), cloud, svc); err != nil {
			t.Errorf("after 5 minutes: %v", err)
		}
	}
}

// A Service that had a load balancer of ours and gets a class loses it, with its certificate.
func TestAServiceThatGetsAClassLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	w, cloud, svc := newServingWorld(t, "instant", 1, managed("example.org"), 443)
	class := "example.org/other"
	svc.Spec.LoadBalancerClass = &class
	if err := tryRemove(t.Context(), cloud, svc); err != nil {
		t.Fatal(err)
	}
	if len(w.loadBalancers())+len(w.certificates()) != 0 {
		t.Errorf("%d load balancers, %d certificates", len(w.loadBalancers()), len(w.certificates()))
	}
}

// The worker of the service controller has read the Service before its type changed back, or before its class was removed.
func TestADeletionReadsTheNewestService(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*corev1.Service){
		"type":  func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeClusterIP },
		"class": func(s *corev1.Service) { class := "example.org/other"; s.Spec.LoadBalancerClass = &class },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, cloud, svc := newServingWorld(t, "instant", 1, nil, 80)
			kube := fake.NewClientset(newService("other", nil, 81), svc.DeepCopy())
			controllerOf(cloud).Kube = kube
			stale := svc.DeepCopy()
			change(stale)
			if err := tryRemove(t.Context(), cloud, stale); err == nil || len(w.loadBalancers()) != 1 {
				t.Fatalf("%v; %d load balancers", err, len(w.loadBalancers()))
			}
			kube.PrependReactor("list", "services", func(clienttesting.Action) (bool, runtime.Object, error) {
				return true, nil, errors.New("the API server is away")
			})
			if err := tryRemove(t.Context(), cloud, stale); err == nil || len(w.loadBalancers()) != 1 {
				t.Fatalf("while Kubernetes does not answer: %v; %d load balancers", err, len(w.loadBalancers()))
			}
			for what, objects := range map[string][]runtime.Object{"it is gone": nil, "it is another one of its name": {anew(svc)}} {
				controllerOf(cloud).Kube = fake.NewClientset(objects...)
				if err := tryRemove(t.Context(), cloud, stale); err != nil || len(w.loadBalancers()) != 0 {
					t.Fatalf("%s: %v; %d load balancers", what, err, len(w.loadBalancers()))
				}
				controllerOf(cloud).Kube = nil
				w.ensure(cloud, svc)
			}
		})
	}
}

// A sync follows the end of a deletion, and the cache of the service controller has the Service with its finalizer still. The user deletes
// the Service, and it vanishes.
func TestACreationReadsTheNewestService(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*corev1.Service){
		"another":    func(s *corev1.Service) { *s = *anew(s) },
		"released":   func(s *corev1.Service) { s.Finalizers = nil },
		"type":       func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeClusterIP },
		"unreadable": nil,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, "instant", 1)
			cloud, svc := w.provider(), newService("web", nil, 80)
			kube, now := fake.NewClientset(), svc.DeepCopy()
			if change != nil {
				change(now)
				kube = fake.NewClientset(now)
			} else {
				kube.PrependReactor("list", "services", func(clienttesting.Action) (bool, runtime.Object, error) {
					return true, nil, errors.New("the API server is away")
				})
			}
			controllerOf(cloud).Kube = kube
			if _, err := w.tryEnsure(cloud, svc); err == nil || len(w.loadBalancers()) != 0 {
				t.Fatalf("%v; %d load balancers", err, len(w.loadBalancers()))
			}
			controllerOf(cloud).Kube = fake.NewClientset(svc)
			w.ensure(cloud, svc)
		})
	}
}

func anew(svc *corev1.Service) *corev1.Service {
	other := svc.DeepCopy()
	other.UID = "uid-anew"
	return other
}

// A person has removed the finalizer by force, or Kubernetes was set back to an older state. Then a Service of the same name is made.
func TestWhatAVanishedServiceHasLeftStaysAndIsReported(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "instant", 1)
	cloud, svc, other := w.providerIn("here"), newService("web", nil, 80), newService("other", nil, 80)
	w.ensure(cloud, svc)
	w.ensure(cloud, other)
	w.ensure(w.providerIn("there"), newService("theirs", nil, 80))
	r, _ := w.resyncOf(cloud, svc, other)
	expect := func(orphans int, event bool) {
		t.Helper()
		r.SyncLoadBalancers(t.Context())
		if n := testutil.ToFloat64(controllerOf(cloud).OrphansMetric()); n != float64(orphans) {
			t.Errorf("%v orphans, want %d", n, orphans)
		}
		if has := strings.Contains(strings.Join(w.eventsSoFar(), "\n"), "CloudLoadBalancerOrphaned"); has != event {
			t.Errorf("an event: %t, want %t", has, event)
		}
		w.clock.Step(time.Minute)
	}
	expect(0, false)
	r, _ = w.resyncOf(cloud, other)
	expect(1, false) // the list may be older
	expect(1, true)
	lbs, _ := cloud.LoadBalancer()
	if err := lbs.EnsureLoadBalancerDeleted(t.Context(), "", svc); err != nil || len(w.loadBalancers()) != 3 {
		t.Errorf("%v, %d load balancers", err, len(w.loadBalancers()))
	}
	for _, lb := range w.loadBalancers() {
		if lb.Labels["ccm-from-scratch/service-uid"] == string(svc.UID) {
			w.deleteLoadBalancer(lb)
		}
	}
	expect(0, false)
	if _, still := controllerOf(cloud).ManagedServices()[string(svc.UID)]; still {
		t.Error("each comparison goes on asking for what the Service has left")
	}
	for uid, orphans := range map[string]int{"here": 1, "": 0} { // after a start, there may be no Service left
		cloud = w.providerIn(uid)
		svc.Spec.Type = corev1.ServiceTypeClusterIP // each cluster has one
		r, _ = w.resyncOf(cloud, svc)
		expect(orphans, false)
	}
}

// The Service vanishes while the token shows another project, and another Service gets its name: the service controller then asks for
// the end of the old one.
func TestWhatAVanishedServiceHasLeftStaysWithAnotherToken(t *testing.T) {
	t.Parallel()
	w := newEvidenceWorld(t, 2, 2)
	cloud, _ := w.start()
	svc := w.services[0]
	w.ensure(cloud, svc)
	w.rotate(w.other)
	w.clock.Step(time.Minute)
	r, _ := w.resyncOf(cloud, w.services[1])
	r.SyncLoadBalancers(t.Context())
	w.rotate(fakecloud.DefaultToken)
	r.SyncLoadBalancers(t.Context())
	lbs, _ := cloud.LoadBalancer()
	if err := lbs.EnsureLoadBalancerDeleted(t.Context(), "", svc); err != nil || len(w.loadBalancers()) != 2 {
		t.Errorf("%v, %d load balancers", err, len(w.loadBalancers()))
	}
}
