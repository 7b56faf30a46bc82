package node

import (
	"maps"
	"slices"
	"testing"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	cloudprovider "k8s.io/cloud-provider"
	cloudproviderapi "k8s.io/cloud-provider/api"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/ccmtest"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/nodeinfo"
)

func TestProviderIDAndTopologyFollowTheConvention(t *testing.T) {
	t.Parallel()
	in := func(location string) *hcloud.Server {
		return &hcloud.Server{ID: 7, Location: &hcloud.Location{Name: location, NetworkZone: "eu-central"}}
	}
	for name, tc := range map[string]struct {
		settings     Settings
		server       *hcloud.Server
		node         *corev1.Node
		id           string
		region, zone string
	}{
		"default": {Settings{}, in("fsn1"), ccmtest.Node("n", ""), "ccm-from-scratch://7", "eu-central", "fsn1"},
		"own": {Settings{ProviderIDs: nodeinfo.ConventionOwn, Topology: nodeinfo.ConventionOwn}, in("fsn1"),
			ccmtest.Node("n", ""), "ccm-from-scratch://7", "eu-central", "fsn1"},
		"production": {Settings{ProviderIDs: nodeinfo.ConventionHcloud, Topology: nodeinfo.ConventionHcloud}, in("fsn1"),
			ccmtest.Node("n", ""), "hcloud://7", "fsn1", "fsn1-dc14"},
		"production, a later location": {Settings{Topology: nodeinfo.ConventionHcloud}, in("zrh1"), ccmtest.Node("n", ""),
			"ccm-from-scratch://7", "zrh1", "zrh1"},
		"without zones": {Settings{NoZone: true}, in("nbg1"), ccmtest.Node("n", ""), "ccm-from-scratch://7", "eu-central",
			""},
		"a Node of the production CCM": {Settings{}, in("fsn1"), ccmtest.Node("n", "hcloud://7"), "hcloud://7", "eu-central", "fsn1"},
		"a Node of ours, going back": {Settings{ProviderIDs: nodeinfo.ConventionHcloud}, in("fsn1"),
			ccmtest.Node("n", "ccm-from-scratch://7"), "ccm-from-scratch://7", "eu-central", "fsn1"},
		"production, without zones too": {Settings{Topology: nodeinfo.ConventionHcloud, NoZone: true}, in("hel1"), ccmtest.Node("n", ""),
			"ccm-from-scratch://7", "hel1", ""},
	} {
		got := tc.settings.metadata(tc.server, tc.node, 0)
		if got.ProviderID != tc.id || got.Region != tc.region || got.Zone != tc.zone {
			t.Errorf("%s: %s in %q, %q; want %s in %q, %q", name, got.ProviderID, got.Region, got.Zone, tc.id, tc.region, tc.zone)
		}
	}
}

// A Node that another CCM has initialized keeps its topology labels: volumes and workloads depend on them.
func TestTopologyLabelsAreAddedButNeverChanged(t *testing.T) {
	t.Parallel()
	meta := &cloudprovider.InstanceMetadata{InstanceType: "cx32", Region: "eu-central", Zone: "fsn1"}
	moved := ccmtest.Node("n", "hcloud://1")
	moved.Labels = map[string]string{corev1.LabelTopologyRegion: "fsn1", corev1.LabelTopologyZone: "fsn1-dc14",
		corev1.LabelInstanceTypeStable: "cx22"}
	want := map[string]string{
		corev1.LabelInstanceType: "cx32", corev1.LabelInstanceTypeStable: "cx32",
		corev1.LabelFailureDomainBetaRegion: "fsn1", corev1.LabelFailureDomainBetaZone: "fsn1-dc14",
	}
	if got := staleLabels(moved, meta); !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	bare := ccmtest.Node("n", "hcloud://1")
	if got := staleLabels(bare, meta); got[corev1.LabelTopologyRegion] != "eu-central" || got[corev1.LabelTopologyZone] != "fsn1" {
		t.Errorf("missing labels: %v", got)
	}
}

