package framework

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/journal"
)

// sharedSetup is the part of one spec in a cluster and a cloud that all specs share.
type sharedSetup struct {
	env    *Env
	shared *sharedCluster

	// brought are the names of the nodes that the spec brings.
	brought []string
}

func newSharedSetup(ctx context.Context, e *Env) {
	GinkgoHelper()
	o := e.options
	Expect(o.Actions == "" && o.RateLimit == 0 && o.LoadBalancerBits == 0 && o.Spec == nil).To(BeTrue(),
		"these Options need a cloud and nodes of the spec's own: give it the label %s", OwnCloud)
	s := &sharedSetup{env: e, shared: e.suite.shared}
	e.setup = s
	e.Cloud.Journal = noJournal{}
	if s.shared.control != nil {
		e.Cloud.use(s.shared.control)
		e.Cloud.Journal = recentJournal{e.Cloud.Journal, e.Cloud.Journal.Last()}
	}
	e.Cloud.Client = s.shared.client("spec")
	if s.shared.network != "" {
		var err error
		e.Cloud.Network, _, err = e.Cloud.Client.Network.GetByName(ctx, s.shared.network)
		Expect(err).NotTo(HaveOccurred())
		Expect(e.Cloud.Network).NotTo(BeNil(), "the cloud has no network %s", s.shared.network)
	}
	e.createNamespace(ctx)
	DeferCleanup(s.remove)
	e.CCM.Replica = &Replica{pods: s.shared.ccm, ccm: &e.CCM}
	if o.NoCCM {
		Expect(e.CCM.Stop(ctx)).To(Succeed())
	} else if len(o.CCM) > 0 {
		e.CCM.Start(ctx, CCMOptions{})
	}
}

// startCCM implements setup: one replica, or two with leader election.
func (s *sharedSetup) startCCM(ctx context.Context, o CCMOptions) *Replica {
	GinkgoHelper()
	pods := s.shared.ccm.alone()
	settings := podSettings{Env: maps.Clone(pods.usual.Env), Args: slices.Clone(pods.usual.Args), Replicas: 1}
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
	if s.shared.nodes == nil {
		return nil
	}
	return slices.Concat(s.shared.nodes, s.brought)
}

// selectsOwn begins the node selector of Services that use only the spec's nodes.
const selectsOwn = corev1.LabelHostname + " in ("

// confine implements setup, by a node selector. One that the spec has set is kept.
func (s *sharedSetup) confine(service *corev1.Service) {
	const annotation = Annotation + "node-selector"
	nodes, selector := s.own(), service.Annotations[annotation]
	if nodes == nil || service.Spec.Type != corev1.ServiceTypeLoadBalancer || selector != "" && !strings.HasPrefix(selector, selectsOwn) {
		return
	}
	metav1.SetMetaDataAnnotation(&service.ObjectMeta, annotation, selectsOwn+strings.Join(nodes, ",")+")")
}

// brings implements setup.
func (s *sharedSetup) brings(node string) { s.brought = append(s.brought, node) }

