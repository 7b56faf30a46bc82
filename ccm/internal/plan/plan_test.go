package plan

import (
	"fmt"
	"net"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/ccmtest"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/nodeinfo"
)

const testUID = "0d3a5b0e-7c1f-4a53-9d0c-54b6f2b6a001"

// testService returns a Service of type LoadBalancer with these ports ("80:30080") and annotations
// (without prefix).
func testService(annotations map[string]string, ports ...[2]int32) *corev1.Service {
	svc := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: testUID, Annotations: map[string]string{}},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer},
	}
	for k, v := range annotations {
		svc.Annotations[AnnotationPrefix+k] = v
	}
	for _, p := range ports {
		svc.Spec.Ports = append(svc.Spec.Ports, corev1.ServicePort{Protocol: corev1.ProtocolTCP, Port: p[0], NodePort: p[1]})
	}
	return svc
}

// planFor plans a load balancer. It fails the test if the settings are invalid.
func planFor(t *testing.T, in Input) (*LoadBalancer, []string) {
	t.Helper()
	s, _, mistakes := ParseAnnotations(in.Service.Annotations, nil)
	if mistakes = append(mistakes, CheckService(in.Service, &s, in.NetworkID != 0)...); len(mistakes) > 0 {
		t.Fatal(mistakes)
	}
	in.Settings = &s
	plan, notes := Compute(in)
	var texts []string
	for _, n := range notes {
		texts = append(texts, n.Text)
	}
	return plan, texts
}

func server(id int64, public, private string) *hcloud.Server {
	s := &hcloud.Server{ID: id}
	if public != "" {
		s.PublicNet.IPv4.IP = net.ParseIP(public)
	}
	if private != "" {
		s.PrivateNet = []hcloud.ServerPrivateNet{{Network: &hcloud.Network{ID: 5}, IP: net.ParseIP(private)}}
	}
	return s
}

// withServers returns a plan input with n servers, each with a Node.
func withServers(annotations map[string]string, n int64) Input {
	in := Input{Service: testService(annotations, [2]int32{80, 30080}), NetworkID: 5, Servers: map[int64]*hcloud.Server{}}
	for id := int64(1); id <= n; id++ {
		in.Servers[id] = server(id, fmt.Sprintf("203.0.113.%d", id), fmt.Sprintf("10.0.0.%d", id))
		in.Nodes = append(in.Nodes, ccmtest.Node(fmt.Sprintf("node-%d", id), ccmtest.ProviderID(id)))
	}
	return in
}

// The condition of a Node may be wrong for a moment, and clients use its target.
func TestATargetWhoseNodeHasNoRouteAnyMoreStays(t *testing.T) {
	t.Parallel()
	in := withServers(nil, 3)
	for _, n := range in.Nodes[:2] {
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeNetworkUnavailable, Status: corev1.ConditionTrue,
			Reason: nodeinfo.ReasonNoRoute}}
	}
	in.Current = built(simple(public(1, 3), 80))
	if plan, _ := planFor(t, in); !slices.Equal(plan.Targets, public(1, 3)) {
		t.Errorf("targets %v, want those that there are, and not node-2, which never had a route", plan.Targets)
	}
}

// HCLOUD_NETWORK names another network by mistake: a new Node is a target in the network in which the load balancer stays.
func TestANewNodeIsATargetInTheNetworkInWhichTheLoadBalancerStays(t *testing.T) {
	t.Parallel()
	in := withServers(map[string]string{"use-private-ip": "true"}, 2)
	now := simple([]Target{{1, true}}, 80)
	now.NetworkID = in.NetworkID
	in.Current, in.NetworkID = built(now), 7
	if plan, _ := planFor(t, in); !slices.Equal(plan.Targets, []Target{{1, true}, {2, true}}) {
		t.Errorf("targets %v", plan.Targets)
	}
}

