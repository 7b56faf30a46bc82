package plan

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	corev1 "k8s.io/api/core/v1"
)

func TestEachAnnotationOfAPortCanBeSetForOnePort(t *testing.T) {
	t.Parallel()
	for _, a := range Annotations {
		values := annotationValues[a.Name]
		for _, value := range slices.Concat(values.good, values.bad) {
			general, _, generalMistakes := ParseAnnotations(map[string]string{a.Key(): value}, nil)
			s, unknown, mistakes := ParseAnnotations(map[string]string{a.Key() + ".443": value}, nil)
			if !a.perPort() {
				if !slices.Equal(unknown, []string{a.Key() + ".443"}) || !reflect.DeepEqual(s, Settings{}) {
					t.Errorf("%s is not a setting of a port, but %s.443 was accepted: %+v", a.Name, a.Name, s)
				}
				continue
			}
			if len(unknown) > 0 || len(mistakes) != len(generalMistakes) {
				t.Errorf("%s.443: %q: unknown %v, mistakes %v", a.Name, value, unknown, mistakes)
			}
			if len(mistakes) > 0 && !strings.Contains(mistakes[0].Error(), a.Key()+".443") {
				t.Errorf("%s.443: the error names another setting: %v", a.Name, mistakes[0])
			}
			own := *s.ForPort(443)
			if s.ByPort = nil; !reflect.DeepEqual(own, general) || !reflect.DeepEqual(s, Settings{}) {
				t.Errorf("%s.443: %q: got %+v, want %+v; all other ports have %+v", a.Name, value, own, general, s)
			}
		}
	}
	for _, name := range []string{"protocol.http", "protocol.0443", "protocol.0", "protocol.65536", "protocol.", "protocol.443.80"} {
		if _, unknown, mistakes := ParseAnnotations(map[string]string{AnnotationPrefix + name: "http"}, nil); len(unknown) != 1 ||
			len(mistakes) != 0 {
			t.Errorf("%s: unknown %v, mistakes %v", name, unknown, mistakes)
		}
	}
}

func TestGeneralSettingsAreThoseOfPortsWithoutTheirOwn(t *testing.T) {
	t.Parallel()
	set := map[string]string{
		"protocol": "http", "protocol.443": "https", "http-certificates": "8", "http-redirect-http": "true", "protocol.5432": "tcp",
		"uses-proxyprotocol.5432": "true", "health-check-interval": "5s", "health-check-interval.5432": "9s",
		"health-check-http-path.443": "/up",
		"http-timeout-idle":          "40s", "http-timeout-idle.8080": "60s",
	}
	plan, notes := planFor(t, Input{Service: testService(set, [2]int32{8080, 30080}, [2]int32{443, 30443}, [2]int32{5432, 30432}),
		Certificates: map[int][]int64{443: {8}}})
	http := hcloud.LoadBalancerServiceHTTP{CookieName: "HCLBSTICKY", CookieLifetime: 5 * time.Minute, TimeoutIdle: time.Minute,
		RedirectHTTP: true}
	https := http
	https.TimeoutIdle, https.Certificates = 40*time.Second, []*hcloud.Certificate{{ID: 8}}
	check := func(port int, protocol hcloud.LoadBalancerServiceProtocol, interval time.Duration,
		path string) hcloud.LoadBalancerServiceHealthCheck {
		c := hcloud.LoadBalancerServiceHealthCheck{Protocol: protocol, Port: port, Interval: interval, Timeout: 10 * time.Second,
			Retries: 3}
		if path != "" {
			c.HTTP = &hcloud.LoadBalancerServiceHealthCheckHTTP{Path: path, StatusCodes: defaultStatusCodes}
		}
		return c
	}
	want := []hcloud.LoadBalancerService{
		{Protocol: "https", ListenPort: 443, DestinationPort: 30443, HTTP: https, HealthCheck: check(30443, "http", 5*time.Second, "/up")},
		{Protocol: "tcp", ListenPort: 5432, DestinationPort: 30432, Proxyprotocol: true, HealthCheck: check(30432, "tcp", 9*time.Second,
			"")},
		{Protocol: "http", ListenPort: 8080, DestinationPort: 30080, HTTP: http, HealthCheck: check(30080, "http", 5*time.Second, "/")},
	}
	if !reflect.DeepEqual(plan.Services, want) || len(notes) != 0 {
		t.Errorf("got  %+v, %v\nwant %+v", plan.Services, notes, want)
	}
}

// A setting about the health check of one port changes the checks of no other port.
func TestAHealthCheckOfOnePortIsNoneOfAnother(t *testing.T) {
	t.Parallel()
	plan, _ := planFor(t, Input{Service: testService(map[string]string{"protocol": "http", "health-check-retries.443": "5"},
		[2]int32{80, 30080}, [2]int32{443, 30443})})
	if got := []hcloud.LoadBalancerServiceProtocol{plan.Services[0].HealthCheck.Protocol,
		plan.Services[1].HealthCheck.Protocol}; !slices.Equal(got, []hcloud.LoadBalancerServiceProtocol{"tcp", "http"}) {
		t.Errorf("got %v", got)
	}
}

// settingsWithMistakes returns the names of a Service's wrong annotations, in the order of the mistakes.
func settingsWithMistakes(svc *corev1.Service) (names []string) {
	s, _, mistakes := ParseAnnotations(svc.Annotations, nil)
	for _, m := range append(mistakes, CheckService(svc, &s, false)...) {
		a, _ := errors.AsType[AnnotationError](m)
		names = append(names, a.Setting())
	}
	return names
}

