package plan

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
)

// fieldsOfPort returns the settings of a port by their names.
func fieldsOfPort(s hcloud.LoadBalancerService) map[string]string {
	check := "none"
	if s.HealthCheck.HTTP != nil {
		check = s.HealthCheck.HTTP.Path
	}
	return map[string]string{
		"protocol": string(s.Protocol), "proxy": fmt.Sprint(s.Proxyprotocol), "cookie": s.HTTP.CookieName,
		"lifetime": s.HTTP.CookieLifetime.String(),
		"idle":     s.HTTP.TimeoutIdle.String(), "sticky": fmt.Sprint(s.HTTP.StickySessions), "redirect": fmt.Sprint(s.HTTP.RedirectHTTP),
		"certificates": fmt.Sprint(certificateIDs(s.HTTP.Certificates)), "check": string(s.HealthCheck.Protocol),
		"check-port": fmt.Sprint(s.HealthCheck.Port),
		"check-path": check, "interval": s.HealthCheck.Interval.String(), "timeout": s.HealthCheck.Timeout.String(),
		"retries": fmt.Sprint(s.HealthCheck.Retries),
	}
}

// A mistyped annotation keeps what the port has for it, and nothing else.
func TestAPortKeepsOnlyWhatAMistypedAnnotationIsAbout(t *testing.T) {
	t.Parallel()
	have := hcloud.LoadBalancerService{Protocol: "https", ListenPort: 443, DestinationPort: 30443, Proxyprotocol: true,
		HTTP: hcloud.LoadBalancerServiceHTTP{CookieName: "H", CookieLifetime: time.Minute, TimeoutIdle: time.Minute,
			StickySessions: true, RedirectHTTP: true, Certificates: []*hcloud.Certificate{{ID: 8}}},
		HealthCheck: hcloud.LoadBalancerServiceHealthCheck{Protocol: "http", Port: 9000, Interval: time.Minute, Timeout: time.Minute,
			Retries: 5, HTTP: &hcloud.LoadBalancerServiceHealthCheckHTTP{Path: "/have"}}}
	want := hcloud.LoadBalancerService{Protocol: "https", ListenPort: 443, DestinationPort: 31443,
		HTTP: hcloud.LoadBalancerServiceHTTP{CookieName: "W", CookieLifetime: time.Hour, TimeoutIdle: time.Hour,
			Certificates: []*hcloud.Certificate{{ID: 9}}},
		HealthCheck: hcloud.LoadBalancerServiceHealthCheck{Protocol: "tcp", Port: 31443, Interval: time.Second, Timeout: time.Second,
			Retries: 1}}
	const http, check = "certificates cookie idle lifetime redirect sticky", "check check-path check-port"
	plain := have
	plain.Protocol, plain.HTTP.Certificates = "http", nil
	tcp := have
	tcp.Protocol, tcp.HTTP, tcp.HealthCheck.Port = "tcp", hcloud.LoadBalancerServiceHTTP{}, tcp.DestinationPort
	for _, tc := range []struct {
		wrong string
		have  hcloud.LoadBalancerService
		want  string // the settings that the port keeps
	}{
		{"uses-proxyprotocol", have, "proxy"},
		{"http-cookie-name", have, "cookie"},
		{"http-cookie-name", plain, "cookie"},
		{"http-cookie-name", tcp, ""}, // it has none
		{"http-cookie-lifetime", have, "lifetime"},
		{"http-timeout-idle", have, "idle"},
		{"http-sticky-sessions", have, "sticky"},
		{"http-redirect-http", have, "redirect"},
		{"certificate-type", have, "certificates"},
		{"http-certificates", have, "certificates"},
		{"http-certificates", plain, http + " protocol"}, // without a certificate it cannot be HTTPS
		{"http-managed-certificate-name", have, "certificates"},
		{"http-managed-certificate-domains", have, "certificates"},
		{"http-managed-certificate-acme-staging", have, "certificates"},
		{"protocol", plain, http + " " + check + " protocol"},
		{"health-check-protocol", have, check},
		{"health-check-protocol", tcp, "check check-path"}, // a check of its own node port follows that
		{"health-check-port", have, check},
		{"health-check-interval", have, "interval"},
		{"health-check-timeout", have, "timeout"},
		{"health-check-retries", have, "retries"},
		{"health-check-http-domain", have, check},
		{"health-check-http-path", have, check},
		{"health-check-http-validate-certificate", have, check},
		{"http-status-codes", have, check},
		{"type", have, ""},
	} {
		lb := &hcloud.LoadBalancer{Services: []hcloud.LoadBalancerService{tc.have}, Labels: recorded(nil, owns(testUID, 443))}
		in := Input{Service: testService(nil, [2]int32{443, 31443}), Settings: &Settings{}, Current: lb,
			Wrong: map[string]bool{tc.wrong: true}}
		got, ok := copyPortSettings(want, in)
		if !ok {
			t.Errorf("%s: the port has to wait", tc.wrong)
		}
		had, wanted, is := fieldsOfPort(tc.have), fieldsOfPort(want), fieldsOfPort(got)
		var kept []string
		for name, value := range is {
			if value == had[name] && value != wanted[name] {
				kept = append(kept, name)
			} else if value != wanted[name] {
				t.Errorf("%s: %s is %s", tc.wrong, name, value)
			}
		}
		slices.Sort(kept)
		if want := slices.Sorted(slices.Values(strings.Fields(tc.want))); !slices.Equal(kept, want) {
			t.Errorf("%s: keeps %v, want %v", tc.wrong, kept, want)
		}
	}
}

