package framework

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/netip"
	"slices"
	"strconv"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/whoami"
)

// Traffic sends requests from outside of the cluster.
type Traffic struct {
	env *Env
}

// Get sends an HTTP request to an address from outside of the cluster and returns the answer.
func (t Traffic) Get(ctx context.Context, address string, port int) (whoami.Answer, error) {
	if t.Mute() {
		return t.muteAnswer(ctx, address, port)
	}
	return t.GetURL(ctx, t.Client(ClientOptions{}), URL("http", address, port))
}

// GetURL is Get with a client and a URL of the spec's own.
func (t Traffic) GetURL(ctx context.Context, client *http.Client, url string) (whoami.Answer, error) {
	var answer whoami.Answer
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return answer, err
	}
	resp, err := client.Do(r)
	if err != nil {
		return answer, err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return answer, err
	}
	if resp.StatusCode != http.StatusOK {
		return answer, fmt.Errorf("%s: %s: %s", url, resp.Status, body)
	}
	return answer, json.Unmarshal(body, &answer)
}

// AwaitAnswer waits until the Service's pods answer a request to an address, and returns the answer.
func (t Traffic) AwaitAnswer(ctx context.Context, service, address string, port int) whoami.Answer {
	GinkgoHelper()
	var answer whoami.Answer
	Eventually(func(g Gomega) {
		var err error
		answer, err = t.Get(ctx, address, port)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(answer.Service).To(Equal(t.env.Services.Namespace + "/" + service))
	}).WithContext(ctx).Should(Succeed(), func() string { return t.met(ctx, service, address, port) })
	return answer
}

// met describes the receivers of a request to an address: the targets of the port, and the pods of the Service on a cluster that has them.
func (t Traffic) met(ctx context.Context, service, address string, port int) string {
	p, err := t.portOf(ctx, address, port)
	text := fmt.Sprintf("targets: %+v", p.Targets)
	if err != nil {
		text = err.Error()
	}
	pods, err := t.env.Kube.CoreV1().Pods(t.env.Services.Namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=" + service})
	if err != nil {
		return text + "; pods: " + err.Error()
	}
	for _, pod := range pods.Items {
		text += fmt.Sprintf("; pod on %s: %s, ready: %t", pod.Spec.NodeName, pod.Status.Phase, podReady(&pod))
	}
	return text
}

// AwaitServed waits until a Service has an address and answers there, and returns the address.
func (t Traffic) AwaitServed(ctx context.Context, service string) string {
	GinkgoHelper()
	address := t.env.Services.AwaitIngress(ctx, service)
	t.AwaitAnswer(ctx, service, address, Port)
	return address
}

// AnsweringNodes sends n requests to an address and returns how many each node answered. The spec
// fails at the first request without an answer.
func (t Traffic) AnsweringNodes(ctx context.Context, address string, port, n int) map[string]int {
	GinkgoHelper()
	answered := map[string]int{}
	for range n {
		answer, err := t.Get(ctx, address, port)
		Expect(err).NotTo(HaveOccurred())
		answered[answer.Node]++
	}
	return answered
}

// AwaitAnsweringNodes waits until each of these nodes, and no other, answers requests to an address.
func (t Traffic) AwaitAnsweringNodes(ctx context.Context, address string, port int, names ...string) {
	GinkgoHelper()
	if t.Mute() {
		t.awaitTargetNodes(ctx, address, port, names)
		return
	}
	Eventually(func(g Gomega) {
		answered := map[string]int{}
		for range 3 * len(names) {
			answer, err := t.Get(ctx, address, port)
			g.Expect(err).NotTo(HaveOccurred())
			answered[answer.Node]++
		}
		g.Expect(slices.Collect(maps.Keys(answered))).To(ConsistOf(names))
	}).WithContext(ctx).Should(Succeed())
}

// Closed reports whether a port of a load balancer refuses connections.
func (t Traffic) Closed(ctx context.Context, address string, port int) bool {
	if t.Mute() {
		_, err := t.portOf(ctx, address, port)
		return err != nil
	}
	conn, err := t.dial(ctx, net.JoinHostPort(address, strconv.Itoa(port)), netip.Addr{})
	if err != nil {
		return true
	}
	_ = conn.Close()
	return false
}

// ClientOptions shape a client outside of the cluster.
type ClientOptions struct {
	// Address replaces the address of the URL, as a DNS entry would. If empty, the URL's.
	Address string
	// Roots are the trusted authorities. If nil, the host's.
	Roots *x509.CertPool
	// Cookies makes the client keep cookies.
	Cookies bool
	// KeepAlive makes the client use a connection again. The Peer of an answer shows which one it was.
	KeepAlive bool
	// From is the client's address, one of 127.0.0.0/8; the zero value lets the system choose. On a
	// shared cluster, all clients have OutsideAddress.
	From netip.Addr
}

// Client returns a client outside of the cluster. It reaches the public and private addresses of load balancers, and does
// not follow redirects. Without KeepAlive, it opens a connection for each request, so that each is balanced.
func (t Traffic) Client(o ClientOptions) *http.Client {
	GinkgoHelper()
	client := &http.Client{
		Timeout: 5 * time.Second,
		Transport: &http.Transport{
			DisableKeepAlives: !o.KeepAlive,
			TLSClientConfig:   &tls.Config{RootCAs: o.Roots, MinVersion: tls.VersionTLS12},
			DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
				host, port, err := net.SplitHostPort(address)
				if err != nil {
					return nil, err
				}
				return t.dial(ctx, net.JoinHostPort(cmp.Or(o.Address, host), port), o.From)
			},
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	if o.KeepAlive {
		DeferCleanup(client.CloseIdleConnections)
	}
	if o.Cookies {
		jar, err := cookiejar.New(nil)
		Expect(err).NotTo(HaveOccurred())
		client.Jar = jar
	}
	return client
}

// OutsideAddress returns the address of clients outside of the cluster, as a load balancer sees it.
func (t Traffic) OutsideAddress() string {
	GinkgoHelper()
	return t.env.setup.outsideAddress()
}

// dial connects to an address of the cloud from outside of the cluster.
func (t Traffic) dial(ctx context.Context, address string, from netip.Addr) (net.Conn, error) {
	return t.env.setup.dial(ctx, address, from)
}

// URL returns the URL of a port of an address.
func URL(scheme, address string, port int) string {
	return scheme + "://" + net.JoinHostPort(address, strconv.Itoa(port)) + "/"
}