func TestMistakesInSettingsOfPortsNameTheirAnnotation(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		other int32 // port, next to 443
		set   map[string]string
		want  []string
	}{
		"https without a certificate": {80, map[string]string{"protocol.443": "https"}, []string{"http-certificates.443"}},
		"https on all ports":          {80, map[string]string{"protocol": "https"}, []string{"http-certificates"}},
		"managed without domains": {80, map[string]string{"protocol.443": "https", "certificate-type": "managed",
			"http-managed-certificate-domains.80": "example.org"}, []string{"http-managed-certificate-domains.443"}},
		"redirect on a port without https": {80, map[string]string{"protocol": "http", "http-redirect-http.80": "true"},
			[]string{"http-redirect-http.80"}},
		"redirect without any https": {80, map[string]string{"protocol": "http", "http-redirect-http": "true"},
			[]string{"http-redirect-http"}},
		"redirect from the Service's own port": {80, map[string]string{"protocol": "http", "protocol.443": "https",
			"http-certificates": "1", "http-redirect-http": "true"}, []string{"http-redirect-http"}},
		"redirect: of two ports, one has https": {8443, map[string]string{"protocol": "http", "protocol.443": "https",
			"http-certificates": "1", "http-redirect-http": "true"}, nil},
		"redirect: two ports with https": {8443, map[string]string{"protocol": "https", "http-certificates": "1",
			"http-redirect-http": "true"}, []string{"http-redirect-http"}},
		"redirect: two ports with https, one redirects": {8443, map[string]string{"protocol": "https", "http-certificates": "1",
			"http-redirect-http.443": "true"}, nil},
		"redirect: two ports with https, both redirect": {8443, map[string]string{"protocol": "https", "http-certificates": "1",
			"http-redirect-http.443": "true", "http-redirect-http.8443": "true"},
			[]string{"http-redirect-http.443", "http-redirect-http.8443"}},
		"redirect: two ports with https, one is excepted": {8443, map[string]string{"protocol": "https", "http-certificates": "1",
			"http-redirect-http": "true", "http-redirect-http.8443": "false"}, nil},
	} {
		svc := testService(tc.set, [2]int32{443, 30443}, [2]int32{tc.other, 30080})
		if got := settingsWithMistakes(svc); !slices.Equal(got, tc.want) {
			t.Errorf("%s: got %v, want %v", name, got, tc.want)
		}
	}
}

func TestASettingOfAPortThatDoesNotExistIsReported(t *testing.T) {
	t.Parallel()
	svc := testService(map[string]string{"protocol.80": "http", "protocol.8080": "http", "uses-proxyprotocol.53": "true",
		"health-check-http-path.443": "/up"}, [2]int32{80, 30080}, [2]int32{443, 30443}, [2]int32{53, 30053})
	svc.Spec.Ports[2].Protocol = corev1.ProtocolUDP
	_, notes := planFor(t, Input{Service: svc})
	const all = "must be for one of its ports 80, 443"
	want := []string{
		"Skipped ports 53/UDP: Hetzner load balancers forward TCP only",
		"Ignored load-balancer.hetzner.cloud/health-check-http-path.443: the health check is TCP; set " +
			"load-balancer.hetzner.cloud/health-check-protocol to http or https",
		"Ignored load-balancer.hetzner.cloud/protocol.8080: the Service has no TCP port 8080: " + all,
		"Ignored load-balancer.hetzner.cloud/uses-proxyprotocol.53: the Service has no TCP port 53: " + all,
	}
	if !slices.Equal(notes, want) {
		t.Errorf("got %q", notes)
	}
}

// Each port has settings of its own, and one certificate more than the type allows: what is in use stays.
func TestCertificatesOfPortsThatExceedTheTypeAreLeftOut(t *testing.T) {
	t.Parallel()
	set := map[string]string{}
	in := Input{Limits: &hcloud.LoadBalancerType{Name: "lb11", MaxTargets: 6, MaxServices: 5, MaxAssignedCertificates: 2},
		Certificates: map[int][]int64{}}
	var ports [][2]int32
	add := func(port int32, id int64) {
		set[fmt.Sprintf("protocol.%d", port)], set[fmt.Sprintf("http-certificates.%d", port)] = "https", fmt.Sprint(id)
		in.Certificates[int(port)] = []int64{id}
		ports = append(ports, [2]int32{port, 30000 + port})
		in.Service = testService(set, ports...)
	}
	add(8443, 7)
	add(9443, 8)
	plan, _ := planFor(t, in)
	if len(plan.Services) != 2 || len(plan.Excess) != 0 {
		t.Fatalf("got %v, %v", plan.ports(), plan.Excess)
	}
	in.Current = built(plan)
	add(443, 1)
	plan, _ = planFor(t, in)
	if !slices.Equal(plan.ports(), []int{8443, 9443}) || len(plan.Excess) != 1 || plan.Excess[0].Want != 3 {
		t.Errorf("got %v, %+v", plan.ports(), plan.Excess)
	}
	set["http-certificates.8443"], in.Certificates[8443] = "2", []int64{2}
	plan, _ = planFor(t, in)
	if !slices.Contains(plan.ports(), 8443) ||
		!slices.Equal(certificateIDs(plan.Services[slices.Index(plan.ports(), 9443)].HTTP.Certificates), []int64{8}) {
		t.Errorf("a port or a certificate in use is lost: %v", plan.ports())
	}
}
