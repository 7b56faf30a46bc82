package cloud

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

// ServiceInput is a new service, or the changes of one. In a new service, a nil field means the default. In
// an update, it changes nothing.
type ServiceInput struct {
	Protocol        *string
	ListenPort      *int
	DestinationPort *int
	ProxyProtocol   *bool
	HTTP            *ServiceHTTPInput
	HealthCheck     *HealthCheckInput
}

// ServiceHTTPInput is the HTTP part of a ServiceInput. Times are in seconds.
type ServiceHTTPInput struct {
	CookieName     *string
	CookieLifetime *int
	TimeoutIdle    *int
	Certificates   []int64 // nil means absent
	RedirectHTTP   *bool
	StickySessions *bool
}

// HealthCheckInput is the health check of a ServiceInput. Times are in seconds.
type HealthCheckInput struct {
	Protocol *string
	Port     *int
	Interval *int
	Timeout  *int
	Retries  *int
	HTTP     *HealthCheckHTTPInput
}

// HealthCheckHTTPInput is the HTTP part of a HealthCheckInput.
type HealthCheckHTTPInput struct {
	Domain      *string // "" means that no Host header is sent
	Path        *string
	Response    *string
	StatusCodes []string // nil means absent
	TLS         *bool
}

// The defaults of a service. Those of the HTTP configuration are in the API document, the others were
// observed in answers of the real API.
const (
	defaultHTTPPort       = 80
	defaultHTTPSPort      = 443
	defaultCookieName     = "HCLBSTICKY"
	defaultCookieLifetime = 300 * time.Second
	defaultTimeoutIdle    = 50 * time.Second
	defaultCheckInterval  = 15 * time.Second
	defaultCheckTimeout   = 10 * time.Second
	defaultCheckRetries   = 3
)

// newService returns the service of an input, with all defaults. TLS ends at the load balancer, so the default
// destination port of https is 80, as for http. A tcp service has no default ports.
func newService(in ServiceInput) (LoadBalancerService, []FieldError) {
	var f fieldErrors
	if in.Protocol == nil {
		f.add("protocol", "is required")
		return LoadBalancerService{}, f
	}
	s := LoadBalancerService{Protocol: *in.Protocol}
	switch s.Protocol {
	case "http":
		s.ListenPort, s.DestinationPort = defaultHTTPPort, defaultHTTPPort
	case "https":
		s.ListenPort, s.DestinationPort = defaultHTTPSPort, defaultHTTPPort
	default:
		if in.ListenPort == nil {
			f.add("listen_port", "is required for protocol tcp")
		}
		if in.DestinationPort == nil {
			f.add("destination_port", "is required for protocol tcp")
		}
	}
	set(&s.ListenPort, in.ListenPort)
	s.HealthCheck = LoadBalancerHealthCheck{
		Protocol: defaultCheckProtocol(s.Protocol), Interval: defaultCheckInterval, Timeout: defaultCheckTimeout,
		Retries: defaultCheckRetries,
	}
	s.patch(in)
	if in.HealthCheck == nil || in.HealthCheck.Port == nil {
		s.HealthCheck.Port = s.DestinationPort
	}
	return s, append(f, s.problems(in)...)
}

// defaultCheckProtocol returns the default protocol of a service's health check (documentation of the Ansible
// collection). TLS ends at the load balancer, so the default for https is http.
func defaultCheckProtocol(service string) string {
	if service == "tcp" {
		return "tcp"
	}
	return "http"
}

// patch applies the given fields. If the protocol changes, it removes the parts that the new protocol does not
// have, and adds its missing parts with their defaults.
func (s *LoadBalancerService) patch(in ServiceInput) {
	set(&s.Protocol, in.Protocol)
	set(&s.DestinationPort, in.DestinationPort)
	set(&s.ProxyProtocol, in.ProxyProtocol)
	s.patchHTTP(in.HTTP)
	if in.HealthCheck != nil {
		s.HealthCheck.patch(*in.HealthCheck)
	}
	switch {
	case s.HealthCheck.Protocol != "http":
		s.HealthCheck.HTTP = nil
	case s.HealthCheck.HTTP == nil:
		s.HealthCheck.HTTP = newHealthCheckHTTP()
	}
}

