package cloud

import (
	"iter"
	"net/netip"
	"slices"
	"time"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/store"
)

// KindLoadBalancer is the kind of load balancers.
const KindLoadBalancer store.Kind = "load_balancer"

// LoadBalancer distributes connections or HTTP requests over targets.
//
// Reproduced: services and targets with all their rules, limits of the type, label selector targets that follow the labels, one private
// network at a time, the public interface, public addresses from the cloud's pool or Primary IPs, and the references of servers and
// certificates (Server.LoadBalancers, Certificate.UsedBy). While an action runs, other actions are refused with conflict. The changes of an
// action are visible when it has succeeded.
//
// Left out: traffic counters without a data plane (they are null), abuse blocking except that of a Primary IP, availability of a type by
// location. In three cases the documents do not say what happens. The simulation decides:
//   - a private target is removed when the load balancer or its server leaves the network;
//   - a label selector counts as one target;
//   - a load balancer stays, without its network, if its create action fails.
type LoadBalancer struct {
	store.Meta
	*LoadBalancerSettings
	Targets []LoadBalancerTarget `json:"targets,omitzero"` // in the order of adding
	// Traffic is nil until there is some. It may not be changed, only replaced.
	Traffic *LoadBalancerTraffic `json:"traffic,omitzero"`

	// Revision changes with everything that routes traffic: services, the addresses of targets,
	// interfaces, algorithm, type. It stays the same when the health of targets changes.
	Revision int64 `json:"revision,omitzero"`
}

// LoadBalancerSettings is the part of a load balancer that changes seldom. Versions that differ only in their targets share it: Clone makes
// a copy that may be changed.
type LoadBalancerSettings struct {
	Type     *LoadBalancerType `json:"type,omitzero"`
	Location *Location         `json:"location,omitzero"`
	// PublicEnabled is whether the public interface is enabled. The addresses stay allocated, and
	// shown, when it is disabled.
	PublicEnabled    bool                     `json:"public_enabled,omitzero"`
	IPv4             LoadBalancerIP           `json:"ipv4,omitzero"`
	IPv6             LoadBalancerIP           `json:"ipv6,omitzero"`
	PrivateNets      []LoadBalancerPrivateNet `json:"private_nets,omitzero"` // at most one
	Algorithm        string                   `json:"algorithm,omitzero"`    // round_robin or least_connections
	Services         []LoadBalancerService    `json:"services,omitzero"`     // by ascending listen port
	DeleteProtection bool                     `json:"delete_protection,omitzero"`
	// Deleting is set while the delete action runs.
	Deleting bool `json:"deleting,omitzero"`

	// Creating is set while the create action runs.
	Creating bool `json:"creating,omitzero"`

	// Joining is the network that the create action attaches the load balancer to, 0 otherwise. Private targets already have their
	// addresses of that network.
	Joining int64 `json:"joining,omitzero"`
}

// LoadBalancerIP is a public address of a load balancer.
type LoadBalancerIP struct {
	Addr      netip.Addr `json:"addr,omitzero"`
	PrimaryIP int64      `json:"primary_ip,omitzero"` // 0 if the address is not a Primary IP
	Blocked   bool       `json:"blocked,omitzero"`
	DNSPtr    string     `json:"dns_ptr,omitzero"`
}

// LoadBalancerPrivateNet is a load balancer's interface in a network.
type LoadBalancerPrivateNet struct {
	Network int64      `json:"network,omitzero"`
	IP      netip.Addr `json:"ip,omitzero"`
}

// LoadBalancerService is a port that a load balancer listens on.
type LoadBalancerService struct {
	Protocol        string                  `json:"protocol,omitzero"` // tcp, http, https
	ListenPort      int                     `json:"listen_port,omitzero"`
	DestinationPort int                     `json:"destination_port,omitzero"`
	ProxyProtocol   bool                    `json:"proxy_protocol,omitzero"`
	HTTP            *LoadBalancerHTTP       `json:"http,omitzero"` // nil for tcp
	HealthCheck     LoadBalancerHealthCheck `json:"health_check,omitzero"`
}