func TestPlanOfASimpleService(t *testing.T) {
	t.Parallel()
	plan, skipped := planFor(t, Input{
		Service: testService(nil, [2]int32{443, 30443}, [2]int32{80, 30080}),
		Nodes:   []*corev1.Node{ccmtest.Node("b", ccmtest.ProviderID(2)), ccmtest.Node("a", ccmtest.ProviderID(1))},
		Servers: map[int64]*hcloud.Server{1: server(1, "203.0.113.1", ""), 2: server(2, "203.0.113.2", "")},
	})
	check := func(port int) hcloud.LoadBalancerServiceHealthCheck {
		return hcloud.LoadBalancerServiceHealthCheck{Protocol: "tcp", Port: port, Interval: 15 * time.Second, Timeout: 10 * time.Second,
			Retries: 3}
	}
	want := &LoadBalancer{
		UID: testUID, CreateName: "a0d3a5b0e7c1f4a539d0c54b6f2b6a00", Public: true, Labels: map[string]string{},
		Targets: []Target{{ServerID: 1}, {ServerID: 2}}, Chosen: []int64{1, 2},
		Services: []hcloud.LoadBalancerService{
			{Protocol: "tcp", ListenPort: 80, DestinationPort: 30080, HealthCheck: check(30080)},
			{Protocol: "tcp", ListenPort: 443, DestinationPort: 30443, HealthCheck: check(30443)},
		},
	}
	if !reflect.DeepEqual(plan, want) || len(skipped) != 0 {
		t.Errorf("got  %+v, %v\nwant %+v", plan, skipped, want)
	}
}

func TestPlanTakesEverySettingFromTheAnnotations(t *testing.T) {
	t.Parallel()
	plan, _ := planFor(t, Input{
		NetworkID: 5, Certificates: map[int][]int64{443: {8, 9}},
		Nodes:   []*corev1.Node{ccmtest.Node("a", ccmtest.ProviderID(1))},
		Servers: map[int64]*hcloud.Server{1: server(1, "", "10.0.1.1")},
		Service: testService(map[string]string{
			"name": "edge", "location": "fsn1", "type": "lb31", "algorithm-type": "least_connections", "ipv4-rdns": "a.example.org",
			"ipv6-rdns":              "b.example.org",
			"disable-public-network": "true", "labels": "team=web", "delete-protection": "true", "private-ipv4": "10.0.1.99",
			"private-subnet-ip-range": "10.0.1.0/24", "protocol": "https", "uses-proxyprotocol": "true",
			"http-cookie-name": "C", "http-cookie-lifetime": "1m", "http-timeout-idle": "40s", "http-sticky-sessions": "true",
			"http-redirect-http": "true",
			"http-certificates":  "8,9", "health-check-protocol": "https", "health-check-port": "9000", "health-check-interval": "5s",
			"health-check-timeout": "4s",
			"health-check-retries": "2", "health-check-http-domain": "example.org", "health-check-http-path": "/up",
			"http-status-codes": "200,204",
		}, [2]int32{443, 30443}),
	})
	want := &LoadBalancer{
		UID: testUID, Name: "edge", CreateName: "edge", Type: "lb31", Location: "fsn1", Algorithm: "least_connections", NetworkID: 5,
		PrivateIPv4: netip.MustParseAddr("10.0.1.99"), PrivateSubnet: netip.MustParsePrefix("10.0.1.0/24"), Public: false,
		Labels: map[string]string{"team": "web"}, DeleteProtection: new(true),
		IPv4RDNS: "a.example.org", IPv6RDNS: "b.example.org", Targets: []Target{{1, true}}, Chosen: []int64{1},
		Services: []hcloud.LoadBalancerService{{
			Protocol: "https", ListenPort: 443, DestinationPort: 30443, Proxyprotocol: true,
			HTTP: hcloud.LoadBalancerServiceHTTP{CookieName: "C", CookieLifetime: time.Minute, TimeoutIdle: 40 * time.Second,
				StickySessions: true,
				RedirectHTTP:   true, Certificates: []*hcloud.Certificate{{ID: 8}, {ID: 9}}},
			HealthCheck: hcloud.LoadBalancerServiceHealthCheck{Protocol: "http", Port: 9000, Interval: 5 * time.Second,
				Timeout: 4 * time.Second, Retries: 2,
				HTTP: &hcloud.LoadBalancerServiceHealthCheckHTTP{Domain: "example.org", Path: "/up", StatusCodes: []string{"200", "204"},
					TLS: true}},
		}},
	}
	if !reflect.DeepEqual(plan, want) {
		t.Errorf("got  %+v\nwant %+v", plan, want)
	}
}

