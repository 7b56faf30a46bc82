package node

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/clock"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/whoami"
)

var web = types.NamespacedName{Namespace: "default", Name: "web"}

// loopback returns an address of this host that no other test uses.
func loopback(t *testing.T) netip.Addr {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("127.0.0.1 is the only loopback address here")
	}
	return netip.AddrFrom4([4]byte{127, byte(80 + rand.N(100)), byte(rand.N(256)), byte(1 + rand.N(250))})
}

// service makes a Service named web with the node ports.
func service(kind corev1.ServiceType, nodePorts ...int32) *corev1.Service {
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: web.Namespace, Name: web.Name},
		Spec:       corev1.ServiceSpec{Type: kind, ExternalTrafficPolicy: corev1.ServiceExternalTrafficPolicyCluster},
	}
	for i, port := range nodePorts {
		s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{
			Name: fmt.Sprintf("p%d", i), Port: int32(80 + i), NodePort: port, Protocol: corev1.ProtocolTCP,
		})
	}
	return s
}

// open returns the ports that the node listens on.
func open(n *Node) func() []int {
	return func() (ports []int) {
		n.backend.mu.Lock()
		defer n.backend.mu.Unlock()
		for at := range n.backend.open {
			ports = append(ports, int(at.port))
		}
		return ports
	}
}

// update replaces the Service in the API.
func update(g Gomega, client *fake.Clientset, s *corev1.Service) {
	g.Expect(client.CoreV1().Services(s.Namespace).Update(context.Background(), s, metav1.UpdateOptions{})).Error().NotTo(HaveOccurred())
}

// ask sends a request and returns the node's answer.
func ask(g Gomega, address netip.AddrPort, path string) whoami.Answer {
	response, err := http.Get("http://" + address.String() + path)
	g.Expect(err).NotTo(HaveOccurred())
	defer response.Body.Close()
	var answer whoami.Answer
	g.Expect(json.NewDecoder(response.Body).Decode(&answer)).To(Succeed())
	return answer
}

func TestNodePortsFollowServices(t *testing.T) {
	t.Parallel()
	g, address := NewWithT(t), loopback(t)
	client := api(service(corev1.ServiceTypeLoadBalancer, 30080, 30443))
	n := begin(t, client, Spec{Name: "a", Addresses: []netip.Addr{address}})
	expect := func(ports ...int) {
		t.Helper()
		g.Eventually(open(n)).WithContext(patience(t)).Should(ConsistOf(ports))
	}
	expect(30080, 30443) // a Service that was there before
	update(g, client, service(corev1.ServiceTypeLoadBalancer, 30080, 30444))
	expect(30080, 30444) // a port renumbered
	update(g, client, service(corev1.ServiceTypeClusterIP))
	g.Eventually(open(n)).WithContext(patience(t)).Should(BeEmpty())
	update(g, client, service(corev1.ServiceTypeNodePort, 30080))
	expect(30080)
	mixed := service(corev1.ServiceTypeNodePort, 30080, 30053, 0)
	mixed.Spec.Ports[1].Protocol = corev1.ProtocolUDP
	update(g, client, mixed)
	expect(30080) // UDP is not modelled, and 0 cannot be a port
	g.Expect(client.CoreV1().Services("default").Delete(context.Background(), "web", metav1.DeleteOptions{})).To(Succeed())
	g.Eventually(open(n)).WithContext(patience(t)).Should(BeEmpty())
}

func TestAnAnswerSaysWhoWasReachedAndWhatArrived(t *testing.T) {
	t.Parallel()
	g, address := NewWithT(t), loopback(t)
	client := api(service(corev1.ServiceTypeLoadBalancer, 30080, 30443))
	n := begin(t, client, Spec{Name: "a", Addresses: []netip.Addr{address}})
	g.Eventually(open(n)).WithContext(patience(t)).Should(HaveLen(2))
	request, err := http.NewRequest(http.MethodPost, fmt.Sprintf("http://%s:30443/path?q=1", address), strings.NewReader("body"))
	g.Expect(err).NotTo(HaveOccurred())
	request.Host = "shop.example"
	request.Header.Set("X-Forwarded-For", "192.0.2.7")
	response, err := http.DefaultClient.Do(request)
	g.Expect(err).NotTo(HaveOccurred())
	defer response.Body.Close()
	g.Expect(response.Header.Get("Content-Type")).To(Equal("application/json"))
	var answer whoami.Answer
	g.Expect(json.NewDecoder(response.Body).Decode(&answer)).To(Succeed())
	g.Expect(answer.Peer).To(Equal(answer.Client))
	g.Expect(netip.MustParseAddrPort(answer.Peer).Addr().IsLoopback()).To(BeTrue())
	g.Expect(answer.Headers).To(HaveKeyWithValue("X-Forwarded-For", []string{"192.0.2.7"}))
	answer.Peer, answer.Client, answer.Headers = "", "", nil
	g.Expect(answer).To(Equal(whoami.Answer{
		Node: "a", Service: "default/web", PortName: "p1", Port: 81, NodePort: 30443,
		Method: "POST", URI: "/path?q=1", Host: "shop.example", Proto: "HTTP/1.1",
	}))
}

