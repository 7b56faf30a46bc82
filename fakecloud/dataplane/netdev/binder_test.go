package netdev

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"
)

var (
	a1 = netip.MustParseAddr("10.0.0.1")
	a2 = netip.MustParseAddr("10.0.0.2")
	v6 = netip.MustParseAddr("2001:db8::1")
)

// fakeDevice is an interface in memory.
type fakeDevice struct {
	foreign, ours, announced []netip.Addr
	addErr, announceErr      error
	closed, wrong            bool // wrong: an address was removed that the interface does not have
}

func (d *fakeDevice) given() ([]netip.Addr, error) { return slices.Clone(d.ours), nil }

func (d *fakeDevice) add(a netip.Addr) (bool, error) {
	if d.addErr != nil || slices.Contains(d.foreign, a) {
		return false, d.addErr
	}
	d.ours = append(d.ours, a)
	return true, nil
}

func (d *fakeDevice) remove(a netip.Addr) error {
	if !slices.Contains(d.ours, a) {
		d.wrong = true
		return errors.New("there is no such address")
	}
	d.ours = slices.DeleteFunc(d.ours, func(o netip.Addr) bool { return o == a })
	return nil
}

func (d *fakeDevice) announce(a netip.Addr) error {
	d.announced = append(d.announced, a)
	return d.announceErr
}

func (d *fakeDevice) close() error { d.closed = true; return nil }

// elsewhere is a binder that records its calls.
type elsewhere struct{ asked []netip.Addr }

func (e *elsewhere) Listen(ctx context.Context, _ int64, a netip.Addr, _ uint16) (net.Listener, error) {
	e.asked = append(e.asked, a)
	return new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
}

func (e *elsewhere) Release(int64) { e.asked = nil }

// testBinder returns a binder that listens on loopback, and the requested addresses.
func testBinder(t *testing.T, d *fakeDevice) (*Binder, *elsewhere, *[]netip.AddrPort) {
	t.Helper()
	e, at := &elsewhere{}, &[]netip.AddrPort{}
	b := newBinder(d, BinderOptions{Else: e, Logger: slog.New(slog.DiscardHandler)})
	b.listen = func(ctx context.Context, a netip.AddrPort) (net.Listener, error) {
		*at = append(*at, a)
		return new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	}
	return b, e, at
}

func listen(t *testing.T, b *Binder, lb int64, a netip.Addr, port uint16) {
	t.Helper()
	l, err := b.Listen(t.Context(), lb, a, port)
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
}

func TestAnAddressStaysOnTheInterfaceAsLongAsItsLoadBalancerHasIt(t *testing.T) {
	t.Parallel()
	d := &fakeDevice{announceErr: errors.New("no raw sockets")}
	b, e, at := testBinder(t, d)
	listen(t, b, 1, a1, 80)
	listen(t, b, 1, a1, 443)
	listen(t, b, 1, v6, 80)
	if want := []netip.AddrPort{netip.AddrPortFrom(a1, 80), netip.AddrPortFrom(a1, 443)}; !slices.Equal(*at, want) {
		t.Errorf("listens on %v", *at)
	}
	if one := []netip.Addr{a1}; !slices.Equal(d.ours, one) || !slices.Equal(d.announced, one) || !slices.Equal(e.asked, []netip.Addr{v6}) {
		t.Errorf("%v on the interface, %v announced, %v elsewhere", d.ours, d.announced, e.asked)
	}
	if err := b.Keep(1, []netip.Addr{a2, v6}); err != nil || !slices.Equal(d.ours, []netip.Addr{a2}) {
		t.Errorf("after its address changed: %v, %v", d.ours, err)
	}
	if err := b.Keep(1, []netip.Addr{a2, v6}); err != nil || len(d.announced) != 2 {
		t.Errorf("announced again: %v, %v", d.announced, err)
	}
	b.Release(1)
	if len(d.ours) != 0 || len(e.asked) != 0 {
		t.Errorf("left: %v, %v", d.ours, e.asked)
	}
}

func TestAnExistingAddressOfTheInterfaceIsUsedAndKept(t *testing.T) {
	t.Parallel()
	d := &fakeDevice{foreign: []netip.Addr{a1}}
	b, _, at := testBinder(t, d)
	listen(t, b, 1, a1, 80)
	b.Release(1)
	if len(*at) != 1 || d.wrong {
		t.Errorf("listens on %v, removed: %t", *at, d.wrong)
	}
}

func TestTwoLoadBalancersWithOneAddress(t *testing.T) {
	t.Parallel()
	d := &fakeDevice{}
	b, e, _ := testBinder(t, d)
	listen(t, b, 1, a1, 80)
	listen(t, b, 2, a1, 80)
	if !slices.Equal(e.asked, []netip.Addr{a1}) {
		t.Errorf("the second one is at %v", e.asked)
	}
	b.Release(2)
	if !slices.Equal(d.ours, []netip.Addr{a1}) {
		t.Error("removing the second load balancer has removed the first one's address")
	}
	b.Release(1)
	listen(t, b, 2, a1, 80)
	if !slices.Equal(d.ours, []netip.Addr{a1}) || len(e.asked) != 0 {
		t.Errorf("once it is free: %v, %v", d.ours, e.asked)
	}
}

func TestABindErrorSaysWhatToDo(t *testing.T) {
	t.Parallel()
	d := &fakeDevice{}
	b, _, _ := testBinder(t, d)
	for errno, say := range map[syscall.Errno]string{
		syscall.EADDRINUSE: "an API on :80, uses the port on all addresses: make it listen on one address",
		syscall.EACCES:     "CAP_NET_BIND_SERVICE", syscall.EMFILE: "10.0.0.1:80",
	} {
		b.listen = func(context.Context, netip.AddrPort) (net.Listener, error) { return nil, errno }
		if _, err := b.Listen(t.Context(), 1, a1, 80); !errors.Is(err, errno) || !strings.Contains(err.Error(), say) {
			t.Errorf("%v", err)
		}
	}
	d.addErr = errors.New("not permitted")
	if _, err := b.Listen(t.Context(), 1, a2, 80); !errors.Is(err, d.addErr) {
		t.Error(err)
	}
	if err := b.Keep(1, []netip.Addr{a1, a2}); !errors.Is(err, d.addErr) || !strings.Contains(err.Error(), "10.0.0.2") {
		t.Error(err)
	}
}

func TestClosingLeavesNothingOnTheInterface(t *testing.T) {
	t.Parallel()
	d := &fakeDevice{}
	b, _, _ := testBinder(t, d)
	listen(t, b, 1, a1, 80)
	d.ours = append(d.ours, a2) // added by a killed process
	if err := b.Close(); err != nil || len(d.ours) != 0 || !d.closed {
		t.Errorf("%v, %v, closed %t", err, d.ours, d.closed)
	}
}
