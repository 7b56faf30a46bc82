package framework

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8stypes "k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/util/retry"

	"github.com/ccm-from-scratch/ccm-from-scratch/kind/whoami"
)

// Annotation is the prefix of the CCM's annotations.
const Annotation = "load-balancer.hetzner.cloud/"

// Port is the first port of the Services that CreateService makes; no privilege is needed to listen
// on it.
const Port = 8080

// CreateService creates a Service of type LoadBalancer with the port 8080, changed as told. Where nodes are
// real, it has a pod on each of them if the spec has the label Dataplane.
func (e *Env) CreateService(ctx context.Context, name string, change ...func(*corev1.Service)) *corev1.Service {
	GinkgoHelper()
	svc := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: e.Namespace, Annotations: map[string]string{}},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeLoadBalancer, Selector: map[string]string{"app": name},
			Ports: []corev1.ServicePort{{Name: "p8080", Port: Port, TargetPort: intstr.FromInt32(Port)}},
		},
	}
	for _, c := range change {
		c(svc)
	}
	created, err := e.Kube.CoreV1().Services(e.Namespace).Create(ctx, svc, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	e.owned.addService(string(created.UID))
	if e.needsPods() {
		e.startPods(ctx, name)
	}
	return created
}

// UpdateService changes a Service.
func (e *Env) UpdateService(ctx context.Context, name string, change func(*corev1.Service)) *corev1.Service {
	GinkgoHelper()
	var updated *corev1.Service
	Expect(retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		svc := e.Service(ctx, name)
		if svc.Annotations == nil { // as an empty map comes back from the API
			svc.Annotations = map[string]string{}
		}
		change(svc)
		var err error
		updated, err = e.Kube.CoreV1().Services(e.Namespace).Update(ctx, svc, metav1.UpdateOptions{})
		return err
	})).To(Succeed())
	return updated
}

// DeleteService deletes a Service; with the CCM's finalizer it is gone when its load balancer is.
func (e *Env) DeleteService(ctx context.Context, name string) {
	GinkgoHelper()
	Expect(e.Kube.CoreV1().Services(e.Namespace).Delete(ctx, name, metav1.DeleteOptions{})).To(Succeed())
}

// Service returns a Service of the spec's namespace.
func (e *Env) Service(ctx context.Context, name string) *corev1.Service {
	GinkgoHelper()
	svc, err := e.Kube.CoreV1().Services(e.Namespace).Get(ctx, name, metav1.GetOptions{})
	Expect(err).NotTo(HaveOccurred())
	return svc
}

// serviceName returns the full name of a Service of the spec.
func (e *Env) serviceName(name string) k8stypes.NamespacedName {
	return k8stypes.NamespacedName{Namespace: e.Namespace, Name: name}
}

// serviceNames returns the names of the Services of the spec's namespace.
func (e *Env) serviceNames(ctx context.Context) []string {
	GinkgoHelper()
	list, err := e.Kube.CoreV1().Services(e.Namespace).List(ctx, metav1.ListOptions{})
	Expect(err).NotTo(HaveOccurred())
	var names []string
	for _, s := range list.Items {
		names = append(names, s.Name)
	}
	return names
}

// AwaitIngress waits until a Service has an address and returns it: an IP, or a hostname.
func (e *Env) AwaitIngress(ctx context.Context, name string) string {
	GinkgoHelper()
	var address string
	Eventually(func(g Gomega) {
		svc, err := e.Kube.CoreV1().Services(e.Namespace).Get(ctx, name, metav1.GetOptions{})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(svc.Status.LoadBalancer.Ingress).NotTo(BeEmpty())
		i := svc.Status.LoadBalancer.Ingress[0]
		address = i.IP
		if i.Hostname != "" {
			address = i.Hostname
		}
	}).WithContext(ctx).WithTimeout(Timeout).WithPolling(Polling).Should(Succeed())
	return address
}

// LoadBalancers returns all load balancers of the cloud; where specs share it, those of the spec: what it
// has created, or what belongs to its Services.
func (e *Env) LoadBalancers(ctx context.Context) []*hcloud.LoadBalancer {
	GinkgoHelper()
	all, err := e.HCloud.LoadBalancer.All(ctx)
	Expect(err).NotTo(HaveOccurred())
	if e.Cloud != nil {
		return all
	}
	mine := slices.DeleteFunc(all, func(lb *hcloud.LoadBalancer) bool {
		return !e.owned.isLoadBalancer(lb.ID, lb.Labels[e.Subject.OwnerLabel])
	})
	for i, lb := range mine {
		mine[i] = e.tagLoadBalancer(ctx, lb)
	}
	return mine
}