func TestPlanTargets(t *testing.T) {
	t.Parallel()
	labelled := ccmtest.Node("web", ccmtest.ProviderID(3))
	labelled.Labels = map[string]string{"pool": "web"}
	nodes := []*corev1.Node{
		ccmtest.Node("public", ccmtest.ProviderID(1)), ccmtest.Node("private-only", ccmtest.ProviderID(2)), labelled,
		ccmtest.Node("not-initialized", ""), ccmtest.Node("foreign", "aws:///x/i-1"), ccmtest.Node("server-gone", ccmtest.ProviderID(44)),
		ccmtest.Node("malformed", "ccm-from-scratch://x"),
	}
	servers := map[int64]*hcloud.Server{1: server(1, "203.0.113.1", ""), 2: server(2, "", "10.0.0.2"),
		3: server(3, "203.0.113.3", "10.0.0.3")}
	for _, tc := range []struct {
		name        string
		annotations map[string]string
		want        []Target
		skipped     string
	}{
		{"public addresses, and private ones where there is no other", nil, []Target{{1, false}, {2, true}, {3, false}}, "foreign"},
		{"only public addresses", map[string]string{"use-private-ip": "false"}, []Target{{1, false}, {3, false}}, "private-only"},
		{"private addresses", map[string]string{"use-private-ip": "true"}, []Target{{2, true}, {3, true}}, "public"},
		{"no public interface", map[string]string{"disable-public-network": "true"}, []Target{{2, true}, {3, true}}, "public"},
		{"node selector", map[string]string{"node-selector": "pool=web"}, []Target{{3, false}}, ""},
		{"selector that matches none", map[string]string{"node-selector": "pool=db"}, nil, "pool=db"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			plan, skipped := planFor(t, Input{Service: testService(tc.annotations, [2]int32{80, 30080}), Nodes: nodes, Servers: servers,
				NetworkID: 5})
			if !slices.Equal(plan.Targets, tc.want) {
				t.Errorf("got %v, want %v", plan.Targets, tc.want)
			}
			if (len(skipped) > 0) != (tc.skipped != "") || len(skipped) > 0 && !strings.HasSuffix(skipped[0], ": "+tc.skipped) {
				t.Errorf("skipped: %v, want %q", skipped, tc.skipped)
			}
		})
	}
}

