package dataplane

import (
	"fmt"
	"net/netip"
	"regexp"
	"strings"
	"testing"
	"time"
)

func TestStatusCodePatternsMatch(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		patterns string
		code     int
		want     bool
	}{
		{"2?? 3??", 200, true},
		{"2?? 3??", 301, true},
		{"2?? 3??", 404, false},
		{"200", 200, true},
		{"200", 201, false},
		{"20?", 204, true},
		{"20?", 214, false},
		{"2?", 200, false},
		{"????", 200, false},
		{"2*", 200, true},
		{"*", 599, true},
		{"*1", 401, true},
		{"*1", 400, false},
		{"2*0*", 200, true},
		{"", 200, false},
		{"[2]00", 200, false},
		{"\\200", 200, false},
	} {
		if got := matchStatus(strings.Fields(tt.patterns), tt.code); got != tt.want {
			t.Errorf("%q matches %d: %t, want %t", tt.patterns, tt.code, got, tt.want)
		}
	}
}

func FuzzStatusCodePatternsMatchLikeRegularExpressions(f *testing.F) {
	f.Add("2??", 200)
	f.Add("*0*", 404)
	f.Add("[", 1)
	f.Fuzz(func(t *testing.T, pattern string, code int) {
		got := matchStatus([]string{pattern}, code)
		if !validStatusPattern(pattern) {
			if got {
				t.Fatalf("the invalid pattern %q matches", pattern)
			}
			return
		}
		re := regexp.MustCompile("^" + strings.NewReplacer("?", ".", "*", ".*").Replace(pattern) + "$")
		if want := re.MatchString(fmt.Sprint(code)); got != want {
			t.Fatalf("%q matches %d: %t, want %t", pattern, code, got, want)
		}
	})
}

func TestDefaultsAreThoseOfTheAPIDocument(t *testing.T) {
	t.Parallel()
	conf, err := Service{Protocol: HTTP, ListenPort: 80, DestinationPort: 8080, HealthCheck: HealthCheck{Protocol: HTTP}}.prepare()
	if err != nil {
		t.Fatal(err)
	}
	hc := conf.HealthCheck
	if hc.Port != 8080 || hc.Interval != 15*time.Second || hc.Timeout != 10*time.Second || hc.Retries != 3 ||
		hc.HTTP.Path != "/" || strings.Join(hc.HTTP.StatusCodes, " ") != "2?? 3??" {
		t.Errorf("health check %+v", hc)
	}
	if h := conf.HTTP; h.CookieName != "HCLBSTICKY" || h.CookieLifetime != 300*time.Second || h.TimeoutIdle != 50*time.Second {
		t.Errorf("http %+v", h)
	}
}

func TestAnInvalidLoadBalancerIsRefusedWithAllMistakes(t *testing.T) {
	t.Parallel()
	bad := LoadBalancer{
		ID: 1, Name: "bad", Algorithm: "random", MaxConnections: -1,
		Addresses: []netip.Addr{{}, lbAddr, lbAddr},
		Targets:   []Target{{}, {Key: "a"}, {Key: "a"}},
		Services: []Service{
			{Protocol: "udp", ListenPort: 1, DestinationPort: 1},
			{Protocol: TCP, ListenPort: 1},
			{Protocol: HTTP, ListenPort: 2, DestinationPort: 2, HTTP: HTTPConfig{CookieName: "a b"}},
			{Protocol: HTTPS, ListenPort: 3, DestinationPort: 3, HTTP: HTTPConfig{Certificates: []Certificate{{Chain: "x"}}}},
			{Protocol: TCP, ListenPort: 4, DestinationPort: 4, HealthCheck: HealthCheck{Protocol: "ping"}},
			{Protocol: TCP, DestinationPort: 5, HealthCheck: HealthCheck{Protocol: HTTP, HTTP: HTTPCheck{
				Path: "/ HTTP/1.1\r\nX: y", Domain: "a\r\nb", StatusCodes: []string{"2xx"},
			}}},
		},
	}
	l := newLab(t, Options{})
	err := l.Apply(bad)
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{
		`algorithm "random"`, "max connections -1", `address "invalid IP"`, `address "203.0.113.7"`, `target ""`, `target "a"`,
		`protocol "udp"`, "service 1: the listen port must be unique", "destination port", `cookie name "a b"`, "certificate 0",
		`health check protocol "ping"`, "listen port", "health check path", "health check domain", `status code "2xx"`,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not mention %s:\n%v", want, err)
		}
	}
	if e := l.Endpoints(1); e != nil {
		t.Errorf("endpoints %v", e)
	}
}

func TestHealthNeedsConsecutiveProbes(t *testing.T) {
	t.Parallel()
	const retries = 3
	for _, tt := range []struct {
		name, probes string // + succeeds, - fails
		want         HealthStatus
	}{
		{"nothing known yet", "", Unknown},
		{"one success is enough at first", "+", Healthy},
		{"few failures decide nothing at first", "--", Unknown},
		{"enough failures do", "---", Unhealthy},
		{"a success in between counts anew", "--+--", Healthy},
		{"healthy turns unhealthy", "+---", Unhealthy},
		{"unhealthy needs as many successes", "---++", Unhealthy},
		{"and gets them", "---+++", Healthy},
		{"in a row", "---++-++", Unhealthy},
	} {
		s := healthState{status: Unknown}
		for _, p := range tt.probes {
			r := probeResult{}
			if p == '-' {
				r = probeResult{detail: DetailHTTPStatus, code: 500}
			}
			s = s.next(r, retries)
		}
		if s.status != tt.want {
			t.Errorf("%s: after %q %s, want %s", tt.name, tt.probes, s.status, tt.want)
		}
		if unhealthy := s.status == Unhealthy; (s.detail != "") != unhealthy || (s.code != 0) != unhealthy {
			t.Errorf("%s: %s with detail %q and code %d", tt.name, s.status, s.detail, s.code)
		}
	}
}

func TestCookiesOfRealLoadBalancersAreParsed(t *testing.T) {
	t.Parallel()
	c := parseStickyCookie("b2649158ba9efc6f9b7d3455005dd927|aN4h8|aN4h7")
	if c.target != "b2649158ba9efc6f9b7d3455005dd927" || c.last.Sub(c.first) != 4*time.Second {
		t.Errorf("%+v", c)
	}
	if want := time.Date(2025, 10, 2, 0, 0, 0, 0, time.UTC); c.first.UTC().Truncate(24*time.Hour) != want {
		t.Errorf("first seen %s, want on %s", c.first, want)
	}
	if c.String() != "b2649158ba9efc6f9b7d3455005dd927|aN4h8|aN4h7" {
		t.Error(c.String())
	}
}

func FuzzStickyCookie(f *testing.F) {
	f.Add("b2649158ba9efc6f9b7d3455005dd927|aN4h8|aN4h7")
	f.Add("||")
	f.Add("x|AAAAA|/////")
	f.Fuzz(func(t *testing.T, value string) {
		c := parseStickyCookie(value)
		if strings.Contains(c.target, "|") {
			t.Fatalf("%q: target %q", value, c.target)
		}
		if c.first.IsZero() && c.valid(time.Unix(1_790_000_000, 0), time.Hour) {
			t.Fatalf("%q: valid without date", value)
		}
		if !c.first.IsZero() && !c.last.IsZero() && c.String() != value {
			t.Fatalf("%q becomes %q", value, c)
		}
	})
}