func TestNodesGetLabelsAndTaintsOfTheirServers(t *testing.T) {
	t.Parallel()
	node := ccmtest.Node("n", ccmtest.ProviderID(1))
	node.Labels = map[string]string{"by-hand": "kept", "pool": "old", "kubernetes.io/hostname": "n"}
	node.Spec.Taints = []corev1.Taint{{Key: cloudproviderapi.TaintExternalCloudProvider, Effect: corev1.TaintEffectNoSchedule},
		{Key: "other", Effect: corev1.TaintEffectNoExecute}}
	kube := fake.NewClientset(node)
	f := &fromServer{kube: kube, labels: []LabelPattern{"pool", "example.org/*", "node-role.kubernetes.io/*"},
		taints: []TaintPattern{{"dedicated", corev1.TaintEffectNoSchedule}}}
	server := &hcloud.Server{ID: 1, Name: "n", Labels: map[string]string{
		"pool": "web", "example.org/rack": "7", "node-role.kubernetes.io/web": "", "dedicated": "gpu", "private": "x",
		"kubernetes.io/hostname": "stolen"}}
	sync := func() *corev1.Node {
		t.Helper()
		now, err := kube.CoreV1().Nodes().Get(t.Context(), "n", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if err := f.sync(t.Context(), now, server); err != nil {
			t.Fatal(err)
		}
		now, _ = kube.CoreV1().Nodes().Get(t.Context(), "n", metav1.GetOptions{})
		return now
	}
	texts := func(n *corev1.Node) (all []string) {
		for _, taint := range n.Spec.Taints {
			all = append(all, taint.ToString())
		}
		slices.Sort(all)
		return all
	}
	got := sync()
	wantLabels := map[string]string{"by-hand": "kept", "kubernetes.io/hostname": "n", "pool": "web", "example.org/rack": "7",
		"node-role.kubernetes.io/web": ""}
	if !maps.Equal(got.Labels, wantLabels) {
		t.Errorf("labels %v, want %v", got.Labels, wantLabels)
	}
	if want := []string{"dedicated=gpu:NoSchedule", "node.cloudprovider.kubernetes.io/uninitialized:NoSchedule",
		"other:NoExecute"}; !slices.Equal(texts(got), want) {
		t.Errorf("taints %v, want %v", texts(got), want)
	}
	before := len(kube.Actions())
	sync()
	for _, a := range kube.Actions()[before:] {
		if a.GetVerb() != "get" {
			t.Errorf("a write without a difference: %v", a)
		}
	}

	server.Labels = map[string]string{"pool": "db"}
	got = sync()
	if want := map[string]string{"by-hand": "kept", "kubernetes.io/hostname": "n", "pool": "db"}; !maps.Equal(got.Labels, want) ||
		len(texts(got)) != 2 {
		t.Errorf("the server has lost its labels, the node has %v, %v", got.Labels, texts(got))
	}
	if err := (&fromServer{labels: f.labels}).sync(t.Context(), ccmtest.Node("n", ccmtest.ProviderID(1)), server); err != nil {
		t.Errorf("without a Kubernetes client: %v", err)
	}
	f.labels, f.taints = nil, nil // switched off
	got = sync()
	if want := map[string]string{"by-hand": "kept", "kubernetes.io/hostname": "n"}; !maps.Equal(got.Labels, want) ||
		len(got.Annotations) != 0 {
		t.Errorf("switched off, the node has %v, %v", got.Labels, got.Annotations)
	}
}

// The API server refuses a Node with the same taint twice.
func TestTwoPatternsForOneLabelMakeOneTaint(t *testing.T) {
	t.Parallel()
	f := &fromServer{taints: []TaintPattern{{"dedicated", corev1.TaintEffectNoSchedule}, {"dedi*", corev1.TaintEffectNoSchedule},
		{"dedicated", corev1.TaintEffectNoExecute}}}
	if got := f.taintsOf(map[string]string{"dedicated": "db", "other": "x"}); len(got) != 2 {
		t.Errorf("got %v, want one taint for each effect", got)
	}
	if got := f.taintsOf(map[string]string{"dedicated": "not a label!"}); len(got) != 0 {
		t.Errorf("got %v for a value that no taint can have", got)
	}
}
