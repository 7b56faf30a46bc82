package node

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// source is a channel of events.
type source chan ServerEvent

func (s source) WatchServers(context.Context) (<-chan ServerEvent, error) { return s, nil }

func TestAFleetHasANodePerServer(t *testing.T) {
	t.Parallel()
	g, client, events := NewWithT(t), api(service(corev1.ServiceTypeLoadBalancer, 30080)), make(source)
	fleet, err := StartFleet(t.Context(), client, events, FleetOptions{
		Spec: func(s Server) (Spec, bool) {
			return Spec{ProviderID: "x://" + s.ID, Heartbeat: 5 * time.Millisecond}, s.Name != "router"
		},
	})
	g.Expect(err).NotTo(HaveOccurred())
	address, other := loopback(t), loopback(t)
	one := Server{ID: "1", Name: "one", Addresses: []netip.Addr{address}}
	send := func(kind ServerEventType, s Server) { events <- ServerEvent{Type: kind, Server: s} }
	eventually := func(check func(g Gomega)) {
		t.Helper()
		g.Eventually(check).WithContext(patience(t)).Should(Succeed())
	}

	send(ServerCreated, one)
	send(ServerStarted, Server{ID: "2", Name: "router"})
	g.Expect(fleet.Nodes()).To(BeEmpty(), "a server that is off, and one that does not become a node")
	send(ServerStarted, one)
	send(ServerStarted, one) // said twice
	eventually(func(g Gomega) { g.Expect(fleet.Node("one")).NotTo(BeNil()) })
	n := fleet.Node("one")
	eventuallyReady(t, g, client, "one")
	g.Expect(get(g, client, "one").Spec.ProviderID).To(Equal("x://1"))
	g.Eventually(open(n)).WithContext(patience(t)).Should(ConsistOf(30080))
	g.Expect(ask(g, netip.AddrPortFrom(address, 30080), "/").Node).To(Equal("one"))

	moved := one
	moved.Addresses = []netip.Addr{other}
	send(ServerChanged, moved)
	eventually(func(g Gomega) { g.Expect(ask(g, netip.AddrPortFrom(other, 30080), "/").Node).To(Equal("one")) })
	_, err = net.Dial("tcp", netip.AddrPortFrom(address, 30080).String())
	g.Expect(err).To(MatchError(ContainSubstring("refused")))
	send(ServerStopped, moved)
	eventually(func(g Gomega) { g.Expect(n.PoweredOn()).To(BeFalse()) })
	g.Expect(open(n)()).To(BeEmpty())
	send(ServerStarted, moved)
	eventually(func(g Gomega) { g.Expect(n.PoweredOn()).To(BeTrue()) })
	g.Expect(fleet.Node("one")).To(BeIdenticalTo(n))
	send(ServerEventType("melted"), moved) // nothing happens
	send(ServerDeleted, moved)
	eventually(func(g Gomega) { g.Expect(fleet.Nodes()).To(BeEmpty()) })
	g.Expect(n.PoweredOn()).To(BeFalse())
	get(g, client, "one") // deleting the Node is not the fleet's job
	send(ServerDeleted, moved)
	send(ServerStarted, Server{ID: "3", Name: "No Name"}) // cannot be a node
	close(events)
	fleet.Stop()
	g.Expect(fleet.Nodes()).To(BeEmpty())
}

func TestWhatIsSaidAboutPodsHoldsForNodesToCome(t *testing.T) {
	t.Parallel()
	local := service(corev1.ServiceTypeLoadBalancer, 30080)
	local.Spec.ExternalTrafficPolicy, local.Spec.HealthCheckNodePort = corev1.ServiceExternalTrafficPolicyLocal, 31000
	g, client, events := NewWithT(t), api(local), make(source, 3)
	fleet, err := StartFleet(t.Context(), client, events, FleetOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	defer func() { close(events); fleet.Stop() }()
	address := loopback(t)
	start := func(name string) *Node {
		address = address.Next()
		events <- ServerEvent{Type: ServerStarted, Server: Server{ID: name, Name: name, Addresses: []netip.Addr{address}}}
		g.Eventually(func() *Node { return fleet.Node(name) }).WithContext(patience(t)).ShouldNot(BeNil())
		n := fleet.Node(name)
		g.Eventually(open(n)).WithContext(patience(t)).Should(ContainElement(31000))
		return n
	}
	a := start("a")
	g.Expect(open(a)()).To(ConsistOf(30080, 31000))
	fleet.SetLocalEndpoints(web, map[string]int{"b": 2})
	fleet.SetProxyProtocol(web, true)
	g.Expect(open(a)()).To(ConsistOf(31000))
	b, c := start("b"), start("c")
	g.Expect(open(b)()).To(ConsistOf(30080, 31000))
	g.Expect(open(c)()).To(ConsistOf(31000))
	at := netip.AddrPortFrom(address.Prev(), 30080) // of b
	response, err := http.Get("http://" + at.String())
	if err == nil {
		response.Body.Close()
	}
	g.Expect(err != nil || response.StatusCode == http.StatusBadRequest).To(BeTrue(), "the PROXY protocol is not expected")
	fleet.SetProxyProtocol(web, false)
	g.Expect(ask(g, at, "/").Node).To(Equal("b"))
}

func TestStoppingAFleetEndsItsNodes(t *testing.T) {
	t.Parallel()
	g, client := NewWithT(t), api()
	ctx, cancel := context.WithCancel(t.Context())
	events := make(source, 1)
	context.AfterFunc(ctx, func() { close(events) }) // as a source does when its watcher goes
	fleet, err := StartFleet(ctx, client, events, FleetOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	events <- ServerEvent{Type: ServerStarted, Server: Server{ID: "1", Name: "one"}}
	g.Eventually(fleet.Nodes).WithContext(patience(t)).Should(HaveLen(1))
	n := fleet.Node("one")
	g.Expect(n.AwaitRegistered(patience(t))).To(Succeed())
	cancel()
	fleet.Stop()
	g.Expect(n.PoweredOn()).To(BeFalse())
	_, err = client.CoreV1().Nodes().Get(context.Background(), "one", metav1.GetOptions{})
	g.Expect(err).NotTo(HaveOccurred())
}

type deaf struct{}

func (deaf) WatchServers(context.Context) (<-chan ServerEvent, error) {
	return nil, errors.New("no such cloud")
}

func TestAFleetWithoutEventsIsAnError(t *testing.T) {
	t.Parallel()
	_, err := StartFleet(t.Context(), api(), deaf{}, FleetOptions{})
	NewWithT(t).Expect(err).To(MatchError("cannot follow the cloud's servers: no such cloud"))
}
