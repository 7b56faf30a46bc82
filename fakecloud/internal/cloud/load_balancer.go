package cloud

import (
	"net/netip"
	"slices"
	"time"
)

// LoadBalancer distributes connections or HTTP requests over targets.
type LoadBalancer struct {
	Meta
	Type     *LoadBalancerType
	Location *Location
	// PublicEnabled tells whether the public interface is there. The addresses stay allocated, and
	// shown, when it is disabled.
	PublicEnabled    bool
	IPv4             LoadBalancerIP
	IPv6             LoadBalancerIP
	PrivateNets      []LoadBalancerPrivateNet // at most one
	Algorithm        string                   // round_robin or least_connections
	Services         []LoadBalancerService    // by ascending listen port
	Targets          []LoadBalancerTarget
	DeleteProtection bool
	// Deleting is set while the delete action runs.
	Deleting bool
}

// LoadBalancerIP is a public address of a load balancer.
type LoadBalancerIP struct {
	Addr      netip.Addr
	PrimaryIP int64 // 0 while the address is managed by the system
	Blocked   bool
	DNSPtr    string
}

// LoadBalancerPrivateNet is a load balancer's interface in a network.
type LoadBalancerPrivateNet struct {
	Network int64
	IP      netip.Addr
}

// LoadBalancerService is a port that a load balancer listens on.
type LoadBalancerService struct {
	Protocol        string // tcp, http, https
	ListenPort      int
	DestinationPort int
	ProxyProtocol   bool
	HTTP            *LoadBalancerHTTP // nil for tcp
	HealthCheck     LoadBalancerHealthCheck
}

// LoadBalancerHTTP is the configuration of an HTTP or HTTPS service.
type LoadBalancerHTTP struct {
	CookieName     string
	CookieLifetime time.Duration
	TimeoutIdle    time.Duration
	Certificates   []int64 // https only
	RedirectHTTP   bool    // https only
	StickySessions bool
}

// LoadBalancerHealthCheck says how a service probes its targets.
type LoadBalancerHealthCheck struct {
	Protocol string // tcp or http
	Port     int
	Interval time.Duration
	Timeout  time.Duration
	Retries  int
	HTTP     *LoadBalancerHealthCheckHTTP // nil for tcp
}

// LoadBalancerHealthCheckHTTP is the HTTP part of a health check.
type LoadBalancerHealthCheckHTTP struct {
	Domain      string
	Path        string
	Response    string
	StatusCodes []string
	TLS         bool
}

// LoadBalancerTarget is what receives traffic. Type tells which of Server, Selector and IP is set.
type LoadBalancerTarget struct {
	Type         string // server, label_selector, ip
	Server       int64
	Selector     string
	IP           netip.Addr
	UsePrivateIP bool
	// Health is the state per listen port, of server and ip targets.
	Health []TargetHealth
	// Targets are the servers that a label selector selects now.
	Targets []LoadBalancerTarget
}

// TargetHealth is what the health checks of one service say of one target.
type TargetHealth struct {
	ListenPort int
	Status     string // unknown, healthy, unhealthy
	// Detail and HTTPStatusCode are set only when Status is unhealthy.
	Detail         string
	HTTPStatusCode int
}

// Clone implements Object.
func (lb *LoadBalancer) Clone() *LoadBalancer {
	c := *lb
	c.PrivateNets = slices.Clone(lb.PrivateNets)
	c.Services = slices.Clone(lb.Services)
	for i := range c.Services {
		c.Services[i] = c.Services[i].Clone()
	}
	c.Targets = cloneTargets(lb.Targets)
	return &c
}

// Clone returns a copy that shares nothing with the original.
func (s LoadBalancerService) Clone() LoadBalancerService {
	if s.HTTP != nil {
		h := *s.HTTP
		h.Certificates = slices.Clone(h.Certificates)
		s.HTTP = &h
	}
	if s.HealthCheck.HTTP != nil {
		h := *s.HealthCheck.HTTP
		h.StatusCodes = slices.Clone(h.StatusCodes)
		s.HealthCheck.HTTP = &h
	}
	return s
}

func cloneTargets(in []LoadBalancerTarget) []LoadBalancerTarget {
	out := slices.Clone(in)
	for i := range out {
		out[i].Health = slices.Clone(out[i].Health)
		out[i].Targets = cloneTargets(out[i].Targets)
	}
	return out
}

// Ref returns the reference to the load balancer.
func (lb *LoadBalancer) Ref() Ref { return Ref{KindLoadBalancer, lb.ID} }
