package node

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// Server is a Fleet's view of a cloud server.
type Server struct {
	ID   string // never used again, unlike names
	Name string
	// Addresses of the server on this host.
	Addresses []netip.Addr
}

// ServerEventType is the kind of a server's event.
type ServerEventType string

// The kinds of events.
const (
	// ServerCreated: there is a server. It does not run yet.
	ServerCreated ServerEventType = "created"
	// ServerStarted: it runs.
	ServerStarted ServerEventType = "started"
	// ServerStopped: it is off.
	ServerStopped ServerEventType = "stopped"
	// ServerChanged: its addresses change, and nothing else.
	ServerChanged ServerEventType = "changed"
	// ServerDeleted: it is gone, whether it ran or not.
	ServerDeleted ServerEventType = "deleted"
)

// ServerEvent is something that happened to a server, and the server after it.
type ServerEvent struct {
	Type   ServerEventType
	Server Server
}

// ServerEvents is the source of a Fleet's events.
type ServerEvents interface {
	// WatchServers returns a channel of events. It delivers a created event for each existing server, followed by a started event if the
	// server runs. All later events follow without a gap, and those of one server in their order. The channel is closed when ctx ends or
	// the source does.
	WatchServers(ctx context.Context) (<-chan ServerEvent, error)
}

// FleetOptions shapes a Fleet.
type FleetOptions struct {
	// Spec decides the kind of node for a server, and whether it is one at all: false leaves the server alone. Nil makes a node of each.
	// Name and Addresses are the server's unless they are set. It is asked at the first start of each server.
	Spec func(Server) (Spec, bool)
	// Log gets problems. If nil, they are not logged.
	Log *slog.Logger
}

// Fleet keeps a Node for each cloud server: the node of a started server runs, that of a stopped server is off, that of a deleted server
// ends. Node objects are never deleted here. All methods may be called at any time from any goroutine.
type Fleet struct {
	ctx     context.Context
	client  kubernetes.Interface
	options FleetOptions
	world   *world
	stop    context.CancelFunc
	done    chan struct{}

	mu    sync.Mutex
	nodes map[string]*Node // by server ID
	local map[types.NamespacedName]map[string]int
	proxy map[types.NamespacedName]bool
}

// StartFleet follows events until Stop is called, ctx ends, or the events end. The nodes live until Stop, or until ctx ends.
func StartFleet(ctx context.Context, client kubernetes.Interface, events ServerEvents, options FleetOptions) (*Fleet, error) {
	if options.Log == nil {
		options.Log = slog.New(slog.DiscardHandler)
	}
	ctx, cancel := context.WithCancel(ctx)
	channel, err := events.WatchServers(ctx)
	if err != nil {
		cancel()
		return nil, fmt.Errorf("cannot follow the cloud's servers: %w", err)
	}
	f := &Fleet{
		ctx: ctx, client: client, options: options, stop: cancel, done: make(chan struct{}),
		world: newWorld(client, options.Log),
		nodes: map[string]*Node{},
		local: map[types.NamespacedName]map[string]int{},
		proxy: map[types.NamespacedName]bool{},
	}
	go func() {
		defer close(f.done)
		for {
			select {
			case <-ctx.Done():
				return
			case event, ok := <-channel:
				if !ok {
					return
				}
				f.handle(event)
			}
		}
	}()
	context.AfterFunc(ctx, f.world.stop)
	return f, nil
}

// Stop ends all nodes and waits for their end.
func (f *Fleet) Stop() {
	f.stop()
	<-f.done
	for _, n := range f.Nodes() {
		n.Stop()
	}
	f.world.stop()
}

// Node returns the node of that name, or nil. If several servers had the name, it returns the node of the last.
func (f *Fleet) Node(name string) *Node {
	for _, n := range f.Nodes() {
		if n.Name() == name {
			return n
		}
	}
	return nil
}

// Nodes returns all nodes by name, those that are off included.
func (f *Fleet) Nodes() []*Node {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.SortedFunc(maps.Values(f.nodes), func(a, b *Node) int { return strings.Compare(a.Name(), b.Name()) })
}

// handle applies an event to the fleet.
func (f *Fleet) handle(event ServerEvent) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := f.nodes[event.Server.ID]
	switch event.Type {
	case ServerCreated: // nothing runs yet
	case ServerStarted:
		if n == nil {
			f.boot(event.Server)
			return
		}
		n.PowerOn()
	case ServerStopped:
		if n != nil {
			n.PowerOff()
		}
	case ServerChanged:
		if n != nil {
			n.SetAddresses(event.Server.Addresses...)
		}
	case ServerDeleted:
		if n != nil {
			n.Stop()
			delete(f.nodes, event.Server.ID)
		}
	default:
		f.options.Log.Warn("unknown kind of server event", "type", event.Type, "server", event.Server.Name)
	}
}

// boot makes and starts the node of a server; the lock must be held.
func (f *Fleet) boot(server Server) {
	spec, isNode := Spec{}, true
	if f.options.Spec != nil {
		spec, isNode = f.options.Spec(server)
	}
	if !isNode {
		return
	}
	if spec.Name == "" {
		spec.Name = server.Name
	}
	if spec.Addresses == nil {
		spec.Addresses = server.Addresses
	}
	if spec.Log == nil {
		spec.Log = f.options.Log
	}
	spec, err := spec.complete()
	if err != nil {
		f.options.Log.Error("a server cannot be a node", "server", server.Name, "error", err)
		return
	}
	n := newNode(f.ctx, f.client, spec, f.world)
	for service, pods := range f.local {
		n.SetLocalEndpoints(service, pods[spec.Name])
	}
	for service, expected := range f.proxy {
		n.SetProxyProtocol(service, expected)
	}
	f.nodes[server.ID] = n
	n.PowerOn()
}

// SetLocalEndpoints says how many pods of the Service each node has, by the node's name, now and in future; nodes that are not named have
// none. See Node.SetLocalEndpoints.
func (f *Fleet) SetLocalEndpoints(service types.NamespacedName, pods map[string]int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.local[service] = maps.Clone(pods)
	for _, n := range f.nodes {
		n.SetLocalEndpoints(service, pods[n.Name()])
	}
}

// SetProxyProtocol is Node.SetProxyProtocol for all nodes, now and in future.
func (f *Fleet) SetProxyProtocol(service types.NamespacedName, expected bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.proxy[service] = expected
	for _, n := range f.nodes {
		n.SetProxyProtocol(service, expected)
	}
}
