package loadbalancer_test

import (
	"io"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/nodeinfo"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
)

// addBareServer adds a server without a public IPv4 address, and its Node.
func (w *world) addBareServer(name string, ipv6, inNetwork bool) *hcloud.Server {
	w.t.Helper()
	opts := hcloud.ServerCreateOpts{Name: name, ServerType: &hcloud.ServerType{Name: "cx23"}, Image: &hcloud.Image{Name: "ubuntu-24.04"},
		Location: &hcloud.Location{Name: "fsn1"}, PublicNet: &hcloud.ServerCreatePublicNet{EnableIPv6: ipv6}}
	if inNetwork {
		opts.Networks = []*hcloud.Network{w.network}
	}
	result, _, err := w.api.Server.Create(w.t.Context(), opts)
	w.must(err)
	w.clock.Step(5 * time.Minute)
	w.nodes = append(w.nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.NodeSpec{ProviderID: "ccm-from-scratch://" + itoa(result.Server.ID)}})
	return result.Server
}

// The API refuses a public target without an IPv4 address, unless the request has an address of its IPv6 network.
func TestClustersWithoutPublicIPv4NeedNoAnnotation(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		ipv6, inNetwork bool
		families        []corev1.IPFamily
		network         string // HCLOUD_NETWORK
		private         bool   // the targets
	}{
		"IPv6 only, without a network":  {true, false, []corev1.IPFamily{corev1.IPv6Protocol}, "", false},
		"dual stack Service on IPv6":    {true, false, []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}, "", false},
		"private only":                  {false, true, []corev1.IPFamily{corev1.IPv4Protocol}, "internal", true},
		"private with IPv6, IPv4 first": {true, true, []corev1.IPFamily{corev1.IPv4Protocol}, "internal", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, "realistic", 0)
			for _, n := range []string{"node-1", "node-2"} {
				w.addBareServer(n, tc.ipv6, tc.inNetwork)
			}
			provider := func() *ccm.Cloud {
				return w.provider(func(c *ccm.Config) { c.Network, c.RoutesEnabled = tc.network, tc.network != "" })
			}
			svc := newService("web", nil, 80)
			svc.Spec.IPFamilies = tc.families
			w.ensure(provider(), svc)
			lb := w.theLoadBalancer()
			if !slices.Equal(targetIDs(lb), serverIDs(w.nodes)) || lb.Targets[0].UsePrivateIP != tc.private ||
				lb.Targets[1].UsePrivateIP != tc.private {
				t.Errorf("targets %+v", lb.Targets)
			}
			w.addBareServer("node-3", tc.ipv6, tc.inNetwork)
			w.nodes = w.nodes[1:]
			w.ensure(provider(), svc)
			w.clock.Step(time.Minute) // the old target leaves when the new one is healthy
			w.ensure(provider(), svc)
			if lb := w.theLoadBalancer(); !slices.Equal(targetIDs(lb), serverIDs(w.nodes)) {
				t.Errorf("targets %v, want %v", targetIDs(lb), serverIDs(w.nodes))
			}
			w.expectQuiet(provider(), svc)
		})
	}
}

// The person chooses another address of the server's network, or the server has another network.
func TestATargetFollowsTheIPv6AddressOfItsNode(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "instant", 0)
	for _, n := range []string{"node-1", "node-2"} {
		w.addBareServer(n, true, false)
	}
	cloud := w.provider(func(c *ccm.Config) { c.Network, c.RoutesEnabled = "", false })
	svc := newService("web", nil, 80)
	svc.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv6Protocol}
	w.ensure(cloud, svc)
	w.clock.Step(time.Minute)
	w.expectQuiet(cloud, svc)
	var chosen netip.Addr
	for _, node := range w.nodes {
		server, _, err := w.api.Server.GetByName(t.Context(), node.Name)
		w.must(err)
		chosen, _ = netip.AddrFromSlice(server.PublicNet.IPv6.IP)
		chosen = chosen.Next().Next()
		node.Annotations = map[string]string{nodeinfo.AnnotationIPv6: chosen.String()}
	}
	w.wire.take()
	for i, want := range []int{2, 0, 2} { // the second one changes when the first one is checked
		w.clock.Step(time.Duration(i/2) * 16 * time.Second)
		w.ensure(cloud, svc)
		if sent := writes(w.wire.take()); len(sent) != want {
			t.Errorf("writes: %v, want %d", sent, want)
		}
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
		"http://fake.invalid/v1/load_balancers/"+itoa(w.theLoadBalancer().ID), nil)
	w.must(err)
	request.Header.Set("Authorization", "Bearer "+fakecloud.DefaultToken)
	answer, err := w.fake.Transport().RoundTrip(request)
	w.must(err)
	body, err := io.ReadAll(answer.Body)
	if w.must(err); !strings.Contains(string(body), chosen.String()) || len(targetIDs(w.theLoadBalancer())) != 2 {
		t.Errorf("the address %s is in no target of\n%s", chosen, body)
	}
	w.clock.Step(time.Minute)
	w.expectQuiet(cloud, svc)
}