// A new port gets what another one of the Service has, unless one of the two has settings of its own.
func TestANewPortGetsWhatAnotherOneHasForAMistypedAnnotation(t *testing.T) {
	t.Parallel()
	service := func(port int) hcloud.LoadBalancerService {
		return hcloud.LoadBalancerService{Protocol: "tcp", ListenPort: port, Proxyprotocol: true}
	}
	for name, tc := range map[string]struct {
		there []int
		ours  []int
		own   []int // ports with annotations of their own
		waits bool
	}{
		"another port of the Service":               {[]int{80}, []int{80}, nil, false},
		"no port":                                   {nil, nil, nil, true},
		"a port of another owner":                   {[]int{80}, nil, nil, true},
		"a port with settings of its own":           {[]int{80}, []int{80}, []int{80}, true},
		"the new port has settings of its own":      {[]int{80}, []int{80}, []int{443}, true},
		"the port itself, with settings of its own": {[]int{80, 443}, []int{80, 443}, []int{443}, false},
	} {
		lb := &hcloud.LoadBalancer{Labels: recorded(nil, owns(testUID, tc.ours...))}
		for _, p := range tc.there {
			lb.Services = append(lb.Services, service(p))
		}
		settings := &Settings{ByPort: map[int]*Settings{}}
		for _, p := range tc.own {
			settings.ByPort[p] = &Settings{}
		}
		in := Input{Service: testService(nil), Settings: settings, Current: lb, Wrong: map[string]bool{"uses-proxyprotocol": true,
			"uses-proxyprotocol.443": true}}
		got, ok := copyPortSettings(hcloud.LoadBalancerService{ListenPort: 443}, in)
		if ok == tc.waits || ok && !got.Proxyprotocol {
			t.Errorf("%s: %+v, waits %t, want %t", name, got, !ok, tc.waits)
		}
	}
}

// A mistyped annotation about the whole load balancer changes nothing about that, and all others work.
func TestALoadBalancerKeepsOnlyWhatAMistypedAnnotationIsAbout(t *testing.T) {
	t.Parallel()
	annotations := map[string]string{"name": "edge", "type": "lb31", "algorithm-type": "least_connections", "ipv4-rdns": "a.example.org",
		"ipv6-rdns": "b.example.org",
		"labels":    "team=web", "delete-protection": "true", "disable-public-network": "true", "private-ipv4": "10.0.0.99"}
	for wrong, want := range map[string]Part{
		"name": partName, "type": PartType, "algorithm-type": partAlgorithm, "ipv4-rdns": "reverse DNS of 203.0.113.9",
		"ipv6-rdns": "reverse DNS of 2001:db8::9",
		"labels":    partUserLabels, "delete-protection": PartProtection, "disable-public-network": partPublic, "private-ipv4": partNetwork,
	} {
		current := simple(nil, 80)
		current.NetworkID = 5
		in := Input{Service: testService(annotations, [2]int32{80, 30080}), NetworkID: 5, Current: built(current)}
		parts := func() map[Part]bool {
			plan, _ := planFor(t, in)
			all := map[Part]bool{}
			for _, op := range Diff(plan, in.Current) {
				all[op.Part] = true
			}
			return all
		}
		before := parts()
		in.Wrong = map[string]bool{wrong: true}
		after := parts()
		if !before[want] || after[want] || len(after) != len(before)-1 {
			t.Errorf("%s: changes %v, want all of %v without %s", wrong, after, before, want)
		}
	}
}