func (s *LoadBalancerService) patchHTTP(in *ServiceHTTPInput) {
	if s.Protocol == "tcp" {
		s.HTTP = nil
		return
	}
	if s.HTTP == nil {
		s.HTTP = &LoadBalancerHTTP{
			CookieName: defaultCookieName, CookieLifetime: defaultCookieLifetime, TimeoutIdle: defaultTimeoutIdle,
		}
	}
	if in != nil {
		set(&s.HTTP.CookieName, in.CookieName)
		setSeconds(&s.HTTP.CookieLifetime, in.CookieLifetime)
		setSeconds(&s.HTTP.TimeoutIdle, in.TimeoutIdle)
		set(&s.HTTP.RedirectHTTP, in.RedirectHTTP)
		set(&s.HTTP.StickySessions, in.StickySessions)
		if in.Certificates != nil {
			s.HTTP.Certificates = dedupe(in.Certificates)
		}
	}
	if s.Protocol == "http" {
		s.HTTP.Certificates, s.HTTP.RedirectHTTP = nil, false
	}
}

func newHealthCheckHTTP() *LoadBalancerHealthCheckHTTP {
	return &LoadBalancerHealthCheckHTTP{Path: "/", StatusCodes: []string{"2??", "3??"}}
}

func (h *LoadBalancerHealthCheck) patch(in HealthCheckInput) {
	set(&h.Protocol, in.Protocol)
	set(&h.Port, in.Port)
	setSeconds(&h.Interval, in.Interval)
	setSeconds(&h.Timeout, in.Timeout)
	set(&h.Retries, in.Retries)
	if in.HTTP == nil {
		return
	}
	if h.HTTP == nil {
		h.HTTP = newHealthCheckHTTP()
	}
	set(&h.HTTP.Domain, in.HTTP.Domain)
	set(&h.HTTP.Path, in.HTTP.Path)
	set(&h.HTTP.Response, in.HTTP.Response)
	set(&h.HTTP.TLS, in.HTTP.TLS)
	if in.HTTP.StatusCodes != nil {
		h.HTTP.StatusCodes = slices.Clone(in.HTTP.StatusCodes)
	}
}

func set[T any](dst, src *T) {
	if src != nil {
		*dst = *src
	}
}

func setSeconds(dst *time.Duration, seconds *int) {
	if seconds != nil {
		*dst = time.Duration(*seconds) * time.Second
	}
}

func dedupe(ids []int64) []int64 {
	known := map[int64]bool{}
	return slices.DeleteFunc(slices.Clone(ids), func(id int64) bool {
		again := known[id]
		known[id] = true
		return again
	})
}

type fieldErrors []FieldError

func (f *fieldErrors) add(name, message string) {
	*f = append(*f, FieldError{Name: name, Messages: []string{message}})
}

var (
	// A cookie's name is a token (RFC 6265).
	cookieName = regexp.MustCompile("^[!#$%&'*+.^_`|~0-9A-Za-z-]+$")
	statusCode = regexp.MustCompile(`^[0-9?*]{1,3}$`)
)

// problems checks that the input has only fields of the service's protocol, and the texts of a patched service. Package api checks the
// lists of allowed values, the ranges and the lengths of the API document.
func (s *LoadBalancerService) problems(in ServiceInput) []FieldError {
	return append(s.httpProblems(in.HTTP), s.HealthCheck.problems()...)
}

func (s *LoadBalancerService) httpProblems(in *ServiceHTTPInput) []FieldError {
	var f fieldErrors
	if in == nil {
		in = &ServiceHTTPInput{}
	}
	if s.Protocol != "https" && len(in.Certificates) > 0 {
		f.add("http.certificates", "is only available for protocol https")
	}
	if s.Protocol != "https" && in.RedirectHTTP != nil && *in.RedirectHTTP {
		f.add("http.redirect_http", "is only available for protocol https")
	}
	if s.Protocol == "tcp" {
		if in.StickySessions != nil && *in.StickySessions {
			f.add("http.sticky_sessions", "is only available for protocols http and https")
		}
		return f
	}
	if !cookieName.MatchString(s.HTTP.CookieName) {
		f.add("http.cookie_name", "is not a valid name of a cookie")
	}
	return f
}

func (h *LoadBalancerHealthCheck) problems() []FieldError {
	var f fieldErrors
	if h.HTTP == nil {
		return f
	}
	if strings.ContainsAny(h.HTTP.Domain, " %\\") {
		f.add("health_check.http.domain", "must not contain spaces, percent or backslash symbols")
	}
	if strings.Contains(h.HTTP.Path, " ") {
		f.add("health_check.http.path", "must not contain spaces, use percent-encoding instead")
	}
	for i, c := range h.HTTP.StatusCodes {
		if !statusCode.MatchString(c) {
			f.add(fmt.Sprintf("health_check.http.status_codes.%d", i), "must be a status code such as 200, in which ? and * are wildcards")
		}
	}
	return f
}

