package node

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"

	proxyproto "github.com/pires/go-proxyproto"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/whoami"
)

// listenRetry is the time between two attempts to open a port. Another node may be about to close it.
const listenRetry = 250 * time.Millisecond

// backend is kube-proxy and the pods of one node: it opens the node ports of all Services on the node's addresses and answers there.
//
// It opens the same ports as kube-proxy: those of type NodePort and LoadBalancer. With externalTrafficPolicy Local, they are open only if
// the node has a pod, and a health check node port answers on each node as kube-proxy's does. NOT modelled: ports other than TCP; sending
// traffic on to another node's pod (a node always answers itself, even if its pods were said to be elsewhere); cluster IPs; session
// affinity; loadBalancerSourceRanges; readiness of pods. With policy Local and no pod, kube-proxy drops packets; here the connection is
// refused.
type backend struct {
	node  string
	clock clock.WithTickerAndDelayedExecution
	log   *slog.Logger

	// proxy holds the names of Services with pods that expect the PROXY protocol. mu does not guard it: closing a port holds mu while it
	// waits for the connection that is being accepted, and accepting reads proxy.
	proxy sync.Map

	mu        sync.Mutex
	up        bool
	addresses []netip.Addr
	services  map[types.NamespacedName]*corev1.Service
	local     map[types.NamespacedName]int
	handlers  map[types.NamespacedName]http.Handler
	open      map[socket]*http.Server
	ending    map[*http.Server]struct{} // closed, with requests under way
	failed    map[socket]error
	retry     clock.Timer
}

// socket is a port that a Service wants open on an address.
type socket struct {
	address netip.Addr
	port    uint16
	service types.NamespacedName
	health  bool // the health check node port, not traffic
}

func newBackend(spec Spec) *backend {
	return &backend{
		node: spec.Name, clock: spec.Clock, log: spec.Log,
		addresses: slices.Clone(spec.Addresses),
		services:  map[types.NamespacedName]*corev1.Service{},
		local:     map[types.NamespacedName]int{},
		handlers:  map[types.NamespacedName]http.Handler{},
		open:      map[socket]*http.Server{},
		ending:    map[*http.Server]struct{}{},
		failed:    map[socket]error{},
	}
}

// change applies a change of the wanted state and opens and closes ports accordingly.
func (b *backend) change(apply func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	apply()
	b.sync()
}

func (b *backend) setUp(up bool) { b.change(func() { b.up = up }) }

func (b *backend) setAddresses(addresses []netip.Addr) {
	b.change(func() { b.addresses = addresses })
}

// setServices takes the map over; its Services must not change.
func (b *backend) setServices(services map[types.NamespacedName]*corev1.Service) {
	b.change(func() { b.services = services })
}

func (b *backend) setLocal(service types.NamespacedName, pods int) {
	b.change(func() { b.local[service] = pods })
}

func (b *backend) setProxy(service types.NamespacedName, expected bool) {
	b.proxy.Store(service, expected)
}

func (b *backend) setHandler(service types.NamespacedName, handler http.Handler) {
	b.change(func() { b.handlers[service] = handler })
}

// pods returns how many pods of the Service the node has; the lock must be held.
func (b *backend) pods(service types.NamespacedName) int {
	if n, told := b.local[service]; told {
		return n
	}
	return 1
}

// wanted returns the sockets that are to be open; the lock must be held.
func (b *backend) wanted() map[socket]struct{} {
	wanted := map[socket]struct{}{}
	if !b.up {
		return wanted
	}
	for name, service := range b.services {
		if service.Spec.Type != corev1.ServiceTypeNodePort && service.Spec.Type != corev1.ServiceTypeLoadBalancer {
			continue
		}
		local := service.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
		for _, address := range b.addresses {
			for _, port := range service.Spec.Ports {
				tcp := port.Protocol == corev1.ProtocolTCP || port.Protocol == ""
				if tcp && port.NodePort > 0 && (!local || b.pods(name) > 0) {
					wanted[socket{address: address, port: uint16(port.NodePort), service: name}] = struct{}{}
				}
			}
			if check := service.Spec.HealthCheckNodePort; local && check > 0 {
				wanted[socket{address: address, port: uint16(check), service: name, health: true}] = struct{}{}
			}
		}
	}
	return wanted
}

// sync closes the unwanted ports, then opens the wanted ones. The caller holds the lock.
func (b *backend) sync() {
	wanted := b.wanted()
	for at, server := range b.open {
		if _, ok := wanted[at]; !ok {
			b.close(server)
			delete(b.open, at)
		}
	}
	if !b.up {
		for server := range b.ending {
			_ = server.Close()
		}
	}
	maps.DeleteFunc(b.failed, func(at socket, _ error) bool { _, ok := wanted[at]; return !ok })
	for at := range wanted {
		if b.open[at] != nil {
			continue
		}
		server, err := b.listen(at)
		if err != nil {
			if b.failed[at] == nil {
				b.log.Warn("a node port cannot be opened", "service", at.service, "error", err)
			}
			b.failed[at] = err
			continue
		}
		delete(b.failed, at)
		b.open[at] = server
	}
	if b.retry != nil {
		b.retry.Stop()
		b.retry = nil
	}
	if len(b.failed) > 0 {
		b.retry = b.clock.AfterFunc(listenRetry, func() { b.change(func() {}) })
	}
}

// listen opens a socket and serves on it.
func (b *backend) listen(at socket) (*http.Server, error) {
	plain, err := new(net.ListenConfig).Listen(context.Background(), "tcp", netip.AddrPortFrom(at.address, at.port).String())
	if err != nil {
		return nil, err
	}
	server := &http.Server{
		Handler: b.handler(at),
		// Clients may send other bytes than HTTP or disappear.
		ErrorLog:          slog.NewLogLogger(b.log.Handler(), slog.LevelDebug),
		ReadHeaderTimeout: time.Minute,
		ConnContext:       whoami.ConnContext,
	}
	accept := plain
	if !at.health {
		accept = &proxyproto.Listener{Listener: plain, ConnPolicy: func(proxyproto.ConnPolicyOptions) (proxyproto.Policy, error) {
			if expected, _ := b.proxy.Load(at.service); expected == true {
				return proxyproto.REQUIRE, nil
			}
			return proxyproto.SKIP, nil
		}}
	}
	go func() {
		if err := server.Serve(accept); !errors.Is(err, http.ErrServerClosed) {
			b.log.Warn("a node port stopped answering", "service", at.service, "error", err)
		}
	}()
	return server, nil
}

// close ends a server, so that new connections are refused when it returns. Requests under way may end when a port is removed, since a real
// node continues to translate connections that it knows, but not when the node is powered off. The lock must be held.
func (b *backend) close(server *http.Server) {
	if !b.up {
		_ = server.Close()
		return
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	_ = server.Shutdown(ended) // closes listeners and idle connections, and does not wait
	b.ending[server] = struct{}{}
	go func() {
		_ = server.Shutdown(context.Background())
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.ending, server)
	}()
}
