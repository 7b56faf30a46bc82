package dataplane

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"syscall"
	"testing"
)

// machine describes the ports that a system allows a user to bind.
type machine struct {
	onlyLocalhost bool
	unprivileged  uint16 // first port that needs no privileges
	taken         map[netip.AddrPort]bool
	takenPorts    map[uint16]bool // on every address
	free          uint16          // the next port that the system chooses
}

type fakeListener struct {
	net.Listener
	at netip.AddrPort
}

func (l fakeListener) Addr() net.Addr { return net.TCPAddrFromAddrPort(l.at) }
func (l fakeListener) Close() error   { return nil }

func (m *machine) listen(_ context.Context, at netip.AddrPort) (net.Listener, error) {
	fail := func(errno syscall.Errno) (net.Listener, error) {
		return nil, &net.OpError{Op: "listen", Net: "tcp", Err: os.NewSyscallError("bind", errno)}
	}
	switch {
	case m.onlyLocalhost && at.Addr() != localhost:
		return fail(syscall.EADDRNOTAVAIL)
	case at.Port() == 0:
		m.free++
		at = netip.AddrPortFrom(at.Addr(), 32768+m.free)
	case at.Port() < m.unprivileged:
		return fail(syscall.EACCES)
	case m.taken[at] || m.takenPorts[at.Port()]:
		return fail(syscall.EADDRINUSE)
	}
	if m.taken == nil {
		m.taken = map[netip.AddrPort]bool{}
	}
	m.taken[at] = true
	return fakeListener{at: at}, nil
}

func TestLoopbackBinderChoosesAddressAndPort(t *testing.T) {
	t.Parallel()
	private := netip.MustParseAddr("10.0.0.9")
	bind := func(t *testing.T, b *LoopbackBinder, lb int64, a netip.Addr, port uint16) netip.AddrPort {
		t.Helper()
		l, err := b.Listen(t.Context(), lb, a, port)
		if err != nil {
			t.Fatal(err)
		}
		return netip.MustParseAddrPort(l.Addr().String())
	}

	t.Run("each address gets a loopback address of its own and keeps it", func(t *testing.T) {
		t.Parallel()
		m := &machine{}
		b := &LoopbackBinder{listen: m.listen}
		one, two := bind(t, b, 1, lbAddr, 80), bind(t, b, 1, lbAddr, 443)
		if one.Addr() != two.Addr() || one.Port() != 80 || two.Port() != 443 || !loopbackPrefix.Contains(one.Addr()) {
			t.Errorf("%s and %s", one, two)
		}
		if p := bind(t, b, 1, private, 80); p.Addr() == one.Addr() || p.Port() != 80 {
			t.Errorf("private %s, public %s", p, one)
		}
		if other := bind(t, b, 2, private, 80); other.Port() != 80 {
			t.Errorf("another load balancer's %s", other)
		}
		b.Release(1)
		if len(b.places) != 1 {
			t.Errorf("after release %v", b.places)
		}
	})
	t.Run("loopback addresses are used as they are", func(t *testing.T) {
		t.Parallel()
		b := &LoopbackBinder{listen: (&machine{}).listen}
		if p := bind(t, b, 1, netip.MustParseAddr("127.1.2.3"), 80); p.String() != "127.1.2.3:80" {
			t.Error(p)
		}
	})
	t.Run("privileged ports are moved by the offset when they are refused", func(t *testing.T) {
		t.Parallel()
		b := &LoopbackBinder{listen: (&machine{unprivileged: 1024}).listen}
		if p := bind(t, b, 1, lbAddr, 443); p.Port() != 10443 {
			t.Error(p)
		}
		if p := bind(t, b, 1, lbAddr, 6443); p.Port() != 6443 {
			t.Error(p)
		}
		b = &LoopbackBinder{listen: (&machine{unprivileged: 1024}).listen, PortOffset: 30000}
		if p := bind(t, b, 1, lbAddr, 80); p.Port() != 30080 {
			t.Error(p)
		}
	})
	t.Run("with localhost alone load balancers share it", func(t *testing.T) {
		t.Parallel()
		b := &LoopbackBinder{listen: (&machine{onlyLocalhost: true, unprivileged: 1024}).listen}
		for i, want := range []string{"127.0.0.1:10080", "127.0.0.1:32769", "127.0.0.1:32770"} {
			if p := bind(t, b, int64(i), lbAddr, 80); p.String() != want {
				t.Errorf("%s, want %s", p, want)
			}
		}
	})
	t.Run("a port that a stranger has everywhere is moved", func(t *testing.T) {
		t.Parallel()
		b := &LoopbackBinder{listen: (&machine{takenPorts: map[uint16]bool{80: true, 8080: true}}).listen}
		if p := bind(t, b, 1, lbAddr, 80); p.Port() != 10080 {
			t.Error(p)
		}
		if p := bind(t, b, 1, lbAddr, 8080); p.Port() != 32769 {
			t.Error(p)
		}
	})
	t.Run("other errors are told", func(t *testing.T) {
		t.Parallel()
		b := &LoopbackBinder{listen: func(context.Context, netip.AddrPort) (net.Listener, error) { return nil, syscall.EMFILE }}
		if _, err := b.Listen(t.Context(), 3, lbAddr, 80); !errors.Is(err, syscall.EMFILE) {
			t.Error(err)
		}
	})
}
