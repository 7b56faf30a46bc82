package netdev

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/netlab"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/dataplane"
)

// The addresses of the lab. 10.244.n.1 is a pod on node n.
var (
	hostAddr   = netip.MustParsePrefix("172.30.0.1/16")
	routerAddr = netip.MustParsePrefix("172.30.0.10/16")
	pods       = netip.MustParsePrefix("10.244.0.0/16")
	nodeAddrs  = []netip.Prefix{netip.MustParsePrefix("172.30.0.11/16"), netip.MustParsePrefix("172.30.0.12/16")}
	podAddrs   = []netip.Addr{netip.MustParseAddr("10.244.1.1"), netip.MustParseAddr("10.244.2.1")}
)

// twoNodes creates a network with a router's namespace and two nodes. The nodes send packets for pods to
// the router.
func twoNodes(t *testing.T) (router *netlab.Namespace, nodes []*netlab.Namespace) {
	t.Helper()
	lab := netlab.New(t, hostAddr)
	router = lab.Join("router", routerAddr)
	router.Sysctl("net/ipv4/icmp_ratelimit", "0") // a limit would delay refused connections
	router.Sysctl("net/ipv4/conf/eth0/forwarding", "0")
	router.Sysctl("net/ipv4/conf/eth0/send_redirects", "1")
	router.Sysctl("net/ipv4/conf/all/send_redirects", "1")
	for i, a := range nodeAddrs {
		n := lab.Join("node", a)
		n.Sysctl("net/ipv4/conf/all/accept_redirects", "1")
		n.Sysctl("net/ipv4/conf/eth0/accept_redirects", "1")
		n.AddAddress("lo", netip.PrefixFrom(podAddrs[i], 32))
		n.AddRoute(pods, routerAddr.Addr())
		nodes = append(nodes, n)
	}
	return router, nodes
}

// startRouter runs a Router in a namespace until the test ends.
func startRouter(t *testing.T, in *netlab.Namespace) *Router {
	t.Helper()
	var r *Router
	if err := in.Do(func() (err error) {
		r, err = NewRouter(RouterOptions{Interface: "eth0"})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = in.Do(r.Close) })
	return r
}

// answerSource answers each connection with its source address.
func answerSource(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		_, _ = io.WriteString(c, c.RemoteAddr().(*net.TCPAddr).IP.String())
		_ = c.Close()
	}
}

// ask connects and returns the answer.
func ask(ctx context.Context, from *netlab.Namespace, source netip.Addr, at netip.AddrPort) (string, error) {
	c, err := from.Dial(ctx, source, at)
	if err != nil {
		return "", err
	}
	defer func() { _ = c.Close() }()
	b, err := io.ReadAll(c)
	return string(b), err
}

func TestPodsReachEachOtherOnlyOverTheRoutesOfTheRouter(t *testing.T) {
	t.Parallel()
	router, nodes := twoNodes(t)
	// A container's usual default route: without its own table, the router would send pods' packets there.
	router.AddRoute(netip.MustParsePrefix("0.0.0.0/0"), hostAddr.Addr())
	there := netip.AddrPortFrom(podAddrs[1], 80)
	go answerSource(nodes[1].Listen(there))
	r := startRouter(t, router)

	toPods := []dataplane.Route{
		to(dataplane.OnLink, "172.30.0.0/16"), via("10.244.1.0/24", "172.30.0.11"), via("10.244.2.0/24", "172.30.0.12"),
	}
	// Without a route to the second node's pods, those of the first node get an ICMP error.
	withoutSecond := toPods[:2]
	for i, step := range []struct {
		routes []dataplane.Route
		works  bool
	}{{withoutSecond, false}, {toPods, true}, {withoutSecond, false}, {toPods, true}} {
		if err := r.Set(step.routes); err != nil {
			t.Fatal(err)
		}
		got, err := ask(t.Context(), nodes[0], podAddrs[0], there)
		switch {
		case step.works && (err != nil || got != podAddrs[0].String()):
			t.Errorf("step %d: the pod is seen as %q, %v", i, got, err)
		case !step.works && !errors.Is(err, syscall.ENETUNREACH):
			t.Errorf("step %d: got %q, %v", i, got, err)
		}
	}
	// Packets from the node's own address take the same way, although the other node is its neighbour:
	// the router sends no redirect. (The node would accept one from a neighbour that it knows, after a
	// single datagram.)
	neighbour := netip.AddrPortFrom(nodeAddrs[1].Addr(), 80)
	go answerSource(nodes[1].Listen(neighbour))
	if _, err := ask(t.Context(), nodes[0], netip.Addr{}, neighbour); err != nil {
		t.Fatal(err)
	}
	if err := nodes[0].Do(func() error { return sendDatagram(there) }); err != nil {
		t.Fatal(err)
	}
	if got, err := ask(t.Context(), nodes[0], netip.Addr{}, there); err != nil || got != nodeAddrs[0].Addr().String() {
		t.Fatalf("%q, %v", got, err)
	}
	if err := r.Set(withoutSecond); err != nil {
		t.Fatal(err)
	}
	if got, err := ask(t.Context(), nodes[0], netip.Addr{}, there); !errors.Is(err, syscall.ENETUNREACH) {
		t.Errorf("the node bypasses the router: %q, %v", got, err)
	}
}

