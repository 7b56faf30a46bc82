package loadbalancer_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	corev1 "k8s.io/api/core/v1"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
)

// seen is what a client of the API and of Kubernetes sees of a Service.
type seen struct {
	w      *world
	lb     *hcloud.LoadBalancer
	status *corev1.LoadBalancerStatus
}

func (s seen) service() hcloud.LoadBalancerService { return s.lb.Services[0] }

func (s seen) certificate() *hcloud.Certificate {
	id := s.service().HTTP.Certificates[0].ID
	i := slices.IndexFunc(s.w.certificates(), func(c *hcloud.Certificate) bool { return c.ID == id })
	return s.w.certificates()[i]
}

// addresses returns what the status shows: "4" and "6" for public addresses, "p" for a private one, or a hostname.
func (s seen) addresses() (shown string) {
	for _, i := range s.status.Ingress {
		switch {
		case i.Hostname != "":
			shown += i.Hostname
		case strings.HasPrefix(i.IP, "10."):
			shown += "p"
		case strings.Contains(i.IP, ":"):
			shown += "6"
		default:
			shown += "4"
		}
	}
	return shown
}

// conformance is the check of one annotation of the production CCM: value from, and after a change value to, must be
// seen as want[0] and want[1].
type conformance struct {
	name     string
	with     map[string]string // other annotations
	from, to string
	look     func(seen) any
	want     [2]any
	event    string // the annotation cannot change: the event that says so, and want[1] is ignored
}

func conformanceCases() []conformance {
	http := map[string]string{"protocol": "http"}
	https := map[string]string{"protocol": "https", "http-certificates": "first"}
	check := map[string]string{"health-check-protocol": "http"}
	order := managed("example.org")
	delete(order, "http-managed-certificate-name")
	type both = [2]any
	sec := func(n int) time.Duration { return time.Duration(n) * time.Second }
	return []conformance{
		{"name", nil, "one", "two", func(s seen) any { return s.lb.Name }, both{"one", "two"}, ""},
		{"hostname", nil, "a.example.org", "b.example.org", func(s seen) any { return s.addresses() },
			both{"a.example.org", "b.example.org"}, ""},
		{"location", nil, "nbg1", "hel1", func(s seen) any { return s.lb.Location.Name }, both{"nbg1"}, "LocationCannotChange"},
		{"network-zone", nil, "eu-central", "us-east", func(s seen) any { return string(s.lb.Location.NetworkZone) }, both{"eu-central"},
			"LocationCannotChange"},
		{"type", nil, "2", "lb31", func(s seen) any { return s.lb.LoadBalancerType.Name }, both{"lb21", "lb31"}, ""},
		{"algorithm-type", nil, "least_connections", "round_robin", func(s seen) any { return string(s.lb.Algorithm.Type) },
			both{"least_connections", "round_robin"}, ""},
		{"ipv4-rdns", nil, "a.example.org", "b.example.org", func(s seen) any { return s.lb.PublicNet.IPv4.DNSPtr },
			both{"a.example.org", "b.example.org"}, ""},
		{"ipv6-rdns", nil, "a.example.org", "b.example.org", func(s seen) any { return s.lb.PublicNet.IPv6.DNSPtr },
			both{"a.example.org", "b.example.org"}, ""},
		{"ipv6-disabled", nil, "true", "false", func(s seen) any { return s.addresses() }, both{"4p", "46p"}, ""},
		{"disable-private-ingress", nil, "true", "false", func(s seen) any { return s.addresses() }, both{"46", "46p"}, ""},
		{"disable-public-network", nil, "true", "false", func(s seen) any { return s.addresses() }, both{"p", "46p"}, ""},
		{"use-private-ip", nil, "true", "false", func(s seen) any { return s.lb.Targets[0].UsePrivateIP && s.lb.Targets[1].UsePrivateIP },
			both{true, false}, ""},
		{"private-ipv4", nil, "10.0.0.50", "10.0.0.60", func(s seen) any { return s.lb.PrivateNet[0].IP.String() },
			both{"10.0.0.50", "10.0.0.60"}, ""},
		{"private-subnet-ip-range", nil, "10.1.0.0/24", "10.2.0.0/24", func(s seen) any { return s.lb.PrivateNet[0].IP.String()[:5] },
			both{"10.1.", "10.2."}, ""},
		{"node-selector", nil, "pool=a", "pool in (a,b)", func(s seen) any { return len(s.lb.Targets) }, both{1, 2}, ""},
		{"protocol", nil, "http", "tcp", func(s seen) any { return string(s.service().Protocol) }, both{"http", "tcp"}, ""},
		{"uses-proxyprotocol", nil, "true", "false",
			func(s seen) any { return fmt.Sprint(s.service().Proxyprotocol, *s.status.Ingress[0].IPMode) }, both{"trueProxy", "falseVIP"},
			""},
		{"http-cookie-name", http, "A", "B", func(s seen) any { return s.service().HTTP.CookieName }, both{"A", "B"}, ""},
		{"http-cookie-lifetime", http, "1m", "2h", func(s seen) any { return s.service().HTTP.CookieLifetime }, both{sec(60), sec(7200)},
			""},
		{"http-timeout-idle", http, "30s", "1m30s", func(s seen) any { return s.service().HTTP.TimeoutIdle }, both{sec(30), sec(90)}, ""},
		{"http-sticky-sessions", http, "T", "0", func(s seen) any { return s.service().HTTP.StickySessions }, both{true, false}, ""},
		{"http-redirect-http", https, "true", "false", func(s seen) any { return s.service().HTTP.RedirectHTTP }, both{true, false}, ""},
		{"certificate-type", map[string]string{"protocol": "https", "http-certificates": "first",
			"http-managed-certificate-domains": "example.org"}, "uploaded", "managed",
			func(s seen) any { return string(s.certificate().Type) }, both{"uploaded", "managed"}, ""},
		{"http-certificates", map[string]string{"protocol": "https"}, "first", "second", func(s seen) any { return s.certificate().Name },
			both{"first", "second"}, ""},
		{"http-managed-certificate-name", order, "mine", "renamed",
			func(s seen) any { return fmt.Sprint(s.certificate().Name, len(s.w.certificates())) }, both{"mine3", "renamed3"}, ""},
		{"http-managed-certificate-domains", map[string]string{"protocol": "https", "certificate-type": "managed"}, "example.org",
			"example.org,www.example.org",
			func(s seen) any { return fmt.Sprint(s.certificate().DomainNames, len(s.w.certificates())) },
			both{"[example.org] 3", "[example.org www.example.org] 3"}, ""},
		{"http-managed-certificate-acme-staging", order, "true", "false",
			func(s seen) any { return s.certificate().Labels["HC-Use-Staging-CA"] }, both{"true", ""}, ""},
		{"health-check-protocol", nil, "http", "tcp", func(s seen) any { return string(s.service().HealthCheck.Protocol) },
			both{"http", "tcp"}, ""},
		{"health-check-port", nil, "9000", "9001", func(s seen) any { return s.service().HealthCheck.Port }, both{9000, 9001}, ""},
		{"health-check-interval", nil, "5s", "6s", func(s seen) any { return s.service().HealthCheck.Interval }, both{sec(5), sec(6)}, ""},
		{"health-check-timeout", nil, "5s", "6s", func(s seen) any { return s.service().HealthCheck.Timeout }, both{sec(5), sec(6)}, ""},
		{"health-check-retries", nil, "1", "5", func(s seen) any { return s.service().HealthCheck.Retries }, both{1, 5}, ""},
		{"health-check-http-domain", check, "a.example.org", "b.example.org",
			func(s seen) any { return s.service().HealthCheck.HTTP.Domain }, both{"a.example.org", "b.example.org"}, ""},
		{"health-check-http-path", check, "/a", "/b", func(s seen) any { return s.service().HealthCheck.HTTP.Path }, both{"/a", "/b"}, ""},
		{"health-check-http-validate-certificate", check, "true", "false", func(s seen) any { return s.service().HealthCheck.HTTP.TLS },
			both{true, false}, ""},
		{"http-status-codes", check, "200", "200,3??",
			func(s seen) any { return strings.Join(s.service().HealthCheck.HTTP.StatusCodes, ",") }, both{"200", "200,3??"}, ""},
	}
}

