package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/dataplane/netdev"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/netlab"
)

// clusterNetwork is fakecloud in its own network namespace, like in a container, on a network with two nodes. The pods
// of node n are in 10.244.n.0/24.
type clusterNetwork struct {
	t           *testing.T
	host, cloud *netlab.Namespace
	nodes       []*netlab.Namespace
	client      *hcloud.Client
	process     *exec.Cmd
	logs        *lockedBuffer
	output      io.Reader
}

var (
	cloudAddr = netip.MustParsePrefix("172.30.0.10/16")
	nodeAddrs = []netip.Prefix{netip.MustParsePrefix("172.30.0.11/16"), netip.MustParsePrefix("172.30.0.12/16")}
	podAddrs  = []netip.Addr{netip.MustParseAddr("10.244.1.1"), netip.MustParseAddr("10.244.2.1")}
	// publicIPv4 is the program's default.
	publicIPv4 = netip.MustParsePrefix("198.18.0.0/15")
)

// newClusterNetwork starts the program with the flags of a container on Docker's network.
func newClusterNetwork(t *testing.T) *clusterNetwork {
	t.Helper()
	lab := netlab.New(t, netip.MustParsePrefix("172.30.0.1/16"))
	c := &clusterNetwork{t: t, host: lab.Host, cloud: lab.Join("cloud", cloudAddr), logs: &lockedBuffer{}}
	c.cloud.AddRoute(netip.MustParsePrefix("0.0.0.0/0"), netip.MustParseAddr("172.30.0.1"))
	c.cloud.Sysctl("net/ipv4/icmp_ratelimit", "0") // else an ICMP answer to a refused connection may come late
	for i, a := range nodeAddrs {
		n := lab.Join(fmt.Sprintf("node-%d", i+1), a)
		n.AddAddress("lo", netip.PrefixFrom(podAddrs[i], 32))
		for _, d := range []string{"10.244.0.0/16", "169.254.169.254/32", publicIPv4.String()} {
			n.AddRoute(netip.MustParsePrefix(d), cloudAddr.Addr())
		}
		c.nodes = append(c.nodes, n)
	}
	c.process = exec.CommandContext(t.Context(), program(), "--listen", "172.30.0.10:4242", "--control", off, "--actions", "instant",
		"--speed", "20",
		"--data-plane-interface", "eth0", "--load-balancer-ipv4", "172.30.100.0/24", "--reserved", "172.30.0.0/24",
		"--router-interface", "eth0", "--router-network", "cluster", "--metadata", "169.254.169.254:80")
	c.process.Env = append(os.Environ(), "TEST_RUN_FAKECLOUD=1")
	c.process.Stderr = c.logs
	out := must(c.process.StdoutPipe())(t)
	check(t, c.cloud.Start(c.process))
	t.Cleanup(func() {
		// The end of the context kills the process too late if this is the last test.
		_ = c.process.Process.Kill()
		_ = c.process.Wait() // an error if the test has waited for it
		if t.Failed() {
			t.Logf("%s", c.logs)
		}
	})
	lines := bufio.NewReader(out)
	line, err := lines.ReadString('\n')
	m := exports.FindStringSubmatch(strings.TrimSpace(line))
	if m == nil {
		t.Fatalf("%q, %v\n%s", line, err, c.logs)
	}
	c.output = lines
	c.client = hcloud.NewClient(hcloud.WithEndpoint(m[1]), hcloud.WithToken(m[2]), hcloud.WithHTTPClient(c.host.Client()))
	return c
}

