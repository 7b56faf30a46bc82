//go:build sim

package sim

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	clienttesting "k8s.io/client-go/testing"
)

const (
	namespace     = "default"
	leaseDuration = 15 * time.Second
)

var (
	nodesResource    = corev1.SchemeGroupVersion.WithResource("nodes")
	servicesResource = corev1.SchemeGroupVersion.WithResource("services")

	errUnreachable = errors.New("the Kubernetes API is unreachable")
)

// kube is the Kubernetes API: one set of objects for all processes. It numbers the versions of objects,
// refuses updates of old ones, and removes a Service that is deleted once it has no finalizer.
type kube struct {
	clienttesting.ObjectTracker
	// written is called before a process writes an object; old is nil for a new one, obj for a deletion.
	written func(old, obj runtime.Object)

	mu      sync.Mutex
	version int
	leader  *process
}

func newKube() *kube {
	k := &kube{ObjectTracker: clienttesting.NewObjectTracker(scheme.Scheme, scheme.Codecs.UniversalDecoder())}
	must(k.Add(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem, UID: "uid-of-the-cluster"}}))
	return k
}

// stamp gives the object the next version.
func (k *kube) stamp(obj runtime.Object) metav1.Object {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.version++
	m, err := meta.Accessor(obj)
	if err != nil {
		panic(err)
	}
	m.SetResourceVersion(strconv.Itoa(k.version))
	return m
}

// Create implements ObjectTracker.
func (k *kube) Create(r schema.GroupVersionResource, obj runtime.Object, ns string, o ...metav1.CreateOptions) error {
	k.stamp(obj)
	return k.ObjectTracker.Create(r, obj, ns, o...)
}

// Update implements ObjectTracker.
func (k *kube) Update(r schema.GroupVersionResource, obj runtime.Object, ns string, o ...metav1.UpdateOptions) error {
	m, err := meta.Accessor(obj)
	if err != nil {
		return err
	}
	old, err := k.Get(r, ns, m.GetName())
	if err != nil {
		return err
	}
	if now, _ := meta.Accessor(old); m.GetResourceVersion() != "" && m.GetResourceVersion() != now.GetResourceVersion() {
		return apierrors.NewConflict(r.GroupResource(), m.GetName(), errors.New("the object has been modified"))
	}
	k.stamp(obj)
	return k.ObjectTracker.Update(r, obj, ns, o...)
}

// Patch implements ObjectTracker.
func (k *kube) Patch(r schema.GroupVersionResource, obj runtime.Object, ns string, o ...metav1.PatchOptions) error {
	m := k.stamp(obj)
	if old, err := k.Get(r, ns, m.GetName()); err == nil && k.written != nil {
		k.written(old, obj)
	}
	return k.ObjectTracker.Patch(r, obj, ns, o...)
}

// Delete implements ObjectTracker.
func (k *kube) Delete(r schema.GroupVersionResource, ns, name string, o ...metav1.DeleteOptions) error {
	if old, err := k.Get(r, ns, name); err == nil && k.written != nil {
		k.written(old, nil)
	}
	return k.ObjectTracker.Delete(r, ns, name, o...)
}

// client returns the client of a process.
func (k *kube) client(p *process) *fake.Clientset {
	c := &fake.Clientset{}
	react := clienttesting.ObjectReaction(k)
	c.AddReactor("*", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
		switch resource, verb := a.GetResource().Resource, a.GetVerb(); {
		case p.dead.Load() || p.cut.Load() && verb != "list" && verb != "watch" && resource != "leases" || p.blind.Load() &&
			resource == "leases":
			return true, nil, errUnreachable
		case resource == "events":
			return true, &corev1.Event{}, nil
		case resource == "leases":
			return true, k.lease(), nil
		}
		handled, obj, err := react(a)
		k.finalize()
		return handled, obj, err
	})
	c.AddWatchReactor("*", func(a clienttesting.Action) (bool, watch.Interface, error) {
		w, err := k.Watch(a.GetResource(), a.GetNamespace(), a.(clienttesting.WatchActionImpl).ListOptions)
		return true, w, err
	})
	return c
}

// lease returns the Lease of the leader election. A leader renews it every two seconds.
func (k *kube) lease() *coordinationv1.Lease {
	k.mu.Lock()
	defer k.mu.Unlock()
	host, _ := os.Hostname()
	holder, seconds := fmt.Sprintf("%s_%d", host, k.leader.id), int32(leaseDuration/time.Second)
	acquired, renewed := metav1.NewMicroTime(k.leader.acquired), metav1.NewMicroTime(k.leader.renewed())
	return &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{
		HolderIdentity: &holder, LeaseDurationSeconds: &seconds, AcquireTime: &acquired, RenewTime: &renewed}}
}

func (k *kube) setLeader(p *process) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.leader = p
}

// finalize removes deleted Services that have no finalizer any more.
func (k *kube) finalize() {
	for _, s := range k.services() {
		if s.DeletionTimestamp != nil && len(s.Finalizers) == 0 {
			must(k.ObjectTracker.Delete(servicesResource, namespace, s.Name))
		}
	}
}

// services returns all Services, in the order of their names.
func (k *kube) services() (all []*corev1.Service) {
	list, err := k.List(servicesResource, corev1.SchemeGroupVersion.WithKind("Service"), namespace)
	must(err)
	for i := range list.(*corev1.ServiceList).Items {
		all = append(all, &list.(*corev1.ServiceList).Items[i])
	}
	return all
}

// nodes returns all Nodes, in the order of their names.
func (k *kube) nodes() (all []*corev1.Node) {
	list, err := k.List(nodesResource, corev1.SchemeGroupVersion.WithKind("Node"), "")
	must(err)
	for i := range list.(*corev1.NodeList).Items {
		all = append(all, &list.(*corev1.NodeList).Items[i])
	}
	return all
}

// service returns a Service, or nil.
func (k *kube) service(name string) *corev1.Service {
	obj, err := k.Get(servicesResource, namespace, name)
	if err != nil {
		return nil
	}
	return obj.(*corev1.Service)
}

// node returns a Node, or nil.
func (k *kube) node(name string) *corev1.Node {
	obj, err := k.Get(nodesResource, "", name)
	if err != nil {
		return nil
	}
	return obj.(*corev1.Node)
}

// deleteService does what kubectl delete does.
func (k *kube) deleteService(s *corev1.Service) {
	if s.DeletionTimestamp == nil {
		now := metav1.Now()
		s.DeletionTimestamp = &now
		must(k.Update(servicesResource, s, namespace))
	}
	k.finalize()
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