func sendDatagram(at netip.AddrPort) error {
	c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(at))
	if err != nil {
		return err
	}
	_, err = c.Write([]byte("x"))
	return errors.Join(err, c.Close())
}

func TestARouterUndoesAllItsChanges(t *testing.T) {
	t.Parallel()
	router, _ := twoNodes(t)
	settings := func() string {
		var out []byte
		err := router.Do(func() error {
			for _, scope := range []string{"all", "eth0", "lo"} {
				for _, name := range []string{"forwarding", "send_redirects"} {
					on, err := conf(scope, name)
					if err != nil {
						return err
					}
					out = append(out, '0')
					if on {
						out[len(out)-1] = '1'
					}
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	rules := func() int { return router.Rules(RulePriority(DefaultTable), RulePriority(DefaultTable)+9) }
	router.Sysctl("net/ipv4/conf/all/forwarding", "0")
	before := settings()
	r := startRouter(t, router)
	want := []dataplane.Route{to(dataplane.Unreachable, "0.0.0.0/0"), via("10.1.0.0/16", "10.0.0.1"), to(dataplane.OnLink, "10.0.0.0/24")}
	if err := r.Set(want); err != nil {
		t.Fatal(err)
	}
	if got, err := r.Routes(); err != nil || len(got) != 3 || got[1] != want[2] || got[2] != want[1] || got[0] != want[0] {
		t.Errorf("%v, %v", got, err)
	}
	if got := settings(); got != "00"+"10"+before[4:] {
		t.Errorf("settings %s, before %s", got, before)
	}
	if rules() != 3 {
		t.Errorf("%d rules", rules())
	}
	// A killed process leaves its changes in the kernel; its successor takes them over.
	second := startRouter(t, router)
	if got, err := second.Routes(); err != nil || len(got) != 3 || rules() != 3 {
		t.Errorf("the successor finds %v, %v, and %d rules", got, err, rules())
	}
	for _, x := range []*Router{second, r} {
		if err := router.Do(x.Close); err != nil {
			t.Error(err)
		}
	}
	if got := settings(); got != before || rules() != 0 || router.Routes(DefaultTable) != 0 {
		t.Errorf("settings %s, before %s; %d rules, %d routes", got, before, rules(), router.Routes(DefaultTable))
	}
}

func TestTheRoutersOwnPacketsUseTheCloudsRoutesExceptTheDefaultRoute(t *testing.T) {
	t.Parallel()
	router, _ := twoNodes(t)
	router.AddRoute(netip.MustParsePrefix("0.0.0.0/0"), hostAddr.Addr())
	r := startRouter(t, router)
	if err := r.Set([]dataplane.Route{via("0.0.0.0/0", "172.30.0.12"), via("10.244.1.0/24", "172.30.0.11")}); err != nil {
		t.Fatal(err)
	}
	for to, want := range map[string]netip.Addr{
		"10.244.1.1": nodeAddrs[0].Addr(), "203.0.113.1": hostAddr.Addr(), "172.30.0.12": {},
	} {
		if got := router.Gateway(netip.MustParseAddr(to)); got != want {
			t.Errorf("%s is reached via %s", to, got)
		}
	}
}

func TestARouteViaTheRouterItselfIsRefusedByName(t *testing.T) {
	t.Parallel()
	router, _ := twoNodes(t)
	r := startRouter(t, router)
	good := via("10.2.0.0/16", "172.30.0.12")
	err := r.Set([]dataplane.Route{via("10.1.0.0/16", "172.30.0.10"), good})
	if err == nil || !strings.Contains(err.Error(), "10.1.0.0/16 via 172.30.0.10") {
		t.Errorf("%v", err)
	}
	if got, err := r.Routes(); err != nil || !slices.Equal(got, []dataplane.Route{good}) {
		t.Errorf("%v, %v", got, err)
	}
}

func TestALoadBalancersAddressAnswersItsNeighboursAndIsAnnounced(t *testing.T) {
	t.Parallel()
	router, nodes := twoNodes(t)
	frames := arpFrames(t, nodes[0])
	address := netip.MustParseAddr("172.30.100.5")
	var b *Binder
	var l net.Listener
	if err := router.Do(func() (err error) {
		if b, err = NewBinder(BinderOptions{Interface: "eth0"}); err != nil {
			return err
		}
		l, err = b.Listen(context.Background(), 1, address, 80)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	go answerSource(l)
	if got, err := ask(t.Context(), nodes[0], netip.Addr{}, netip.AddrPortFrom(address, 80)); err != nil ||
		got != nodeAddrs[0].Addr().String() {
		t.Errorf("%q, %v", got, err)
	}
	frame := frames()
	ip := address.As4()
	if sender, target := frame[28:32], frame[38:42]; !bytes.Equal(sender, ip[:]) || !bytes.Equal(target, ip[:]) ||
		!bytes.Equal(frame[6:12], frame[22:28]) {
		t.Errorf("%x does not announce %s", frame, address)
	}
	// The successor of a killed process finds the address and removes it.
	var successor *Binder
	if err := router.Do(func() (err error) {
		successor, err = NewBinder(BinderOptions{Interface: "eth0"})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if router.HasAddress("eth0", address) || !router.HasAddress("eth0", routerAddr.Addr()) {
		t.Error("the wrong addresses were left behind or removed")
	}
	if err := successor.Keep(2, []netip.Addr{address, routerAddr.Addr()}); err != nil || !router.HasAddress("eth0", address) {
		t.Errorf("%v", err)
	}
	successor.Release(2)
	if router.HasAddress("eth0", address) || !router.HasAddress("eth0", routerAddr.Addr()) {
		t.Error("the wrong addresses were left behind or removed")
	}
	if err := errors.Join(l.Close(), b.Close(), successor.Close()); err != nil {
		t.Error(err)
	}
}

// arpFrames listens for ARP announcements on a namespace's eth0. It returns a function that waits for one.
func arpFrames(t *testing.T, in *netlab.Namespace) func() []byte {
	t.Helper()
	var fd int
	if err := in.Do(func() (err error) {
		device, err := net.InterfaceByName("eth0")
		if err != nil {
			return err
		}
		fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		return unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: binary.NativeEndian.Uint16([]byte{0x08, 0x06}), Ifindex: device.Index})
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	return func() []byte {
		buf := make([]byte, 128)
		for {
			n, err := unix.Read(fd, buf)
			if err != nil {
				t.Fatal(err)
			}
			if n >= 42 && bytes.Equal(buf[28:32], buf[38:42]) {
				return buf[:n]
			}
		}
	}
}

func TestAnIPv6AddressCanBeBoundAtOnce(t *testing.T) {
	t.Parallel()
	router, _ := twoNodes(t)
	router.Sysctl("net/ipv6/conf/eth0/disable_ipv6", "0")
	address := netip.MustParseAddr("2001:db8::5")
	var b *Binder
	if err := router.Do(func() (err error) {
		if b, err = NewBinder(BinderOptions{Interface: "eth0", Wanted: netip.Addr.IsValid}); err != nil {
			return err
		}
		l, err := b.Listen(context.Background(), 1, address, 80)
		if err != nil {
			return err
		}
		return l.Close()
	}); err != nil {
		t.Fatal(err)
	}
	b.Release(1)
	if router.HasAddress("eth0", address) {
		t.Error("the address is still there")
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}

func TestGiveAddressAddsAndRemovesAnAddress(t *testing.T) {
	t.Parallel()
	router, _ := twoNodes(t)
	address := netip.MustParseAddr("169.254.169.254")
	give := func() func() error {
		var take func() error
		if err := router.Do(func() (err error) {
			take, err = giveAddress("lo", address)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		return take
	}
	killed := give()
	if err := give()(); err != nil || router.HasAddress("lo", address) {
		t.Errorf("the address of a killed process was not taken over: %v", err)
	}
	if err := errors.Join(killed(), killed()); err != nil {
		t.Error(err)
	}
	router.AddAddress("lo", netip.PrefixFrom(address, 32))
	if err := give()(); err != nil || !router.HasAddress("lo", address) {
		t.Errorf("a foreign address was removed: %v", err)
	}
}

func TestAMissingInterfaceIsReported(t *testing.T) {
	t.Parallel()
	router, _ := twoNodes(t)
	err := router.Do(func() error {
		_, err := NewBinder(BinderOptions{Interface: "eth7"})
		_, err2 := NewRouter(RouterOptions{Interface: "eth7"})
		_, err3 := giveAddress("eth7", a1)
		for _, err := range []error{err, err2, err3} {
			if err == nil || !strings.Contains(err.Error(), `interface "eth7"`) ||
				!strings.Contains(err.Error(), "must be one of lo, eth0") {
				return fmt.Errorf("got: %w", cmp.Or(err, errors.New("no error")))
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
