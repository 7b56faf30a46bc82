package api

import (
	"net/netip"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/bind"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/cloud"
)

// serviceRequest is a service in a request. All fields are optional: a new service has defaults, an update is a patch.
type serviceRequest struct {
	Protocol        *string             `json:"protocol" check:"oneof=tcp|http|https"`
	ListenPort      *int                `json:"listen_port" check:"port"`
	DestinationPort *int                `json:"destination_port" check:"port"`
	ProxyProtocol   *bool               `json:"proxyprotocol"`
	HTTP            *serviceHTTPRequest `json:"http"`
	HealthCheck     *healthCheckRequest `json:"health_check"`
}

type serviceHTTPRequest struct {
	CookieName     *string `json:"cookie_name" check:"len=1:100"`
	CookieLifetime *int    `json:"cookie_lifetime" check:"min=30,max=86400"`
	TimeoutIdle    *int    `json:"timeout_idle" check:"min=30,max=300" since:"2026-04-30"`
	Certificates   []int64 `json:"certificates" check:"each.min=1"`
	RedirectHTTP   *bool   `json:"redirect_http"`
	StickySessions *bool   `json:"sticky_sessions"`
}

type healthCheckRequest struct {
	Protocol *string                 `json:"protocol" check:"oneof=tcp|http"`
	Port     *int                    `json:"port" check:"port"`
	Interval *int                    `json:"interval" check:"min=3,max=60"`
	Timeout  *int                    `json:"timeout" check:"min=1,max=60"`
	Retries  *int                    `json:"retries" check:"min=1,max=5"`
	HTTP     *healthCheckHTTPRequest `json:"http"`
}

type healthCheckHTTPRequest struct {
	Domain      bind.Opt[string] `json:"domain" check:"len=0:128"`
	Path        *string          `json:"path" check:"len=1:256"`
	Response    *string          `json:"response" check:"len=0:256"`
	StatusCodes []string         `json:"status_codes" check:"len=0:20,each.len=1:3"`
	TLS         *bool            `json:"tls"`
}

func (s serviceRequest) input() cloud.ServiceInput {
	in := cloud.ServiceInput{
		Protocol: s.Protocol, ListenPort: s.ListenPort, DestinationPort: s.DestinationPort, ProxyProtocol: s.ProxyProtocol,
		HTTP: (*cloud.ServiceHTTPInput)(s.HTTP),
	}
	if h := s.HealthCheck; h != nil {
		in.HealthCheck = &cloud.HealthCheckInput{
			Protocol: h.Protocol, Port: h.Port, Interval: h.Interval, Timeout: h.Timeout, Retries: h.Retries,
		}
		if h.HTTP != nil {
			in.HealthCheck.HTTP = &cloud.HealthCheckHTTPInput{
				Path: h.HTTP.Path, Response: h.HTTP.Response, StatusCodes: h.HTTP.StatusCodes, TLS: h.HTTP.TLS,
			}
			if h.HTTP.Domain.Present { // null means none, like ""
				in.HealthCheck.HTTP.Domain = &h.HTTP.Domain.Value
			}
		}
	}
	return in
}

// onService answers an action that takes a service.
func onService(do func(cloud.Project, int64, cloud.ServiceInput) (int64, *cloud.State, error)) handler {
	return withIDAndBody(cloud.KindLoadBalancer, func(r *Request, id int64, body serviceRequest) (Response, error) {
		return started(do(r.Project, id, body.input()))
	})
}

func deleteLoadBalancerService(r *Request, id int64, body struct {
	ListenPort int `json:"listen_port" check:"required,port"`
}) (Response, error) {
	return started(r.Project.DeleteLoadBalancerService(id, body.ListenPort))
}

// targetRequest names a target. The object of its type is required; the others are ignored.
type targetRequest struct {
	Type   string `json:"type" check:"required,oneof=server|label_selector|ip"`
	Server *struct {
		ID int64      `json:"id" check:"required,min=1"`
		IP netip.Addr `json:"ip"`
	} `json:"server"`
	LabelSelector *struct {
		Selector string `json:"selector" check:"required,len=1:1000"`
	} `json:"label_selector"`
	IP *struct {
		IP netip.Addr `json:"ip" check:"required"`
	} `json:"ip"`
	UsePrivateIP bool `json:"use_private_ip"`
}

func (t targetRequest) input() cloud.TargetInput {
	in := cloud.TargetInput{Type: t.Type, UsePrivateIP: t.UsePrivateIP}
	switch {
	case t.Type == "server" && t.Server != nil:
		in.Server, in.ServerIP = t.Server.ID, t.Server.IP
	case t.Type == "label_selector" && t.LabelSelector != nil:
		in.Selector = t.LabelSelector.Selector
	case t.Type == "ip" && t.IP != nil:
		in.IP = t.IP.IP
	}
	return in
}

// onTarget answers an action that takes a target.
func onTarget(do func(cloud.Project, int64, cloud.TargetInput) (int64, *cloud.State, error)) handler {
	return withIDAndBody(cloud.KindLoadBalancer, func(r *Request, id int64, body targetRequest) (Response, error) {
		return started(do(r.Project, id, body.input()))
	})
}

func attachLoadBalancer(r *Request, id int64, body struct {
	Network int64        `json:"network" check:"required,min=1"`
	IP      netip.Addr   `json:"ip"`
	IPRange netip.Prefix `json:"ip_range"`
}) (Response, error) {
	return started(r.Project.AttachLoadBalancerToNetwork(id, cloud.AttachLoadBalancer(body)))
}

func changeLoadBalancerAlgorithm(r *Request, id int64, body algorithmJSON) (Response, error) {
	return started(r.Project.ChangeLoadBalancerAlgorithm(id, body.Type))
}

func changeLoadBalancerType(r *Request, id int64, body struct {
	Type bind.IDOrName `json:"load_balancer_type" check:"required"`
}) (Response, error) {
	return started(r.Project.ChangeLoadBalancerType(id, string(body.Type)))
}