// LoadBalancerHTTP is the configuration of an HTTP or HTTPS service.
type LoadBalancerHTTP struct {
	CookieName     string        `json:"cookie_name,omitzero"`
	CookieLifetime time.Duration `json:"cookie_lifetime,omitzero"`
	TimeoutIdle    time.Duration `json:"timeout_idle,omitzero"`
	Certificates   []int64       `json:"certificates,omitzero"`  // https only
	RedirectHTTP   bool          `json:"redirect_http,omitzero"` // https only
	StickySessions bool          `json:"sticky_sessions,omitzero"`
}

// LoadBalancerHealthCheck is how a service probes its targets.
type LoadBalancerHealthCheck struct {
	Protocol string                       `json:"protocol,omitzero"` // tcp or http
	Port     int                          `json:"port,omitzero"`
	Interval time.Duration                `json:"interval,omitzero"`
	Timeout  time.Duration                `json:"timeout,omitzero"`
	Retries  int                          `json:"retries,omitzero"`
	HTTP     *LoadBalancerHealthCheckHTTP `json:"http,omitzero"` // nil for tcp
}

// LoadBalancerHealthCheckHTTP is the HTTP part of a health check.
type LoadBalancerHealthCheckHTTP struct {
	Domain      string   `json:"domain,omitzero"`
	Path        string   `json:"path,omitzero"`
	Response    string   `json:"response,omitzero"`
	StatusCodes []string `json:"status_codes,omitzero"`
	TLS         bool     `json:"tls,omitzero"`
}

// LoadBalancerTarget receives traffic. Its Type decides which of Server, Selector and IP are set.
type LoadBalancerTarget struct {
	Type     string `json:"type,omitzero"` // server, label_selector, ip
	Server   int64  `json:"server,omitzero"`
	Selector string `json:"selector,omitzero"`
	// IP is the destination of the traffic of server and ip targets. For a server, it is the public IPv4
	// address, an IPv6 address on request, or the address in the load balancer's network.
	IP           netip.Addr `json:"ip,omitzero"`
	UsePrivateIP bool       `json:"use_private_ip,omitzero"`
	// Health is the health of a server or ip target per listen port, in the order of the services.
	Health []TargetHealth `json:"health,omitzero"`
	// Targets are the servers that a label selector selects.
	Targets Selected `json:"targets,omitzero"`

	selector *store.Selector // Selector, parsed; nil for other types
}

// TargetHealth is the health of one target by the health checks of one service.
type TargetHealth struct {
	ListenPort int    `json:"listen_port,omitzero"`
	Status     string `json:"status,omitzero"` // unknown, healthy, unhealthy
	// Detail and HTTPStatusCode are set only when Status is unhealthy.
	Detail         string `json:"detail,omitzero"`
	HTTPStatusCode int    `json:"http_status_code,omitzero"`

	// Since is when the service began to check the target's current address.
	Since time.Time `json:"since,omitzero"`
}

// Clone implements Object.
func (lb *LoadBalancer) Clone() *LoadBalancer {
	c, settings := *lb, *lb.LoadBalancerSettings
	c.LoadBalancerSettings = &settings
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
	}
	return out
}

// Ref returns the reference to the load balancer.
func (lb *LoadBalancer) Ref() Ref { return Ref{KindLoadBalancer, lb.ID} }

// Service returns the service on a listen port.
func (lb *LoadBalancer) Service(listenPort int) (*LoadBalancerService, bool) {
	i := slices.IndexFunc(lb.Services, func(s LoadBalancerService) bool { return s.ListenPort == listenPort })
	if i < 0 {
		return nil, false
	}
	return &lb.Services[i], true
}

// network returns the id of the network that the load balancer is in, or 0.
func (lb *LoadBalancer) network() int64 {
	if len(lb.PrivateNets) > 0 {
		return lb.PrivateNets[0].Network
	}
	return lb.Joining
}

