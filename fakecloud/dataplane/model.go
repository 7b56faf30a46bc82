package dataplane

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"
)

// Algorithm selects how a load balancer chooses among the healthy targets of a service.
type Algorithm string

// The algorithms of the API document.
const (
	// RoundRobin chooses the targets in turn.
	RoundRobin Algorithm = "round_robin"
	// LeastConnections chooses the target with the fewest open connections (tcp) or running requests
	// (http, https) of the service, and equal targets in turn.
	LeastConnections Algorithm = "least_connections"
)

// Protocol is the protocol between a service and its clients.
type Protocol string

// The protocols of the API document.
const (
	TCP   Protocol = "tcp"
	HTTP  Protocol = "http"
	HTTPS Protocol = "https"

	// redirect is the protocol of port 80 of an https service with RedirectHTTP.
	redirect Protocol = "redirect"
)

// Defaults of the API document for zero fields.
const (
	defaultCookieName     = "HCLBSTICKY"
	defaultCookieLifetime = 300 * time.Second
	defaultIdleTimeout    = 50 * time.Second
	defaultCheckInterval  = 15 * time.Second
	defaultCheckTimeout   = 10 * time.Second
	defaultCheckRetries   = 3
)

// LoadBalancer is the desired state of one load balancer.
type LoadBalancer struct {
	// ID identifies the load balancer to the engine.
	ID int64
	// Name is used only in messages.
	Name string
	// Addresses are the load balancer's addresses in the cloud: the public IPv4 and IPv6 address if the
	// public interface is enabled, and the private address. The engine's Binder maps them to addresses
	// on this machine.
	Addresses []netip.Addr
	// Algorithm is RoundRobin if empty.
	Algorithm Algorithm
	// MaxConnections limits the open connections of all services together. The load balancer's type determines the limit. Zero means no
	// limit. Further connections wait, as in HAProxy.
	MaxConnections int
	Services       []Service
	Targets        []Target
}

// Service forwards connections to a listen port to the targets.
type Service struct {
	Protocol        Protocol
	ListenPort      uint16
	DestinationPort uint16
	// ProxyProtocol sends a PROXY header ahead of each connection to a target.
	ProxyProtocol bool
	HealthCheck   HealthCheck
	// HTTP is used only for HTTP and HTTPS services.
	HTTP HTTPConfig
}

// HTTPConfig holds the settings of HTTP and HTTPS services.
type HTTPConfig struct {
	StickySessions bool
	CookieName     string
	// CookieLifetime starts with a client's first request. After it the client may get another target.
	CookieLifetime time.Duration
	// TimeoutIdle closes a connection without data for that time, to the client and to the target.
	TimeoutIdle time.Duration
	// Certificates are used for HTTPS. The first is the default for clients without a known server
	// name. Without certificates, an HTTPS service passes TLS through to the targets, as the API
	// document says.
	Certificates []Certificate
	// RedirectHTTP makes an HTTPS service redirect requests on port 80 too, unless another service
	// listens there.
	RedirectHTTP bool
}

// Certificate is a PEM encoded certificate chain, leaf first, and its key.
type Certificate struct {
	Chain      string
	PrivateKey string
}

// HealthCheck holds the settings of the probes of a service's targets.
type HealthCheck struct {
	// Protocol is TCP or HTTP; empty means TCP.
	Protocol Protocol
	// Port is the service's destination port if zero.
	Port     uint16
	Interval time.Duration
	Timeout  time.Duration
	// Retries is the number of consecutive failures that make a target unhealthy, and of consecutive successes that make it healthy again.
	Retries int
	HTTP    HTTPCheck
}

// HTTPCheck is used only for health checks over HTTP.
type HTTPCheck struct {
	// Domain is sent as the Host header. If empty, no Host header is sent.
	Domain string
	// Path is "/" if empty.
	Path string
	// Response is a text that the body must contain. If empty, any body is accepted.
	Response string
	// StatusCodes are the accepted codes, with ? for one character and * for any number. If empty, they
	// are "2??" and "3??".
	StatusCodes []string
	TLS         bool
}

// Target is an address that gets traffic. The caller expands targets by label selector.
type Target struct {
	// Key identifies the target within its load balancer, for example "server:42". Health reports and
	// sticky sessions use it.
	Key string
	// Address is the target's public or private address in the cloud. The engine's Resolver maps it to
	// an address on this machine.
	Address netip.Addr
	// Traffic counts the bytes to and from the target. If nil, they are not counted. Give a target the same one each
	// time: a target with another one is new, with unknown health.
	Traffic *Traffic
}

// serviceConf is a valid Service with its defaults and prepared data. It is immutable once published.
type serviceConf struct {
	Service
	algorithm Algorithm
	tls       *tls.Config // nil unless TLS is terminated
}

// mode returns the protocol that the load balancer itself handles on the service's port.
func (c *serviceConf) mode() Protocol {
	if c.Protocol == HTTPS && c.tls == nil {
		return TCP
	}
	return c.Protocol
}

