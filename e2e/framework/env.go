package framework

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"sync"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/framework/node"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/dataplane"
)

// Options say what a spec needs beyond the usual.
type Options struct {
	// Actions says how long the cloud's actions take; "" is 20ms, long enough to be noticed.
	Actions string
	// RateLimit is the cloud's, in requests per hour; 0 is none.
	RateLimit int
	// LoadBalancerBits is the length of the prefix that load balancers get their public addresses
	// from; 0 is 16. A /30 has two.
	LoadBalancerBits int
	// CCM holds settings of the CCM's environment; an empty value removes a default.
	CCM map[string]string
	// NoCCM leaves starting the CCM to the spec.
	NoCCM bool
	// Spec decides what kind of node a server is; nil makes an ordinary one of each.
	Spec func(node.Server) (node.Spec, bool)
}

// Env is what one spec has for itself: a cloud, nodes, a namespace and a CCM. Everything is taken
// down after the spec, and shown if it failed.
type Env struct {
	*Suite
	// Kube is an administrator's client of the cluster.
	Kube kubernetes.Interface
	// Cloud is the spec's own simulated cloud, nil on a cluster that all specs share.
	Cloud *fakecloud.Cloud
	// Journal and Faults are those of the simulated cloud. On a real one, the journal is empty and Faults is
	// nil: specs that need them have the label FakeOnly.
	Journal Journal
	Faults  Faults
	// HCloud is a client of the cloud for the spec itself. The journal tells it from the CCM by its
	// User-Agent: see Calls.
	HCloud *hcloud.Client
	// Network is the private network of the cluster; a spec's own is 10.0.0.0/8 with the subnet 10.0.0.0/24.
	Network *hcloud.Network
	// Fleet holds the simulated nodes; nil where nodes are real.
	Fleet *node.Fleet
	// CCM is the first cloud-controller-manager. A spec may start others.
	CCM *CCM
	// Namespace is where the spec's Services are.
	Namespace string

	options Options
	// owned is what the cloud has of this spec, where several specs share it.
	owned owned

	mu   sync.Mutex
	ccms []*CCM
}

// Where everything is, and on what. In a cloud that exists, E2E_LOCATION, E2E_NETWORK_ZONE and E2E_SERVER_TYPE say what
// its cluster has.
var (
	Location    = cmp.Or(os.Getenv("E2E_LOCATION"), "fsn1")
	NetworkZone = cmp.Or(hcloud.NetworkZone(os.Getenv("E2E_NETWORK_ZONE")), hcloud.NetworkZoneEUCentral)
	// ServerType is available in Location.
	ServerType = cmp.Or(os.Getenv("E2E_SERVER_TYPE"), "cx23")
)

// NewEnv makes an Env for the running spec. It skips the spec if that cannot run on this kind of cluster, or
// with this CCM.
func NewEnv(ctx context.Context, s *Suite, options Options) *Env {
	GinkgoHelper()
	s.skipUnlessHere()
	s.specs++
	if s.Kind != Embedded {
		return newSharedEnv(ctx, s, options)
	}
	return newOwnEnv(ctx, s, options)
}

// newOwnEnv makes an Env with a cloud, nodes and a CCM of its own.
func newOwnEnv(ctx context.Context, s *Suite, options Options) *Env {
	GinkgoHelper()
	if options.Actions == "" {
		options.Actions = "20ms"
	}
	e := &Env{Suite: s, Kube: s.Cluster.Client, options: options}
	addresses := s.loopback(purposeLoadBalancers).Addr()
	e.Cloud = fakecloud.New(fakecloud.Options{
		Actions: options.Actions, RateLimit: options.RateLimit,
		PublicIPv4:       s.loopback(purposeServers),
		LoadBalancerIPv4: netip.PrefixFrom(addresses, cmp.Or(options.LoadBalancerBits, 16)),
		DataPlane:        &fakecloud.DataPlaneOptions{Resolver: e.resolve},
	})
	DeferCleanup(e.Cloud.Close)
	e.Journal, e.Faults = e.Cloud.Journal(), e.Cloud.Faults()
	_, err := e.Cloud.Start(ctx, "")
	Expect(err).NotTo(HaveOccurred())
	e.HCloud = e.Cloud.Client(hcloud.WithApplication("spec", "1"))
	e.createNetwork(ctx)
	e.createNamespace(ctx)
	DeferCleanup(e.removeFromCluster)
	e.startFleet(ctx)
	if !options.NoCCM {
		e.CCM = e.StartCCM(ctx, CCMOptions{})
	}
	// Cleanups run last first: the report has to see what the others are about to remove.
	DeferCleanup(e.report)
	return e
}

func (e *Env) createNetwork(ctx context.Context) {
	GinkgoHelper()
	var err error
	e.Network, _, err = e.HCloud.Network.Create(ctx, hcloud.NetworkCreateOpts{
		Name: "cluster", IPRange: IPNet("10.0.0.0/8"),
		Subnets: []hcloud.NetworkSubnet{{
			Type: hcloud.NetworkSubnetTypeCloud, IPRange: IPNet("10.0.0.0/24"), NetworkZone: NetworkZone,
		}},
	})
	Expect(err).NotTo(HaveOccurred())
}