// conformanceWorld has what the cases refer to: labelled nodes, three subnets and two certificates.
func conformanceWorld(t *testing.T) *world {
	t.Helper()
	w := newWorld(t, "instant", 2)
	w.nodes[0].Labels, w.nodes[1].Labels = map[string]string{"pool": "a"}, map[string]string{"pool": "b"}
	for _, r := range []string{"10.1.0.0/24", "10.2.0.0/24"} {
		_, _, err := w.api.Network.AddSubnet(t.Context(), w.network, hcloud.NetworkAddSubnetOpts{
			Subnet: hcloud.NetworkSubnet{Type: hcloud.NetworkSubnetTypeCloud, NetworkZone: hcloud.NetworkZoneEUCentral, IPRange: cidr(r)}})
		w.must(err)
	}
	w.uploadCertificate("first")
	w.uploadCertificate("second")
	return w
}

// Each annotation of the production CCM has its effect when a load balancer is created, and a change has its effect on the
// existing one. Where the API cannot change it, an event says so and nothing changes.
func TestEveryAnnotationOfTheProductionCCM(t *testing.T) {
	t.Parallel()
	for _, tc := range conformanceCases() {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			w := conformanceWorld(t)
			svc := newService("web", tc.with, 443)
			annotate(svc, map[string]string{tc.name: tc.from})
			cloud := w.provider()
			status := w.ensure(cloud, svc)
			before := w.theLoadBalancer()
			if got := tc.look(seen{w, before, status}); got != tc.want[0] {
				t.Errorf("created with %q: got %v, want %v", tc.from, got, tc.want[0])
			}
			w.eventsSoFar()
			if strings.Contains(strings.Join(w.wire.take(), " "), "change_type") {
				t.Error("its type was changed at once")
			}
			w.clock.Step(time.Minute)
			annotate(svc, map[string]string{tc.name: tc.to})
			status = w.ensure(cloud, svc)
			after, want := w.theLoadBalancer(), tc.want[1]
			if tc.event != "" {
				want = tc.want[0]
				w.expectNoWrites()
				w.expectEvent("Warning "+tc.event, tc.to, "delete and create the Service")
			}
			if got := tc.look(seen{w, after, status}); got != want {
				t.Errorf("changed to %q: got %v, want %v", tc.to, got, want)
			}
			if after.ID != before.ID || !after.PublicNet.IPv4.IP.Equal(before.PublicNet.IPv4.IP) {
				t.Error("the change has made another load balancer")
			}
			w.expectQuiet(cloud, svc)
		})
	}
}

