// Package node simulates the nodes of a cluster: it acts as the kubelet and kube-proxy of a server towards the Kubernetes API and towards a
// load balancer, without a server, containers or pods.
//
// A Node registers and keeps its Node object alive as kubelet does with --cloud-provider=external (kubelet.go), and answers on the node
// ports of all Services like kube-proxy with a pod behind each of them (backend.go). A Fleet keeps one Node per cloud server (fleet.go).
// The package does not know a cloud: it is told about servers.
//
// The source of Kubernetes 1.37.1 says this, against intuition:
//
//   - A running kubelet does NOT register again when another client deletes its Node
//     object. It registers once per start (registrationCompleted); from then on it
//     only logs that its Node is gone, until it is restarted. So a Node that a
//     cloud-controller-manager deletes by mistake stays away: see RestartKubelet.
//   - kubelet sets no NetworkUnavailable condition. The route controller of the
//     cloud-controller-manager creates it, True or False. See
//     Spec.NetworkUnavailable for clusters with another source of it.
//   - With an external cloud provider and without --node-ip, kubelet reports its
//     host name as the only address, and leaves the list alone once another client has
//     filled it.
//   - kubelet sets the uninitialized taint only when it creates the Node, never on
//     one that exists.
//   - kubelet writes its status when it changes, else each 5 minutes. Between
//     these the Lease is the only heartbeat.
package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"
)

// Kubernetes' names for the states of a node that a cloud-controller-manager knows. k8s.io/cloud-provider has the names, too, but with it
// come the modules of a whole API server.
const (
	// TaintUninitialized is the taint of a node that the cloud-controller-manager has not initialised yet.
	TaintUninitialized = "node.cloudprovider.kubernetes.io/uninitialized"
	// TaintShutdown is the taint of the node of a server that is off.
	TaintShutdown = "node.cloudprovider.kubernetes.io/shutdown"
	// annotationProvidedIP has the addresses that kubelet's flag --node-ip names.
	annotationProvidedIP = "alpha.kubernetes.io/provided-node-ip"
)

// Spec describes a node. Only Name is needed.
type Spec struct {
	// Name of the Node object, and host name.
	Name string
	// Addresses are the addresses of this host that the node opens its ports on. Each node has other addresses, so that nodes can open
	// equal ports. On Linux all of 127.0.0.0/8 will do; macOS has only 127.0.0.1 without `ifconfig lo0 alias` as root.
	// They do not appear in the Node object: the cloud-controller-manager fills in the addresses there.
	Addresses []netip.Addr
	// ProviderID is kubelet's --provider-id; usually the cloud-controller-manager
	// sets it later.
	ProviderID string
	// NodeIPs is kubelet's --node-ip: at most two, of different families. The
	// cloud-controller-manager must then find them among the server's addresses.
	NodeIPs []netip.Addr
	// NetworkUnavailable registers the Node with the condition of that name True, unlike any kubelet (see the package comment). A spec can
	// then see the condition cleared without waiting for the route controller to set it.
	NetworkUnavailable bool

	// Heartbeat is the time between two renewals of the Lease. The Lease lasts four times that. Zero means a second (kubelet: 10 s and 40
	// s).
	Heartbeat time.Duration
	// Clock is for everything but the Lease: kubelet's own code renews that by the real clock. Nil means the real one.
	Clock clock.WithTickerAndDelayedExecution
	// Log gets problems. If nil, they are not logged.
	Log *slog.Logger
}

func (s Spec) complete() (Spec, error) {
	var errs []error
	if problems := validation.IsDNS1123Subdomain(s.Name); problems != nil {
		errs = append(errs, fmt.Errorf("%q cannot name a node: %s", s.Name, strings.Join(problems, "; ")))
	}
	for i, address := range s.Addresses {
		if !address.IsValid() || address.IsUnspecified() {
			errs = append(errs, fmt.Errorf("node %s: address %d, %s, must be an address of this host", s.Name, i, address))
		}
	}
	if len(s.NodeIPs) > 2 || len(s.NodeIPs) == 2 && s.NodeIPs[0].Is4() == s.NodeIPs[1].Is4() {
		errs = append(errs, fmt.Errorf("node %s: node IPs %v: must be at most one of each family", s.Name, s.NodeIPs))
	}
	if s.Heartbeat < 0 {
		errs = append(errs, fmt.Errorf("node %s: heartbeat %s: must be positive", s.Name, s.Heartbeat))
	}
	if s.Heartbeat == 0 {
		s.Heartbeat = time.Second
	}
	if s.Clock == nil {
		s.Clock = clock.RealClock{}
	}
	if s.Log == nil {
		s.Log = slog.New(slog.DiscardHandler)
	}
	s.Log = s.Log.With("node", s.Name)
	return s, errors.Join(errs...)
}

