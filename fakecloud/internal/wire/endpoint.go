package wire

import (
	"net"
	"strconv"
)

// Reachable returns an address of a listener that a client on this machine can connect to.
func Reachable(a net.Addr) string {
	if tcp, ok := a.(*net.TCPAddr); ok && tcp.IP.IsUnspecified() {
		return net.JoinHostPort("127.0.0.1", strconv.Itoa(tcp.Port))
	}
	return a.String()
}

// LoadBalancerEndpoint is where one service of a load balancer listens on this machine.
type LoadBalancerEndpoint struct {
	Project int64  `json:"project"`
	ID      int64  `json:"load_balancer"`
	Name    string `json:"name"`
	// Address is the address and port in the cloud. Local is the address and port on this machine, or "".
	Address string `json:"address"`
	Local   string `json:"local"`
	// Error explains why Local is missing or has another port, and says how to change that.
	Error string `json:"error,omitempty"`
}

// LoadBalancerTraffic is what a load balancer has moved on this machine since it was created or the program was started.
type LoadBalancerTraffic struct {
	Project, ID                              int64
	Open                                     int64 // connections
	Connections, Requests, BytesIn, BytesOut int64
	Targets                                  []TargetTraffic
}

// TargetTraffic is what a load balancer sends to one address. Server is 0 for a target of type ip.
type TargetTraffic struct {
	Server      int64
	Address     string
	Open, Taken int64 // connections (tcp) and requests (http, https)
}