// certificates returns the ids of all certificates that the services use, sorted, each once.
func (lb *LoadBalancer) certificates() []int64 {
	var ids []int64
	for _, s := range lb.Services {
		if s.HTTP != nil {
			ids = append(ids, s.HTTP.Certificates...)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// Backends yields the destinations of traffic: the targets of types server and ip, and the servers that
// label selectors select. They are for reading only.
func (lb *LoadBalancer) Backends() iter.Seq[*LoadBalancerTarget] {
	return func(yield func(*LoadBalancerTarget) bool) {
		for i := range lb.Targets {
			t := &lb.Targets[i]
			if t.Type != "label_selector" && !yield(t) {
				return
			}
			for n := range t.Targets.All() {
				if !yield(n) {
					return
				}
			}
		}
	}
}

// serversOf returns the ids of all servers that are targets, directly or by a label selector. They are
// sorted and unique.
func serversOf(targets []LoadBalancerTarget) []int64 {
	var ids []int64
	for _, t := range targets {
		if t.Server != 0 {
			ids = append(ids, t.Server)
		}
		for n := range t.Targets.All() {
			ids = append(ids, n.Server)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// storeLoadBalancer stores a new or changed load balancer and updates the references to it.
func (tx *Tx) storeLoadBalancer(lb *LoadBalancer) {
	old, existed := tx.LoadBalancers.Get(lb.ID)
	lb.Revision++
	tx.LoadBalancers.Put(lb)
	var targets []LoadBalancerTarget
	var certificates []int64
	var selectors []string
	if existed {
		targets, certificates, selectors = old.Targets, old.certificates(), old.selectorTerms()
	}
	tx.relinkSelectors(lb.ID, selectors, lb.selectorTerms())
	tx.relinkServers(lb, targets)
	tx.noteSelected(lb, targets)
	tx.relinkCertificates(lb.Ref(), certificates, lb.certificates())
}

// refreshLoadBalancer resolves the targets again after the load balancer joined or left a network. It
// does nothing if the load balancer does not exist.
func (tx *Tx) refreshLoadBalancer(id int64) {
	lb, ok := tx.LoadBalancers.Get(id)
	if !ok {
		return
	}
	lb = lb.Clone()
	tx.resolveTargets(lb, 0)
	tx.settleHealth(lb, 0)
	tx.storeLoadBalancer(lb)
}

// relinkServers updates Server.LoadBalancers after the targets of a load balancer changed. Targets with the same servers, at
// both ends of the two lists, cost nothing.
func (tx *Tx) relinkServers(lb *LoadBalancer, before []LoadBalancerTarget) {
	after := lb.Targets
	for len(before) > 0 && len(after) > 0 && before[0].sameServers(after[0]) {
		before, after = before[1:], after[1:]
	}
	for len(before) > 0 && len(after) > 0 && before[len(before)-1].sameServers(after[len(after)-1]) {
		before, after = before[:len(before)-1], after[:len(after)-1]
	}
	was, is := serversOf(before), serversOf(after)
	for _, id := range missingFrom(is, was) {
		if lb.hasServer(id) {
			continue // by a target of the ends
		}
		tx.Servers.Update(id, func(s *Server) {
			s.LoadBalancers = slices.DeleteFunc(slices.Clone(s.LoadBalancers), func(other int64) bool { return other == lb.ID })
		})
	}
	for _, id := range missingFrom(was, is) {
		tx.Servers.Update(id, func(s *Server) {
			if i, found := slices.BinarySearch(s.LoadBalancers, lb.ID); !found {
				s.LoadBalancers = slices.Insert(slices.Clone(s.LoadBalancers), i, lb.ID)
			}
		})
	}
}

// sameServers reports whether two targets stand for the same servers. Sets that differ only in the servers' health are not the same.
func (t LoadBalancerTarget) sameServers(o LoadBalancerTarget) bool {
	return t.Server == o.Server && t.Targets == o.Targets
}

// hasServer reports whether a server is a target, directly or by a label selector.
func (lb *LoadBalancer) hasServer(id int64) bool {
	for range lb.targetsOf(&targetFinder{server: id}) {
		return true
	}
	return false
}

func (tx *Tx) relinkCertificates(lb Ref, before, after []int64) {
	for _, id := range missingFrom(after, before) {
		tx.Certificates.Update(id, func(c *Certificate) {
			c.UsedBy = slices.DeleteFunc(c.UsedBy, func(r Ref) bool { return r == lb })
		})
	}
	for _, id := range missingFrom(before, after) {
		tx.Certificates.Update(id, func(c *Certificate) {
			if i, found := slices.BinarySearchFunc(c.UsedBy, lb, compareRef); !found {
				c.UsedBy = slices.Insert(c.UsedBy, i, lb)
			}
		})
	}
}

// missingFrom returns the items of b that are not in a; both are sorted.
func missingFrom(a, b []int64) []int64 {
	var out []int64
	for _, id := range b {
		if _, found := slices.BinarySearch(a, id); !found {
			out = append(out, id)
		}
	}
	return out
}
