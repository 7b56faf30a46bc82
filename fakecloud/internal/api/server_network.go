package api

import (
	"net/netip"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/cloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/store"
)

func attachServerToNetwork(r *Request, id int64, body struct {
	Network  int64        `json:"network" check:"required,min=1"`
	IP       netip.Addr   `json:"ip"`
	IPRange  netip.Prefix `json:"ip_range"`
	AliasIPs []netip.Addr `json:"alias_ips"`
}) (Response, error) {
	return started(r.Project.AttachServerToNetwork(id, cloud.AttachServerToNetwork(body)))
}

// detachFromNetwork answers the actions detach_from_network.
func detachFromNetwork(kind store.Kind, do func(cloud.Project, int64, int64) (int64, *cloud.State, error)) handler {
	return withIDAndBody(kind, func(r *Request, id int64, body struct {
		Network int64 `json:"network" check:"required,min=1"`
	}) (Response, error) {
		return started(do(r.Project, id, body.Network))
	})
}

func changeServerAliasIPs(r *Request, id int64, body struct {
	Network  int64        `json:"network" check:"required,min=1"`
	AliasIPs []netip.Addr `json:"alias_ips" check:"required"`
}) (Response, error) {
	return started(r.Project.ChangeAliasIPs(id, body.Network, body.AliasIPs))
}
