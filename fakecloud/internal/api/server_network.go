package api

import (
	"net/http"
	"net/netip"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/cloud"
)

// serverNetworkRoutes are the actions of a server in its private networks.
func serverNetworkRoutes() []Route {
	return []Route{
		{http.MethodPost, "/servers/{id}/actions/attach_to_network", "attach_server_to_network", attachServerToNetwork},
		{http.MethodPost, "/servers/{id}/actions/detach_from_network", "detach_server_from_network", detachServerFromNetwork},
		{http.MethodPost, "/servers/{id}/actions/change_alias_ips", "change_server_alias_ips", changeServerAliasIPs},
	}
}

func attachServerToNetwork(r *Request) (Response, error) {
	id, err := r.ID(cloud.KindServer)
	if err != nil {
		return Response{}, err
	}
	var body struct {
		Network  int64        `json:"network" check:"required,min=1"`
		IP       netip.Addr   `json:"ip"`
		IPRange  netip.Prefix `json:"ip_range"`
		AliasIPs []netip.Addr `json:"alias_ips"`
	}
	if err := r.Bind(&body); err != nil {
		return Response{}, err
	}
	action, st, err := r.Project.AttachServerToNetwork(id, cloud.AttachServerToNetwork(body))
	return started(st, action, err)
}

func detachServerFromNetwork(r *Request) (Response, error) {
	id, err := r.ID(cloud.KindServer)
	if err != nil {
		return Response{}, err
	}
	var body struct {
		Network int64 `json:"network" check:"required,min=1"`
	}
	if err := r.Bind(&body); err != nil {
		return Response{}, err
	}
	action, st, err := r.Project.DetachServerFromNetwork(id, body.Network)
	return started(st, action, err)
}

func changeServerAliasIPs(r *Request) (Response, error) {
	id, err := r.ID(cloud.KindServer)
	if err != nil {
		return Response{}, err
	}
	var body struct {
		Network  int64        `json:"network" check:"required,min=1"`
		AliasIPs []netip.Addr `json:"alias_ips" check:"required"`
	}
	if err := r.Bind(&body); err != nil {
		return Response{}, err
	}
	action, st, err := r.Project.ChangeAliasIPs(id, body.Network, body.AliasIPs)
	return started(st, action, err)
}