// validate checks lb and returns its prepared services, in order. The error lists all mistakes.
func (lb *LoadBalancer) validate() ([]*serviceConf, error) {
	var errs []error
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }

	switch lb.Algorithm {
	case "", RoundRobin, LeastConnections:
	default:
		fail("algorithm %q: must be round_robin or least_connections", lb.Algorithm)
	}
	if lb.MaxConnections < 0 {
		fail("max connections %d: must not be negative", lb.MaxConnections)
	}
	addresses := map[netip.Addr]bool{}
	for _, a := range lb.Addresses {
		if !a.IsValid() || addresses[a] {
			fail("address %q: must be valid and unique", a)
		}
		addresses[a] = true
	}
	keys := map[string]bool{}
	for _, t := range lb.Targets {
		if t.Key == "" || keys[t.Key] {
			fail("target %q: the key must be unique and not empty", t.Key)
		}
		keys[t.Key] = true
	}

	ports := map[uint16]bool{}
	var confs []*serviceConf
	for _, s := range lb.Services {
		if ports[s.ListenPort] {
			fail("service %d: the listen port must be unique", s.ListenPort)
		}
		ports[s.ListenPort] = true
		conf, err := s.prepare()
		if err != nil {
			fail("service %d: %w", s.ListenPort, err)
			continue
		}
		conf.algorithm = lb.Algorithm
		confs = append(confs, conf)
	}
	if len(errs) > 0 {
		return nil, fmt.Errorf("load balancer %d %q: %w", lb.ID, lb.Name, errors.Join(errs...))
	}
	if i := slices.IndexFunc(confs, func(c *serviceConf) bool { return c.Protocol == HTTPS && c.HTTP.RedirectHTTP }); i >= 0 && !ports[80] {
		confs = append(confs, redirectTo(confs[i]))
	}
	return confs, nil
}

// redirectTo returns the service on port 80 that redirects clients to the https service.
func redirectTo(https *serviceConf) *serviceConf {
	return &serviceConf{Service: Service{
		Protocol:        redirect,
		ListenPort:      80,
		DestinationPort: https.ListenPort,
		HTTP:            HTTPConfig{TimeoutIdle: https.HTTP.TimeoutIdle},
	}}
}

// prepare checks s, fills in the defaults and parses the certificates.
func (s Service) prepare() (*serviceConf, error) {
	var errs []error
	if s.ListenPort == 0 {
		errs = append(errs, errors.New("listen port must be 1 to 65535"))
	}
	if s.DestinationPort == 0 {
		errs = append(errs, errors.New("destination port must be 1 to 65535"))
	}
	conf := &serviceConf{Service: s}
	switch s.Protocol {
	case TCP:
		conf.HTTP = HTTPConfig{}
	case HTTP, HTTPS:
		conf.HTTP.fillDefaults()
		if !httpguts.ValidHeaderFieldName(conf.HTTP.CookieName) {
			errs = append(errs, fmt.Errorf("cookie name %q: must be an HTTP token, for example HCLBSTICKY", conf.HTTP.CookieName))
		}
	default:
		errs = append(errs, fmt.Errorf("protocol %q: must be tcp, http or https", s.Protocol))
	}
	if s.Protocol == HTTPS && len(s.HTTP.Certificates) > 0 {
		var err error
		if conf.tls, err = serverTLS(s.HTTP.Certificates); err != nil {
			errs = append(errs, err)
		}
	}
	errs = append(errs, conf.HealthCheck.prepare(s.DestinationPort))
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return conf, nil
}

func (h *HTTPConfig) fillDefaults() {
	h.CookieName = cmp.Or(h.CookieName, defaultCookieName)
	h.CookieLifetime = cmp.Or(max(h.CookieLifetime, 0), defaultCookieLifetime)
	h.TimeoutIdle = cmp.Or(max(h.TimeoutIdle, 0), defaultIdleTimeout)
}

// prepare checks hc and fills in the defaults.
func (hc *HealthCheck) prepare(destinationPort uint16) error {
	var errs []error
	hc.Protocol, hc.Port = cmp.Or(hc.Protocol, TCP), cmp.Or(hc.Port, destinationPort)
	hc.Interval = cmp.Or(max(hc.Interval, 0), defaultCheckInterval)
	hc.Timeout = cmp.Or(max(hc.Timeout, 0), defaultCheckTimeout)
	hc.Retries = cmp.Or(max(hc.Retries, 0), defaultCheckRetries)
	switch hc.Protocol {
	case TCP:
	case HTTP:
		hc.HTTP.Path = cmp.Or(hc.HTTP.Path, "/")
		if len(hc.HTTP.StatusCodes) == 0 {
			hc.HTTP.StatusCodes = []string{"2??", "3??"}
		}
		errs = append(errs, hc.HTTP.check())
	default:
		errs = append(errs, fmt.Errorf("health check protocol %q: must be tcp or http", hc.Protocol))
	}
	return errors.Join(errs...)
}

// check refuses values that would break the syntax of the probe's request.
func (h HTTPCheck) check() error {
	var errs []error
	if strings.ContainsFunc(h.Path, func(r rune) bool { return r <= ' ' || r == 0x7f }) {
		errs = append(errs, fmt.Errorf("health check path %q: must not contain spaces or control characters", h.Path))
	}
	if h.Domain != "" && !httpguts.ValidHostHeader(h.Domain) {
		errs = append(errs, fmt.Errorf("health check domain %q: must be a host name", h.Domain))
	}
	for _, p := range h.StatusCodes {
		if !validStatusPattern(p) {
			errs = append(errs, fmt.Errorf("health check status code %q: must contain only digits, ? and *", p))
		}
	}
	return errors.Join(errs...)
}

func validStatusPattern(p string) bool {
	return p != "" && strings.Trim(p, "0123456789?*") == ""
}

// matchStatus reports whether code matches one of the patterns. ? matches exactly one character, *
// any number (API document, health_check.http.status_codes).
func matchStatus(patterns []string, code int) bool {
	s := fmt.Sprint(code)
	return slices.ContainsFunc(patterns, func(p string) bool {
		// path.Match has the same two wildcards. Its others cannot occur in a valid pattern.
		ok, err := path.Match(p, s)
		return ok && err == nil && validStatusPattern(p)
	})
}

// statusLine returns code and its text, for answers of the load balancer itself.
func statusLine(code int) string {
	return fmt.Sprintf("%d %s", code, http.StatusText(code))
}
