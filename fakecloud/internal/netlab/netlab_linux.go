package netlab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Lab is a network: a namespace "host" with a bridge, and further namespaces on the bridge.
type Lab struct {
	t     testing.TB
	Host  *Namespace
	ports int
}

// Namespace is a network namespace.
type Namespace struct {
	t      testing.TB
	name   string
	fd     netns.NsHandle
	handle *netlink.Handle
}

const bridge = "br0"

// New creates a network with a bridge that has the address host, like the host on a Docker network. It skips the test if it cannot create
// namespaces.
func New(t testing.TB, host netip.Prefix) *Lab {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("network namespaces need root: build the test with go test -c and run it with sudo, or run the tests in a container with " +
			"--cap-add SYS_ADMIN,NET_ADMIN")
	}
	l := &Lab{t: t, Host: newNamespace(t, "host")}
	br := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: bridge}}
	l.must("make a bridge", l.Host.handle.LinkAdd(br))
	l.must("set the bridge up", l.Host.handle.LinkSetUp(br))
	l.Host.AddAddress(bridge, host)
	return l
}

func (l *Lab) must(what string, err error) { l.t.Helper(); must(l.t, what, err) }

func must(t testing.TB, what string, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

func newNamespace(t testing.TB, name string) *Namespace {
	t.Helper()
	n := &Namespace{t: t, name: name}
	made := make(chan error, 1)
	go func() {
		// The thread stays in the new namespace and ends with the goroutine.
		runtime.LockOSThread()
		var err error
		n.fd, err = netns.New()
		made <- err
	}()
	if err := <-made; errors.Is(err, unix.EPERM) {
		t.Skip("network namespaces need CAP_SYS_ADMIN, which this root user does not have: run the tests in a container with --cap-add " +
			"SYS_ADMIN,NET_ADMIN")
	} else if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = n.fd.Close() })
	var err error
	n.handle, err = netlink.NewHandleAt(n.fd, unix.NETLINK_ROUTE)
	must(t, "netlink in "+name, err)
	t.Cleanup(n.handle.Close)
	lo, err := n.handle.LinkByName("lo")
	must(t, "find lo", err)
	must(t, "set lo up", n.handle.LinkSetUp(lo))
	return n
}

// Join creates a namespace and connects its eth0 with the network. eth0 gets the address.
func (l *Lab) Join(name string, address netip.Prefix) *Namespace {
	l.t.Helper()
	n := newNamespace(l.t, name)
	br, err := l.Host.handle.LinkByName(bridge)
	l.must("find the bridge", err)
	l.ports++
	port := fmt.Sprintf("port%d", l.ports)
	l.must("make a cable", l.Host.handle.LinkAdd(&netlink.Veth{
		LinkAttrs: netlink.LinkAttrs{Name: port, MasterIndex: br.Attrs().Index, Flags: net.FlagUp},
		PeerName:  "eth0", PeerNamespace: netlink.NsFd(n.fd),
	}))
	eth0, err := n.handle.LinkByName("eth0")
	l.must("find eth0 in "+name, err)
	n.AddAddress("eth0", address)
	l.must("set eth0 up", n.handle.LinkSetUp(eth0))
	l.Host.awaitUp(port)
	n.awaitUp("eth0")
	return n
}

// awaitUp waits until the kernel notices an interface's carrier. The bridge drops frames until then.
func (n *Namespace) awaitUp(device string) {
	n.t.Helper()
	updates, done := make(chan netlink.LinkUpdate), make(chan struct{})
	must(n.t, "watch "+device, netlink.LinkSubscribeWithOptions(updates, done, netlink.LinkSubscribeOptions{
		Namespace: &n.fd, ListExisting: true,
	}))
	defer func() {
		close(done)
		go func() { // so that the subscription can end
			for range updates {
				continue
			}
		}()
	}()
	for u := range updates {
		if u.Attrs().Name == device && u.Attrs().OperState == netlink.OperUp {
			return
		}
	}
	n.t.Fatalf("%s: the kernel has ended the subscription before %s was up", n.name, device)
}

// AddAddress adds an address to an interface.
func (n *Namespace) AddAddress(device string, address netip.Prefix) {
	n.t.Helper()
	l, err := n.handle.LinkByName(device)
	must(n.t, "find "+device, err)
	must(n.t, "add "+address.String(), n.handle.AddrAdd(l, &netlink.Addr{IPNet: ipNet(address)}))
}

