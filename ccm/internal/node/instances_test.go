package node

import (
	"net"
	"strings"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	cloudprovider "k8s.io/cloud-provider"
	cloudproviderapi "k8s.io/cloud-provider/api"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/apicall"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/ccmtest"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/inventory"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/nodeinfo"
)

func TestNodeAddressesByFamilyAndNetwork(t *testing.T) {
	t.Parallel()
	v4 := hcloud.ServerPublicNetIPv4{IP: net.ParseIP("203.0.113.7")}
	v6 := hcloud.ServerPublicNetIPv6{IP: net.ParseIP("2001:db8::")}
	private := []hcloud.ServerPrivateNet{
		{Network: &hcloud.Network{ID: 5}, IP: net.ParseIP("10.0.0.7")}, {Network: &hcloud.Network{ID: 6}, IP: net.ParseIP("10.1.0.7")}}
	both := hcloud.Server{PublicNet: hcloud.ServerPublicNet{IPv4: v4, IPv6: v6}}
	only6 := hcloud.Server{PublicNet: hcloud.ServerPublicNet{IPv6: v6}}
	private4 := hcloud.Server{PublicNet: hcloud.ServerPublicNet{IPv4: v4}, PrivateNet: private}
	bothPrivate := both
	bothPrivate.PrivateNet = private
	for _, tc := range []struct {
		name        string
		server      hcloud.Server
		network     int64
		family      AddressFamily
		want        string
		annotations map[string]string
	}{
		{"IPv4", both, 0, AddressFamilyIPv4, "ExternalIP=203.0.113.7", nil},
		{"IPv6", both, 0, AddressFamilyIPv6, "ExternalIP=2001:db8::1", nil},
		{"dual stack", both, 0, AddressFamilyDualStack, "ExternalIP=203.0.113.7 ExternalIP=2001:db8::1", nil},
		{"dual stack without IPv4", only6, 0, AddressFamilyDualStack, "ExternalIP=2001:db8::1", nil},
		{"the configured network", private4, 6, AddressFamilyIPv4, "ExternalIP=203.0.113.7 InternalIP=10.1.0.7", nil},
		{"not attached", private4, 9, AddressFamilyIPv4, "ExternalIP=203.0.113.7", nil},
		{"no network configured", private4, 0, AddressFamilyIPv4, "ExternalIP=203.0.113.7", nil},
		{"private only", hcloud.Server{PrivateNet: private}, 5, AddressFamilyIPv4, "InternalIP=10.0.0.7", nil},
		{"private only, no network configured", hcloud.Server{PrivateNet: private[:1]}, 0, AddressFamilyIPv4, "InternalIP=10.0.0.7", nil},
		{"IPv6 only, with the default family", only6, 0, AddressFamilyIPv4, "ExternalIP=2001:db8::1", nil},
		{"IPv6 only, in the network", hcloud.Server{PublicNet: hcloud.ServerPublicNet{IPv6: v6}, PrivateNet: private}, 5, AddressFamilyIPv4,
			"InternalIP=10.0.0.7", nil},
		{"IPv4 only, with family ipv6", hcloud.Server{PublicNet: hcloud.ServerPublicNet{IPv4: v4}}, 0, AddressFamilyIPv6,
			"ExternalIP=203.0.113.7", nil},
		{"another address of the IPv6 network", both, 0, AddressFamilyDualStack, "ExternalIP=203.0.113.7 ExternalIP=2001:db8::42",
			map[string]string{nodeinfo.AnnotationIPv6: "2001:db8::42"}},
		{"an address of another server", both, 0, AddressFamilyDualStack, "ExternalIP=203.0.113.7 ExternalIP=2001:db8::1",
			map[string]string{nodeinfo.AnnotationIPv6: "2001:db8:1::42"}},
		{"the kubelet's own IPv6 address", both, 0, AddressFamilyIPv4, "ExternalIP=203.0.113.7 ExternalIP=2001:db8::9",
			map[string]string{cloudproviderapi.AnnotationAlphaProvidedIPAddr: "2001:db8::9"}},
		{"the kubelet's two addresses", bothPrivate, 5, AddressFamilyIPv6, "ExternalIP=2001:db8::9 InternalIP=10.0.0.7",
			map[string]string{cloudproviderapi.AnnotationAlphaProvidedIPAddr: "10.0.0.7,2001:db8::9"}},
		{"the kubelet's address in another network", bothPrivate, 5, AddressFamilyIPv4,
			"ExternalIP=203.0.113.7 InternalIP=10.0.0.7 InternalIP=10.1.0.7",
			map[string]string{cloudproviderapi.AnnotationAlphaProvidedIPAddr: "10.1.0.7"}},
		{"the kubelet's IPv4 address", both, 0, AddressFamilyIPv6, "ExternalIP=203.0.113.7 ExternalIP=2001:db8::1",
			map[string]string{cloudproviderapi.AnnotationAlphaProvidedIPAddr: "203.0.113.7"}},
	} {
		var got []string
		node := ccmtest.Node("n", "")
		node.Annotations = tc.annotations
		for _, a := range (Settings{Family: tc.family}).addresses(&tc.server, node, tc.network) {
			if a.Type != corev1.NodeHostName {
				got = append(got, string(a.Type)+"="+a.Address)
			}
		}
		if strings.Join(got, " ") != tc.want {
			t.Errorf("%s: got %v, want %s", tc.name, got, tc.want)
		}
	}
}