// seed creates a network with the address range of the nodes' network, and a server for each node.
func (c *clusterNetwork) seed() (*hcloud.Network, []*hcloud.Server) {
	c.t.Helper()
	_, ipRange, _ := net.ParseCIDR("172.30.0.0/16")
	network, _, err := c.client.Network.Create(c.t.Context(), hcloud.NetworkCreateOpts{
		Name: "cluster", IPRange: ipRange,
		Subnets: []hcloud.NetworkSubnet{{Type: hcloud.NetworkSubnetTypeCloud, IPRange: ipRange, NetworkZone: "eu-central"}},
	})
	check(c.t, err)
	var servers []*hcloud.Server
	for i, a := range nodeAddrs {
		result, _, err := c.client.Server.Create(c.t.Context(), hcloud.ServerCreateOpts{
			Name: fmt.Sprintf("node-%d", i+1), ServerType: &hcloud.ServerType{Name: "cx23"}, Image: &hcloud.Image{Name: "ubuntu-24.04"},
			Location: &hcloud.Location{Name: "fsn1"}, UserData: "#cloud-config",
		})
		check(c.t, err)
		check(c.t, did(c.client.Server.AttachToNetwork(c.t.Context(), result.Server, hcloud.ServerAttachToNetworkOpts{Network: network,
			IP: a.Addr().AsSlice()})))
		servers = append(servers, result.Server)
	}
	return network, servers
}

// route returns the route to a node's pods.
func route(node int) hcloud.NetworkRoute {
	_, d, _ := net.ParseCIDR(fmt.Sprintf("10.244.%d.0/24", node+1))
	return hcloud.NetworkRoute{Destination: d, Gateway: nodeAddrs[node].Addr().AsSlice()}
}

func (c *clusterNetwork) addRoute(n *hcloud.Network, node int) {
	c.t.Helper()
	check(c.t, did(c.client.Network.AddRoute(c.t.Context(), n, hcloud.NetworkAddRouteOpts{Route: route(node)})))
}

func (c *clusterNetwork) deleteRoute(n *hcloud.Network, node int) {
	c.t.Helper()
	check(c.t, did(c.client.Network.DeleteRoute(c.t.Context(), n, hcloud.NetworkDeleteRouteOpts{Route: route(node)})))
}

// await calls f until it returns nil.
func (c *clusterNetwork) await(what string, f func(context.Context) error) {
	c.t.Helper()
	for {
		err := f(c.t.Context())
		if err == nil {
			return
		}
		if c.t.Context().Err() != nil {
			c.t.Fatalf("%s: %v", what, err)
		}
	}
}

// answerSource answers every connection with the address that it comes from.
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

// answer answers every connection with a text.
func answer(l net.Listener, text string) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		_, _ = io.WriteString(c, text)
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

// answers returns a function for await. The function fails unless the answer is want.
func answers(from *netlab.Namespace, source netip.Addr, at netip.AddrPort, want string) func(context.Context) error {
	return func(ctx context.Context) error {
		got, err := ask(ctx, from, source, at)
		if err == nil && got != want {
			err = fmt.Errorf("answer %q, want %q", got, want)
		}
		return err
	}
}

func TestPodsReachEachOtherOnlyOverTheCloudsRoutes(t *testing.T) {
	t.Parallel()
	c := newClusterNetwork(t)
	network, servers := c.seed()
	there := netip.AddrPortFrom(podAddrs[1], 80)
	go answerSource(c.nodes[1].Listen(there))
	works := answers(c.nodes[0], podAddrs[0], there, podAddrs[0].String())
	fails := func(errno syscall.Errno) func(context.Context) error {
		return func(ctx context.Context) error {
			if got, err := ask(ctx, c.nodes[0], podAddrs[0], there); !errors.Is(err, errno) {
				return fmt.Errorf("answer %q, error %w; want %w", got, err, errno)
			}
			return nil
		}
	}
	c.addRoute(network, 0)
	c.await("no route yet", fails(syscall.ENETUNREACH))
	c.addRoute(network, 1)
	c.await("both routes", works)
	c.deleteRoute(network, 1)
	c.await("one route deleted", fails(syscall.ENETUNREACH))
	c.addRoute(network, 1)
	c.await("both routes again", works)
	check(t, did(c.client.Server.DeleteWithResult(t.Context(), servers[1])))
	c.await("a route whose gateway is gone", fails(syscall.EHOSTUNREACH))
}

