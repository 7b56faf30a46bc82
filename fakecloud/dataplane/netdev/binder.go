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
	// Interface is the name of the interface that gets the addresses, as "eth0".
	Interface string
	// Wanted tells whether an address belongs on the interface; nil means every IPv4 address. The other ones get
	// their places from Else.
	Wanted func(netip.Addr) bool
	// Else is a dataplane.LoopbackBinder if nil.
	Else dataplane.Binder
	// Logger is told of what is done; nil is slog's default.
	Logger *slog.Logger
}

// Binder is a dataplane.Binder that gives the addresses of load balancers to a network interface, so
// that everybody on that interface's network reaches them, on the very ports of their services. Each
// address is announced by a gratuitous ARP, so that neighbours who knew another owner learn of the new
// one. An address that the interface has anyway is used and left where it is.
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
	foreign      bool // the interface had the address before
}

// device is what a Binder needs of an interface.
type device interface {
	// given returns the addresses that were added with our label.
	given() ([]netip.Addr, error)
	// add gives an address to the interface; false means that it had it.
	add(netip.Addr) (bool, error)
	remove(netip.Addr) error
	// announce tells the neighbours who has an address.
	announce(netip.Addr) error
	close() error
}

// NewBinder returns a Binder for an interface. Addresses that a process which was killed has left on
// it are removed. Close must be called at the end. The error says what is missing: a capability, the
// interface.
func NewBinder(o BinderOptions) (*Binder, error) {
	d, err := openDevice(o.Interface)
	if err != nil {
		return nil, fmt.Errorf("netdev: load balancers' addresses: %w", err)
	}
	b := newBinder(d, o)
	if err := b.removeLeftovers(); err != nil {
		return nil, fmt.Errorf("netdev: remove addresses that were left on %s: %w", o.Interface, errors.Join(err, d.close()))
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
		b.log.Info("removing an address that was left behind", "address", a)
		err = errors.Join(err, b.device.remove(a))
	}
	return err
}

// Listen gives the interface the address, if it does not have it, and listens there. An address that
// another load balancer has, which private ones in different networks may, gets its place from Else.
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
		err = fmt.Errorf("another program in this container listens on that port of all addresses: make it (an API on :%d?) listen on one address: %w", port, err)
	case errors.Is(err, syscall.EACCES):
		err = fmt.Errorf("ports below 1024 need root or CAP_NET_BIND_SERVICE: %w", err)
	}
	if err != nil {
		return nil, fmt.Errorf("load balancer %d cannot listen on %s: %w", loadBalancer, at, err)
	}
	return l, nil
}

// giveLocked makes the address one of the load balancer's on the interface. It returns false if the
// address has its place elsewhere.
func (b *Binder) giveLocked(loadBalancer int64, address netip.Addr) (bool, error) {
	if !b.wanted(address) {
		return false, nil
	}
	if o, ok := b.owners[address]; ok {
		if o.loadBalancer != loadBalancer {
			b.log.Warn("two load balancers have one address: it is reached on this network as that of the first", "address", address,
				"first", o.loadBalancer, "second", loadBalancer)
		}
		return o.loadBalancer == loadBalancer, nil
	}
	added, err := b.device.add(address)
	if err != nil {
		return false, fmt.Errorf("give %s to the interface: %w", address, err)
	}
	b.owners[address] = owner{loadBalancer, !added}
	if err := b.device.announce(address); err != nil {
		// Neighbours that do not know another owner find out by themselves.
		b.log.Debug("an address was not announced", "address", address, "error", err)
	}
	return true, nil
}

// Keep makes the interface have exactly these addresses of a load balancer: it gives it those that no
// service listens on yet, and takes from it those that the load balancer has no more, which Listen
// does not learn of. Call it after every dataplane.Engine.Apply.
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

// takeLocked takes the addresses of a load balancer from the interface, except some.
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
			errs = append(errs, fmt.Errorf("take %s from the interface: %w", a, err))
		}
	}
	return errors.Join(errs...)
}

// Release takes all addresses of a load balancer from the interface.
func (b *Binder) Release(loadBalancer int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.takeLocked(loadBalancer, nil); err != nil {
		b.log.Error("a load balancer's address stays behind", "load_balancer", loadBalancer, "error", err)
	}
	b.other.Release(loadBalancer)
}

// Close takes from the interface what it was given. Listeners must be closed before.
func (b *Binder) Close() error {
	if b == nil {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	clear(b.owners)
	return errors.Join(b.removeLeftovers(), b.device.close())
}

// GiveAddress gives an address to an interface, as 169.254.169.254 to "lo", and returns how to take it
// away again. An address that the interface has already is left there.
func GiveAddress(name string, address netip.Addr) (take func() error, err error) {
	d, err := openDevice(name)
	if err != nil {
		return nil, fmt.Errorf("netdev: give %s to %s: %w", address, name, err)
	}
	added, err := d.add(address)
	if err != nil {
		return nil, fmt.Errorf("netdev: give %s to %s: %w", address, name, errors.Join(err, d.close()))
	}
	return sync.OnceValue(func() error {
		if !added {
			return d.close()
		}
		return errors.Join(d.remove(address), d.close())
	}), nil
}
