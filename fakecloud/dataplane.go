package fakecloud

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"runtime"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/dataplane"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/plane"
)

// DataPlaneOptions switch the load balancers' data plane on. The zero value works.
type DataPlaneOptions struct {
	// Resolver translates a port of a target to an address on this machine. If nil, load balancers dial the target's
	// address as it is.
	Resolver dataplane.Resolver
	// Binder decides where on this machine a load balancer listens. If nil, it is a dataplane.LoopbackBinder, and the
	// default ranges of addresses change (see Options.DataPlane). A netdev.Binder gives the addresses to a network
	// interface; Options.LoadBalancerIPv4 must then be a part of that interface's network. Close the binder after the
	// cloud.
	Binder dataplane.Binder
	// ProxyProtocolVersion is 1 or 2. 0 means the data plane's default.
	ProxyProtocolVersion int
	// Logger gets the errors, such as an address that cannot be bound. If nil, it is slog's default.
	Logger *slog.Logger
}

// On Linux, a program can listen on every address of 127.0.0.0/8 without preparation. With a data plane, these are
// therefore the default ranges: a program that listens on a server's address is that server, and clients on this
// machine can connect to a load balancer's address.
var (
	loopbackServers       = netip.MustParsePrefix("127.65.0.0/16")
	loopbackLoadBalancers = netip.MustParsePrefix("127.66.0.0/16")
)

func (o *Options) useLoopback() {
	if o.DataPlane == nil || o.DataPlane.Binder != nil || runtime.GOOS != "linux" {
		return
	}
	if !o.PublicIPv4.IsValid() {
		o.PublicIPv4 = loopbackServers
	}
	if !o.LoadBalancerIPv4.IsValid() {
		o.LoadBalancerIPv4 = loopbackLoadBalancers
	}
}

// DataPlane is the running data plane of a cloud. It applies the load balancers of the cloud's events, and reports the
// results of its health checks to the cloud. While a server does not run, load balancers refuse what is for it, whatever listens on
// its address.
type DataPlane struct{ balancers *plane.Balancers }

// Close removes all load balancers from this machine and waits until this is done. [Cloud.Close] calls it.
func (d *DataPlane) Close() {
	if d != nil {
		d.balancers.Close()
	}
}

// Endpoints returns where a load balancer listens on this machine.
func (d *DataPlane) Endpoints(loadBalancer int64) []dataplane.Endpoint {
	return d.balancers.Endpoints(loadBalancer)
}

// DialContext dials like net.Dialer, but the address of a load balancer leads to its listener on this machine. Use it as
// http.Transport.DialContext.
func (d *DataPlane) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	return d.balancers.DialContext(ctx, network, address)
}