func TestANodeWithoutPowerAnswersNothing(t *testing.T) {
	t.Parallel()
	g, address := NewWithT(t), loopback(t)
	n := begin(t, api(service(corev1.ServiceTypeLoadBalancer, 30080)), Spec{Name: "a", Addresses: []netip.Addr{address}})
	g.Eventually(open(n)).WithContext(patience(t)).Should(ConsistOf(30080))
	target := netip.AddrPortFrom(address, 30080)
	conn, err := net.Dial("tcp", target.String()) // a connection under way
	g.Expect(err).NotTo(HaveOccurred())
	defer conn.Close()
	_, err = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	g.Expect(err).NotTo(HaveOccurred())
	reader := bufio.NewReader(conn)
	response, err := http.ReadResponse(reader, nil)
	g.Expect(err).NotTo(HaveOccurred())
	_, err = io.Copy(io.Discard, response.Body)
	g.Expect(err).NotTo(HaveOccurred())

	n.StopKubelet()
	g.Expect(ask(g, target, "/").Node).To(Equal("a"), "pods outlive kubelet")

	n.PowerOff()
	_, err = reader.ReadByte()
	g.Expect(err).To(HaveOccurred(), "the connection has ended")
	_, err = net.Dial("tcp", target.String())
	g.Expect(err).To(MatchError(ContainSubstring("refused")))
	n.PowerOn()
	g.Expect(ask(g, target, "/").Node).To(Equal("a"))
}

func TestARequestUnderWayEndsByItselfWhenItsPortGoes(t *testing.T) {
	t.Parallel()
	g, address := NewWithT(t), loopback(t)
	client := api(service(corev1.ServiceTypeLoadBalancer, 30080))
	n := begin(t, client, Spec{Name: "a", Addresses: []netip.Addr{address}})
	begun, finish := make(chan struct{}), make(chan struct{})
	n.SetHandler(web, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		close(begun)
		<-finish
		_, _ = io.WriteString(w, "slow")
	}))
	g.Eventually(open(n)).WithContext(patience(t)).Should(ConsistOf(30080))
	body := make(chan string, 1)
	go func() {
		response, err := http.Get(fmt.Sprintf("http://%s:30080/", address))
		if err != nil {
			body <- err.Error()
			return
		}
		defer response.Body.Close()
		text, _ := io.ReadAll(response.Body)
		body <- string(text)
	}()
	<-begun
	update(g, client, service(corev1.ServiceTypeLoadBalancer, 30081))
	g.Eventually(open(n)).WithContext(patience(t)).Should(ConsistOf(30081))
	_, err := net.Dial("tcp", netip.AddrPortFrom(address, 30080).String())
	g.Expect(err).To(MatchError(ContainSubstring("refused")))
	close(finish)
	g.Eventually(body).WithContext(patience(t)).Should(Receive(Equal("slow")))
	n.SetHandler(web, nil)
	g.Expect(ask(g, netip.AddrPortFrom(address, 30081), "/").Node).To(Equal("a"))
}

func TestTrafficPolicyLocalNeedsAPodAndIsAskedByHealthChecks(t *testing.T) {
	t.Parallel()
	g, address := NewWithT(t), loopback(t)
	local := service(corev1.ServiceTypeLoadBalancer, 30080)
	local.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
	local.Spec.HealthCheckNodePort = 31000
	n := begin(t, api(local), Spec{Name: "a", Addresses: []netip.Addr{address}})
	check := func() (int, string, string) {
		response, err := http.Get(fmt.Sprintf("http://%s:31000/healthz", address))
		g.Expect(err).NotTo(HaveOccurred())
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		g.Expect(err).NotTo(HaveOccurred())
		return response.StatusCode, response.Header.Get("X-Load-Balancing-Endpoint-Weight"), string(text)
	}
	g.Eventually(open(n)).WithContext(patience(t)).Should(ConsistOf(30080, 31000))
	status, weight, text := check()
	g.Expect(status).To(Equal(http.StatusOK))
	g.Expect(weight).To(Equal("1"))
	g.Expect(text).To(MatchJSON(`{"service": {"namespace": "default", "name": "web"}, "localEndpoints": 1, "serviceProxyHealthy": true}`))
	n.SetLocalEndpoints(web, 0)
	g.Expect(open(n)()).To(ConsistOf(31000))
	status, weight, _ = check()
	g.Expect(status).To(Equal(http.StatusServiceUnavailable))
	g.Expect(weight).To(Equal("0"))
	n.SetLocalEndpoints(web, 3)
	g.Expect(open(n)()).To(ConsistOf(30080, 31000))
	_, weight, _ = check()
	g.Expect(weight).To(Equal("3"))
}

