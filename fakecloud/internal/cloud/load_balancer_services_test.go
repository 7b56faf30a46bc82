package cloud

import (
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestServicesThatCannotBe(t *testing.T) {
	t.Parallel()
	p, _, clk := lbCloud(t)
	cert := putCertificate(t, p, "cert")
	lb := newLB(t, p, clk, CreateLoadBalancer{Services: []ServiceInput{tcp(1, 1)}})
	http := func(h ServiceHTTPInput) ServiceInput { return ServiceInput{Protocol: ptr("http"), HTTP: &h} }
	https := func(h ServiceHTTPInput) ServiceInput {
		if h.Certificates == nil {
			h.Certificates = []int64{cert}
		}
		return ServiceInput{Protocol: ptr("https"), HTTP: &h}
	}
	check := func(h HealthCheckInput) ServiceInput {
		in := tcp(2, 2)
		in.HealthCheck = &h
		return in
	}
	checkHTTP := func(h HealthCheckHTTPInput) ServiceInput {
		return check(HealthCheckInput{Protocol: ptr("http"), HTTP: &h})
	}
	for name, tc := range map[string]struct {
		in   ServiceInput
		want string
	}{
		"no protocol":                 {ServiceInput{}, "protocol"},
		"unknown protocol":            {ServiceInput{Protocol: ptr("udp"), ListenPort: ptr(1), DestinationPort: ptr(1)}, "protocol"},
		"tcp without listen port":     {ServiceInput{Protocol: ptr("tcp"), DestinationPort: ptr(1)}, "listen_port"},
		"tcp without destination":     {ServiceInput{Protocol: ptr("tcp"), ListenPort: ptr(2)}, "destination_port"},
		"listen port 0":               {tcp(0, 1), "listen_port"},
		"listen port 65536":           {tcp(65536, 1), "listen_port"},
		"destination port 0":          {tcp(2, 0), "destination_port"},
		"port in use":                 {tcp(1, 2), "source_port_already_used"},
		"https without certificate":   {ServiceInput{Protocol: ptr("https")}, "http.certificates"},
		"https with none":             {https(ServiceHTTPInput{Certificates: []int64{}}), "http.certificates"},
		"unknown certificate":         {https(ServiceHTTPInput{Certificates: []int64{1}}), "http.certificates"},
		"http with a certificate":     {http(ServiceHTTPInput{Certificates: []int64{cert}}), "http.certificates"},
		"http with a redirect":        {http(ServiceHTTPInput{RedirectHTTP: ptr(true)}), "http.redirect_http"},
		"tcp with sticky sessions":    {ServiceInput{Protocol: ptr("tcp"), ListenPort: ptr(2), DestinationPort: ptr(2), HTTP: &ServiceHTTPInput{StickySessions: ptr(true)}}, "http.sticky_sessions"},
		"no cookie name":              {http(ServiceHTTPInput{CookieName: ptr("")}), "http.cookie_name"},
		"cookie name with a space":    {http(ServiceHTTPInput{CookieName: ptr("a b")}), "http.cookie_name"},
		"cookie name too long":        {http(ServiceHTTPInput{CookieName: ptr(strings.Repeat("a", 101))}), "http.cookie_name"},
		"cookie lifetime too short":   {http(ServiceHTTPInput{CookieLifetime: ptr(29)}), "http.cookie_lifetime"},
		"cookie lifetime too long":    {http(ServiceHTTPInput{CookieLifetime: ptr(86401)}), "http.cookie_lifetime"},
		"idle timeout too short":      {http(ServiceHTTPInput{TimeoutIdle: ptr(29)}), "http.timeout_idle"},
		"idle timeout too long":       {http(ServiceHTTPInput{TimeoutIdle: ptr(301)}), "http.timeout_idle"},
		"check of unknown protocol":   {check(HealthCheckInput{Protocol: ptr("https")}), "health_check.protocol"},
		"check of port 0":             {check(HealthCheckInput{Port: ptr(0)}), "health_check.port"},
		"check interval too short":    {check(HealthCheckInput{Interval: ptr(2)}), "health_check.interval"},
		"check interval too long":     {check(HealthCheckInput{Interval: ptr(61)}), "health_check.interval"},
		"check timeout too short":     {check(HealthCheckInput{Timeout: ptr(0)}), "health_check.timeout"},
		"check timeout too long":      {check(HealthCheckInput{Timeout: ptr(61)}), "health_check.timeout"},
		"too few retries":             {check(HealthCheckInput{Retries: ptr(0)}), "health_check.retries"},
		"too many retries":            {check(HealthCheckInput{Retries: ptr(6)}), "health_check.retries"},
		"domain with a percent":       {checkHTTP(HealthCheckHTTPInput{Domain: ptr("a%b")}), "health_check.http.domain"},
		"domain too long":             {checkHTTP(HealthCheckHTTPInput{Domain: ptr(strings.Repeat("a", 129))}), "health_check.http.domain"},
		"no path":                     {checkHTTP(HealthCheckHTTPInput{Path: ptr("")}), "health_check.http.path"},
		"path with a space":           {checkHTTP(HealthCheckHTTPInput{Path: ptr("/a b")}), "health_check.http.path"},
		"path too long":               {checkHTTP(HealthCheckHTTPInput{Path: ptr(strings.Repeat("/", 257))}), "health_check.http.path"},
		"response too long":           {checkHTTP(HealthCheckHTTPInput{Response: ptr(strings.Repeat("a", 257))}), "health_check.http.response"},
		"a status code of letters":    {checkHTTP(HealthCheckHTTPInput{StatusCodes: []string{"200", "abc"}}), "health_check.http.status_codes.1"},
		"more than 20 status codes":   {checkHTTP(HealthCheckHTTPInput{StatusCodes: make([]string, 21)}), "health_check.http.status_codes"},
		"everything at its least":     {ServiceInput{Protocol: ptr("http"), HTTP: &ServiceHTTPInput{CookieName: ptr("a"), CookieLifetime: ptr(30), TimeoutIdle: ptr(30)}, HealthCheck: &HealthCheckInput{Port: ptr(1), Interval: ptr(3), Timeout: ptr(1), Retries: ptr(1)}}, ""},
		"everything at its most":      {ServiceInput{Protocol: ptr("http"), HTTP: &ServiceHTTPInput{CookieName: ptr(strings.Repeat("a", 100)), CookieLifetime: ptr(86400), TimeoutIdle: ptr(300)}, HealthCheck: &HealthCheckInput{Port: ptr(65535), Interval: ptr(60), Timeout: ptr(60), Retries: ptr(5)}}, ""},
		"an HTTP check with its all":  {checkHTTP(HealthCheckHTTPInput{Domain: ptr("a.b"), Path: ptr("/x"), Response: ptr("ok"), StatusCodes: []string{"200", "2*", "?0?"}, TLS: ptr(true)}), ""},
		"tcp with an empty http part": {ServiceInput{Protocol: ptr("tcp"), ListenPort: ptr(2), DestinationPort: ptr(2), HTTP: &ServiceHTTPInput{}}, ""},
	} {
		st := p.View()
		err := lb.Clone().addService(st, tc.in, "")
		if got := codeOf(err); got != tc.want {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
	_, _, err := p.AddLoadBalancerService(lb.ID, tcp(1, 2))
	if e, ok := err.(*Error); !ok || e.Status != 412 {
		t.Errorf("a port in use: %v, want 412", err)
	}
}

func TestAllProblemsOfAServiceAreNamed(t *testing.T) {
	t.Parallel()
	_, problems := newService(ServiceInput{
		Protocol: ptr("http"), ListenPort: ptr(0), HTTP: &ServiceHTTPInput{CookieLifetime: ptr(1)},
		HealthCheck: &HealthCheckInput{Interval: ptr(1), Retries: ptr(9)},
	})
	var names []string
	for _, f := range problems {
		names = append(names, f.Name)
	}
	if got := strings.Join(names, " "); got != "listen_port http.cookie_lifetime health_check.interval health_check.retries" {
		t.Error(got)
	}
}

func TestUpdatingAServiceIsAPatch(t *testing.T) {
	t.Parallel()
	p, _, clk := lbCloud(t)
	cert := putCertificate(t, p, "cert")
	lb := newLB(t, p, clk, CreateLoadBalancer{Services: []ServiceInput{
		{Protocol: ptr("http"), ListenPort: ptr(80), DestinationPort: ptr(8080), HTTP: &ServiceHTTPInput{StickySessions: ptr(true)}},
		tcp(90, 90),
	}})
	update := func(in ServiceInput) LoadBalancerService {
		t.Helper()
		in.ListenPort = ptr(80)
		action, _, err := p.UpdateLoadBalancerService(lb.ID, in)
		if err != nil {
			t.Fatal(err)
		}
		ended(t, p, clk, action, "")
		s, _ := getLB(t, p, lb.ID).Service(80)
		return *s
	}
	want, _ := lb.Service(80)
	if got := update(ServiceInput{}); !reflect.DeepEqual(got, *want) {
		t.Errorf("nothing: %+v", got)
	}
	got := update(ServiceInput{DestinationPort: ptr(8081), ProxyProtocol: ptr(true), HealthCheck: &HealthCheckInput{Retries: ptr(1)}})
	if got.DestinationPort != 8081 || !got.ProxyProtocol || got.HealthCheck.Retries != 1 ||
		got.HealthCheck.Port != 8080 || got.HealthCheck.Interval != 15*time.Second || !got.HTTP.StickySessions {
		t.Errorf("some fields: %+v", got)
	}
	got = update(ServiceInput{HealthCheck: &HealthCheckInput{Protocol: ptr("http"), HTTP: &HealthCheckHTTPInput{Domain: ptr("a.b"), Path: ptr("/x")}}})
	if h := got.HealthCheck.HTTP; h == nil || h.Domain != "a.b" || h.Path != "/x" || len(h.StatusCodes) != 2 {
		t.Errorf("health check over HTTP: %+v", got.HealthCheck)
	}
	got = update(ServiceInput{HealthCheck: &HealthCheckInput{HTTP: &HealthCheckHTTPInput{Domain: ptr(""), StatusCodes: []string{"200"}}}})
	if h := got.HealthCheck.HTTP; h.Domain != "" || h.Path != "/x" || len(h.StatusCodes) != 1 {
		t.Errorf("patch of the HTTP check: %+v", h)
	}
	got = update(ServiceInput{Protocol: ptr("https"), HTTP: &ServiceHTTPInput{Certificates: []int64{cert}, RedirectHTTP: ptr(true)}})
	if got.Protocol != "https" || !got.HTTP.StickySessions || !got.HTTP.RedirectHTTP || len(got.HTTP.Certificates) != 1 {
		t.Errorf("http → https: %+v", got.HTTP)
	}
	if c, _ := p.View().Certificates.Get(cert); len(c.UsedBy) != 1 {
		t.Error("the certificate does not know its user")
	}
	got = update(ServiceInput{Protocol: ptr("tcp"), HealthCheck: &HealthCheckInput{Protocol: ptr("tcp")}})
	if got.HTTP != nil || got.HealthCheck.HTTP != nil {
		t.Errorf("https → tcp: %+v", got)
	}
	if c, _ := p.View().Certificates.Get(cert); len(c.UsedBy) != 0 {
		t.Error("the certificate still has a user")
	}
	got = update(ServiceInput{Protocol: ptr("http")})
	if got.HTTP == nil || got.HTTP.CookieName != "HCLBSTICKY" || got.HTTP.StickySessions {
		t.Errorf("tcp → http: %+v", got.HTTP)
	}

	for name, tc := range map[string]struct {
		in   ServiceInput
		want string
	}{
		"no port":                   {ServiceInput{}, "listen_port"},
		"a port without a service":  {tcp(81, 81), "not_found"},
		"out of range":              {ServiceInput{ListenPort: ptr(80), HealthCheck: &HealthCheckInput{Retries: ptr(6)}}, "health_check.retries"},
		"https without certificate": {ServiceInput{ListenPort: ptr(80), Protocol: ptr("https")}, "http.certificates"},
		"unknown certificate":       {ServiceInput{ListenPort: ptr(80), Protocol: ptr("https"), HTTP: &ServiceHTTPInput{Certificates: []int64{1}}}, "http.certificates"},
	} {
		if _, _, err := p.UpdateLoadBalancerService(lb.ID, tc.in); codeOf(err) != tc.want {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
}

func TestCertificatesAreLimitedByTheType(t *testing.T) {
	t.Parallel()
	p, _, clk := lbCloud(t)
	a, b := putCertificate(t, p, "a"), putCertificate(t, p, "b")
	https := func(port int, certs ...int64) ServiceInput {
		return ServiceInput{Protocol: ptr("https"), ListenPort: &port, HTTP: &ServiceHTTPInput{Certificates: certs}}
	}
	lb := newLB(t, p, clk, CreateLoadBalancer{Type: "small", Services: []ServiceInput{https(443, a)}})
	if _, _, err := p.AddLoadBalancerService(lb.ID, https(444, b)); codeOf(err) != "resource_limit_exceeded" {
		t.Errorf("a second certificate: %v", err)
	}
	action, _, err := p.AddLoadBalancerService(lb.ID, https(444, a))
	if err != nil {
		t.Fatalf("the same certificate again: %v", err)
	}
	ended(t, p, clk, action, "")
	action, _, err = p.DeleteLoadBalancerService(lb.ID, 443)
	if err != nil {
		t.Fatal(err)
	}
	ended(t, p, clk, action, "")
	if c, _ := p.View().Certificates.Get(a); len(c.UsedBy) != 1 {
		t.Error("the certificate is still used by the other service")
	}
	if _, _, err := p.DeleteLoadBalancerService(lb.ID, 443); codeOf(err) != "not_found" {
		t.Errorf("delete what is gone: %v", err)
	}
}