func TestHealthCheckFollowsTheTrafficPolicy(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name        string
		local       bool
		annotations map[string]string
		protocol    hcloud.LoadBalancerServiceProtocol
		port        int
		path        string
		tls         bool
	}{
		{"Cluster", false, nil, "tcp", 30080, "", false},
		{"Local", true, nil, "http", 31999, "/healthz", false},
		{"Local, timing only", true, map[string]string{"health-check-retries": "1"}, "http", 31999, "/healthz", false},
		{"Local, protocol chosen", true, map[string]string{"health-check-protocol": "tcp"}, "tcp", 30080, "", false},
		{"Local, port chosen", true, map[string]string{"health-check-port": "9000"}, "tcp", 9000, "", false},
		{"http", false, map[string]string{"health-check-protocol": "http"}, "http", 30080, "/", false},
		{"https", false, map[string]string{"health-check-protocol": "https", "health-check-http-path": "/x"}, "http", 30080, "/x", true},
		{"http Service", false, map[string]string{"protocol": "http"}, "tcp", 30080, "", false},
		{"http Service, path", false, map[string]string{"protocol": "http", "health-check-http-path": "/up"}, "http", 30080, "/up", false},
		{"http Service, interval", false, map[string]string{"protocol": "HTTP", "health-check-interval": "5s"}, "http", 30080, "/", false},
		{"http Service, tcp check", false, map[string]string{"protocol": "http", "health-check-protocol": "tcp"}, "tcp", 30080, "", false},
		{"https Service, path: the load balancer ends TLS", false, map[string]string{"protocol": "https", "http-certificates": "1",
			"health-check-http-path": "/up"}, "http", 30080, "/up", false},
		{"tcp Service, path", false, map[string]string{"health-check-http-path": "/up"}, "tcp", 30080, "", false},
		{"http over TLS", false, map[string]string{"health-check-protocol": "http", "health-check-http-validate-certificate": "true"},
			"http", 30080, "/", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			svc := testService(tc.annotations, [2]int32{80, 30080})
			if tc.local {
				svc.Spec.ExternalTrafficPolicy, svc.Spec.HealthCheckNodePort = corev1.ServiceExternalTrafficPolicyLocal, 31999
			}
			plan, _ := planFor(t, Input{Service: svc})
			hc := plan.Services[0].HealthCheck
			if hc.Protocol != tc.protocol || hc.Port != tc.port || (hc.HTTP != nil) != (tc.path != "") || hc.HTTP != nil &&
				(hc.HTTP.Path != tc.path || hc.HTTP.TLS != tc.tls) {
				t.Errorf("got %+v, %+v", hc, hc.HTTP)
			}
		})
	}
}

func TestUnsupportedSettingsAreRefusedBeforeAnyCall(t *testing.T) {
	t.Parallel()
	udp := testService(nil, [2]int32{53, 30053})
	udp.Spec.Ports[0].Protocol = corev1.ProtocolUDP
	for name, tc := range map[string]struct {
		svc     *corev1.Service
		network bool
		want    []string
	}{
		"private addresses without network": {testService(map[string]string{"use-private-ip": "true", "private-ipv4": "10.0.0.1",
			"private-subnet-ip-range": "10.0.0.0/24"}, [2]int32{80, 1}), false,
			[]string{"use-private-ip", "private-ipv4", "private-subnet-ip-range", "HCLOUD_NETWORK"}},
		"no interface at all": {testService(map[string]string{"disable-public-network": "true"}, [2]int32{80, 1}), false,
			[]string{"disable-public-network", "HCLOUD_NETWORK"}},
		"contradiction": {testService(map[string]string{"disable-public-network": "true", "use-private-ip": "false"},
			[2]int32{80, 1}), true, []string{"contradicts"}},
		"address outside of subnet": {testService(map[string]string{"private-ipv4": "10.0.2.1", "private-subnet-ip-range": "10.0.1.0/24"},
			[2]int32{80, 1}), true, []string{"10.0.2.1", "10.0.1.0/24"}},
		"redirect without https": {testService(map[string]string{"http-redirect-http": "true", "protocol": "http"}, [2]int32{80, 1}),
			true, []string{"http-redirect-http", "https"}},
		"https without certificate": {testService(map[string]string{"protocol": "https"}, [2]int32{80, 1}), true,
			[]string{"http-certificates"}},
		"managed without domains": {testService(map[string]string{"protocol": "https", "certificate-type": "managed"}, [2]int32{80, 1}),
			true, []string{"http-managed-certificate-domains"}},
		"UDP":          {udp, true, []string{"port 53", "UDP"}},
		"no node port": {testService(nil, [2]int32{80, 0}), true, []string{"port 80", "node port"}},
		"no ports":     {testService(nil), true, []string{"no ports"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, _, mistakes := ParseAnnotations(tc.svc.Annotations, nil)
			if len(mistakes) > 0 {
				t.Fatal(mistakes)
			}
			err := InvalidSettings(CheckService(tc.svc, &s, tc.network)...)
			if err == nil {
				t.Fatal("accepted")
			}
			for _, want := range tc.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q is missing in: %v", want, err)
				}
			}
		})
	}
}

