package cloud

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestInvalidServicesAreRefused(t *testing.T) {
	t.Parallel()
	p, _, clk := lbCloud(t)
	cert := putCertificate(t, p, "cert")
	lb := newLB(t, p, clk, CreateLoadBalancer{Services: []ServiceInput{tcp(1, 1)}})
	http := func(h ServiceHTTPInput) ServiceInput { return ServiceInput{Protocol: new("http"), HTTP: &h} }
	https := func(h ServiceHTTPInput) ServiceInput {
		if h.Certificates == nil {
			h.Certificates = []int64{cert}
		}
		return ServiceInput{Protocol: new("https"), HTTP: &h}
	}
	check := func(h HealthCheckInput) ServiceInput {
		in := tcp(2, 2)
		in.HealthCheck = &h
		return in
	}
	checkHTTP := func(h HealthCheckHTTPInput) ServiceInput {
		return check(HealthCheckInput{Protocol: new("http"), HTTP: &h})
	}
	for name, tc := range map[string]struct {
		in   ServiceInput
		want string
	}{
		"no protocol":             {ServiceInput{}, "protocol"},
		"tcp without listen port": {ServiceInput{Protocol: new("tcp"), DestinationPort: new(1)}, "listen_port"},
		"tcp without destination": {ServiceInput{Protocol: new("tcp"), ListenPort: new(2)}, "destination_port"},
		"port in use":             {tcp(1, 2), "source_port_already_used"},
		"no certificate":          {ServiceInput{Protocol: new("https")}, "http.certificates"},
		"unknown certificate":     {https(ServiceHTTPInput{Certificates: []int64{1}}), "http.certificates"},
		"http with a certificate": {http(ServiceHTTPInput{Certificates: []int64{cert}}), "http.certificates"},
		"http with a redirect":    {http(ServiceHTTPInput{RedirectHTTP: new(true)}), "http.redirect_http"},
		"tcp with sticky sessions": {ServiceInput{Protocol: new("tcp"), ListenPort: new(2), DestinationPort: new(2),
			HTTP: &ServiceHTTPInput{StickySessions: new(true)}}, "http.sticky_sessions"},
		"no cookie name":           {http(ServiceHTTPInput{CookieName: new("")}), "http.cookie_name"},
		"cookie name with a space": {http(ServiceHTTPInput{CookieName: new("a b")}), "http.cookie_name"},
		"domain with a percent":    {checkHTTP(HealthCheckHTTPInput{Domain: new("a%b")}), "health_check.http.domain"},
		"path with a space":        {checkHTTP(HealthCheckHTTPInput{Path: new("/a b")}), "health_check.http.path"},
		"a status code of letters": {checkHTTP(HealthCheckHTTPInput{StatusCodes: []string{"200", "abc"}}),
			"health_check.http.status_codes.1"},
		"all minimum values": {ServiceInput{Protocol: new("http"), HTTP: &ServiceHTTPInput{CookieName: new("a"),
			CookieLifetime: new(30), TimeoutIdle: new(30)}, HealthCheck: &HealthCheckInput{Port: new(1), Interval: new(3), Timeout: new(1),
			Retries: new(1)}}, ""},
		"all maximum values": {ServiceInput{Protocol: new("http"),
			HTTP:        &ServiceHTTPInput{CookieName: new(strings.Repeat("a", 100)), CookieLifetime: new(86400), TimeoutIdle: new(300)},
			HealthCheck: &HealthCheckInput{Port: new(65535), Interval: new(60), Timeout: new(60), Retries: new(5)}}, ""},
		"an HTTP check with all fields": {checkHTTP(HealthCheckHTTPInput{Domain: new("a.b"), Path: new("/x"), Response: new("ok"),
			StatusCodes: []string{"200", "2*", "?0?"}, TLS: new(true)}), ""},
		"tcp with an empty http part": {ServiceInput{Protocol: new("tcp"), ListenPort: new(2), DestinationPort: new(2),
			HTTP: &ServiceHTTPInput{}}, ""},
	} {
		st := p.View()
		err := lb.Clone().addService(st, tc.in, "")
		if got := codeOf(err); got != tc.want {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
	_, _, err := p.AddLoadBalancerService(lb.ID, tcp(1, 2))
	var e *Error
	if !errors.As(err, &e) || e.Status != 412 {
		t.Errorf("a port in use: %v, want 412", err)
	}
}

func TestAllProblemsOfAServiceAreNamed(t *testing.T) {
	t.Parallel()
	_, problems := newService(ServiceInput{
		Protocol: new("http"), HTTP: &ServiceHTTPInput{CookieName: new("a b"), RedirectHTTP: new(true)},
		HealthCheck: &HealthCheckInput{HTTP: &HealthCheckHTTPInput{Path: new("/a b")}},
	})
	var names []string
	for _, f := range problems {
		names = append(names, f.Name)
	}
	if got := strings.Join(names, " "); got != "http.redirect_http http.cookie_name health_check.http.path" {
		t.Error(got)
	}
}

func TestUpdatingAServiceIsAPatch(t *testing.T) {
	t.Parallel()
	p, _, clk := lbCloud(t)
	cert := putCertificate(t, p, "cert")
	lb := newLB(t, p, clk, CreateLoadBalancer{Services: []ServiceInput{
		{Protocol: new("http"), ListenPort: new(80), DestinationPort: new(8080), HTTP: &ServiceHTTPInput{StickySessions: new(true)}},
		tcp(90, 90),
	}})
	update := func(in ServiceInput) LoadBalancerService {
		t.Helper()
		in.ListenPort = new(80)
		action := did(p.UpdateLoadBalancerService(lb.ID, in))(t)
		ended(t, p, clk, action, "")
		s, _ := getLB(t, p, lb.ID).Service(80)
		return *s
	}
	want, _ := lb.Service(80)
	if got := update(ServiceInput{}); !reflect.DeepEqual(got, *want) {
		t.Errorf("nothing: %+v", got)
	}
	got := update(ServiceInput{DestinationPort: new(8081), ProxyProtocol: new(true), HealthCheck: &HealthCheckInput{Retries: new(1)}})
	if got.DestinationPort != 8081 || !got.ProxyProtocol || got.HealthCheck.Retries != 1 ||
		got.HealthCheck.Port != 8080 || got.HealthCheck.Interval != 15*time.Second || !got.HTTP.StickySessions {
		t.Errorf("some fields: %+v", got)
	}
	got = update(ServiceInput{HealthCheck: &HealthCheckInput{Protocol: new("http"), HTTP: &HealthCheckHTTPInput{Domain: new("a.b"),
		Path: new("/x")}}})
	if h := got.HealthCheck.HTTP; h == nil || h.Domain != "a.b" || h.Path != "/x" || len(h.StatusCodes) != 2 {
		t.Errorf("health check over HTTP: %+v", got.HealthCheck)
	}
	got = update(ServiceInput{HealthCheck: &HealthCheckInput{HTTP: &HealthCheckHTTPInput{Domain: new(""), StatusCodes: []string{"200"}}}})
	if h := got.HealthCheck.HTTP; h.Domain != "" || h.Path != "/x" || len(h.StatusCodes) != 1 {
		t.Errorf("patch of the HTTP check: %+v", h)
	}
	got = update(ServiceInput{Protocol: new("https"), HTTP: &ServiceHTTPInput{Certificates: []int64{cert}, RedirectHTTP: new(true)}})
	if got.Protocol != "https" || !got.HTTP.StickySessions || !got.HTTP.RedirectHTTP || len(got.HTTP.Certificates) != 1 {
		t.Errorf("http → https: %+v", got.HTTP)
	}
	if c, _ := p.View().Certificates.Get(cert); len(c.UsedBy) != 1 {
		t.Error("the certificate does not show that it is used")
	}
	got = update(ServiceInput{Protocol: new("http")})
	if got.HTTP == nil || !got.HTTP.StickySessions || got.HTTP.RedirectHTTP || len(got.HTTP.Certificates) != 0 {
		t.Errorf("https → http: %+v", got.HTTP)
	}
	got = update(ServiceInput{Protocol: new("https"), HTTP: &ServiceHTTPInput{Certificates: []int64{cert}}})
	if got.HTTP.RedirectHTTP || len(got.HTTP.Certificates) != 1 {
		t.Errorf("http → https again: %+v", got.HTTP)
	}
	got = update(ServiceInput{Protocol: new("tcp"), HealthCheck: &HealthCheckInput{Protocol: new("tcp")}})
	if got.HTTP != nil || got.HealthCheck.HTTP != nil {
		t.Errorf("https → tcp: %+v", got)
	}
	if c, _ := p.View().Certificates.Get(cert); len(c.UsedBy) != 0 {
		t.Error("the certificate still shows that it is used")
	}
	got = update(ServiceInput{Protocol: new("http")})
	if got.HTTP == nil || got.HTTP.CookieName != "HCLBSTICKY" || got.HTTP.StickySessions {
		t.Errorf("tcp → http: %+v", got.HTTP)
	}

	for name, tc := range map[string]struct {
		in   ServiceInput
		want string
	}{
		"no port":                  {ServiceInput{}, "listen_port"},
		"a port without a service": {tcp(81, 81), "not_found"},
		"unknown certificate": {ServiceInput{ListenPort: new(80), Protocol: new("https"),
			HTTP: &ServiceHTTPInput{Certificates: []int64{1}}}, "http.certificates"},
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
		return ServiceInput{Protocol: new("https"), ListenPort: &port, HTTP: &ServiceHTTPInput{Certificates: certs}}
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
	action = did(p.DeleteLoadBalancerService(lb.ID, 443))(t)
	ended(t, p, clk, action, "")
	if c, _ := p.View().Certificates.Get(a); len(c.UsedBy) != 1 {
		t.Error("the certificate is still used by the other service")
	}
	if _, _, err := p.DeleteLoadBalancerService(lb.ID, 443); codeOf(err) != "not_found" {
		t.Errorf("delete it again: %v", err)
	}
}

func TestARedirectUsesPort80(t *testing.T) {
	t.Parallel()
	const redirected = "port 80 is busy, redirect_http is enabled on another service"
	const taken = "source port 80 is already in use"
	p, _, clk := lbCloud(t)
	cert := putCertificate(t, p, "cert")
	https := func(port int, redirects bool) ServiceInput {
		return ServiceInput{Protocol: new("https"), ListenPort: new(port), HTTP: &ServiceHTTPInput{Certificates: []int64{cert},
			RedirectHTTP: new(redirects)}}
	}
	for name, tt := range map[string]struct {
		have   []ServiceInput
		in     ServiceInput
		update bool
		want   string
	}{
		"a service on port 80 after the redirect":      {[]ServiceInput{https(443, true)}, tcp(80, 80), false, redirected},
		"a service on another port":                    {[]ServiceInput{https(443, true)}, tcp(81, 80), false, ""},
		"a service on port 80 without a redirect":      {[]ServiceInput{https(443, false)}, tcp(80, 80), false, ""},
		"the redirect after a service on port 80":      {[]ServiceInput{tcp(80, 80)}, https(443, true), false, taken},
		"a second redirect":                            {[]ServiceInput{https(443, true)}, https(444, true), false, redirected},
		"a second service without a redirect":          {[]ServiceInput{https(443, true)}, https(444, false), false, ""},
		"a redirect that is switched on":               {[]ServiceInput{https(443, false), tcp(80, 80)}, https(443, true), true, taken},
		"a redirect that is switched on, port 80 free": {[]ServiceInput{https(443, false)}, https(443, true), true, ""},
		"a second redirect that is switched on": {[]ServiceInput{https(443, false), https(444, true)}, https(443, true), true,
			redirected},
		"another change of the service that redirects": {[]ServiceInput{https(443, true), tcp(22, 22)},
			ServiceInput{ListenPort: new(443), ProxyProtocol: new(true)}, true, ""},
		"another change of a service next to a redirect": {[]ServiceInput{https(443, true), tcp(22, 22)},
			ServiceInput{ListenPort: new(22), ProxyProtocol: new(true)}, true, ""},
	} {
		lb := newLB(t, p, clk, CreateLoadBalancer{Name: strings.ReplaceAll(name, " ", "-"), Services: tt.have})
		change, status := p.AddLoadBalancerService, 412
		if tt.update {
			change, status = p.UpdateLoadBalancerService, 422
		}
		_, _, err := change(lb.ID, tt.in)
		e, _ := errors.AsType[*Error](err)
		switch {
		case tt.want == "" && err != nil, tt.want != "" && (e == nil || e.Code != sourcePortUsed || e.Status != status ||
			e.Message != tt.want):
			t.Errorf("%s: %v", name, err)
		case tt.want != "" && !reflect.DeepEqual(getLB(t, p, lb.ID).Services, lb.Services):
			t.Errorf("%s: refused, but the services are now %+v", name, getLB(t, p, lb.ID).Services)
		}
	}
}
