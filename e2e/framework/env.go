package framework

import (
	"context"
	"net"
	"net/netip"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/cloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/framework/node"
)

// Options are a spec's special needs.
type Options struct {
	// Cloud is for the driver of the one cloud that the spec is written for (cloud.Options.Settings). It needs a cloud of the spec's own.
	Cloud any
	// CCM holds settings of the CCM's environment. An empty value removes a default.
	CCM map[string]string
	// NoCCM leaves starting the CCM to the spec.
	NoCCM bool
	// Spec decides the kind of node that a server becomes. If nil, each server becomes an ordinary node.
	Spec func(node.Server) (node.Spec, bool)
	// Pods changes the pods behind Services before they are created, where nodes are real.
	Pods func(*appsv1.DaemonSet)
}

// Env is the environment of one spec, in groups. Everything that a spec makes is removed after it. If the spec failed, its report shows the
// logs, the requests and the state.
type Env struct {
	// Kube is an administrator's client of the cluster.
	Kube kubernetes.Interface
	// Cloud is the cloud as its driver shows it.
	Cloud cloud.Cloud
	// CCM is the cloud-controller-manager under test, with its requests.
	CCM CCM
	// Nodes are the cluster's nodes.
	Nodes Nodes
	// Servers are the cloud's servers. Each becomes a node.
	Servers Servers
	// Services are the spec's Services of type LoadBalancer, with their events.
	Services Services
	// Pods are the pods behind Services.
	Pods Pods
	// LoadBalancers are the cloud's load balancers, as far as they concern the spec.
	LoadBalancers LoadBalancers
	// Routes are the routes of the cluster's network.
	Routes Routes
	// Traffic sends requests from outside of the cluster.
	Traffic Traffic
	// Faults make the cloud misbehave towards the CCM.
	Faults Faults

	suite   *Suite
	options Options
	setup   setup
	created created
	// since is the number of the latest request before the spec.
	since uint64
	// clock returns the time; only tests of this package replace it.
	clock func() time.Time
}

// setup is the part of an Env that depends on the cluster. ownSetup runs one cloud, with nodes and a CCM, for each spec; sharedSetup is for
// a cluster that all specs share.
type setup interface {
	// startCCM starts one more CCM process, or has the cluster's pods run the CCM with the options.
	startCCM(context.Context, CCMOptions) *Replica
	// workers returns at least n nodes that can be targets of load balancers.
	workers(ctx context.Context, n int) Workers[cloud.Server]
	// confine makes the load balancer of a Service use only the spec's nodes, if other specs bring nodes too.
	confine(*corev1.Service)
	// brings makes the node with this name one of the spec's.
	brings(node string)
	// addPods has pods answer behind a new Service.
	addPods(ctx context.Context, service string)
	setEndpoints(ctx context.Context, service string, nodes []string)
	setProxyProtocol(service string, expected bool)
	// dial connects to an address of the cloud from outside of the cluster. The client's address is from, if
	// that is valid and can be chosen.
	dial(ctx context.Context, address string, from netip.Addr) (net.Conn, error)
	// outsideAddress returns the address of clients outside of the cluster, as load balancers see it.
	outsideAddress() string
	// hypervisorLog returns the hypervisor's last lines about a server, or "" without a hypervisor.
	hypervisorLog(server string) string
	// report adds explanations of a failure to the spec's report.
	report(context.Context)
}

// NewEnv makes an Env for the running spec. It skips the spec if the spec cannot run on this kind of cluster,
// or needs a feature that the CCM lacks.
func NewEnv(ctx context.Context, options Options) *Env {
	GinkgoHelper()
	s := current
	s.skipUnlessHere()
	s.specs++
	e := &Env{suite: s, options: options, Kube: s.Cluster.Client, clock: time.Now}
	e.CCM.env, e.Nodes.env, e.Servers.env, e.Services.env, e.Pods.env = e, e, e, e, e
	e.LoadBalancers.env, e.Routes.env, e.Traffic.env, e.Faults.env = e, e, e, e
	if s.shared == nil {
		newOwnSetup(ctx, e)
	} else {
		newSharedSetup(ctx, e)
	}
	// Cleanups run in reverse order: the report comes before the others remove anything.
	DeferCleanup(e.report)
	return e
}

// Shared returns the cluster that all specs share. It is nil on the embedded cluster.
func (e *Env) Shared() *Shared { return e.suite.shared }

// Unique makes a name for something in the cloud that no other spec uses.
func (e *Env) Unique(name string) string {
	return name + strings.TrimPrefix(e.Services.Namespace, "spec")
}

func (e *Env) createNamespace(ctx context.Context) {
	GinkgoHelper()
	ns, err := e.Kube.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "spec-", Labels: map[string]string{cloud.LabelRun: RunName()}},
	}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	e.Services.Namespace = ns.Name
}
