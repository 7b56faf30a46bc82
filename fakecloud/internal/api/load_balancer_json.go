package api

import (
	"time"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/cloud"
)

type loadBalancerJSON struct {
	ID              int64                  `json:"id"`
	Name            string                 `json:"name"`
	PublicNet       loadBalancerPublicJSON `json:"public_net"`
	PrivateNet      []loadBalancerNetJSON  `json:"private_net"`
	Location        locationJSON           `json:"location"`
	Type            loadBalancerTypeJSON   `json:"load_balancer_type"`
	Protection      protectionJSON         `json:"protection"`
	Labels          map[string]string      `json:"labels"`
	Created         timeJSON               `json:"created"`
	Services        []serviceJSON          `json:"services"`
	Targets         []any                  `json:"targets"`
	Algorithm       algorithmJSON          `json:"algorithm"`
	OutgoingTraffic *int64                 `json:"outgoing_traffic"`
	IngoingTraffic  *int64                 `json:"ingoing_traffic"`
	IncludedTraffic int64                  `json:"included_traffic"`
}

type loadBalancerPublicJSON struct {
	Enabled bool               `json:"enabled"`
	IPv4    loadBalancerIPJSON `json:"ipv4"`
	IPv6    loadBalancerIPJSON `json:"ipv6"`
}

type loadBalancerIPJSON struct {
	*loadBalancerPrimaryIPJSON
	IP     *string `json:"ip"` // null while the load balancer is created
	DNSPtr *string `json:"dns_ptr"`
}

// loadBalancerPrimaryIPJSON are the fields of the change LoadBalancerPrimaryIPs. The id is null if the address is not a
// Primary IP.
type loadBalancerPrimaryIPJSON struct {
	ID      *int64 `json:"id"`
	Blocked bool   `json:"blocked"`
}

type loadBalancerNetJSON struct {
	Network int64  `json:"network"`
	IP      string `json:"ip"`
}

type algorithmJSON struct {
	Type string `json:"type" check:"required,oneof=round_robin|least_connections"`
}

// serviceJSON has `http` only for protocols with `http` in the document's schema.
type serviceJSON struct {
	Protocol        string           `json:"protocol"`
	ListenPort      int              `json:"listen_port"`
	DestinationPort int              `json:"destination_port"`
	ProxyProtocol   bool             `json:"proxyprotocol"`
	HTTP            *serviceHTTPJSON `json:"http,omitempty"`
	HealthCheck     healthCheckJSON  `json:"health_check"`
}

// serviceHTTPJSON has certificates and redirect_http for the protocol http, too: hcloud-python reads them.
type serviceHTTPJSON struct {
	CookieName     string  `json:"cookie_name"`
	CookieLifetime int     `json:"cookie_lifetime"`
	TimeoutIdle    int     `json:"timeout_idle,omitempty"` // since LoadBalancerIdleTimeout
	StickySessions bool    `json:"sticky_sessions"`
	Certificates   []int64 `json:"certificates"`
	RedirectHTTP   bool    `json:"redirect_http"`
}

type healthCheckJSON struct {
	Protocol string               `json:"protocol"`
	Port     int                  `json:"port"`
	Interval int                  `json:"interval"`
	Timeout  int                  `json:"timeout"`
	Retries  int                  `json:"retries"`
	HTTP     *healthCheckHTTPJSON `json:"http,omitempty"`
}

type healthCheckHTTPJSON struct {
	Domain      string   `json:"domain"`
	Path        string   `json:"path"`
	Response    string   `json:"response"`
	StatusCodes []string `json:"status_codes"`
	TLS         bool     `json:"tls"`
}

type serverTargetJSON struct {
	Type         string             `json:"type"`
	Server       targetServerJSON   `json:"server"`
	HealthStatus []targetHealthJSON `json:"health_status"`
	UsePrivateIP bool               `json:"use_private_ip"`
}

type selectorTargetJSON struct {
	Type          string             `json:"type"`
	LabelSelector targetSelectorJSON `json:"label_selector"`
	Targets       []serverTargetJSON `json:"targets"`
	UsePrivateIP  bool               `json:"use_private_ip"`
}

type ipTargetJSON struct {
	Type         string             `json:"type"`
	IP           targetIPJSON       `json:"ip"`
	HealthStatus []targetHealthJSON `json:"health_status"`
}

type targetServerJSON struct {
	ID int64  `json:"id"`
	IP string `json:"ip"`
}

type targetSelectorJSON struct {
	Selector string `json:"selector"`
}

type targetIPJSON struct {
	IP string `json:"ip"`
}

// targetHealthJSON has detail and http_status_code only while the target is unhealthy, since LoadBalancerHealthDetail.
type targetHealthJSON struct {
	ListenPort     int    `json:"listen_port"`
	Status         string `json:"status"`
	Detail         string `json:"detail,omitempty"`
	HTTPStatusCode int    `json:"http_status_code,omitempty"`
}