// workers implements setup: the nodes that the cluster has, without those of other specs.
func (s *sharedSetup) workers(ctx context.Context, n int) Workers {
	GinkgoHelper()
	servers, err := s.env.Cloud.Client.Server.All(ctx)
	Expect(err).NotTo(HaveOccurred())
	nodes, err := s.env.Kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	Expect(err).NotTo(HaveOccurred())
	var workers Workers
	for _, node := range nodes.Items {
		if _, excluded := node.Labels[corev1.LabelNodeExcludeBalancers]; excluded {
			continue
		}
		if own := s.own(); own != nil && !slices.Contains(own, node.Name) {
			continue
		}
		workers = append(workers, Worker{node.Name, s.env.Nodes.serverOf(&node, servers)})
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
	_, err := s.env.Kube.AppsV1().DaemonSets(s.env.Services.Namespace).Create(ctx, set, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
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

// ownLoadBalancers implements setup: those that the spec has created, and those of its Services.
func (s *sharedSetup) ownLoadBalancers(ctx context.Context, all []*hcloud.LoadBalancer) []*hcloud.LoadBalancer {
	own := slices.DeleteFunc(all, func(lb *hcloud.LoadBalancer) bool {
		return !s.env.created.isLoadBalancer(lb.ID, lb.Labels[s.env.suite.CCM.OwnerLabel])
	})
	for i, lb := range own {
		if !s.untagged(lb.Labels) {
			continue
		}
		tagged, _, err := s.env.Cloud.Client.LoadBalancer.Update(ctx, lb, hcloud.LoadBalancerUpdateOpts{Labels: tagged(lb.Labels)})
		if err == nil {
			own[i] = tagged
		}
	}
	return own
}

// ownCertificates implements setup.
func (s *sharedSetup) ownCertificates(ctx context.Context, all []*hcloud.Certificate) []*hcloud.Certificate {
	own := slices.DeleteFunc(all, func(c *hcloud.Certificate) bool {
		return !s.env.created.isCertificate(c.ID, c.Labels[s.env.suite.CCM.OwnerLabel])
	})
	for i, c := range own {
		if !s.untagged(c.Labels) {
			continue
		}
		tagged, _, err := s.env.Cloud.Client.Certificate.Update(ctx, c, hcloud.CertificateUpdateOpts{Labels: tagged(c.Labels)})
		if err == nil {
			own[i] = tagged
		}
	}
	return own
}

// untagged reports whether something that the CCM has created still needs the run's name, so that it is found
// after a crash of the suite. Only an existing cloud outlives the run. Something that is being changed or
// deleted may refuse the label: it gets it the next time, or never. Its Service is then found by the namespace,
// which has the run's name.
func (s *sharedSetup) untagged(labels map[string]string) bool {
	return s.env.suite.Kind == Existing && labels[LabelRun] != runName()
}

// ownRequests implements setup.
func (s *sharedSetup) ownRequests(ctx context.Context, all []journal.Entry) []journal.Entry {
	GinkgoHelper()
	// The spec learns what belongs to it by looking at what the CCM has created.
	s.env.LoadBalancers.List(ctx)
	s.env.Cloud.Certificates(ctx)
	return slices.DeleteFunc(all, func(r journal.Entry) bool { return !s.env.created.contains(r) })
}

// dial implements setup.
func (s *sharedSetup) dial(ctx context.Context, address string, _ netip.Addr) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	return s.shared.dial(ctx, "tcp", address)
}

// outsideAddress implements setup.
func (s *sharedSetup) outsideAddress() string {
	if s.shared.outside == "" {
		Skip("needs the address by which the cloud sees this host, which is unknown")
	}
	return s.shared.outside
}

// startMachineController implements setup: the machine controller runs already, with the flags of its manifest, for all specs.
func (s *sharedSetup) startMachineController(ctx context.Context, flags ...string) *Replica {
	GinkgoHelper()
	if len(flags) > 0 {
		Skip("needs a machine controller with flags of its own: runs with E2E_CLUSTER=embedded")
	}
	if !s.shared.machineController {
		Skip("needs the machine controller in this cluster: runs with E2E_CLUSTER=embedded and kind")
	}
	if suite := s.env.suite; suite.machineController.client == nil {
		var err error
		suite.machineController.client, err = suite.machineClient(ctx)
		Expect(err).NotTo(HaveOccurred())
	}
	return &Replica{}
}

// hypervisorLog implements setup.
func (s *sharedSetup) hypervisorLog(server string) string {
	if s.shared.hypervisorLog == nil {
		return ""
	}
	text, err := s.shared.hypervisorLog()
	if err != nil {
		return err.Error()
	}
	var about strings.Builder
	for line := range strings.Lines(text) {
		if strings.Contains(line, server) {
			about.WriteString(line)
		}
	}
	return lastLines(about.String(), 60)
}

// report implements setup: the log of the CCM's pods, and the hypervisor's.
func (s *sharedSetup) report(ctx context.Context) {
	if s.shared.hypervisorLog != nil {
		AddReportEntry("log of the hypervisor", ReportEntryVisibilityFailureOrVerbose, s.hypervisorLog(""))
	}
	if s.shared.ccm == nil {
		return
	}
	text, err := s.shared.ccm.log(ctx)
	if err != nil {
		text = err.Error()
	}
	AddReportEntry("log of the CCM", ReportEntryVisibilityFailureOrVerbose, lastLines(withoutNoise(text), 200))
}

// remove removes what the spec left in the cluster and the cloud, and restores the CCM's usual settings: the
// next spec finds everything as this one did.
func (s *sharedSetup) remove(ctx context.Context) {
	if s.shared.ccm != nil {
		Expect(s.shared.ccm.restore(ctx)).To(Succeed(), "restoring the CCM's settings")
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
	Expect(ignoreNotFound(s.env.Kube.CoreV1().Namespaces().Delete(ctx, namespace,
		metav1.DeleteOptions{PropagationPolicy: &background}))).To(Succeed())
}

// removeServices deletes the Services and waits until the CCM has removed what they had in the cloud. Then it
// removes what the spec itself has created there, and what a CCM that fails has left.
func (s *sharedSetup) removeServices(ctx context.Context) {
	cloud, services := s.env.Cloud.Client, s.env.Kube.CoreV1().Services(s.env.Services.Namespace)
	list, err := services.List(ctx, metav1.ListOptions{})
	Expect(err).NotTo(HaveOccurred())
	protected := false
	for _, lb := range s.env.LoadBalancers.List(ctx) {
		if lb.Protection.Delete {
			s.env.Cloud.Do(ctx)(cloud.LoadBalancer.ChangeProtection(ctx, lb, hcloud.LoadBalancerChangeProtectionOpts{Delete: &protected}))
		}
	}
	for _, service := range list.Items {
		Expect(ignoreNotFound(services.Delete(ctx, service.Name, metav1.DeleteOptions{}))).To(Succeed())
	}
	Eventually(func() []string { return s.env.Services.names(ctx) }).WithContext(ctx).WithTimeout(Timeout).WithPolling(Polling).
		Should(BeEmpty(), "the Services of the spec are still there: does the CCM work?")
	for _, lb := range s.env.LoadBalancers.List(ctx) {
		_, _, err := cloud.LoadBalancer.DeleteWithResult(ctx, lb)
		Expect(ignoreGone(err)).To(Succeed())
	}
	for _, c := range s.env.Cloud.Certificates(ctx) {
		_, err := cloud.Certificate.Delete(ctx, c)
		Expect(ignoreGone(err)).To(Succeed())
	}
}

// removeServer deletes a server that the spec has created, and its Node. The CCM would delete the Node too, but
// not before it is NotReady.
func (s *sharedSetup) removeServer(ctx context.Context, server *hcloud.Server) {
	result, _, err := s.env.Cloud.Client.Server.DeleteWithResult(ctx, server)
	if err == nil {
		s.env.Cloud.Wait(ctx, result.Action)
	}
	Expect(ignoreGone(err)).To(Succeed())
	Expect(ignoreNotFound(s.env.Kube.CoreV1().Nodes().Delete(ctx, server.Name, metav1.DeleteOptions{}))).To(Succeed())
	s.env.Nodes.AwaitGone(ctx, server.Name)
}

func ignoreGone(err error) error {
	if hcloud.IsError(err, hcloud.ErrorCodeNotFound) {
		return nil
	}
	return err
}