func TestASettingWithoutAnEffectIsReported(t *testing.T) {
	t.Parallel()
	const prefix = AnnotationPrefix
	for name, tc := range map[string]struct {
		set  map[string]string
		want string // after Ignored
	}{
		"a path of a TCP check": {map[string]string{"health-check-http-path": "/up"}, "health-check-http-path: the health check is TCP; " +
			"set " + prefix + "health-check-protocol to http or https"},
		"with HTTP":                 {map[string]string{"health-check-http-path": "/up", "protocol": "http"}, ""},
		"on the first of two ports": {map[string]string{"health-check-http-path": "/up", "protocol.80": "http"}, ""},
		"a cookie of TCP": {map[string]string{"http-cookie-name": "c"}, "http-cookie-name: the protocol is tcp; set " + prefix +
			"protocol to http or https"},
		"certificates of TCP": {map[string]string{"http-certificates": "1"}, "http-certificates: the port has no certificates, or a " +
			"managed one; set " + prefix + "protocol to https, and " + prefix + "certificate-type to uploaded"},
		"domains of an uploaded one": {map[string]string{"http-managed-certificate-domains": "example.org", "protocol": "https",
			"http-certificates": "1"}, "http-managed-certificate-domains: the port has no managed certificate; set " + prefix +
			"protocol to https, and " + prefix + "certificate-type to managed"},
		"a zone beside a location": {map[string]string{"network-zone": "eu-central", "location": "fsn1"}, "network-zone: " + prefix +
			"location takes precedence; remove one of them"},
		"namespaces of nothing shared": {map[string]string{"shared-namespaces": "*"}, "shared-namespaces: the Service shares nothing; " +
			"set " + prefix + "shared to true"},
		"no IPv6 beside a name": {map[string]string{"ipv6-disabled": "true", "hostname": "example.org"}, "ipv6-disabled: the status has " +
			"no address but the name of " + prefix + "hostname"},
		"a default in words beside a name": {map[string]string{"disable-private-ingress": "false", "hostname": "example.org"}, ""},
		"domains of a managed one": {map[string]string{"http-managed-certificate-domains": "example.org", "protocol": "https",
			"certificate-type": "managed"}, ""},
	} {
		_, notes := planFor(t, Input{Service: testService(tc.set, [2]int32{80, 30080}, [2]int32{443, 30443})})
		if tc.want != "" {
			tc.want = "Ignored " + prefix + tc.want
		}
		if got := strings.Join(notes, "; "); got != tc.want {
			t.Errorf("%s: %s", name, got)
		}
	}
}

func TestTheLocationTakesPrecedenceOverTheZone(t *testing.T) {
	t.Parallel()
	svc := testService(map[string]string{"location": "fsn1", "network-zone": "us-east"}, [2]int32{80, 30080})
	plan, _ := planFor(t, Input{Service: svc})
	if plan.Location != "fsn1" || plan.NetworkZone != "" {
		t.Errorf("got %q, %q", plan.Location, plan.NetworkZone)
	}
}

func TestIngressStatus(t *testing.T) {
	t.Parallel()
	lb := func(public bool) *hcloud.LoadBalancer {
		return &hcloud.LoadBalancer{
			PublicNet: hcloud.LoadBalancerPublicNet{Enabled: public, IPv4: hcloud.LoadBalancerPublicNetIPv4{IP: net.ParseIP("203.0.113.9")},
				IPv6: hcloud.LoadBalancerPublicNetIPv6{IP: net.ParseIP("2001:db8::9")}},
			PrivateNet: []hcloud.LoadBalancerPrivateNet{{Network: &hcloud.Network{ID: 5}, IP: net.ParseIP("10.0.0.9")}},
		}
	}
	for _, tc := range []struct {
		name     string
		settings Settings
		public   bool
		want     string
	}{
		{"all", Settings{}, true, "203.0.113.9/VIP 2001:db8::9/VIP 10.0.0.9/VIP"},
		{"PROXY protocol", Settings{ProxyProtocol: true, IPv6Disabled: true, DisablePrivateIngress: true}, true, "203.0.113.9/Proxy"},
		{"no IPv6", Settings{IPv6Disabled: true}, true, "203.0.113.9/VIP 10.0.0.9/VIP"},
		{"no private address", Settings{DisablePrivateIngress: true}, true, "203.0.113.9/VIP 2001:db8::9/VIP"},
		{"no public interface", Settings{}, false, "10.0.0.9/VIP"},
		{"hostname", Settings{Hostname: "lb.example.org"}, true, "lb.example.org"},
	} {
		var got []string
		for _, i := range Ingress(lb(tc.public), &tc.settings).Ingress {
			text := i.Hostname + i.IP
			if i.IPMode != nil {
				text += "/" + string(*i.IPMode)
			}
			got = append(got, text)
		}
		if strings.Join(got, " ") != tc.want {
			t.Errorf("%s: got %v, want %s", tc.name, got, tc.want)
		}
	}
}

