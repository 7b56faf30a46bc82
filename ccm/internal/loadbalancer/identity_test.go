package loadbalancer_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/plan"
)

const labelClusterUID = "ccm-from-scratch/cluster-uid"

// providerIn returns a provider in the cluster whose namespace kube-system has this UID; "": it may not read the namespace.
func (w *world) providerIn(uid string, change ...func(*ccm.Config)) *ccm.Cloud {
	kube := fake.NewClientset()
	if uid != "" {
		kube = fake.NewClientset(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-system", UID: types.UID(uid)}})
	}
	cloud := w.provider(change...)
	stop := make(chan struct{})
	w.t.Cleanup(func() { close(stop) })
	cloud.Initialize(clients{kube}, stop)
	controllerOf(cloud).Kube = nil // it has no Services
	return cloud
}

// A copy with other Nodes has the Service, with its UID and its address.
func TestACopyWithoutAnIDLeavesTheOriginalsLoadBalancersAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "instant", 2)
	svc := newService("web", managed("example.org"), 443)
	w.ensure(w.provider(), svc) // an earlier version, without an identity
	w.ensure(w.providerIn("original"), svc)
	original, certificate := w.theLoadBalancer(), w.certificates()[0]
	if original.Labels[labelClusterUID] != "original" || certificate.Labels[labelClusterUID] != "original" {
		t.Fatalf("labels %v, %v", original.Labels, certificate.Labels)
	}
	theirs := w.nodes
	w.nodes = nil
	w.addServer("copy-1")
	for _, cluster := range []string{"copy", "another one"} {
		copied, cloud := svc.DeepCopy(), w.providerIn(cluster)
		w.wire.take()
		w.eventsSoFar()
		w.expectError(cloud, copied)
		w.expectEvent("Warning CloudLoadBalancerOwnedByAnother", "kube-system has the UID original", "delete and create the Service")
		copied.DeletionTimestamp = w.nowPtr()
		w.expectStays(cloud, copied)
		w.expectNoWrites()
	}
	w.nodes = theirs

	// An earlier version ignores the label, and a version that may not read the namespace does so, too.
	for _, cloud := range []*ccm.Cloud{w.provider(), w.providerIn(""), w.providerIn("original")} {
		w.expectQuiet(cloud, svc)
		if uid := w.theLoadBalancer().Labels[labelClusterUID]; uid != "original" {
			t.Errorf("the load balancer belongs to the cluster %q", uid)
		}
	}
	w.remove(w.provider(), svc)
}

// HCLOUD_CLUSTER_ID decides where it is set: also in a cluster that was made anew.
func TestTheClusterIDOverridesTheIdentity(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "instant", 1)
	id := func(c *ccm.Config) { c.ClusterID = "a" }
	svc := newService("web", nil, 80)
	w.ensure(w.providerIn("first"), svc)
	w.ensure(w.providerIn("first", id), svc)
	w.expectError(w.providerIn("first"), svc.DeepCopy())
	w.ensure(w.providerIn("second", id), svc)
	if labels := w.theLoadBalancer().Labels; labels[labelClusterUID] != "second" || labels["ccm-from-scratch/cluster"] != "a" {
		t.Errorf("labels %v", labels)
	}
	w.remove(w.providerIn("second", id), svc)
	w.expectNone()
}

// A cluster gets an ID before it is copied. Until a person decides about it, the load balancer of a Service that goes is its own, too.
func TestTheLoadBalancerOfAServiceThatWaitsForItsDeletionGetsTheID(t *testing.T) {
	t.Parallel()
	w, _, svc := newServingWorld(t, "instant", 1, map[string]string{"delete-protection": "true"}, 80)
	svc.DeletionTimestamp = w.nowPtr()
	for _, id := range []string{"a", "of the copy"} {
		w.expectStays(w.provider(func(c *ccm.Config) { c.ClusterID = id }), svc)
		if labels := w.theLoadBalancer().Labels; labels["ccm-from-scratch/cluster"] != "a" {
			t.Errorf("ID %q: labels %v", id, labels)
		}
	}
}

// A person decides to keep it in the moment in which it gets the ID.
func TestAReleasedLoadBalancerGetsNoID(t *testing.T) {
	t.Parallel()
	w, _, svc := newServingWorld(t, "instant", 1, map[string]string{"delete-protection": "true"}, 80)
	lb := w.theLoadBalancer()
	delete(lb.Labels, plan.LabelServiceUID)
	w.wire.setIntercept(func(r *http.Request) *http.Response {
		if strings.HasSuffix(r.URL.Path, "/"+itoa(lb.ID)) {
			w.setLabels(lb, lb.Labels)
		}
		return nil
	})
	_ = tryRemove(t.Context(), w.provider(func(c *ccm.Config) { c.ClusterID = "a" }), svc)
	if labels := w.theLoadBalancer().Labels; labels[plan.LabelServiceUID]+labels["ccm-from-scratch/cluster"] != "" {
		t.Errorf("labels %v", labels)
	}
}

// Its status proves nothing, so that a mistake in HCLOUD_CLUSTER_ID must not make a second load balancer.
func TestAServiceThatHidesItsAddressesGetsNoSecondLoadBalancer(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "instant", 1)
	svc := newService("web", map[string]string{"disable-public-network": "true", "disable-private-ingress": "true"}, 80)
	w.ensure(w.provider(func(c *ccm.Config) { c.ClusterID = "a" }), svc)
	w.expectError(w.provider(func(c *ccm.Config) { c.ClusterID = "mistyped" }), svc, "correct HCLOUD_CLUSTER_ID")
	w.theLoadBalancer() // there is no second one
}

// The copy of a cluster has made a load balancer for the Service with the same UID, which is a guest in the original.
func TestAGuestIsFoundAlthoughACopyOfItHasALoadBalancer(t *testing.T) {
	t.Parallel()
	for _, shows := range []bool{true, false} {
		t.Run(fmt.Sprintf("it shows an address: %t", shows), func(t *testing.T) {
			t.Parallel()
			w := newSharingWorld(t, "instant", 1)
			original := w.provider(func(c *ccm.Config) { c.ClusterID = "original" })
			first, second := newService("first", share, 80), newService("second", share, 443)
			w.ensure(original, first)
			w.ensure(original, second)
			w.ensure(w.provider(func(c *ccm.Config) { c.ClusterID = "copy" }), newService("second", nil, 443))
			if !shows {
				second.Status.LoadBalancer = corev1.LoadBalancerStatus{}
			}
			w.remove(original, second)
			w.remove(original, first)
			if lb := w.theLoadBalancer(); lb.Labels["ccm-from-scratch/cluster"] != "copy" {
				t.Errorf("left is the load balancer with labels %v", lb.Labels)
			}
		})
	}
}