func TestLabelsFollowTheServerAfterInitialization(t *testing.T) {
	t.Parallel()
	meta := &cloudprovider.InstanceMetadata{InstanceType: "cx32", Zone: "fsn1", Region: "eu-central",
		AdditionalLabels: map[string]string{"instance.hetzner.cloud/provided-by": "cloud"}}
	labelled := ccmtest.Node("n", ccmtest.ProviderID(1))
	labelled.Labels = map[string]string{corev1.LabelInstanceType: "cx22", corev1.LabelInstanceTypeStable: "cx22",
		corev1.LabelTopologyZone:          "fsn1",
		corev1.LabelFailureDomainBetaZone: "fsn1", corev1.LabelTopologyRegion: "eu-central",
		corev1.LabelFailureDomainBetaRegion: "eu-central", "mine": "kept"}
	kube := fake.NewClientset(labelled.DeepCopy())
	syncLabels(t.Context(), kube, labelled, meta)
	got, err := kube.CoreV1().Nodes().Get(t.Context(), "n", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got.Labels[corev1.LabelInstanceTypeStable] != "cx32" || got.Labels[corev1.LabelInstanceType] != "cx32" ||
		got.Labels["mine"] != "kept" || got.Labels["instance.hetzner.cloud/provided-by"] != "cloud" {
		t.Errorf("labels %v", got.Labels)
	}
	writes := len(kube.Actions())
	syncLabels(t.Context(), kube, got, meta)
	if len(kube.Actions()) != writes+0 {
		t.Errorf("writes without a difference: %v", kube.Actions()[writes:])
	}
	uninitialized := ccmtest.Node("m", "")
	uninitialized.Spec.Taints = []corev1.Taint{{Key: cloudproviderapi.TaintExternalCloudProvider}}
	if stale := staleLabels(uninitialized, meta); len(stale) != 0 {
		t.Errorf("labels of an uninitialized node: %v, want none", stale)
	}
}

// What has been so for long is asked less often.
func TestTheAgeOfDataAboutANodeGrowsWithTheNodesState(t *testing.T) {
	t.Parallel()
	clk := ccmtest.NewAutoClock()
	servers := inventory.NewServers(nil, clk, 10*time.Second, inventory.NewEvidence(clk, prometheus.NewRegistry(), false, nil))
	instances := NewInstances(servers, nil, Settings{}, nil, nil, nil, nil)
	node := func(created, notReady time.Duration, taints ...corev1.Taint) *corev1.Node {
		n := ccmtest.Node("node-1", ccmtest.ProviderID(1))
		n.Spec.Taints = taints
		if created > 0 {
			n.CreationTimestamp = metav1.NewTime(clk.Now().Add(-created))
		}
		if notReady > 0 {
			n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionFalse,
				LastTransitionTime: metav1.NewTime(clk.Now().Add(-notReady))}}
		}
		return n
	}
	for name, tc := range map[string]struct {
		node *corev1.Node
		want time.Duration
	}{
		"NotReady for a moment":       {node(time.Hour, 5*time.Second), 10 * time.Second},
		"NotReady for a minute":       {node(time.Hour, time.Minute), 30 * time.Second},
		"NotReady for an hour":        {node(2*time.Hour, time.Hour), inventory.MaxNotReadyAge},
		"without a condition":         {node(time.Minute, 0), 30 * time.Second},
		"nothing is known about when": {node(0, 0), 0},
	} {
		if got := instances.notReadyAge(tc.node); got != tc.want || nodeinfo.IsReady(tc.node) {
			t.Errorf("a Node %s: %v, want %v; it is ready: %t", name, got, tc.want, nodeinfo.IsReady(tc.node))
		}
	}
	fresh := corev1.Taint{Key: cloudproviderapi.TaintExternalCloudProvider}
	for name, tc := range map[string]struct {
		node     *corev1.Node
		want     time.Duration
		periodic bool
	}{
		"new":                                 {node(15*time.Second, 0, fresh), 10 * time.Second, false},
		"a minute old":                        {node(time.Minute, 0, fresh), 50 * time.Second, false}, // the clocks may differ
		"a day old and never initialized":     {node(24*time.Hour, 0, fresh), inventory.MaxInitAge, false},
		"whose creation is not known":         {node(0, 0, fresh), 0, false},
		"initialized, with a taint of a user": {node(time.Minute, 0, corev1.Taint{Key: "dedicated"}), 0, true},
	} {
		ctx, ask := instances.askForMetadata(t.Context(), tc.node)
		if ask.MaxAge != tc.want || apicall.PurposeOf(ctx).Periodic != tc.periodic {
			t.Errorf("a Node %s: %v, %+v; want %v, periodic %t", name, ask.MaxAge, apicall.PurposeOf(ctx), tc.want, tc.periodic)
		}
	}
}