func TestAServiceHidesItsAddressesWithoutAHostnameOnly(t *testing.T) {
	t.Parallel()
	private, hidden := "disable-public-network", "disable-private-ingress"
	for _, tc := range []struct {
		settings map[string]string
		want     bool
	}{
		{map[string]string{private: "true", hidden: "true"}, true},
		{map[string]string{private: "true", hidden: "true", "hostname": "lb.example.org"}, false},
		{map[string]string{private: "true"}, false},
		{map[string]string{hidden: "true"}, false},
	} {
		if got := HidesAddresses(testService(tc.settings, [2]int32{80, 30080}), nil); got != tc.want {
			t.Errorf("%v: got %t", tc.settings, got)
		}
	}
}

func TestTargetsThatExceedTheTypeAreChosenStablyAndSpread(t *testing.T) {
	t.Parallel()
	in := Input{Limits: &hcloud.LoadBalancerType{Name: "lb11", MaxTargets: 6, MaxServices: 5, MaxAssignedCertificates: 10},
		Servers: map[int64]*hcloud.Server{}, Service: testService(nil, [2]int32{80, 30080})}
	add := func(location string, ids ...int64) {
		for _, id := range ids {
			s := server(id, fmt.Sprintf("203.0.113.%d", id), "")
			s.Location = &hcloud.Location{Name: location}
			in.Servers[id] = s
			in.Nodes = append(in.Nodes, ccmtest.Node(fmt.Sprint(id), ccmtest.ProviderID(id)))
		}
	}
	add("fsn1", 1, 2, 3, 4, 5, 6)
	add("nbg1", 7, 8)
	add("hel1", 9, 10, 11)
	plan, _ := planFor(t, in)
	if want := public(1, 2, 7, 8, 9, 10); !slices.Equal(plan.Targets, want) || len(plan.Excess) != 1 || plan.Excess[0].Want != 11 ||
		plan.Excess[0].Room != 6 {
		t.Errorf("got %v, %+v, want %v", plan.Targets, plan.Excess, want)
	}

	in.Refused = map[int64]bool{9: true, 10: true, 11: true, 8: true}
	if plan, _ = planFor(t, in); !slices.Equal(plan.Targets, public(1, 2, 3, 4, 5, 7)) {
		t.Errorf("got %v with refused servers", plan.Targets)
	}
	in.Refused = nil

	slices.Reverse(in.Nodes)
	in.Current = built(simple(public(3, 4, 5, 99), 80)) // 99 is the server of a node that is gone
	in.Current.Targets = append(in.Current.Targets,
		hcloud.LoadBalancerTarget{Type: "ip", IP: &hcloud.LoadBalancerTargetIP{IP: "198.51.100.1"}})
	plan, _ = planFor(t, in)
	if want := public(3, 4, 5, 7, 9); !slices.Equal(plan.Targets, want) || plan.Excess[0].Want != 12 {
		t.Errorf("got %v, %+v, want %v", plan.Targets, plan.Excess, want)
	}
	in.Current = built(plan)
	add("ash", 20, 21)
	if again, _ := planFor(t, in); !slices.Equal(again.Targets[:5], plan.Targets) {
		t.Errorf("got %v, want %v to stay", again.Targets, plan.Targets)
	}
}

