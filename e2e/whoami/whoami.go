// Package whoami makes the answers of the e2e suite's backends. They describe the request that arrived. The backends are the simulated
// nodes of an embedded cluster (e2e/framework/node) and the pods of a real one (kind/cmd/probe).
package whoami

import (
	"context"
	"encoding/json"
	"net"
	"net/http"

	proxyproto "github.com/pires/go-proxyproto"
)

// Answer is a backend's answer, as JSON: the backend's identity, and the request as it arrived.
type Answer struct {
	// Node is the name of the node, Pod that of the pod if there is one.
	Node string `json:"node"`
	Pod  string `json:"pod,omitempty"`
	// Service is namespace/name. PortName and Port are those of the Service. A pod gives those of its container instead. NodePort is the
	// port that the client reached. A pod does not know it.
	Service  string `json:"service"`
	PortName string `json:"portName,omitempty"`
	Port     int32  `json:"port"`
	NodePort int32  `json:"nodePort,omitempty"`
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

// ConnContext is an http.Server's: with it To knows the connection that a request came on.
func ConnContext(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

// To returns the answer to a request, without the backend's identity. The data of the PROXY protocol are known for a connection of a
// proxyproto.Listener.
func To(r *http.Request) Answer {
	a := Answer{
		Client: r.RemoteAddr, Peer: r.RemoteAddr,
		Method: r.Method, URI: r.RequestURI, Host: r.Host, Proto: r.Proto, Headers: r.Header,
	}
	conn, ok := r.Context().Value(connKey{}).(*proxyproto.Conn)
	if !ok {
		return a
	}
	a.Peer = conn.Raw().RemoteAddr().String()
	if header := conn.ProxyHeader(); header != nil {
		a.ProxyProtocol = int(header.Version)
		if header.DestinationAddr != nil {
			a.ProxyDestination = header.DestinationAddr.String()
		}
	}
	return a
}

// LocalPort returns the port that a request was sent to, on the connection itself whatever a PROXY protocol
// header says; 0 if the server does not use ConnContext.
func LocalPort(r *http.Request) int {
	conn, _ := r.Context().Value(connKey{}).(net.Conn)
	if wrapped, ok := conn.(*proxyproto.Conn); ok {
		conn = wrapped.Raw()
	}
	if conn == nil {
		return 0
	}
	if local, ok := conn.LocalAddr().(*net.TCPAddr); ok {
		return local.Port
	}
	return 0
}

// Write sends the answer.
func (a Answer) Write(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/json")
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	_ = encoder.Encode(a) // the client may be gone
}