func TestAFloatingIPLeadsToTheGuestOfTheServerThatHasIt(t *testing.T) {
	t.Parallel()
	c := newClusterNetwork(t)
	_, servers := c.seed()
	c.host.AddRoute(publicIPv4, cloudAddr.Addr())
	created, _, err := c.client.FloatingIP.Create(t.Context(), hcloud.FloatingIPCreateOpts{
		Type: hcloud.FloatingIPTypeIPv4, HomeLocation: &hcloud.Location{Name: "fsn1"},
	})
	check(t, err)
	floating, _ := netip.AddrFromSlice(created.FloatingIP.IP.To4())
	at := netip.AddrPortFrom(floating, 80)
	for i, n := range c.nodes { // both have configured it, as for a failover
		n.AddAddress("eth0", netip.PrefixFrom(floating, 32))
		go answer(n.Listen(at), servers[i].Name)
	}
	unreachable := func(ctx context.Context) error {
		if got, err := ask(ctx, c.host, netip.Addr{}, at); !errors.Is(err, syscall.EHOSTUNREACH) {
			return fmt.Errorf("answer %q, error %w; want %w", got, err, syscall.EHOSTUNREACH)
		}
		return nil
	}
	c.await("new", unreachable)
	for _, s := range servers {
		check(t, did(c.client.FloatingIP.Assign(t.Context(), created.FloatingIP, s)))
		c.await("assigned to "+s.Name, answers(c.host, netip.Addr{}, at, s.Name))
	}
	check(t, did(c.client.FloatingIP.Unassign(t.Context(), created.FloatingIP)))
	c.await("unassigned", unreachable)
}

func TestALoadBalancerHasAddressesOfTheNodesNetwork(t *testing.T) {
	t.Parallel()
	c := newClusterNetwork(t)
	network, servers := c.seed()
	for i, n := range c.nodes {
		go answerSource(n.Listen(netip.AddrPortFrom(nodeAddrs[i].Addr(), 30080)))
	}
	result, _, err := c.client.LoadBalancer.Create(t.Context(), hcloud.LoadBalancerCreateOpts{
		Name: "web", LoadBalancerType: &hcloud.LoadBalancerType{Name: "lb11"}, Location: &hcloud.Location{Name: "fsn1"}, Network: network,
		Targets: []hcloud.LoadBalancerCreateOptsTarget{{
			Type: hcloud.LoadBalancerTargetTypeServer, Server: hcloud.LoadBalancerCreateOptsTargetServer{Server: servers[1]},
			UsePrivateIP: new(true),
		}},
		Services: []hcloud.LoadBalancerCreateOptsService{{
			Protocol: hcloud.LoadBalancerServiceProtocolTCP, ListenPort: new(80), DestinationPort: new(30080),
		}},
	})
	check(t, err)
	lb, _, err := c.client.LoadBalancer.GetByID(t.Context(), result.LoadBalancer.ID)
	check(t, err)
	public, _ := netip.AddrFromSlice(lb.PublicNet.IPv4.IP.To4())
	private, _ := netip.AddrFromSlice(lb.PrivateNet[0].IP.To4())
	if public.String() != "172.30.100.1" || private.String() != "172.30.1.0" {
		t.Errorf("public %s, private %s", public, private)
	}
	for _, from := range []*netlab.Namespace{c.host, c.nodes[0], c.nodes[1]} {
		for _, at := range []netip.Addr{public, private} {
			c.await("an answer through "+at.String(), answers(from, netip.Addr{}, netip.AddrPortFrom(at, 80), cloudAddr.Addr().String()))
		}
	}
	check(t, did(c.client.LoadBalancer.DetachFromNetwork(t.Context(), lb,
		hcloud.LoadBalancerDetachFromNetworkOpts{Network: network})))
	gone := func(a netip.Addr) func(context.Context) error {
		return func(context.Context) error {
			if c.cloud.HasAddress("eth0", a) {
				return fmt.Errorf("%s is still there", a)
			}
			return nil
		}
	}
	c.await("the private address is removed", gone(private))
	if !c.cloud.HasAddress("eth0", public) {
		t.Error("the public address is removed, too")
	}
	check(t, did(c.client.LoadBalancer.DeleteWithResult(t.Context(), lb)))
	c.await("the public address is removed", gone(public))
}

