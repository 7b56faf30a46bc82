package dataplane

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"sync"
	"syscall"
)

// Binder maps the addresses of load balancers in the cloud to addresses on this machine.
type Binder interface {
	// Listen opens a listener on this machine for address:port of the load balancer. Clients connect to
	// the listener's Addr.
	Listen(ctx context.Context, loadBalancer int64, address netip.Addr, port uint16) (net.Listener, error)
	// Release frees the addresses of a load balancer. Its listeners are closed already.
	Release(loadBalancer int64)
}

// defaultPortOffset is the number that LoopbackBinder adds to a port that it cannot bind.
const defaultPortOffset = 10000

// LoopbackBinder is a Binder that needs no privileges. Each address of each load balancer gets its own
// loopback address from 127.66.0.0/16 until the load balancer is removed, so that two load balancers can
// listen on the same port. An address that is already a loopback address is used unchanged. IPv6
// addresses get IPv4 loopback addresses too, because a machine has only one IPv6 loopback address.
//
// The port is the load balancer's listen port if possible. Otherwise it is the first possible of:
//
//   - the listen port plus PortOffset, if a port below 1024 is forbidden or in use (10080 for 80, 10443
//     for 443; as root, or where net.ipv4.ip_unprivileged_port_start allows it, 80 stays 80);
//   - any free port.
//
// If the system has no loopback address other than 127.0.0.1 (macOS, Windows), all load balancers share
// it, and the same rule selects their ports. Engine.Endpoints returns the selected addresses and ports.
//
// The zero value is ready to use. Several engines can share a LoopbackBinder only if the IDs of their
// load balancers differ.
type LoopbackBinder struct {
	// PortOffset is added to a port below 1024 that cannot be bound. If zero, it is 10000.
	PortOffset uint16

	mu     sync.Mutex
	places map[int64]map[netip.Addr]netip.Addr
	next   uint32
	only   netip.Addr // 127.0.0.1 if the system has no other loopback address

	listen func(ctx context.Context, address netip.AddrPort) (net.Listener, error) // tests replace it
}

var (
	loopbackPrefix = netip.MustParsePrefix("127.66.0.0/16")
	localhost      = netip.MustParseAddr("127.0.0.1")
)

// attempts limits the search for a loopback address with a free port. Other programs, such as a second
// fakecloud, may use the same range. A program that listens on 0.0.0.0 uses the port on all addresses.
const attempts = 16

// Listen opens a listener for address:port of the load balancer by the rules above.
func (b *LoopbackBinder) Listen(ctx context.Context, loadBalancer int64, address netip.Addr, port uint16) (net.Listener, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	l, err := b.bindLocked(ctx, loadBalancer, address, port)
	if err != nil {
		return nil, fmt.Errorf("load balancer %d cannot listen on %s: %w", loadBalancer, netip.AddrPortFrom(address, port), err)
	}
	return l, nil
}

func (b *LoopbackBinder) bindLocked(ctx context.Context, loadBalancer int64, address netip.Addr, port uint16) (net.Listener, error) {
	if place, ok := b.places[loadBalancer][address]; ok {
		return b.bindPort(ctx, place, port)
	}
	if address.IsLoopback() {
		b.rememberLocked(loadBalancer, address, address)
		return b.bindPort(ctx, address, port)
	}
	place := b.nextLocked()
	l, err := b.bind(ctx, place, port)
	for range attempts {
		if !errors.Is(err, syscall.EADDRINUSE) || place == localhost {
			break
		}
		place = b.nextLocked() // the port is in use: another address is better than another port
		l, err = b.bind(ctx, place, port)
	}
	if errors.Is(err, syscall.EADDRNOTAVAIL) && place != localhost {
		b.only, place = localhost, localhost
	}
	if err != nil {
		l, err = b.bindPort(ctx, place, port)
	}
	if err == nil {
		b.rememberLocked(loadBalancer, address, place)
	}
	return l, err
}

// bindPort opens port on place, or the first possible replacement of the port.
func (b *LoopbackBinder) bindPort(ctx context.Context, place netip.Addr, port uint16) (net.Listener, error) {
	candidates := []uint16{port}
	if offset := cmp.Or(b.PortOffset, defaultPortOffset); port < 1024 && port <= 65535-offset {
		candidates = append(candidates, port+offset)
	}
	candidates = append(candidates, 0)
	var errs []error
	for _, p := range candidates {
		l, err := b.bind(ctx, place, p)
		if err == nil {
			return l, nil
		}
		errs = append(errs, err)
		if !errors.Is(err, syscall.EACCES) && !errors.Is(err, syscall.EADDRINUSE) {
			break
		}
	}
	return nil, errors.Join(errs...)
}

func (b *LoopbackBinder) bind(ctx context.Context, place netip.Addr, port uint16) (net.Listener, error) {
	if b.listen != nil {
		return b.listen(ctx, netip.AddrPortFrom(place, port))
	}
	var lc net.ListenConfig
	return lc.Listen(ctx, "tcp", netip.AddrPortFrom(place, port).String())
}

func (b *LoopbackBinder) rememberLocked(loadBalancer int64, address, place netip.Addr) {
	if b.places == nil {
		b.places = map[int64]map[netip.Addr]netip.Addr{}
	}
	if b.places[loadBalancer] == nil {
		b.places[loadBalancer] = map[netip.Addr]netip.Addr{}
	}
	b.places[loadBalancer][address] = place
}

// nextLocked returns an address of the range that no load balancer of this binder has. It starts at a
// random address, so that several programs on this machine rarely choose the same one.
func (b *LoopbackBinder) nextLocked() netip.Addr {
	if b.only.IsValid() {
		return b.only
	}
	if b.next == 0 {
		b.next = 1 + rand.Uint32N(65534)
	}
	for {
		b.next++
		host := uint16(b.next)
		if low := host & 0xff; low == 0 || low == 0xff {
			continue // valid on loopback, but it looks like a network or broadcast address
		}
		a := loopbackPrefix.Addr().As4()
		a[2], a[3] = byte(host>>8), byte(host)
		place := netip.AddrFrom4(a)
		if !b.usedLocked(place) {
			return place
		}
	}
}

func (b *LoopbackBinder) usedLocked(place netip.Addr) bool {
	if len(b.places) > 60000 {
		return false // share an address rather than search without end
	}
	for _, places := range b.places {
		if slices.Contains(slices.Collect(maps.Values(places)), place) {
			return true
		}
	}
	return false
}

// Release frees the loopback addresses of a load balancer.
func (b *LoopbackBinder) Release(loadBalancer int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.places, loadBalancer)
}

// Endpoint describes where a client on this machine reaches one port of a load balancer.
type Endpoint struct {
	// Address and Port are those of the load balancer in the cloud.
	Address netip.Addr
	Port    uint16
	// Protocol is tcp, http, https or redirect. redirect is the http listener of an https service with
	// RedirectHTTP.
	Protocol Protocol
	// Local is the listener's address on this machine.
	Local netip.AddrPort
}

func sortEndpoints(e []Endpoint) {
	slices.SortFunc(e, func(a, b Endpoint) int {
		return cmp.Or(a.Address.Compare(b.Address), cmp.Compare(a.Port, b.Port))
	})
}
