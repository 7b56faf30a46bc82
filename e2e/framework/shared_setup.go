package framework

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/cloud"
)

// sharedSetup is the part of one spec in a cluster and a cloud that all specs share.
type sharedSetup struct {
	env    *Env
	shared *Shared

	// brought are the names of the nodes that the spec brings.
	brought []string
}

func newSharedSetup(ctx context.Context, e *Env) {
	GinkgoHelper()
	Expect(e.options.Cloud == nil && e.options.Spec == nil).To(BeTrue(),
		"these Options need a cloud and nodes of the spec's own: give it the label %s", OwnCloud)
	s := &sharedSetup{env: e, shared: e.suite.shared}
	e.setup, e.Cloud = s, s.shared.Cloud
	if recorder, ok := cloud.As[cloud.Recorder](e.Cloud); ok {
		requests, err := recorder.Requests(ctx, e.suite.lastRequest)
		Expect(err).NotTo(HaveOccurred())
		for _, r := range requests {
			e.suite.lastRequest = r.Seq
		}
		e.since = e.suite.lastRequest
	}
	e.createNamespace(ctx)
	DeferCleanup(s.remove)
	e.CCM.Replica = &Replica{pods: s.shared.CCM, ccm: &e.CCM}
	if e.options.NoCCM {
		Expect(e.CCM.Stop(ctx)).To(Succeed())
	} else if len(e.options.CCM) > 0 {
		e.CCM.Start(ctx, CCMOptions{})
	}
}

// startCCM implements setup: one replica, or two with leader election.
func (s *sharedSetup) startCCM(ctx context.Context, o CCMOptions) *Replica {
	GinkgoHelper()
	pods := s.shared.CCM.alone()
	settings := PodSettings{Env: maps.Clone(pods.Usual.Env), Args: slices.Clone(pods.Usual.Args), Replicas: 1}
	if settings.Env == nil {
		settings.Env = map[string]string{}
	}
	maps.Copy(settings.Env, s.env.suite.CCM.known(s.env.options.CCM))
	maps.Copy(settings.Env, s.env.suite.CCM.known(o.Env))
	if o.LeaderElect {
		settings.Replicas = 2
		settings.Args = append(settings.Args, leaderElection(true)...) // the last of two equal flags wins
	}
	settings.Args = append(settings.Args, o.Args...)
	Expect(pods.change(ctx, settings)).To(Succeed())
	return &Replica{pods: pods, elects: ElectsLeader(settings.Args)}
}

// targetNodes returns the names of the nodes that can be targets of load balancers.
func targetNodes(ctx context.Context, client kubernetes.Interface) ([]string, error) {
	nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: "!" + corev1.LabelNodeExcludeBalancers})
	if err != nil {
		return nil, fmt.Errorf("cannot list the cluster's nodes: %w", err)
	}
	var names []string
	for _, n := range nodes.Items {
		names = append(names, n.Name)
	}
	return names, nil
}

// own returns the names of the nodes that the spec's load balancers and pods use, nil for all nodes.
func (s *sharedSetup) own() []string {
	if s.shared.Nodes == nil {
		return nil
	}
	return slices.Concat(s.shared.Nodes, s.brought)
}

// confine implements setup.
func (s *sharedSetup) confine(service *corev1.Service) {
	if nodes := s.own(); nodes != nil && service.Spec.Type == corev1.ServiceTypeLoadBalancer {
		s.shared.Confine(service, nodes)
	}
}

// brings implements setup.
func (s *sharedSetup) brings(node string) { s.brought = append(s.brought, node) }

// workers implements setup: the nodes that the cluster has, without those of other specs.
func (s *sharedSetup) workers(ctx context.Context, n int) Workers[cloud.Server] {
	GinkgoHelper()
	servers, err := s.env.Cloud.Servers(ctx)
	Expect(err).NotTo(HaveOccurred())
	nodes, err := s.env.Kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	Expect(err).NotTo(HaveOccurred())
	var workers Workers[cloud.Server]
	for _, node := range nodes.Items {
		if _, excluded := node.Labels[corev1.LabelNodeExcludeBalancers]; excluded {
			continue
		}
		if own := s.own(); own != nil && !slices.Contains(own, node.Name) {
			continue
		}
		workers = append(workers, Worker[cloud.Server]{node.Name, s.env.Nodes.serverOf(&node, servers)})
	}
	if len(workers) < n {
		Skip("the cluster has too few nodes that can be targets")
	}
	return workers
}

// addPods implements setup. Only specs about traffic have pods.
func (s *sharedSetup) addPods(ctx context.Context, service string) {
	GinkgoHelper()
	if !slices.Contains(CurrentSpecReport().Labels(), Dataplane) {
		return
	}
	set := s.env.Pods.daemonSet(service)
	if own := s.own(); own != nil {
		placeOn(set, own)
	}
	if s.env.options.Pods != nil {
		s.env.options.Pods(set)
	}
	Expect(s.env.Kube.AppsV1().DaemonSets(s.env.Services.Namespace).Create(ctx, set, metav1.CreateOptions{})).Error().NotTo(HaveOccurred())
}

