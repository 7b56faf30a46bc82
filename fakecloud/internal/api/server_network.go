package api

import (
	"net/http"
	"net/netip"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/cloud"
)

// serverNetworkRoutes are the actions of a server in its private networks.
func serverNetworkRoutes() []Route {
	return []Route{
		{http.MethodPost, "/servers/{id}/actions/attach_to_network", "attach_server_to_network",
			withIDAndBody(cloud.KindServer, attachServerToNetwork)},
		{http.MethodPost, "/servers/{id}/actions/detach_from_network", "detach_server_from_network",
			withIDAndBody(cloud.KindServer, detachServerFromNetwork)},
		{http.MethodPost, "/servers/{id}/actions/change_alias_ips", "change_server_alias_ips",
			withIDAndBody(cloud.KindServer, changeServerAliasIPs)},
	}
}

func attachServerToNetwork(r *Request, id int64, body struct {
	Network  int64        `json:"network" check:"required,min=1"`
	IP       netip.Addr   `json:"ip"`
	IPRange  netip.Prefix `json:"ip_range"`
	AliasIPs []netip.Addr `json:"alias_ips"`
}) (Response, error) {
	return started(r.Project.AttachServerToNetwork(id, cloud.AttachServerToNetwork(body)))
}

func detachServerFromNetwork(r *Request, id int64, body struct {
	Network int64 `json:"network" check:"required,min=1"`
}) (Response, error) {
	return started(r.Project.DetachServerFromNetwork(id, body.Network))
}

func changeServerAliasIPs(r *Request, id int64, body struct {
	Network  int64        `json:"network" check:"required,min=1"`
	AliasIPs []netip.Addr `json:"alias_ips" check:"required"`
}) (Response, error) {
	return started(r.Project.ChangeAliasIPs(id, body.Network, body.AliasIPs))
}