// tagLoadBalancer puts the run's name on a load balancer that the CCM has made in a cloud that outlives the run, so
// that it is found after a crash. One that just goes or is being changed is tagged the next time, or not at all: its
// Service is in a namespace with the run's name.
func (e *Env) tagLoadBalancer(ctx context.Context, lb *hcloud.LoadBalancer) *hcloud.LoadBalancer {
	if e.Kind != Existing || lb.Labels[LabelRun] == e.run() {
		return lb
	}
	tagged, _, err := e.HCloud.LoadBalancer.Update(ctx, lb, hcloud.LoadBalancerUpdateOpts{Labels: e.tagged(lb.Labels)})
	if err != nil {
		return lb
	}
	return tagged
}

// CreateLoadBalancer creates a load balancer as a person would, without the CCM.
func (e *Env) CreateLoadBalancer(ctx context.Context, name string, change ...func(*hcloud.LoadBalancerCreateOpts)) *hcloud.LoadBalancer {
	GinkgoHelper()
	opts := hcloud.LoadBalancerCreateOpts{
		Name: name, LoadBalancerType: &hcloud.LoadBalancerType{Name: "lb11"}, Location: &hcloud.Location{Name: Location},
	}
	for _, c := range change {
		c(&opts)
	}
	opts.Labels = e.tagged(opts.Labels)
	result, _, err := e.HCloud.LoadBalancer.Create(ctx, opts)
	Expect(err).NotTo(HaveOccurred())
	e.owned.addLoadBalancer(result.LoadBalancer.ID)
	e.Wait(ctx, result.Action)
	return result.LoadBalancer
}

// UploadCertificate creates a certificate as a person would, without the CCM.
func (e *Env) UploadCertificate(ctx context.Context, opts hcloud.CertificateCreateOpts) *hcloud.Certificate {
	GinkgoHelper()
	opts.Labels = e.tagged(opts.Labels)
	uploaded, _, err := e.HCloud.Certificate.Create(ctx, opts)
	Expect(err).NotTo(HaveOccurred())
	e.owned.addCertificate(uploaded.ID)
	return uploaded
}

// tagged returns labels for something that is created in the cloud: where that outlives the spec, with the
// run's name.
func (e *Env) tagged(labels map[string]string) map[string]string {
	if e.Cloud != nil {
		return labels
	}
	tagged := maps.Clone(labels)
	if tagged == nil {
		tagged = map[string]string{}
	}
	tagged[LabelRun] = e.run()
	return tagged
}

// LoadBalancerOf returns the load balancer that has the address of a Service's status.
func (e *Env) LoadBalancerOf(ctx context.Context, service string) *hcloud.LoadBalancer {
	GinkgoHelper()
	address := e.AwaitIngress(ctx, service)
	for _, lb := range e.LoadBalancers(ctx) {
		if slices.Contains(addressesOf(lb), address) {
			return lb
		}
	}
	Fail(fmt.Sprintf("no load balancer has the address %s of Service %s", address, service))
	return nil
}

// addressesOf returns the addresses of a load balancer, the private ones too.
func addressesOf(lb *hcloud.LoadBalancer) []string {
	all := []string{lb.PublicNet.IPv4.IP.String(), lb.PublicNet.IPv6.IP.String()}
	for _, n := range lb.PrivateNet {
		all = append(all, n.IP.String())
	}
	return all
}

// AwaitLoadBalancer waits until the Service's load balancer is as the checks say.
func (e *Env) AwaitLoadBalancer(ctx context.Context, service string, check func(Gomega, *hcloud.LoadBalancer)) *hcloud.LoadBalancer {
	GinkgoHelper()
	id := e.LoadBalancerOf(ctx, service).ID
	var found *hcloud.LoadBalancer
	Eventually(func(g Gomega) {
		lb, _, err := e.HCloud.LoadBalancer.GetByID(ctx, id)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(lb).NotTo(BeNil())
		check(g, lb)
		found = lb
	}).WithContext(ctx).WithTimeout(Timeout).WithPolling(Polling).Should(Succeed())
	return found
}

// Get sends an HTTP request to an address from outside of the cluster and returns which node
// answered, with what.
func (e *Env) Get(ctx context.Context, address string, port int) (whoami.Answer, error) {
	return get(ctx, e.HTTPClient(ClientOptions{}), URL("http", address, port))
}

// GetURL is Get with a client and a URL of the spec's own.
func (e *Env) GetURL(ctx context.Context, client *http.Client, url string) (whoami.Answer, error) {
	return get(ctx, client, url)
}

func get(ctx context.Context, client *http.Client, url string) (whoami.Answer, error) {
	var answer whoami.Answer
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return answer, err
	}
	resp, err := client.Do(r)
	if err != nil {
		return answer, err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return answer, err
	}
	if resp.StatusCode != http.StatusOK {
		return answer, fmt.Errorf("%s: %s: %s", url, resp.Status, body)
	}
	return answer, json.Unmarshal(body, &answer)
}

