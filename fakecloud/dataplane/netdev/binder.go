package netdev

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"syscall"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/dataplane"
)

// BinderOptions configure a Binder.
type BinderOptions struct {
	// Interface is the name of the interface that gets the addresses, for example "eth0".
	Interface string
	// Wanted reports whether an address belongs on the interface. If nil, all IPv4 addresses do. Else
	// binds the other addresses.
	Wanted func(netip.Addr) bool
	// Else binds addresses that do not belong on the interface. If nil, it is a
	// dataplane.LoopbackBinder.
	Else dataplane.Binder
	// Logger receives messages about changes. If nil, it is slog's default.
	Logger *slog.Logger
}

// Binder is a dataplane.Binder that adds the addresses of load balancers to a network interface. All
// machines on the interface's network reach them, on the real ports of their services. A gratuitous ARP
// announces each address to neighbours that know another owner. An address that the interface already
// has is used, and stays when the load balancer is removed.
//
// Not modelled: connections from a load balancer to its targets come from the interface's own address,
// not from the load balancer's.
type Binder struct {
	device device
	wanted func(netip.Addr) bool
	other  dataplane.Binder
	log    *slog.Logger
	listen func(ctx context.Context, address netip.AddrPort) (net.Listener, error) // tests replace it

	mu     sync.Mutex
	owners map[netip.Addr]owner
}

var _ dataplane.Binder = (*Binder)(nil)

// owner is the load balancer that has an address.
type owner struct {
	loadBalancer int64
	foreign      bool // the interface already had the address
}

// device is an interface, with the operations that a Binder needs.
type device interface {
	// given returns the addresses with our label.
	given() ([]netip.Addr, error)
	// add adds an address. It returns false if the interface already has it.
	add(netip.Addr) (bool, error)
	remove(netip.Addr) error
	// announce tells the neighbours that this interface has the address.
	announce(netip.Addr) error
	close() error
}

// NewBinder returns a Binder for an interface. It removes the addresses of a killed process from it. The
// caller must call Close. NewBinder returns an error if the interface or a capability is missing.
func NewBinder(o BinderOptions) (*Binder, error) {
	d, err := openDevice(o.Interface)
	if err != nil {
		return nil, fmt.Errorf("netdev: opening the interface for load balancers: %w", err)
	}
	b := newBinder(d, o)
	if err := b.removeLeftovers(); err != nil {
		return nil, fmt.Errorf("netdev: removing old addresses from %s: %w", o.Interface, errors.Join(err, d.close()))
	}
	return b, nil
}

func newBinder(d device, o BinderOptions) *Binder {
	b := &Binder{device: d, wanted: o.Wanted, other: o.Else, log: o.Logger, owners: map[netip.Addr]owner{}}
	if b.wanted == nil {
		b.wanted = netip.Addr.Is4
	}
	if b.other == nil {
		b.other = &dataplane.LoopbackBinder{}
	}
	if b.log == nil {
		b.log = slog.Default()
	}
	b.listen = func(ctx context.Context, address netip.AddrPort) (net.Listener, error) {
		return new(net.ListenConfig).Listen(ctx, "tcp", address.String())
	}
	return b
}

func (b *Binder) removeLeftovers() error {
	left, err := b.device.given()
	if err != nil {
		return err
	}
	for _, a := range left {
		b.log.Info("removing the address of a previous process", "address", a)
		err = errors.Join(err, b.device.remove(a))
	}
	return err
}

// Listen adds the address to the interface if necessary, and listens on it. Private addresses of load
// balancers in different networks can be equal: Else binds the address if another load balancer has it.
func (b *Binder) Listen(ctx context.Context, loadBalancer int64, address netip.Addr, port uint16) (net.Listener, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	ours, err := b.giveLocked(loadBalancer, address)
	if err != nil {
		return nil, fmt.Errorf("load balancer %d: %w", loadBalancer, err)
	}
	if !ours {
		return b.other.Listen(ctx, loadBalancer, address, port)
	}
	at := netip.AddrPortFrom(address, port)
	l, err := b.listen(ctx, at)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		err = fmt.Errorf("another program in this container, such as an API on :%d, uses the port on all addresses: make it listen on "+
			"one address: %w", port, err)
	case errors.Is(err, syscall.EACCES):
		err = fmt.Errorf("ports below 1024 need root or CAP_NET_BIND_SERVICE: %w", err)
	}
	if err != nil {
		return nil, fmt.Errorf("load balancer %d cannot listen on %s: %w", loadBalancer, at, err)
	}
	return l, nil
}

