package api

import (
	"net/netip"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/cloud"
)

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
