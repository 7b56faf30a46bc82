package cluster

import (
	"encoding/json"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
)

func TestANetworkIsDividedWithoutOverlaps(t *testing.T) {
	t.Parallel()
	n := Network{Name: "x", Subnet: netip.MustParsePrefix("172.25.0.0/16"), PodCIDR: DefaultPodCIDR}
	if err := n.validate(); err != nil {
		t.Fatal(err)
	}
	ranges := []netip.Prefix{n.Servers(), n.LoadBalancers(), n.Anonymous(), netip.PrefixFrom(n.Host(), 24).Masked()}
	for i, a := range ranges {
		if !n.Subnet.Contains(a.Addr()) {
			t.Errorf("%s is not in %s", a, n.Subnet)
		}
		for _, b := range ranges[:i] {
			if a.Overlaps(b) {
				t.Errorf("%s overlaps %s", a, b)
			}
		}
	}
	if n.Router() != netip.MustParseAddr("172.25.0.10") || n.Server(0) != netip.MustParseAddr("172.25.1.2") ||
		!n.Servers().Contains(n.Server(maxServers-1)) || n.Server(maxServers - 1).As4()[3] == 255 {
		t.Errorf("router %s, servers %s to %s", n.Router(), n.Server(0), n.Server(maxServers-1))
	}
}

func TestClustersAtTheSameTimeHaveNetworksOfTheirOwn(t *testing.T) {
	t.Parallel()
	seen := map[netip.Prefix]bool{}
	for i := range 11 {
		p := Offset(i)
		if seen[p] || (Network{Subnet: p, PodCIDR: DefaultPodCIDR}).validate() != nil {
			t.Errorf("%d: %s", i, p)
		}
		seen[p] = true
	}
	if Offset(0) != DefaultSubnet {
		t.Errorf("the first has %s", Offset(0))
	}
}

func TestOptionsAreCheckedBeforeAnythingIsMade(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*Options){
		`KIND_NAME="No_Good": must be`:                  func(o *Options) { o.Name = "No_Good" },
		"--workers=-1: must be from 0 to 252":           func(o *Options) { o.Workers = -1 },
		"KIND_SUBNET=10.0.0.0/8: must be an IPv4 /16":   func(o *Options) { o.Subnet = netip.MustParsePrefix("10.0.0.0/8") },
		"KIND_SUBNET=127.0.0.0/16: must be an IPv4 /16": func(o *Options) { o.Subnet = netip.MustParsePrefix("127.0.0.0/16") },
		"overlaps the pods' range 172.30.0.0/16":        func(o *Options) { o.PodCIDR = DefaultSubnet },
		"overlaps the cloud's public addresses":         func(o *Options) { o.Subnet = netip.MustParsePrefix("198.18.0.0/16") },
		"room for a /24":                                func(o *Options) { o.PodCIDR = netip.MustParsePrefix("10.0.0.0/24") },
		"overlaps that of Services":                     func(o *Options) { o.PodCIDR = serviceCIDR },
		"--node-monitor-grace-period=-1s: must be":      func(o *Options) { o.NodeMonitorGracePeriod = -time.Second },
	} {
		o := Options{Name: "x", Image: "y", Workers: 1}
		if _, err := o.complete(); err != nil {
			t.Fatal(err)
		}
		change(&o)
		if _, err := o.complete(); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("got %v, want an error that says %q", err, name)
		}
		if _, err := Create(t.Context(), o); err == nil {
			t.Errorf("%s: it was made", name)
		}
	}
	if _, err := Create(t.Context(), Options{Name: "x"}); err == nil || !strings.Contains(err.Error(), "needs an image") {
		t.Errorf("without an image: %v", err)
	}
	if _, err := ParseSubnet("foo"); err == nil || err.Error() != "KIND_SUBNET=foo: must be an IPv4 /16, such as 172.30.0.0/16" {
		t.Error(err)
	}
}

func TestNodesAreNamedAsKindNamesThem(t *testing.T) {
	t.Parallel()
	if got := nodeNames("c", 3); !slices.Equal(got, []string{"c-control-plane", "c-worker", "c-worker2", "c-worker3"}) {
		t.Error(got)
	}
}

func TestKindsConfigurationWaitsForACCM(t *testing.T) {
	t.Parallel()
	o, err := Options{Name: "x", Image: "img", Workers: 2, NodeMonitorGracePeriod: 20 * time.Second}.complete()
	if err != nil {
		t.Fatal(err)
	}
	config, err := o.kindConfig(false)
	if err != nil {
		t.Fatal(err)
	}
	if len(config.Nodes) != 3 || config.Nodes[2].Image != "img" || !config.Networking.DisableDefaultCNI ||
		len(config.KubeadmConfigPatches) != 1 {
		t.Errorf("%+v", config)
	}
	// What kind generates, as far as the patches go.
	documents := map[string]string{
		"InitConfiguration":    `{"nodeRegistration":{"kubeletExtraArgs":[{"name":"node-ip","value":"1"},{"name":"provider-id","value":"kind://"},{"name":"node-labels","value":""}]}}`,
		"ClusterConfiguration": `{"controllerManager":{"extraArgs":[{"name":"enable-hostpath-provisioner","value":"true"}]}}`,
	}
	documents["JoinConfiguration"] = documents["InitConfiguration"]
	wants := map[string]string{
		"InitConfiguration":    `{"name":"node-ip","value":"1"},{"name":"cloud-provider","value":"external"},{"name":"node-labels","value":""}`,
		"ClusterConfiguration": `{"name":"node-monitor-grace-period","value":"20s"}`,
	}
	wants["JoinConfiguration"] = wants["InitConfiguration"]
	for _, p := range config.KubeadmConfigPatchesJSON6902 {
		patch, err := jsonpatch.DecodePatch([]byte(p.Patch))
		if err != nil {
			t.Fatal(err)
		}
		got, err := patch.Apply([]byte(documents[p.Kind]))
		if err != nil || !strings.Contains(string(got), wants[p.Kind]) {
			t.Errorf("%s became %s, %v", p.Kind, got, err)
		}
		if patient := strings.Contains(string(got),
			`"timeouts":{"kubernetesAPICall":"4m0s"}`); patient == (p.Kind == "ClusterConfiguration") {
			t.Errorf("%s became %s, and kubeadm's patience is a setting of the others", p.Kind, got)
		}
		delete(documents, p.Kind)
		// A kind that has moved its arguments must not be patched elsewhere.
		if p.Kind == "ClusterConfiguration" {
			continue
		}
		if _, err := patch.Apply([]byte(`{"nodeRegistration":{"kubeletExtraArgs":[{"name":"provider-id"},{"name":"node-ip"}]}}`)); err == nil {
			t.Errorf("%s: another argument was replaced", p.Kind)
		}
	}
	if len(documents) > 0 {
		t.Errorf("not patched: %v", documents)
	}
	if config, err = o.kindConfig(true); err != nil || len(config.KubeadmConfigPatches) != 1 {
		t.Errorf("on cgroup v1 the kubelet must be told: %v, %v", config.KubeadmConfigPatches, err)
	}
}