func (e *Env) createNamespace(ctx context.Context) {
	GinkgoHelper()
	ns, err := e.Kube.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "spec-", Labels: map[string]string{LabelRun: e.run()}},
	}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	e.Namespace = ns.Name
}

func (e *Env) startFleet(ctx context.Context) {
	GinkgoHelper()
	var err error
	// The nodes live longer than the context of BeforeEach.
	e.Fleet, err = node.StartFleet(context.WithoutCancel(ctx), e.Kube, serverEvents{e}, node.FleetOptions{Spec: e.options.Spec})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(e.Fleet.Stop)
}

// removeFromCluster removes what the spec left in the cluster that all specs share. It does not
// rely on the CCM, which may be gone: finalizers are taken away.
func (e *Env) removeFromCluster(ctx context.Context) {
	services := e.Kube.CoreV1().Services(e.Namespace)
	list, err := services.List(ctx, metav1.ListOptions{})
	Expect(err).NotTo(HaveOccurred())
	for _, s := range list.Items {
		if len(s.Finalizers) > 0 {
			_, err := services.Patch(ctx, s.Name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
			Expect(ignoreNotFound(err)).To(Succeed())
		}
		Expect(ignoreNotFound(services.Delete(ctx, s.Name, metav1.DeleteOptions{}))).To(Succeed())
	}
	Expect(ignoreNotFound(e.Kube.CoreV1().Namespaces().Delete(ctx, e.Namespace, metav1.DeleteOptions{}))).To(Succeed())
	Expect(e.Kube.CoreV1().Nodes().DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})).To(Succeed())
	Expect(e.Kube.CoordinationV1().Leases("kube-system").DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})).To(Succeed())
	Eventually(func(g Gomega) {
		nodes, err := e.Kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(nodes.Items).To(BeEmpty())
	}).WithTimeout(Timeout).Should(Succeed(), "the nodes of the spec are still there")
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// resolve tells the data plane where a target is on this machine: public addresses are loopback
// addresses, private ones belong to a node.
func (e *Env) resolve(t dataplane.Target, port uint16) (string, error) {
	address := t.Address
	if !address.IsLoopback() {
		local, ok := e.localOf(address)
		if !ok {
			return "", fmt.Errorf("no server has the address %s", address)
		}
		address = local
	}
	return netip.AddrPortFrom(address, port).String(), nil
}

// localOf finds the server that has a private address, and where it is on this machine.
func (e *Env) localOf(private netip.Addr) (netip.Addr, bool) {
	p, _ := e.Cloud.Core().Project(fakecloud.DefaultProject)
	for s := range p.View().Servers.All() {
		for _, n := range s.PrivateNets {
			if n.IP == private {
				return e.local(s), true
			}
		}
	}
	return netip.Addr{}, false
}

// serverEvents tells the fleet about the servers of the cloud's default project.
type serverEvents struct{ env *Env }

// WatchServers implements node.ServerEvents.
func (s serverEvents) WatchServers(ctx context.Context) (<-chan node.ServerEvent, error) {
	sub := s.env.Cloud.Subscribe()
	out := make(chan node.ServerEvent)
	go func() {
		defer close(out)
		defer sub.Close()
		for {
			event, err := sub.Next(ctx)
			if err != nil {
				return
			}
			for _, e := range s.translate(event) {
				select {
				case out <- e:
				case <-ctx.Done():
					return
				}
			}
		}
	}()
	return out, nil
}

// translate turns an event of the cloud into what happened to a machine.
func (s serverEvents) translate(event fakecloud.Event) []node.ServerEvent {
	if event.Kind != fakecloud.KindServer {
		return nil
	}
	before, _ := event.Old.(*fakecloud.Server)
	after, _ := event.New.(*fakecloud.Server)
	if after == nil {
		return []node.ServerEvent{{Type: node.ServerDeleted, Server: s.env.machine(before)}}
	}
	machine := s.env.machine(after)
	var events []node.ServerEvent
	if before == nil {
		events = append(events, node.ServerEvent{Type: node.ServerCreated, Server: machine})
	}
	wasUp, isUp := before != nil && before.Status == "running", after.Status == "running"
	switch {
	case isUp && !wasUp:
		events = append(events, node.ServerEvent{Type: node.ServerStarted, Server: machine})
	case wasUp && !isUp:
		events = append(events, node.ServerEvent{Type: node.ServerStopped, Server: machine})
	case before != nil:
		events = append(events, node.ServerEvent{Type: node.ServerChanged, Server: machine})
	}
	return events
}

func (e *Env) machine(s *fakecloud.Server) node.Server {
	return node.Server{ID: strconv.FormatInt(s.ID, 10), Name: s.Name, Addresses: []netip.Addr{e.local(s)}}
}

// local says where a server is on this machine: at its public IPv4 address, or, if it has none, at
// an address that is made of its id.
func (e *Env) local(s *fakecloud.Server) netip.Addr {
	p, _ := e.Cloud.Core().Project(fakecloud.DefaultProject)
	if ip, ok := p.View().PrimaryIPs.Get(s.PublicIPv4); ok {
		return ip.IP.Addr()
	}
	b := e.loopback(purposePrivateOnly).Addr().As4()
	b[2], b[3] = byte(s.ID>>8), byte(s.ID)
	return netip.AddrFrom4(b)
}