func TestThePROXYProtocolIsRequiredWhenExpectedAndGarbageOtherwise(t *testing.T) {
	t.Parallel()
	g, address := NewWithT(t), loopback(t)
	n := begin(t, api(service(corev1.ServiceTypeLoadBalancer, 30080)), Spec{Name: "a", Addresses: []netip.Addr{address}})
	g.Eventually(open(n)).WithContext(patience(t)).Should(ConsistOf(30080))
	const plain = "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
	v1 := "PROXY TCP4 192.0.2.7 198.51.100.1 4711 443\r\n"
	v2 := "\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c\xc0\x00\x02\x07\xc6\x33\x64\x01\x12\x67\x01\xbb"
	send := func(text string) (*http.Response, whoami.Answer) {
		conn, err := net.Dial("tcp", netip.AddrPortFrom(address, 30080).String())
		g.Expect(err).NotTo(HaveOccurred())
		defer conn.Close()
		_, err = io.WriteString(conn, text)
		g.Expect(err).NotTo(HaveOccurred())
		response, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			return nil, whoami.Answer{}
		}
		defer response.Body.Close()
		var answer whoami.Answer
		_ = json.NewDecoder(response.Body).Decode(&answer)
		return response, answer
	}
	response, _ := send(v1 + plain)
	g.Expect(response).To(HaveField("StatusCode", http.StatusBadRequest))
	_, answer := send(plain)
	g.Expect(answer.ProxyProtocol).To(BeZero())

	n.SetProxyProtocol(web, true)
	for version, header := range map[int]string{1: v1, 2: v2} {
		_, answer = send(header + plain)
		g.Expect(answer.Client).To(Equal("192.0.2.7:4711"), "version %d", version)
		g.Expect(answer.ProxyDestination).To(Equal("198.51.100.1:443"))
		g.Expect(answer.ProxyProtocol).To(Equal(version))
		g.Expect(netip.MustParseAddrPort(answer.Peer).Addr().IsLoopback()).To(BeTrue())
	}
	response, _ = send(plain)
	g.Expect(response).To(Or(BeNil(), HaveField("StatusCode", http.StatusBadRequest)), "no header")
}

func TestAPortThatIsTakenIsReportedAndOpenedWhenItIsFree(t *testing.T) {
	t.Parallel()
	g, address := NewWithT(t), loopback(t)
	taken, err := net.Listen("tcp", netip.AddrPortFrom(address, 30080).String())
	g.Expect(err).NotTo(HaveOccurred())
	defer taken.Close()
	n := begin(t, api(service(corev1.ServiceTypeLoadBalancer, 30080)), Spec{Name: "a", Addresses: []netip.Addr{address}})
	g.Eventually(func() []error {
		n.backend.mu.Lock()
		defer n.backend.mu.Unlock()
		return slices.Collect(maps.Values(n.backend.failed))
	}).WithContext(patience(t)).Should(ConsistOf(MatchError(ContainSubstring("in use"))))
	g.Expect(taken.Close()).To(Succeed())
	g.Eventually(open(n)).WithContext(patience(t)).Should(ConsistOf(30080))
}

func TestMain(m *testing.M) {
	// Connections kept for later would be closed under a later test's request.
	http.DefaultTransport.(*http.Transport).DisableKeepAlives = true
	os.Exit(m.Run())
}

func TestAPortClosesWhileAConnectionArrives(t *testing.T) {
	t.Parallel()
	address := loopback(t)
	b := newBackend(Spec{Name: "a", Addresses: []netip.Addr{address}, Clock: clock.RealClock{}, Log: slog.New(slog.DiscardHandler)})
	services := map[types.NamespacedName]*corev1.Service{web: service(corev1.ServiceTypeNodePort, 30080)}
	b.setUp(true)
	b.setServices(services)
	// The connections arrive while the backend is busy; it is closed before it has accepted all of them.
	b.change(func() {
		for range 50 {
			conn, err := net.Dial("tcp", netip.AddrPortFrom(address, 30080).String())
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
		}
		b.services = nil
	})
	if len(b.open) > 0 {
		t.Errorf("still open: %v", b.open)
	}
}
