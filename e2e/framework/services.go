package framework

import (
	"context"
	"fmt"
	"slices"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8stypes "k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/util/retry"
)

// Services are the spec's Services, with their events.
type Services struct {
	// Namespace is where they are.
	Namespace string

	env *Env
}

// Port is the first port of the Services that Create makes. Listening on it needs no privilege.
const Port = 8080

// ServicePort returns a port of a Service under its usual name.
func ServicePort(number int32) corev1.ServicePort {
	target := number
	if number < 1024 { // pods listen without privileges
		target = Port
	}
	return corev1.ServicePort{Name: fmt.Sprintf("p%d", number), Port: number, TargetPort: intstr.FromInt32(target)}
}

// Create creates a Service of type LoadBalancer with the port 8080, changed by the functions. On a
// cluster with real nodes it has a pod on each of them if the spec has the label Dataplane. Specs on a kind cluster
// see each other's nodes, so the Service gets a node selector there unless it has one.
func (sc Services) Create(ctx context.Context, name string, change ...func(*corev1.Service)) *corev1.Service {
	GinkgoHelper()
	svc := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: sc.Namespace, Annotations: map[string]string{}},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeLoadBalancer, Selector: map[string]string{"app": name},
			Ports: []corev1.ServicePort{{Name: "p8080", Port: Port, TargetPort: intstr.FromInt32(Port)}},
		},
	}
	for _, c := range change {
		c(svc)
	}
	sc.env.setup.confine(svc)
	created, err := sc.env.Kube.CoreV1().Services(sc.Namespace).Create(ctx, svc, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	sc.env.created.addService(created.UID)
	sc.env.setup.addPods(ctx, name)
	return created
}

// Update changes a Service.
func (sc Services) Update(ctx context.Context, name string, change func(*corev1.Service)) *corev1.Service {
	GinkgoHelper()
	var updated *corev1.Service
	Expect(retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		svc := sc.Get(ctx, name)
		if svc.Annotations == nil { // the API returns an empty map as nil
			svc.Annotations = map[string]string{}
		}
		change(svc)
		sc.env.setup.confine(svc)
		var err error
		updated, err = sc.env.Kube.CoreV1().Services(sc.Namespace).Update(ctx, svc, metav1.UpdateOptions{})
		return err
	})).To(Succeed())
	return updated
}

// Delete deletes a Service. The CCM's finalizer keeps it until its load balancer is deleted.
func (sc Services) Delete(ctx context.Context, name string) {
	GinkgoHelper()
	Expect(sc.env.Kube.CoreV1().Services(sc.Namespace).Delete(ctx, name, metav1.DeleteOptions{})).To(Succeed())
}

// Get returns a Service of the spec's namespace.
func (sc Services) Get(ctx context.Context, name string) *corev1.Service {
	GinkgoHelper()
	svc, err := sc.env.Kube.CoreV1().Services(sc.Namespace).Get(ctx, name, metav1.GetOptions{})
	Expect(err).NotTo(HaveOccurred())
	return svc
}

// Await waits until a Service passes the checks.
func (sc Services) Await(ctx context.Context, name string, check func(Gomega, *corev1.Service)) *corev1.Service {
	GinkgoHelper()
	var found *corev1.Service
	Eventually(func(g Gomega) {
		svc, err := sc.env.Kube.CoreV1().Services(sc.Namespace).Get(ctx, name, metav1.GetOptions{})
		g.Expect(err).NotTo(HaveOccurred())
		check(g, svc)
		found = svc
	}).WithContext(ctx).Should(Succeed())
	return found
}

// AwaitIngress waits until a Service has an address and returns it: an IP, or a hostname.
func (sc Services) AwaitIngress(ctx context.Context, name string) string {
	GinkgoHelper()
	var address string
	Eventually(func(g Gomega) {
		svc, err := sc.env.Kube.CoreV1().Services(sc.Namespace).Get(ctx, name, metav1.GetOptions{})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(svc.Status.LoadBalancer.Ingress).NotTo(BeEmpty())
		i := svc.Status.LoadBalancer.Ingress[0]
		address = i.IP
		if i.Hostname != "" {
			address = i.Hostname
		}
	}).WithContext(ctx).Should(Succeed())
	return address
}

// AwaitGone waits until a Service is gone from the cluster. Its finalizer keeps it until its resources in the cloud are
// deleted.
func (sc Services) AwaitGone(ctx context.Context, service string) {
	GinkgoHelper()
	Eventually(func() []string { return sc.names(ctx) }).WithContext(ctx).ShouldNot(ContainElement(service))
}

// Gone reports whether a Service is gone from the cluster.
func (sc Services) Gone(ctx context.Context, service string) bool {
	GinkgoHelper()
	return !slices.Contains(sc.names(ctx), service)
}

// Events returns the events about a Service.
func (sc Services) Events(ctx context.Context, service string) []corev1.Event {
	GinkgoHelper()
	list, err := sc.env.Kube.CoreV1().Events(sc.Namespace).List(ctx,
		metav1.ListOptions{FieldSelector: "involvedObject.kind=Service,involvedObject.name=" + service})
	Expect(err).NotTo(HaveOccurred())
	return list.Items
}

// AwaitEvent waits until there is an event about a Service with the reason and a message that matches.
func (sc Services) AwaitEvent(ctx context.Context, service, reason string, message types.GomegaMatcher) corev1.Event {
	GinkgoHelper()
	var found []corev1.Event
	Eventually(func(g Gomega) {
		g.Expect(sc.Events(ctx, service)).To(ContainElement(And(HaveField("Reason", reason), HaveField("Message", message)), &found))
	}).WithContext(ctx).Should(Succeed())
	return found[0]
}

// AwaitEvents waits until there have been n events about a Service with the reason. An event
// that Kubernetes has merged from several counts as several.
func (sc Services) AwaitEvents(ctx context.Context, service, reason string, n int) {
	GinkgoHelper()
	Eventually(func() (count int) {
		for _, event := range sc.Events(ctx, service) {
			if event.Reason == reason {
				count += max(1, int(event.Count))
			}
		}
		return count
	}).WithContext(ctx).Should(BeNumerically(">=", n), "events with the reason %s", reason)
}

// fullName returns the full name of a Service of the spec.
func (sc Services) fullName(name string) k8stypes.NamespacedName {
	return k8stypes.NamespacedName{Namespace: sc.Namespace, Name: name}
}

// names returns the names of the Services of the spec's namespace.
func (sc Services) names(ctx context.Context) []string {
	GinkgoHelper()
	list, err := sc.env.Kube.CoreV1().Services(sc.Namespace).List(ctx, metav1.ListOptions{})
	Expect(err).NotTo(HaveOccurred())
	var names []string
	for _, s := range list.Items {
		names = append(names, s.Name)
	}
	return names
}