func TestAJoinConfigurationPinsTheCA(t *testing.T) {
	t.Parallel()
	const ca = `-----BEGIN CERTIFICATE-----
MIIBTjCB9KADAgECAhQVDU6uVDu0FuoSC0P7vb0ruSAaUDAKBggqhkjOPQQDAjAN
MQswCQYDVQQDDAJjYTAeFw0yNjAxMDEwMDAwMDBaFw0zNjAxMDEwMDAwMDBaMA0x
CzAJBgNVBAMMAmNh
-----END CERTIFICATE-----`
	if _, err := caHash([]byte(ca)); err == nil {
		t.Error("half a certificate was taken")
	}
	if _, err := caHash([]byte("nothing")); err == nil || !strings.Contains(err.Error(), "PEM") {
		t.Errorf("got %v", err)
	}
	text, err := joinConfiguration("n", netip.MustParseAddr("172.30.1.9"), "cp:6443", "a.b", "sha256:c")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"caCertHashes:\n    - sha256:c", "name: cloud-provider\n    value: external", "value: 172.30.1.9",
		"token: a.b"} {
		if !strings.Contains(text, want) {
			t.Errorf("there is no %q in\n%s", want, text)
		}
	}
}

func TestContainersAreReadWithTheAddressTheyAskedFor(t *testing.T) {
	t.Parallel()
	inspected := func(address string) []byte {
		text, err := json.Marshal([]any{map[string]any{
			"Name": "/b", "State": map[string]any{"Running": false},
			"Config": map[string]any{"Labels": map[string]string{labelKindRole: "worker"}},
			"NetworkSettings": map[string]any{"Networks": map[string]any{"net": map[string]any{
				"IPAddress": "", "IPAMConfig": map[string]any{"IPv4Address": address},
			}}},
		}})
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	got, err := parseContainers(inspected("172.30.1.4"), "net")
	want := []NodeContainer{{
		Name: "b", Role: "worker", Address: netip.MustParseAddr("172.30.1.4"),
		Labels: map[string]string{labelKindRole: "worker"},
	}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v, %v", got, err)
	}
	// It was being moved.
	want[0].Address = netip.Addr{}
	if got, err := parseContainers(inspected("172.30.1.4"), "other"); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := parseContainers(inspected(""), "net"); err == nil || !strings.Contains(err.Error(), "no fixed address") {
		t.Errorf("got %v", err)
	}
}

func TestFuseOverlayfsIsForRootlessDockerOnly(t *testing.T) {
	for _, test := range []struct {
		host   host
		chosen string
		want   string
	}{
		{host: host{Driver: "overlay2"}},
		{host: host{Driver: "fuse-overlayfs"}, want: "overlayfs"},
		{host: host{Driver: "fuse-overlayfs", SecurityOptions: []string{"name=seccomp", "name=rootless"}}},
		{host: host{Driver: "overlay2"}, chosen: "native", want: "native"},
	} {
		t.Setenv(snapshotterVariable, test.chosen)
		if got := test.host.snapshotter(); got != test.want {
			t.Errorf("%+v, told %q: %q, want %q", test.host, test.chosen, got, test.want)
		}
	}
}

func TestKubeletsNoticeAndRestartWithinTheGracePeriod(t *testing.T) {
	t.Parallel()
	const restart = "crashLoopBackOff:\n  maxContainerRestartPeriod: 2s\n"
	for _, c := range []struct {
		grace    time.Duration
		cgroupV1 bool
		want     string
	}{
		{0, false, ""},
		{0, true, "failCgroupV1: false\n"},
		{50 * time.Second, false, restart},
		{8 * time.Second, false, restart + "nodeLeaseDurationSeconds: 8\nnodeStatusUpdateFrequency: 2s\n"},
		{2 * time.Second, true, "failCgroupV1: false\n" + restart + "nodeLeaseDurationSeconds: 2\nnodeStatusUpdateFrequency: 1s\n"},
	} {
		if got := (Options{NodeMonitorGracePeriod: c.grace}).kubeletSettings(c.cgroupV1); got != c.want {
			t.Errorf("%s, %t: %q, want %q", c.grace, c.cgroupV1, got, c.want)
		}
	}
}
