package api

import (
	"maps"
	"net/netip"
	"net/url"
	"slices"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/bind"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/cloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/store"
)

type primaryIPJSON struct {
	ID           int64             `json:"id"`
	Name         string            `json:"name"`
	Labels       map[string]string `json:"labels"`
	Created      timeJSON          `json:"created"`
	Blocked      bool              `json:"blocked"`
	Datacenter   *datacenterJSON   `json:"datacenter,omitempty"` // until DatacenterGone
	Location     locationJSON      `json:"location"`
	IP           string            `json:"ip"`
	DNSPtr       []dnsPtrJSON      `json:"dns_ptr"`
	Protection   protectionJSON    `json:"protection"`
	Type         cloud.IPType      `json:"type"`
	AutoDelete   bool              `json:"auto_delete"`
	AssigneeType store.Kind        `json:"assignee_type"`
	AssigneeID   *int64            `json:"assignee_id"`
}

// assigneeUnassigned is the assignee_type of a Primary IP without an assignee.
const assigneeUnassigned store.Kind = "unassigned"

func encodePrimaryIP(d Date, st *cloud.State, ip *cloud.PrimaryIP) any {
	out := primaryIPJSON{
		ID: ip.ID, Name: ip.Name, Labels: ip.Labels, Created: timeJSON(ip.Created), Blocked: ip.Blocked,
		Location: encodeLocation(ip.Location), IP: encodeAddress(ip.IP), DNSPtr: encodeDNSPtrs(ip.IP, ip.DNSPtr),
		Protection: protectionJSON{ip.DeleteProtection}, Type: ip.Type, AutoDelete: ip.AutoDelete,
		AssigneeType: assigneeUnassigned, AssigneeID: nullable(ip.Assignee.ID),
	}
	switch {
	case ip.Assigned():
		out.AssigneeType = ip.Assignee.Kind
	case d.Before(UnassignedAssigneeType):
		out.AssigneeType = cloud.KindServer
	}
	if d.Before(DatacenterGone) {
		out.Datacenter = new(encodeDatacenter(st.Catalogue, ip.Location))
	}
	return out
}

// encodeDNSPtrs returns the reverse DNS entries of an address or network. An IPv4 address always has one.
func encodeDNSPtrs(ip netip.Prefix, entries cloud.ReverseDNS) []dnsPtrJSON {
	if a := ip.Addr(); a.Is4() {
		return []dnsPtrJSON{{a.String(), entries.Of(a)}}
	}
	out := make([]dnsPtrJSON, 0, len(entries))
	for _, a := range slices.SortedFunc(maps.Keys(entries), netip.Addr.Compare) {
		out = append(out, dnsPtrJSON{a.String(), entries[a]})
	}
	return out
}

// encodeAddress returns an IPv4 address as it is, and an IPv6 network with its length.
func encodeAddress(p netip.Prefix) string {
	if p.IsSingleIP() {
		return p.Addr().String()
	}
	return p.String()
}

var primaryIPs = &resource[*cloud.PrimaryIP]{
	singular: "primary_ip", plural: "primary_ips", kind: cloud.KindPrimaryIP,
	table:  func(st *cloud.State) *store.Table[*cloud.PrimaryIP] { return &st.PrimaryIPs.Table },
	encode: encodePrimaryIP,
	sort:   orders[*cloud.PrimaryIP]("id", "created"),
	lookup: primaryIPsByAddress,
}

// primaryIPsByAddress reads the parameter ip: a network, or an address. An address also finds the IPv6 network around it.
func primaryIPsByAddress(st *cloud.State, q url.Values) (ids []int64, ok bool) {
	text := q.Get("ip")
	if text == "" {
		return nil, false
	}
	var ip *cloud.PrimaryIP
	var found bool
	if addr, err := netip.ParseAddr(text); err == nil {
		ip, found = st.PrimaryIPs.ByAddress(addr)
	} else if network, err := netip.ParsePrefix(text); err == nil {
		ip, found = st.PrimaryIPs.ByNetwork(network)
	}
	if found {
		ids = []int64{ip.ID}
	}
	return ids, true
}

func primaryIPRoutes() []Route {
	const kind = cloud.KindPrimaryIP
	return slices.Concat(primaryIPs.routes(
		withBody(createPrimaryIP), withIDAndBody(kind, updatePrimaryIP), withID(kind, deletePrimaryIP),
	), []Route{
		primaryIPs.action("assign", withIDAndBody(kind, assignPrimaryIP)),
		primaryIPs.action("unassign", startedOn(kind, cloud.Project.UnassignPrimaryIP)),
		primaryIPs.action("change_dns_ptr", changeDNSPtr(kind, cloud.Project.ChangePrimaryIPDNSPtr)),
		primaryIPs.action("change_protection", setProtection(kind, cloud.Project.ChangePrimaryIPProtection)),
	}, actionRoutesOf(primaryIPs))
}

func createPrimaryIP(r *Request, body struct {
	Name         string            `json:"name" check:"required,notblank"`
	Type         string            `json:"type" check:"required,oneof=ipv4|ipv6"`
	Location     bind.IDOrName     `json:"location"`
	Datacenter   bind.IDOrName     `json:"datacenter" until:"2026-07-01"`
	AssigneeType *string           `json:"assignee_type" check:"oneof=server"`
	AssigneeID   *int64            `json:"assignee_id" check:"min=1"`
	AutoDelete   bool              `json:"auto_delete"`
	Labels       map[string]string `json:"labels"`
}) (Response, error) {
	if body.AssigneeType == nil && r.date.Before(AssigneeTypeOptional) {
		return Response{}, cloud.ErrField("assignee_type", "is required")
	}
	if body.AssigneeID != nil && body.AssigneeType == nil {
		return Response{}, cloud.ErrField("assignee_type", "is required with assignee_id")
	}
	location, err := locationOf(r, body.Location, body.Datacenter)
	if err != nil {
		return Response{}, err
	}
	ip, action, st, err := r.Project.CreatePrimaryIP(cloud.CreatePrimaryIP{
		Name: body.Name, Type: cloud.IPType(body.Type), Location: location,
		Assignee: deref(body.AssigneeID, 0), AutoDelete: body.AutoDelete, Labels: body.Labels,
	})
	// Without an assignee, the action is null, not absent.
	return primaryIPs.created(r, ip, st, err, actionPart(st, action))
}

func updatePrimaryIP(r *Request, id int64, body struct {
	Name       *string           `json:"name" check:"notblank"`
	Labels     map[string]string `json:"labels"`
	AutoDelete *bool             `json:"auto_delete"`
}) (Response, error) {
	st, err := r.Project.UpdatePrimaryIP(id, cloud.UpdatePrimaryIP{
		UpdateResource: cloud.UpdateResource{Name: body.Name, Labels: body.Labels}, AutoDelete: body.AutoDelete,
	})
	return primaryIPs.updated(r, id, st, err)
}

func deletePrimaryIP(r *Request, id int64) (Response, error) {
	return noContent(r.Project.DeletePrimaryIP(id, r.date.Before(MustBeUnassigned)))
}

func assignPrimaryIP(r *Request, id int64, body struct {
	AssigneeType string `json:"assignee_type" check:"required,oneof=server"`
	AssigneeID   int64  `json:"assignee_id" check:"required,min=1"`
}) (Response, error) {
	return started(r.Project.AssignPrimaryIP(id, body.AssigneeID))
}