// Node is a simulated node. Its methods may be called at any time from any goroutine. A method returns once its change is made here; the
// Kubernetes API learns of it later.
type Node struct {
	spec    Spec
	client  kubernetes.Interface
	world   *world
	private bool // only this node uses world
	backend *backend
	life    context.Context // until Stop
	end     context.CancelFunc

	mu      sync.Mutex // guards power: which runs of kubelet there are
	kubelet *kubelet   // nil while off
	bootID  string
}

// Start describes a node to the API and switches it on. It returns at once;
// registration continues in the background, with retries while the API fails, as
// kubelet's does. The node lives until Stop, or until ctx ends.
func Start(ctx context.Context, client kubernetes.Interface, spec Spec) (*Node, error) {
	spec, err := spec.complete()
	if err != nil {
		return nil, err
	}
	world := newWorld(client, spec.Log)
	n := newNode(ctx, client, spec, world)
	n.private = true
	context.AfterFunc(n.life, world.stop)
	n.PowerOn()
	return n, nil
}

// newNode makes a node that is off and sees the API's objects through world.
func newNode(ctx context.Context, client kubernetes.Interface, spec Spec, world *world) *Node {
	life, end := context.WithCancel(ctx)
	n := &Node{spec: spec, client: client, world: world, life: life, end: end}
	n.backend = newBackend(spec)
	unfollow := world.follow(n.backend)
	context.AfterFunc(life, func() {
		unfollow()
		n.PowerOff()
	})
	return n
}

// Name returns the node's name.
func (n *Node) Name() string { return n.spec.Name }

// Stop ends the node like PowerOff, for good. Its Node object stays: deleting it
// is the cloud-controller-manager's job.
func (n *Node) Stop() {
	n.end()
	n.PowerOff()
	if n.private {
		n.world.stop()
	}
}

// PowerOn boots the node: kubelet registers or finds its Node, and node ports
// open. It does nothing if the node runs or is stopped for good.
func (n *Node) PowerOn() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.kubelet != nil || n.life.Err() != nil {
		return
	}
	n.bootID = string(uuid.NewUUID())
	n.startKubelet()
	n.backend.setUp(true)
}

// PowerOff takes the node's power away: heartbeats end and so do listeners and
// connections. (Here a peer sees its connection closed; a dead node would
// leave it in doubt.)
func (n *Node) PowerOff() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.stopKubelet()
	n.backend.setUp(false)
}

// StopKubelet ends kubelet while traffic continues, as when its process dies. PowerOn ends this.
func (n *Node) StopKubelet() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.stopKubelet()
}

// RestartKubelet ends kubelet and starts it again, while traffic continues. A node registers again this way after its Node object was
// deleted. It does nothing while the node is off.
func (n *Node) RestartKubelet() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.kubelet == nil {
		return
	}
	n.stopKubelet()
	n.startKubelet()
}

// PoweredOn reports whether the node runs.
func (n *Node) PoweredOn() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.kubelet != nil
}

func (n *Node) startKubelet() {
	if n.life.Err() == nil {
		n.kubelet = startKubelet(n.life, n.client, n.world, n.spec, n.bootID)
	}
}

func (n *Node) stopKubelet() {
	if n.kubelet != nil {
		n.kubelet.stop()
		n.kubelet = nil
	}
}

// AwaitRegistered waits until kubelet has registered since it was last started.
func (n *Node) AwaitRegistered(ctx context.Context) error {
	n.mu.Lock()
	k := n.kubelet
	n.mu.Unlock()
	if k == nil {
		return fmt.Errorf("node %s is off", n.spec.Name)
	}
	select {
	case <-k.registered:
		return nil
	case <-k.done:
		return fmt.Errorf("node %s was switched off before it registered", n.spec.Name)
	case <-ctx.Done():
		return fmt.Errorf("node %s has not registered: %w", n.spec.Name, ctx.Err())
	}
}

// SetAddresses replaces the addresses that node ports are opened on.
func (n *Node) SetAddresses(addresses ...netip.Addr) {
	n.backend.setAddresses(slices.Clone(addresses))
}

// SetLocalEndpoints says how many ready pods of the Service the node has. It
// matters for externalTrafficPolicy Local only: with none, the node takes no
// traffic and its health check node port answers 503. Until told otherwise a node
// has one pod of each Service.
func (n *Node) SetLocalEndpoints(service types.NamespacedName, pods int) {
	n.backend.setLocal(service, max(0, pods))
}

// SetProxyProtocol says whether the Service's pods expect a PROXY protocol
// header, version 1 or 2, at the start of each connection. If so, they refuse a
// connection without one; if not, they take one for garbage, as real pods do.
func (n *Node) SetProxyProtocol(service types.NamespacedName, expected bool) {
	n.backend.setProxy(service, expected)
}

// SetHandler replaces the answers of the Service's pods on this node; nil puts the usual Answer back.
func (n *Node) SetHandler(service types.NamespacedName, handler http.Handler) {
	n.backend.setHandler(service, handler)
}