// invalidService returns an invalid_input error for the problems of a service, or nil. In the request, the names
// of its fields have the prefix.
func invalidService(prefix string, problems []FieldError) error {
	if len(problems) == 0 {
		return nil
	}
	for i := range problems {
		problems[i].Name = prefix + problems[i].Name
	}
	return ErrInvalidInput(problems...)
}

const (
	sourcePortUsed Code = "source_port_already_used"
	// redirectPort is the port of clients that redirect_http redirects.
	redirectPort = 80
)

// portProblem returns the conflict of a service's ports with other services, or "". A service that redirects uses port 80,
// too (hcloud-cloud-controller-manager issues 291, 333 and 916).
func (lb *LoadBalancer) portProblem(s *LoadBalancerService) string {
	for i := range lb.Services {
		o := &lb.Services[i]
		switch {
		case o == s:
		case o.ListenPort == s.ListenPort, o.ListenPort == redirectPort && s.redirects():
			return fmt.Sprintf("source port %d is already in use", o.ListenPort)
		case o.redirects() && (s.ListenPort == redirectPort || s.redirects()):
			return "port 80 is busy, redirect_http is enabled on another service"
		}
	}
	return ""
}

func (s *LoadBalancerService) redirects() bool { return s.HTTP != nil && s.HTTP.RedirectHTTP }

// errNoService is the error for a port without a service (terraform-provider-hcloud pull request 185).
func errNoService(lb *LoadBalancer, port int) error {
	return &Error{
		Code: "not_found", Status: 404,
		Message: fmt.Sprintf("service with listen port %d for load balancer with ID %d not found", port, lb.ID),
	}
}

// addService adds a service. Errors: invalid_input, source_port_already_used (412),
// resource_limit_exceeded.
func (lb *LoadBalancer) addService(st *State, in ServiceInput, prefix string) error {
	s, problems := newService(in)
	if err := invalidService(prefix, problems); err != nil {
		return err
	}
	if problem := lb.portProblem(&s); problem != "" {
		return ErrPrecondition(sourcePortUsed, problem)
	}
	if len(lb.Services) >= lb.Type.MaxServices {
		return ErrLimitExceeded("load_balancer_service_limit",
			fmt.Sprintf("load balancer type %s allows %d services", lb.Type.Name, lb.Type.MaxServices))
	}
	lb.Services = append(lb.Services, s)
	slices.SortFunc(lb.Services, func(a, b LoadBalancerService) int { return cmp.Compare(a.ListenPort, b.ListenPort) })
	return lb.checkCertificates(st, s, prefix)
}

// updateService changes the service on the input's listen port.
// Errors: not_found, invalid_input, resource_limit_exceeded, source_port_already_used (422, of a new redirect).
func (lb *LoadBalancer) updateService(st *State, in ServiceInput) error {
	if in.ListenPort == nil {
		return ErrField("listen_port", "is required")
	}
	s, ok := lb.Service(*in.ListenPort)
	if !ok {
		return errNoService(lb, *in.ListenPort)
	}
	s.patch(in)
	if err := invalidService("", s.problems(in)); err != nil {
		return err
	}
	if problem := lb.portProblem(s); problem != "" {
		return ErrOperation(sourcePortUsed, problem)
	}
	return lb.checkCertificates(st, *s, "")
}

// deleteService removes the service on a listen port. Errors: not_found.
func (lb *LoadBalancer) deleteService(port int) error {
	if _, ok := lb.Service(port); !ok {
		return errNoService(lb, port)
	}
	lb.Services = slices.DeleteFunc(lb.Services, func(s LoadBalancerService) bool { return s.ListenPort == port })
	return nil
}

// checkCertificates checks that the certificates of one service exist, and that the load balancer has no more
// certificates than its type allows. A managed certificate may be used before it is issued.
func (lb *LoadBalancer) checkCertificates(st *State, s LoadBalancerService, prefix string) error {
	if s.HTTP == nil {
		return nil
	}
	if s.Protocol == "https" && len(s.HTTP.Certificates) == 0 {
		e := ErrField(prefix+"http.certificates", "at least one certificate is required for protocol https")
		e.Message = e.Fields[0].Messages[0] // hcloud-cloud-controller-manager issue 223
		return e
	}
	for _, id := range s.HTTP.Certificates {
		if _, ok := st.Certificates.Get(id); !ok {
			return ErrField(prefix+"http.certificates", fmt.Sprintf("certificate with ID '%d' not found", id))
		}
	}
	if n := lb.Type.MaxAssignedCertificates; len(lb.certificates()) > n {
		return ErrLimitExceeded("load_balancer_certificate_limit",
			fmt.Sprintf("load balancer type %s allows %d certificates", lb.Type.Name, n))
	}
	return nil
}