func TestEachNodeReadsItsOwnMetadata(t *testing.T) {
	t.Parallel()
	c := newClusterNetwork(t)
	_, servers := c.seed()
	read := func(from *netlab.Namespace, path string) (int, string) {
		t.Helper()
		r := must(http.NewRequestWithContext(t.Context(), http.MethodGet, "http://169.254.169.254/hetzner/v1/"+path, nil))(t)
		resp := must(from.Client().Do(r))(t)
		defer func() { _ = resp.Body.Close() }()
		b := must(io.ReadAll(resp.Body))(t)
		return resp.StatusCode, string(b)
	}
	for i, n := range c.nodes {
		for path, want := range map[string]string{
			"metadata/hostname": servers[i].Name, "metadata/instance-id": fmt.Sprint(servers[i].ID),
			"metadata/public-ipv4": servers[i].PublicNet.IPv4.IP.String(), "userdata": "#cloud-config",
		} {
			if status, got := read(n, path); status != http.StatusOK || got != want {
				t.Errorf("node %d, %s: %d %q, want %q", i, path, status, got, want)
			}
		}
		if _, got := read(n, "metadata/private-networks"); !strings.Contains(got, "- ip: "+nodeAddrs[i].Addr().String()+"\n") {
			t.Errorf("node %d: %s", i, got)
		}
	}
	c.host.AddRoute(netip.MustParsePrefix("169.254.169.254/32"), cloudAddr.Addr())
	if status, got := read(c.host, "metadata"); status != http.StatusNotFound {
		t.Errorf("a machine that is not a server: %d %s", status, got)
	}
}

func TestTheProgramLeavesNothingOnTheMachine(t *testing.T) {
	t.Parallel()
	c := newClusterNetwork(t)
	network, _ := c.seed()
	c.addRoute(network, 0)
	result, _, err := c.client.LoadBalancer.Create(t.Context(), hcloud.LoadBalancerCreateOpts{
		Name: "web", LoadBalancerType: &hcloud.LoadBalancerType{Name: "lb11"}, Location: &hcloud.Location{Name: "fsn1"},
	})
	check(t, err)
	lb, _ := netip.AddrFromSlice(result.LoadBalancer.PublicNet.IPv4.IP.To4())
	metadata := netip.MustParseAddr("169.254.169.254")
	state := func() string {
		return fmt.Sprintf("load balancer %t, metadata %t, rules %d, routes %d", c.cloud.HasAddress("eth0", lb),
			c.cloud.HasAddress("lo", metadata),
			c.cloud.Rules(netdev.RulePriority(netdev.DefaultTable), netdev.RulePriority(netdev.DefaultTable)+9),
			c.cloud.Routes(netdev.DefaultTable))
	}
	c.await("all is set up", func(context.Context) error {
		if got := state(); got != "load balancer true, metadata true, rules 3, routes 2" {
			return errors.New(got)
		}
		return nil
	})
	check(t, c.process.Process.Signal(syscall.SIGTERM))
	_, _ = io.Copy(io.Discard, c.output)
	if err := c.process.Wait(); err != nil {
		t.Error(err)
	}
	if got := state(); got != "load balancer false, metadata false, rules 0, routes 0" {
		t.Error(got)
	}
	if !c.cloud.HasAddress("eth0", cloudAddr.Addr()) || c.cloud.Routes(254) != 2 {
		t.Error("the program removed an address or a route that it did not add")
	}
	if logs := c.logs.String(); strings.Contains(logs, "level=ERROR") {
		t.Error("errors were logged")
	}
}