// setEndpoints implements setup.
func (s *sharedSetup) setEndpoints(ctx context.Context, service string, nodes []string) {
	GinkgoHelper()
	s.env.Pods.Update(ctx, service, func(set *appsv1.DaemonSet) { placeOn(set, nodes) })
}

// placeOn has the pods of a DaemonSet run on these nodes only.
func placeOn(set *appsv1.DaemonSet, nodes []string) {
	var terms []corev1.NodeSelectorTerm // one of them must hold
	for _, n := range nodes {
		terms = append(terms, corev1.NodeSelectorTerm{MatchFields: []corev1.NodeSelectorRequirement{
			{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{n}}}})
	}
	set.Spec.Template.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: terms},
	}}
}

// setProxyProtocol implements setup. Real pods recognize the protocol.
func (s *sharedSetup) setProxyProtocol(string, bool) {}

// dial implements setup.
func (s *sharedSetup) dial(ctx context.Context, address string, _ netip.Addr) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	return dialCloud(ctx, s.env.Cloud, address)
}

// outsideAddress implements setup.
func (s *sharedSetup) outsideAddress() string {
	if s.shared.Outside == "" {
		Skip("needs the address by which the cloud sees this host, which is unknown")
	}
	return s.shared.Outside
}

// hypervisorLog implements setup.
func (s *sharedSetup) hypervisorLog(server string) string {
	if s.shared.HypervisorLog == nil {
		return ""
	}
	text, err := s.shared.HypervisorLog()
	if err != nil {
		return err.Error()
	}
	var about strings.Builder
	for line := range strings.Lines(text) {
		if strings.Contains(line, server) {
			about.WriteString(line)
		}
	}
	return LastLines(about.String(), 60)
}

// report implements setup: the log of the CCM's pods, and the hypervisor's.
func (s *sharedSetup) report(ctx context.Context) {
	if s.shared.HypervisorLog != nil {
		AddReportEntry("log of the hypervisor", ReportEntryVisibilityFailureOrVerbose, s.hypervisorLog(""))
	}
	if s.shared.CCM == nil {
		return
	}
	text, err := s.shared.CCM.Log(ctx)
	if err != nil {
		text = err.Error()
	}
	AddReportEntry("log of the CCM", ReportEntryVisibilityFailureOrVerbose, LastLines(withoutNoise(text), 200))
}

// remove removes the spec's remains from the cluster and the cloud, and restores the CCM's usual settings: the
// next spec finds everything as this one did.
func (s *sharedSetup) remove(ctx context.Context) {
	if s.shared.CCM != nil {
		Expect(s.shared.CCM.restore(ctx)).To(Succeed(), "restoring the CCM's settings")
	}
	namespace := s.env.Services.Namespace
	if KeepFailed() && CurrentSpecReport().Failed() {
		AddReportEntry("kept: namespace " + namespace)
		return
	}
	s.removeServices(ctx)
	for _, server := range s.env.created.takeServers() {
		s.removeServer(ctx, server)
	}
	background := metav1.DeletePropagationBackground
	Expect(client.IgnoreNotFound(s.env.Kube.CoreV1().Namespaces().Delete(ctx, namespace,
		metav1.DeleteOptions{PropagationPolicy: &background}))).To(Succeed())
}

// removeServices deletes the Services and waits until the CCM removes their objects from the cloud. Then it
// removes the objects that the spec itself created there, and those that a failing CCM left behind.
func (s *sharedSetup) removeServices(ctx context.Context) {
	services := s.env.Kube.CoreV1().Services(s.env.Services.Namespace)
	list, err := services.List(ctx, metav1.ListOptions{})
	Expect(err).NotTo(HaveOccurred())
	for _, service := range list.Items {
		Expect(client.IgnoreNotFound(services.Delete(ctx, service.Name, metav1.DeleteOptions{}))).To(Succeed())
	}
	Eventually(func() []string { return s.env.Services.names(ctx) }).WithContext(ctx).
		Should(BeEmpty(), "the Services of the spec are still there: does the CCM work?")
	for _, lb := range s.env.LoadBalancers.List(ctx) {
		Expect(ignoreGone(s.env.Cloud.DeleteLoadBalancer(ctx, lb.ID))).To(Succeed())
	}
	for _, remove := range s.env.created.removals {
		remove(ctx)
	}
}

// removeServer deletes a server of the spec, and its Node. The CCM would delete the Node too, but not before it
// is NotReady.
func (s *sharedSetup) removeServer(ctx context.Context, server cloud.Server) {
	Expect(ignoreGone(s.env.Cloud.DeleteServer(ctx, server.ID))).To(Succeed())
	Expect(client.IgnoreNotFound(s.env.Kube.CoreV1().Nodes().Delete(ctx, server.Name, metav1.DeleteOptions{}))).To(Succeed())
	s.env.Nodes.AwaitGone(ctx, server.Name)
}

func ignoreGone(err error) error {
	if errors.Is(err, cloud.ErrNotFound) {
		return nil
	}
	return err
}
