package node

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strconv"

	proxyproto "github.com/pires/go-proxyproto"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Answer is what a node answers, as JSON, to any request on a node port: who was
// reached, and what arrived there.
type Answer struct {
	// Node is the name of the node.
	Node string `json:"node"`
	// Service is namespace/name, PortName and Port are the Service port's, and
	// NodePort is the number that was reached.
	Service  string `json:"service"`
	PortName string `json:"portName,omitempty"`
	Port     int32  `json:"port"`
	NodePort int32  `json:"nodePort"`
	// Client is the address and port of the client, as the pod sees it: from the
	// PROXY protocol header if there was one, else the same as Peer.
	Client string `json:"client"`
	// Peer is the address and port that the connection came from: the load
	// balancer's.
	Peer string `json:"peer"`
	// ProxyProtocol is the version of the PROXY protocol header, 0 without one, and
	// ProxyDestination the address that it says the client connected to.
	ProxyProtocol    int    `json:"proxyProtocol,omitempty"`
	ProxyDestination string `json:"proxyDestination,omitempty"`
	// The request as it arrived.
	Method  string      `json:"method"`
	URI     string      `json:"uri"`
	Host    string      `json:"host"`
	Proto   string      `json:"proto"`
	Headers http.Header `json:"headers"`
}

// connKey finds the connection in a request's context.
type connKey struct{}

// handler answers on one socket.
func (b *backend) handler(at socket) http.Handler {
	if at.health {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { b.health(w, at.service) })
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b.mu.Lock()
		custom, service := b.handlers[at.service], b.services[at.service]
		b.mu.Unlock()
		if custom != nil {
			custom.ServeHTTP(w, r)
			return
		}
		answer := Answer{
			Node: b.node, Service: at.service.String(), NodePort: int32(at.port),
			Client: r.RemoteAddr, Peer: r.RemoteAddr,
			Method: r.Method, URI: r.RequestURI, Host: r.Host, Proto: r.Proto, Headers: r.Header,
		}
		answer.describePort(service)
		answer.describeConn(r)
		w.Header().Set("Content-Type", "application/json")
		encoder := json.NewEncoder(w)
		encoder.SetIndent("", "  ")
		_ = encoder.Encode(answer) // the client may be gone
	})
}

// describePort fills in the Service's port; service is nil if it has just gone.
func (a *Answer) describePort(service *corev1.Service) {
	if service == nil {
		return
	}
	for _, port := range service.Spec.Ports {
		if port.NodePort == a.NodePort {
			a.PortName, a.Port = port.Name, port.Port
		}
	}
}

// describeConn fills in what the PROXY protocol said.
func (a *Answer) describeConn(r *http.Request) {
	conn, ok := r.Context().Value(connKey{}).(net.Conn)
	if !ok {
		return
	}
	wrapped, ok := conn.(*proxyproto.Conn)
	if !ok {
		return
	}
	a.Peer = wrapped.Raw().RemoteAddr().String()
	if header := wrapped.ProxyHeader(); header != nil {
		a.ProxyProtocol = int(header.Version)
		if header.DestinationAddr != nil {
			a.ProxyDestination = header.DestinationAddr.String()
		}
	}
}

// health answers on a health check node port, with the status, headers and body
// of kube-proxy (pkg/proxy/healthcheck in Kubernetes 1.36.3), whatever the path.
func (b *backend) health(w http.ResponseWriter, service types.NamespacedName) {
	b.mu.Lock()
	pods := b.pods(service)
	b.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("X-Load-Balancing-Endpoint-Weight", strconv.Itoa(pods))
	if pods == 0 {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	fmt.Fprintf(w, `{"service":{"namespace":%q,"name":%q},"localEndpoints":%d,"serviceProxyHealthy":true}`+"\n",
		service.Namespace, service.Name, pods)
}