// envDefaults maps each variable of the production CCM with a default of annotations to the annotation and to a value.
var envDefaults = map[string][2]string{
	"LOCATION": {"location", "nbg1"}, "NETWORK_ZONE": {"network-zone", "eu-central"}, "TYPE": {"type", "lb21"},
	"DISABLE_PRIVATE_INGRESS": {"disable-private-ingress", "true"}, "USE_PRIVATE_IP": {"use-private-ip", "true"},
	"DISABLE_IPV6":   {"ipv6-disabled", "true"},
	"ALGORITHM_TYPE": {"algorithm-type", "least_connections"}, "DISABLE_PUBLIC_NETWORK": {"disable-public-network", "true"},
	"HEALTH_CHECK_INTERVAL": {"health-check-interval", "5s"}, "HEALTH_CHECK_RETRIES": {"health-check-retries", "1"},
	"HEALTH_CHECK_TIMEOUT":    {"health-check-timeout", "5s"},
	"PRIVATE_SUBNET_IP_RANGE": {"private-subnet-ip-range", "10.1.0.0/24"}, "USES_PROXYPROTOCOL": {"uses-proxyprotocol", "true"},
}

// Each variable is the default of its annotation.
func TestEveryDefaultOfTheProductionCCM(t *testing.T) {
	t.Parallel()
	for suffix, pair := range envDefaults {
		env := map[string]string{"HCLOUD_TOKEN": fakecloud.DefaultToken, "HCLOUD_NETWORK": "internal",
			"HCLOUD_LOAD_BALANCERS_" + suffix: pair[1]}
		cfg, err := ccm.ConfigFromEnv(func(name string) (string, bool) { v, ok := env[name]; return v, ok })
		if err != nil || !maps.Equal(cfg.LoadBalancerDefaults, map[string]string{pair[0]: pair[1]}) {
			t.Errorf("%s: %v, %v", suffix, cfg.LoadBalancerDefaults, err)
		}
	}
}

// The lists are those of the conventions that manifests of users follow; a test that skips a name would prove nothing.
func TestTheTablesAreComplete(t *testing.T) {
	t.Parallel()
	names := strings.Fields(`name hostname location network-zone type algorithm-type ipv4-rdns ipv6-rdns ipv6-disabled
		disable-private-ingress
		disable-public-network use-private-ip private-ipv4 private-subnet-ip-range node-selector protocol uses-proxyprotocol
		http-cookie-name
		http-cookie-lifetime http-timeout-idle http-sticky-sessions http-redirect-http certificate-type http-certificates
		http-managed-certificate-name
		http-managed-certificate-domains http-managed-certificate-acme-staging health-check-protocol health-check-port health-check-interval
		health-check-timeout health-check-retries health-check-http-domain health-check-http-path 
		health-check-http-validate-certificate http-status-codes`)
	var tested []string
	for _, c := range conformanceCases() {
		tested = append(tested, c.name)
	}
	slices.Sort(names)
	slices.Sort(tested)
	if !slices.Equal(names, tested) {
		t.Errorf("tested are %v, want %v", tested, names)
	}
	settings := strings.Fields(`HCLOUD_TOKEN HCLOUD_TOKEN_FILE HCLOUD_ENDPOINT HCLOUD_NETWORK HCLOUD_NETWORK_ROUTES_ENABLED
		HCLOUD_INSTANCES_ADDRESS_FAMILY
		HCLOUD_METRICS_ENABLED HCLOUD_METRICS_ADDRESS HCLOUD_DEBUG HCLOUD_LOAD_BALANCERS_ENABLED HCLOUD_INSTANCES_ZONE_LABEL_ENABLED
		HCLOUD_NETWORK_DISABLE_ATTACHED_CHECK`)
	for _, suffix := range slices.Sorted(maps.Keys(envDefaults)) {
		settings = append(settings, "HCLOUD_LOAD_BALANCERS_"+suffix)
	}
	for i, name := range settings {
		settings[i] = name + "=x"
	}
	if unknown := ccm.UnknownVariables(settings); len(unknown) > 0 {
		t.Errorf("settings of the production CCM are not known: %v", unknown)
	}
}