// HasAddress reports whether an interface has an address.
func (n *Namespace) HasAddress(device string, address netip.Addr) bool {
	n.t.Helper()
	l, err := n.handle.LinkByName(device)
	must(n.t, "find "+device, err)
	all, err := n.handle.AddrList(l, netlink.FAMILY_ALL)
	must(n.t, "list addresses", err)
	for _, a := range all {
		if got, ok := netip.AddrFromSlice(a.IP); ok && got.Unmap() == address {
			return true
		}
	}
	return false
}

// AddRoute adds a route via a gateway to the namespace's main table.
func (n *Namespace) AddRoute(destination netip.Prefix, gateway netip.Addr) {
	n.t.Helper()
	must(n.t, "add a route", n.handle.RouteAdd(&netlink.Route{Dst: ipNet(destination), Gw: gateway.AsSlice()}))
}

// Rules returns the number of rules for IPv4 with a priority in a range.
func (n *Namespace) Rules(from, to int) int {
	n.t.Helper()
	rules, err := n.handle.RuleList(netlink.FAMILY_V4)
	must(n.t, "list rules", err)
	count := 0
	for _, r := range rules {
		if from <= r.Priority && r.Priority <= to {
			count++
		}
	}
	return count
}

// Gateway returns the namespace's gateway for packets to an address. The zero value means that the packets go directly to the address.
func (n *Namespace) Gateway(to netip.Addr) netip.Addr {
	n.t.Helper()
	routes, err := n.handle.RouteGet(to.AsSlice())
	must(n.t, "look for a route to "+to.String(), err)
	gw, _ := netip.AddrFromSlice(routes[0].Gw)
	return gw.Unmap()
}

// Routes returns the number of IPv4 routes in a table.
func (n *Namespace) Routes(table int) int {
	n.t.Helper()
	routes, err := n.handle.RouteListFiltered(netlink.FAMILY_V4, &netlink.Route{Table: table}, netlink.RT_FILTER_TABLE)
	must(n.t, "list routes", err)
	return len(routes)
}

// Do runs a function on a thread in the namespace. Goroutines that the function starts are outside of it.
func (n *Namespace) Do(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked, so that the thread ends with the goroutine
		if err := netns.Set(n.fd); err != nil {
			done <- err
			return
		}
		done <- f()
	}()
	return <-done
}

// Sysctl writes a setting, for example Sysctl("net/ipv4/ip_forward", "0").
func (n *Namespace) Sysctl(name, value string) {
	n.t.Helper()
	must(n.t, "set "+name, n.Do(func() error { return os.WriteFile("/proc/sys/"+name, []byte(value), 0) }))
}

// Start starts a program in the namespace.
func (n *Namespace) Start(cmd *exec.Cmd) error { return n.Do(cmd.Start) }

// Listen listens in the namespace until the test ends.
func (n *Namespace) Listen(address netip.AddrPort) net.Listener {
	n.t.Helper()
	var l net.Listener
	must(n.t, n.name+" listens on "+address.String(), n.Do(func() (err error) {
		l, err = new(net.ListenConfig).Listen(context.Background(), "tcp", address.String())
		return err
	}))
	n.t.Cleanup(func() { _ = l.Close() })
	return l
}

// Dial connects from the namespace. from is the source address; for the zero value the kernel chooses it.
func (n *Namespace) Dial(ctx context.Context, from netip.Addr, to netip.AddrPort) (net.Conn, error) {
	var d net.Dialer
	if from.IsValid() {
		d.LocalAddr = &net.TCPAddr{IP: from.AsSlice()}
	}
	var c net.Conn
	err := n.Do(func() (err error) {
		c, err = d.DialContext(ctx, "tcp", to.String())
		return err
	})
	return c, err
}

// Client returns an HTTP client in the namespace that opens a connection per request. URLs must contain
// addresses, not names.
func (n *Namespace) Client() *http.Client {
	return &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
			to, err := netip.ParseAddrPort(address)
			if err != nil {
				return nil, err
			}
			return n.Dial(ctx, netip.Addr{}, to)
		},
	}}
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