// giveLocked adds the load balancer's address to the interface. It returns false if Else binds the
// address.
func (b *Binder) giveLocked(loadBalancer int64, address netip.Addr) (bool, error) {
	if !b.wanted(address) {
		return false, nil
	}
	if o, ok := b.owners[address]; ok {
		if o.loadBalancer != loadBalancer {
			b.log.Warn("two load balancers have the same address: on this network only the first one is reachable", "address", address,
				"first", o.loadBalancer, "second", loadBalancer)
		}
		return o.loadBalancer == loadBalancer, nil
	}
	added, err := b.device.add(address)
	if err != nil {
		return false, fmt.Errorf("adding %s to the interface: %w", address, err)
	}
	b.owners[address] = owner{loadBalancer, !added}
	if err := b.device.announce(address); err != nil {
		// Neighbours that do not know another owner need no announcement.
		b.log.Debug("could not announce an address", "address", address, "error", err)
	}
	return true, nil
}

// Keep sets the addresses of a load balancer on the interface. It adds addresses without a service, since
// Listen does not add them. It removes the addresses that the load balancer lost. Call it after each
// dataplane.Engine.Apply.
func (b *Binder) Keep(loadBalancer int64, addresses []netip.Addr) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	err := b.takeLocked(loadBalancer, addresses)
	for _, a := range addresses {
		_, e := b.giveLocked(loadBalancer, a)
		err = errors.Join(err, e)
	}
	return err
}

// takeLocked removes the addresses of a load balancer from the interface, except those in except.
func (b *Binder) takeLocked(loadBalancer int64, except []netip.Addr) error {
	var errs []error
	for a, o := range b.owners {
		if o.loadBalancer != loadBalancer || slices.Contains(except, a) {
			continue
		}
		delete(b.owners, a)
		if o.foreign {
			continue
		}
		if err := b.device.remove(a); err != nil {
			errs = append(errs, fmt.Errorf("removing %s from the interface: %w", a, err))
		}
	}
	return errors.Join(errs...)
}

// Release removes all addresses of a load balancer from the interface.
func (b *Binder) Release(loadBalancer int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.takeLocked(loadBalancer, nil); err != nil {
		b.log.Error("could not remove a load balancer's address", "load_balancer", loadBalancer, "error", err)
	}
	b.other.Release(loadBalancer)
}

// Close removes all addresses that the Binder added. Close the listeners first.
func (b *Binder) Close() error {
	if b == nil {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	clear(b.owners)
	return errors.Join(b.removeLeftovers(), b.device.close())
}

// giveAddress adds an address to an interface, such as 169.254.169.254 to "lo". The returned function
// removes it. An address that the interface already has stays.
func giveAddress(name string, address netip.Addr) (take func() error, err error) {
	d, err := openDevice(name)
	if err != nil {
		return nil, fmt.Errorf("netdev: adding %s to %s: %w", address, name, err)
	}
	added, err := d.add(address)
	if err != nil {
		return nil, fmt.Errorf("netdev: adding %s to %s: %w", address, name, errors.Join(err, d.close()))
	}
	return sync.OnceValue(func() error {
		if !added {
			return d.close()
		}
		return errors.Join(d.remove(address), d.close())
	}), nil
}

// GiveLinkLocal gives the host of an address such as 169.254.169.254:80 to the loopback interface if it is a
// link-local IPv4 address, and returns a function that takes it away again. It leaves other hosts alone.
func GiveLinkLocal(address string) (take func() error, err error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("netdev: address %q: must be host:port: %w", address, err)
	}
	if ip, err := netip.ParseAddr(host); err == nil && ip.IsLinkLocalUnicast() && ip.Is4() {
		return giveAddress("lo", ip)
	}
	return func() error { return nil }, nil
}