// AwaitAnswer waits until a request to an address is answered by the Service's pods.
func (e *Env) AwaitAnswer(ctx context.Context, service, address string, port int) whoami.Answer {
	GinkgoHelper()
	var answer whoami.Answer
	Eventually(func(g Gomega) {
		var err error
		answer, err = e.Get(ctx, address, port)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(answer.Service).To(Equal(e.Namespace + "/" + service))
	}).WithContext(ctx).WithTimeout(Timeout).WithPolling(Polling).Should(Succeed())
	return answer
}

// AwaitServed waits until a Service has an address and answers there, and returns the address.
func (e *Env) AwaitServed(ctx context.Context, service string) string {
	GinkgoHelper()
	address := e.AwaitIngress(ctx, service)
	e.AwaitAnswer(ctx, service, address, Port)
	return address
}

// Events returns the reasons and messages of the events about a Service, oldest first.
func (e *Env) Events(ctx context.Context, service string) []corev1.Event {
	GinkgoHelper()
	list, err := e.Kube.CoreV1().Events(e.Namespace).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.kind=Service,involvedObject.name=" + service})
	Expect(err).NotTo(HaveOccurred())
	return list.Items
}

// AwaitEvent waits until there is an event about a Service with the reason and a message that matches.
func (e *Env) AwaitEvent(ctx context.Context, service, reason string, message types.GomegaMatcher) corev1.Event {
	GinkgoHelper()
	var found []corev1.Event
	Eventually(func(g Gomega) {
		g.Expect(e.Events(ctx, service)).To(ContainElement(And(HaveField("Reason", reason), HaveField("Message", message)), &found))
	}).WithContext(ctx).WithTimeout(Timeout).WithPolling(Polling).Should(Succeed())
	return found[0]
}

// AwaitEvents waits until there have been n events about a Service with the reason. Events that are
// alike are counted as Kubernetes does.
func (e *Env) AwaitEvents(ctx context.Context, service, reason string, n int) {
	GinkgoHelper()
	Eventually(func() (count int) {
		for _, event := range e.Events(ctx, service) {
			if event.Reason == reason {
				count += max(1, int(event.Count))
			}
		}
		return count
	}).WithContext(ctx).WithTimeout(Timeout).WithPolling(Polling).Should(BeNumerically(">=", n), "events with the reason %s", reason)
}

// TargetHealth returns the health of a load balancer's targets of type server, by the server's
// name: "healthy" and "unhealthy" if all services say so, else "mixed" or "unknown".
func (e *Env) TargetHealth(ctx context.Context, lb *hcloud.LoadBalancer) map[string]string {
	GinkgoHelper()
	servers, err := e.HCloud.Server.All(ctx)
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

// AwaitTargets waits until a Service's load balancer has exactly these servers as targets, with the
// given health.
func (e *Env) AwaitTargets(ctx context.Context, service string, health map[string]string) *hcloud.LoadBalancer {
	GinkgoHelper()
	return e.AwaitLoadBalancer(ctx, service, func(g Gomega, lb *hcloud.LoadBalancer) {
		g.Expect(e.TargetHealth(ctx, lb)).To(Equal(health))
	})
}

// Healthy says of each of the servers that it is healthy: for AwaitTargets.
func Healthy(names ...string) map[string]string {
	health := map[string]string{}
	for _, n := range names {
		health[n] = string(hcloud.LoadBalancerTargetHealthStatusStatusHealthy)
	}
	return health
}

// AwaitService waits until a Service is as the checks say.
func (e *Env) AwaitService(ctx context.Context, name string, check func(Gomega, *corev1.Service)) *corev1.Service {
	GinkgoHelper()
	var found *corev1.Service
	Eventually(func(g Gomega) {
		svc, err := e.Kube.CoreV1().Services(e.Namespace).Get(ctx, name, metav1.GetOptions{})
		g.Expect(err).NotTo(HaveOccurred())
		check(g, svc)
		found = svc
	}).WithContext(ctx).WithTimeout(Timeout).WithPolling(Polling).Should(Succeed())
	return found
}

// ServiceOn returns the service of a load balancer on a listen port; there must be one.
func ServiceOn(lb *hcloud.LoadBalancer, port int) hcloud.LoadBalancerService {
	GinkgoHelper()
	i := slices.IndexFunc(lb.Services, func(s hcloud.LoadBalancerService) bool { return s.ListenPort == port })
	Expect(i).To(BeNumerically(">=", 0), "load balancer %s does not listen on %d", lb.Name, port)
	return lb.Services[i]
}