func encodeLoadBalancer(d Date, st *cloud.State, lb *cloud.LoadBalancer) any {
	out := loadBalancerJSON{
		ID: lb.ID, Name: lb.Name,
		PublicNet: loadBalancerPublicJSON{lb.PublicEnabled, encodeLoadBalancerIP(d, st, lb, lb.IPv4),
			encodeLoadBalancerIP(d, st, lb, lb.IPv6)},
		PrivateNet: each(lb.PrivateNets, func(n cloud.LoadBalancerPrivateNet) loadBalancerNetJSON {
			return loadBalancerNetJSON{n.Network, n.IP.String()}
		}),
		Location: encodeLocation(lb.Location), Type: encodeLoadBalancerType(lb.Type),
		Protection: protectionJSON{lb.DeleteProtection}, Labels: lb.Labels, Created: timeJSON(lb.Created),
		Services:        each(lb.Services, func(s cloud.LoadBalancerService) serviceJSON { return encodeService(d, s) }),
		Targets:         each(lb.Targets, func(t cloud.LoadBalancerTarget) any { return encodeTarget(d, t) }),
		Algorithm:       algorithmJSON{lb.Algorithm},
		IncludedTraffic: includedTraffic(lb.Type.Prices, lb.Location),
	}
	if t := lb.Traffic; t != nil {
		out.IngoingTraffic, out.OutgoingTraffic = &t.In, &t.Out
	}
	return out
}

func encodeLoadBalancerIP(d Date, st *cloud.State, lb *cloud.LoadBalancer, a cloud.LoadBalancerIP) loadBalancerIPJSON {
	var out loadBalancerIPJSON
	if lb.Creating {
		a = cloud.LoadBalancerIP{}
	} else {
		out.IP, out.DNSPtr = new(a.Addr.String()), nullable(st.PublicDNSPtr(a))
	}
	if !d.Before(LoadBalancerPrimaryIPs) {
		out.loadBalancerPrimaryIPJSON = &loadBalancerPrimaryIPJSON{nullable(a.PrimaryIP), a.Blocked}
	}
	return out
}

func encodeService(d Date, s cloud.LoadBalancerService) serviceJSON {
	out := serviceJSON{
		Protocol: s.Protocol, ListenPort: s.ListenPort, DestinationPort: s.DestinationPort, ProxyProtocol: s.ProxyProtocol,
		HealthCheck: healthCheckJSON{
			Protocol: s.HealthCheck.Protocol, Port: s.HealthCheck.Port, Retries: s.HealthCheck.Retries,
			Interval: seconds(s.HealthCheck.Interval), Timeout: seconds(s.HealthCheck.Timeout),
		},
	}
	if h := s.HealthCheck.HTTP; h != nil {
		out.HealthCheck.HTTP = &healthCheckHTTPJSON{h.Domain, h.Path, h.Response, nonNil(h.StatusCodes), h.TLS}
	}
	if h := s.HTTP; h != nil {
		out.HTTP = &serviceHTTPJSON{
			h.CookieName, seconds(h.CookieLifetime), seconds(h.TimeoutIdle), h.StickySessions, nonNil(h.Certificates), h.RedirectHTTP,
		}
		if d.Before(LoadBalancerIdleTimeout) {
			out.HTTP.TimeoutIdle = 0
		}
	}
	return out
}

func seconds(d time.Duration) int { return int(d / time.Second) }

func encodeTarget(d Date, t cloud.LoadBalancerTarget) any {
	switch t.Type {
	case "server":
		return encodeServerTarget(d, t)
	case "ip":
		return ipTargetJSON{t.Type, targetIPJSON{t.IP.String()}, encodeHealth(d, t.Health)}
	}
	nested := make([]serverTargetJSON, 0, t.Targets.Len())
	for n := range t.Targets.All() {
		nested = append(nested, encodeServerTarget(d, *n))
	}
	return selectorTargetJSON{t.Type, targetSelectorJSON{t.Selector}, nested, t.UsePrivateIP}
}

func encodeServerTarget(d Date, t cloud.LoadBalancerTarget) serverTargetJSON {
	return serverTargetJSON{t.Type, targetServerJSON{t.Server, t.IP.String()}, encodeHealth(d, t.Health), t.UsePrivateIP}
}

func encodeHealth(d Date, health []cloud.TargetHealth) []targetHealthJSON {
	out := make([]targetHealthJSON, len(health))
	for i, h := range health {
		out[i] = targetHealthJSON{ListenPort: h.ListenPort, Status: h.Status}
		if !d.Before(LoadBalancerHealthDetail) {
			out[i].Detail, out[i].HTTPStatusCode = h.Detail, h.HTTPStatusCode
		}
	}
	return out
}
