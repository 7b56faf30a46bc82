//go:build sim

package sim

import (
	"net/http"
	"slices"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	cloudprovider "k8s.io/cloud-provider"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/plan"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/fault"
)

// This file is about who owns what: the steps after which something in the cloud may be left without an owner, or get a second one.

const clusterLabel = "ccm-from-scratch/cluster"

// wantsOurs reports whether a Service wants a load balancer of this CCM. It may be about to go.
func wantsOurs(s *corev1.Service) bool {
	return s.Spec.Type == corev1.ServiceTypeLoadBalancer && s.Spec.LoadBalancerClass == nil
}

// defaultName returns the name of a new load balancer.
func (w *world) defaultName(s *corev1.Service) string {
	name := cloudprovider.DefaultLoadBalancerName(s)
	if w.clusterID != "" {
		name += "-" + w.clusterID
	}
	return name
}

// toggleClass gives a Service to another controller, or back. The API server allows it by way of another type, which the CCM may not see.
func toggleClass(w *world, who string, _, _ int) {
	w.withService(who, func(s *corev1.Service) {
		if s.DeletionTimestamp != nil {
			return
		}
		class := "example.org/other"
		if s.Spec.LoadBalancerClass == nil {
			s.Spec.LoadBalancerClass = &class
		} else {
			s.Spec.LoadBalancerClass = nil
		}
		must(w.kube.Update(servicesResource, s, namespace))
	})
}

// flapType changes a Service's type for so short a time that the CCM has begun to look for what to delete when it changes back.
func flapType(w *world, who string, _, _ int) {
	w.settle()
	s := w.kube.service(who)
	if s == nil || !wantsOurs(s) || s.DeletionTimestamp != nil || !w.guard.ok() {
		return
	}
	toggleType(w, who, 0, 0)
	w.pass(5*time.Second, 1)
	toggleType(w, who, 0, 0)
	w.guard.setSteady(string(s.UID))
	w.pass(time.Minute, 0)
	w.guard.setSteady("")
}

// setSteady names the Service whose load balancer must not be deleted from now on, although its type changed just now; "": none.
func (g *guard) setSteady(uid string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.steady = uid
}

// removeByForce removes the finalizer of a Service and deletes it. The CCM knows of it only from its informer, so it lives on.
func removeByForce(w *world, who string, _, _ int) {
	w.settle()
	if w.crash != nil || !w.guard.ok() {
		return
	}
	if s := w.kube.service(who); s != nil && len(w.guard.owned(s)) > 1 {
		return // a person has copied its label, and decides
	}
	w.withService(who, func(s *corev1.Service) {
		w.guard.mu.Lock()
		w.guard.forced[string(s.UID)] = true
		w.guard.sudden[string(s.UID)] = s.DeletionTimestamp == nil && wantsOurs(s)
		w.guard.mu.Unlock()
		s.Finalizers = nil
		w.kube.deleteService(s)
	})
	w.pass(25*time.Minute, 0) // until the next comparison: a successor would not know of the Service
}

// restart ends the CCM, and another one leads at once.
func (w *world) restart() {
	w.current.die()
	w.current = w.startProcess(false)
	w.pass(30*time.Second, 0)
}

// mistakeClusterID gives the cluster an ID, or, if it has one, changes, loses or mistypes it for some minutes, in which a user deletes a
// Service. What is made meanwhile has the wrong ID; the person who corrects it corrects that, too.
func (w *world) mistakeClusterID(n int) {
	w.settle()
	// A copied label is not decided upon while the ID is wrong: the copy that lacks the ID would be the only one.
	if w.isCopied() || w.crash != nil || !w.guard.ok() {
		return
	}
	if w.clusterID == "" {
		w.clusterID = "a"
		w.restart()
		if w.settle(); n%2 == 0 || w.crash != nil || !w.guard.ok() {
			return
		}
	}
	// With another ID, one that shows no address gets a load balancer of its own, as in a copy of a cluster.
	if slices.ContainsFunc(w.kube.services(), func(s *corev1.Service) bool {
		return len(s.Status.LoadBalancer.Ingress) == 0 && len(w.guard.owned(s)) > 0 && !plan.HidesAddresses(s, nil)
	}) {
		return
	}
	right := w.clusterID
	w.clusterID = []string{"b", "", "aa"}[n%3]
	w.restart()
	w.withService([]string{"a", "b", "c"}[n/3%3], w.kube.deleteService)
	w.pass(time.Duration(1+n%8)*time.Minute, 0)
	w.current.die()
	w.relabel(right, func(l labels.Set, _ bool) bool { return l[clusterLabel] != "" && l[clusterLabel] != right })
	w.clusterID = right
	w.restart()
}

// isCopied reports whether two load balancers have the same owner label.
func (w *world) isCopied() bool {
	return slices.ContainsFunc(w.kube.services(), func(s *corev1.Service) bool { return len(w.guard.owned(s)) > 1 })
}

// relabel gives some of the load balancers and certificates to the cluster with an ID, as a person does.
func (w *world) relabel(id string, which func(l labels.Set, used bool) bool) {
	mark := labels.Set{clusterLabel: id}
	for _, lb := range w.guard.loadBalancers() {
		if which(lb.Labels, false) {
			_, _, err := w.api.LoadBalancer.Update(ctx, lb, hcloud.LoadBalancerUpdateOpts{Labels: labels.Merge(lb.Labels, mark)})
			w.try(err)
		}
	}
	certs, err := w.api.Certificate.All(ctx)
	must(err)
	for _, c := range certs {
		if which(c.Labels, len(c.UsedBy) > 0) {
			_, _, err := w.api.Certificate.Update(ctx, c, hcloud.CertificateUpdateOpts{Labels: labels.Merge(c.Labels, mark)})
			w.try(err)
		}
	}
}

// emptyLists makes the API answer for some minutes that there are no load balancers, and deletes a Service meanwhile. A load balancer that
// has not the name of a new one is left out: a Service may get a second one.
func (w *world) emptyLists(n int) {
	w.settle()
	for _, s := range w.kube.services() {
		name := setting(s, "name")
		if name == "" {
			name = w.defaultName(s)
		}
		if slices.ContainsFunc(w.guard.owned(s), func(lb *hcloud.LoadBalancer) bool { return lb.Name != name }) {
			return
		}
	}
	none := `{"load_balancers":[],"meta":{"pagination":{"page":1,"per_page":50,"previous_page":null,"next_page":null,` +
		`"last_page":1,"total_entries":0}}}`
	_, err := w.fake.Faults().Add(ctx, fault.Rule{Name: "no load balancers", Route: "/load_balancers", Method: http.MethodGet,
		Client: ccm.ProviderName, Effect: fault.Effect{Kind: fault.KindHTTPStatus, Status: http.StatusOK, Body: none}})
	must(err)
	w.guard.setRefused(true)
	defer w.guard.setRefused(false)
	w.pass(2*time.Second, 0)
	w.withService([]string{"a", "b", "c"}[n%3], w.kube.deleteService)
	w.pass(time.Duration(1+n%4)*time.Minute, 0)
	_, err = w.fake.Faults().Remove(ctx, "no load balancers")
	must(err)
	w.pass(10*time.Second, 0) // a sync that began before may still run
}

// setRefused says that the cloud refuses each second load balancer, because of its name.
func (g *guard) setRefused(refused bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.refused = refused
}