func TestCertificatesThatExceedTheTypeAreLeftOut(t *testing.T) {
	t.Parallel()
	in := Input{Limits: &hcloud.LoadBalancerType{Name: "lb11", MaxTargets: 6, MaxServices: 5, MaxAssignedCertificates: 3},
		Certificates: map[int][]int64{443: {1, 2, 3, 4}, 8443: {1, 2, 3, 4}},
		Service: testService(map[string]string{"protocol": "https", "http-certificates": "1,2,3,4"}, [2]int32{443, 30443},
			[2]int32{8443, 30444})}
	plan, _ := planFor(t, in)
	for _, s := range plan.Services {
		if got := certificateIDs(s.HTTP.Certificates); !slices.Equal(got, []int64{1, 2, 3}) {
			t.Errorf("port %d has %v", s.ListenPort, got)
		}
	}
	if len(plan.Excess) != 1 || plan.Excess[0].What != "certificates" || plan.Excess[0].Want != 4 {
		t.Errorf("got %+v", plan.Excess)
	}
	in.Current = built(plan)
	in.Certificates = map[int][]int64{443: {1, 2, 3, 0}, 8443: {1, 2, 3, 0}}
	plan, _ = planFor(t, in)
	if got := certificateIDs(plan.Services[0].HTTP.Certificates); !slices.Equal(got, []int64{1, 2, 3}) {
		t.Errorf("a certificate in use has lost its place: %v", got)
	}

	// A port of another owner has its certificates on the load balancer too. One that both use counts once.
	foreign := hcloud.LoadBalancerService{Protocol: "https", ListenPort: 9443,
		HTTP: hcloud.LoadBalancerServiceHTTP{Certificates: []*hcloud.Certificate{{ID: 1}, {ID: 7}}}}
	in.Current.Services = append(in.Current.Services, foreign)
	in.Certificates = map[int][]int64{443: {1, 2, 3}, 8443: {1, 2, 3}}
	plan, _ = planFor(t, in)
	if got := certificateIDs(plan.Services[0].HTTP.Certificates); !slices.Equal(got, []int64{1, 2}) || len(plan.Excess) != 1 ||
		plan.Excess[0].Want != 4 || plan.Excess[0].Room != 3 {
		t.Errorf("next to a port of another owner: %v, %+v", got, plan.Excess)
	}
}

// A server that was a target of a lent load balancer before, and has a Node now, is not ours to remove.
func TestAForeignServerThatBecomesANodeStaysForeign(t *testing.T) {
	t.Parallel()
	lb := built(simple(public(1, 2), 80))
	lb.Labels = recorded(lb.Labels, func(r *Record) {
		r.Adopt(&LoadBalancer{UID: testUID, Adopt: "edge"}, ServerTargets(lb), map[int64]bool{1: true})
		r.Ports = []int{80}
	})
	in := Input{Service: testService(nil, [2]int32{80, 30080}), Current: lb,
		Servers: map[int64]*hcloud.Server{1: server(1, "203.0.113.1", ""), 2: server(2, "203.0.113.2", "")},
		Nodes:   []*corev1.Node{ccmtest.Node("a", ccmtest.ProviderID(1)), ccmtest.Node("b", ccmtest.ProviderID(2))}}
	for range 2 {
		plan, _ := planFor(t, in)
		if ops := Diff(plan, lb); len(ops) != 0 &&
			!slices.ContainsFunc(ops, func(op Op) bool { return op.Kind == OpRemoveTarget && op.Target.ServerID == 1 }) {
			t.Errorf("with %d nodes: %v", len(in.Nodes), ops)
		}
		if slices.Contains(plan.Targets, Target{ServerID: 2}) {
			t.Errorf("targets %v", plan.Targets)
		}
		in.Nodes = in.Nodes[1:] // the Node of the server that is ours is gone
	}
}
