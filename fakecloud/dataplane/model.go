package dataplane

import (
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

// Algorithm says how a load balancer chooses among the healthy targets of a service.
type Algorithm string

// The algorithms of the API document.
const (
	// RoundRobin takes the targets in turn.
	RoundRobin Algorithm = "round_robin"
	// LeastConnections takes the target with the fewest open connections (tcp) or requests in
	// progress (http, https) of the service; the targets that tie are taken in turn.
	LeastConnections Algorithm = "least_connections"
)

// Protocol is what a service speaks with its clients.
type Protocol string

// The protocols of the API document.
const (
	TCP   Protocol = "tcp"
	HTTP  Protocol = "http"
	HTTPS Protocol = "https"

	// redirect is the listener on port 80 that comes with an https service with RedirectHTTP.
	redirect Protocol = "redirect"
)

// Defaults of the API document, used where a field is zero.
const (
	DefaultCookieName     = "HCLBSTICKY"
	DefaultCookieLifetime = 300 * time.Second
	DefaultIdleTimeout    = 50 * time.Second
	DefaultCheckInterval  = 15 * time.Second
	DefaultCheckTimeout   = 10 * time.Second
	DefaultCheckRetries   = 3
)

// LoadBalancer is the desired state of one load balancer.
type LoadBalancer struct {
	// ID identifies the load balancer to the engine.
	ID int64
	// Name appears in logs only.
	Name string
	// Addresses are those that the load balancer has in the cloud: the public IPv4 and IPv6
	// address, unless the public interface is disabled, and the private one. The engine's Binder
	// says where each of them is reached on this machine.
	Addresses []netip.Addr
	// Algorithm is RoundRobin if empty.
	Algorithm Algorithm
	// MaxConnections is the limit of the load balancer's type on open connections, of all services
	// together. Zero means no limit. Connections over the limit wait to be served, as in HAProxy.
	MaxConnections int
	Services       []Service
	Targets        []Target
}

// Service forwards what arrives on a listen port to the targets.
type Service struct {
	Protocol        Protocol
	ListenPort      uint16
	DestinationPort uint16
	// ProxyProtocol sends a PROXY header ahead of each connection to a target.
	ProxyProtocol bool
	HealthCheck   HealthCheck
	// HTTP is read for HTTP and HTTPS services only.
	HTTP HTTPConfig
}

// HTTPConfig is what only HTTP and HTTPS services have.
type HTTPConfig struct {
	StickySessions bool
	CookieName     string
	// CookieLifetime counts from a client's first request; afterwards it may get another target.
	CookieLifetime time.Duration
	// TimeoutIdle ends a connection on which nothing moves, on the client's and the target's side.
	TimeoutIdle time.Duration
	// Certificates are for HTTPS; the first is the default for clients that name no known server.
	// Without any, an HTTPS service passes TLS through to the targets, as the API document says.
	Certificates []Certificate
	// RedirectHTTP makes an HTTPS service answer on port 80 too, with a redirect, unless another
	// service listens there.
	RedirectHTTP bool
}

// Certificate is a PEM encoded chain, leaf first, and its key.
type Certificate struct {
	Chain      string
	PrivateKey string
}

// HealthCheck says how the targets of a service are probed.
type HealthCheck struct {
	// Protocol is TCP or HTTP; empty means TCP.
	Protocol Protocol
	// Port is the service's destination port if zero.
	Port     uint16
	Interval time.Duration
	Timeout  time.Duration
	// Retries is how many probes in a row must fail to make a target unhealthy, and how many must
	// succeed to make it healthy again.
	Retries int
	HTTP    HTTPCheck
}

// HTTPCheck is read for health checks over HTTP only.
type HTTPCheck struct {
	// Domain is sent as Host header. If empty, no Host header is sent.
	Domain string
	// Path is "/" if empty.
	Path string
	// Response must be contained in the body, if not empty.
	Response string
	// StatusCodes are patterns with ? for one character and * for several; "2??" and "3??" if empty.
	StatusCodes []string
	TLS         bool
}

// Target is one machine that gets traffic. Targets by label selector are expanded by the caller.
type Target struct {
	// Key identifies the target within its load balancer, for example "server:42". Health is
	// reported under it and sticky sessions are bound to it.
	Key string
	// Address is the target's address in the cloud, public or private. The engine's Resolver says
	// where it is on this machine.
	Address netip.Addr
}

// serviceConf is a Service that passed validation, with its defaults filled in and all that can be
// prepared once prepared. It is never changed after it was published.
type serviceConf struct {
	Service
	algorithm Algorithm
	tls       *tls.Config // nil unless TLS is terminated
	backends  []*backend
}

// mode is the protocol that the load balancer itself speaks on the service's port.
func (c *serviceConf) mode() Protocol {
	if c.Protocol == HTTPS && c.tls == nil {
		return TCP
	}
	return c.Protocol
}

// validate checks lb and returns its services prepared for serving, in order. All that is wrong is
// in the error.
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
			fail("address %q: missing or given twice", a)
		}
		addresses[a] = true
	}
	keys := map[string]bool{}
	for _, t := range lb.Targets {
		if t.Key == "" || keys[t.Key] {
			fail("target %q: key is missing or given twice", t.Key)
		}
		keys[t.Key] = true
	}

	ports := map[uint16]bool{}
	var confs []*serviceConf
	for _, s := range lb.Services {
		if ports[s.ListenPort] {
			fail("service %d: another service listens on the port", s.ListenPort)
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

// redirectTo is the service on port 80 that sends clients to https.
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
			errs = append(errs, fmt.Errorf("cookie name %q: not a token", conf.HTTP.CookieName))
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
	if h.CookieName == "" {
		h.CookieName = DefaultCookieName
	}
	if h.CookieLifetime <= 0 {
		h.CookieLifetime = DefaultCookieLifetime
	}
	if h.TimeoutIdle <= 0 {
		h.TimeoutIdle = DefaultIdleTimeout
	}
}

// prepare checks hc and fills in the defaults.
func (hc *HealthCheck) prepare(destinationPort uint16) error {
	var errs []error
	if hc.Port == 0 {
		hc.Port = destinationPort
	}
	if hc.Interval <= 0 {
		hc.Interval = DefaultCheckInterval
	}
	if hc.Timeout <= 0 {
		hc.Timeout = DefaultCheckTimeout
	}
	if hc.Retries <= 0 {
		hc.Retries = DefaultCheckRetries
	}
	switch hc.Protocol {
	case "":
		hc.Protocol = TCP
	case TCP:
	case HTTP:
		if hc.HTTP.Path == "" {
			hc.HTTP.Path = "/"
		}
		if len(hc.HTTP.StatusCodes) == 0 {
			hc.HTTP.StatusCodes = []string{"2??", "3??"}
		}
		errs = append(errs, hc.HTTP.check())
	default:
		errs = append(errs, fmt.Errorf("health check protocol %q: must be tcp or http", hc.Protocol))
	}
	return errors.Join(errs...)
}

// check refuses what would change the meaning of the request that is built from it.
func (h HTTPCheck) check() error {
	var errs []error
	if strings.ContainsFunc(h.Path, func(r rune) bool { return r <= ' ' || r == 0x7f }) {
		errs = append(errs, fmt.Errorf("health check path %q: must not contain spaces or control characters", h.Path))
	}
	if h.Domain != "" && !httpguts.ValidHostHeader(h.Domain) {
		errs = append(errs, fmt.Errorf("health check domain %q: not a host name", h.Domain))
	}
	for _, p := range h.StatusCodes {
		if !validStatusPattern(p) {
			errs = append(errs, fmt.Errorf("health check status code %q: must be digits, ? and *", p))
		}
	}
	return errors.Join(errs...)
}

func validStatusPattern(p string) bool {
	return p != "" && strings.Trim(p, "0123456789?*") == ""
}

// matchStatus reports whether code matches one of the patterns, in which ? stands for exactly one
// character and * for any number of them (API document, health_check.http.status_codes).
func matchStatus(patterns []string, code int) bool {
	s := fmt.Sprint(code)
	return slices.ContainsFunc(patterns, func(p string) bool {
		// path.Match has the same two wildcards; its others cannot occur in a valid pattern.
		ok, err := path.Match(p, s)
		return ok && err == nil && validStatusPattern(p)
	})
}

// statusLine is used for the answers that the load balancer gives itself.
func statusLine(code int) string {
	return fmt.Sprintf("%d %s", code, http.StatusText(code))
}
