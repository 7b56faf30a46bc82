package api

import (
	"slices"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/bind"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/cloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/store"
)

type floatingIPJSON struct {
	ID           int64             `json:"id"`
	Name         string            `json:"name"`
	Description  *string           `json:"description"`
	IP           string            `json:"ip"`
	Type         cloud.IPType      `json:"type"`
	Server       *int64            `json:"server"`
	DNSPtr       []dnsPtrJSON      `json:"dns_ptr"`
	HomeLocation locationJSON      `json:"home_location"`
	Blocked      bool              `json:"blocked"`
	Protection   protectionJSON    `json:"protection"`
	Labels       map[string]string `json:"labels"`
	Created      timeJSON          `json:"created"`
}

var floatingIPs = &resource[*cloud.FloatingIP]{
	singular: "floating_ip", plural: "floating_ips", kind: cloud.KindFloatingIP,
	table: func(st *cloud.State) *store.Table[*cloud.FloatingIP] { return &st.FloatingIPs },
	encode: func(_ Date, _ *cloud.State, f *cloud.FloatingIP) any {
		return floatingIPJSON{
			f.ID, f.Name, f.Description, encodeAddress(f.IP), f.Type, nullable(f.Server), encodeDNSPtrs(f.IP, f.DNSPtr),
			encodeLocation(f.HomeLocation), f.Blocked, protectionJSON{f.DeleteProtection}, f.Labels, timeJSON(f.Created),
		}
	},
	sort: orders[*cloud.FloatingIP]("id", "created"),
}

func floatingIPRoutes() []Route {
	const kind = cloud.KindFloatingIP
	return slices.Concat(floatingIPs.routes(
		withBody(createFloatingIP), withIDAndBody(kind, updateFloatingIP), withID(kind, deleteFloatingIP),
	), []Route{
		floatingIPs.action("assign", withIDAndBody(kind, assignFloatingIP)),
		floatingIPs.action("unassign", startedOn(kind, cloud.Project.UnassignFloatingIP)),
		floatingIPs.action("change_dns_ptr", changeDNSPtr(kind, cloud.Project.ChangeFloatingIPDNSPtr)),
		floatingIPs.action("change_protection", setProtection(kind, cloud.Project.ChangeFloatingIPProtection)),
	}, actionRoutesOf(floatingIPs))
}

func createFloatingIP(r *Request, body struct {
	Name         string            `json:"name" check:"notblank"`
	Type         string            `json:"type" check:"required,oneof=ipv4|ipv6"`
	Server       *int64            `json:"server" check:"min=1"`
	HomeLocation bind.IDOrName     `json:"home_location"`
	Description  *string           `json:"description"`
	Labels       map[string]string `json:"labels"`
}) (Response, error) {
	f, action, st, err := r.Project.CreateFloatingIP(cloud.CreateFloatingIP{
		Name: body.Name, Type: cloud.IPType(body.Type), Server: deref(body.Server, 0),
		HomeLocation: string(body.HomeLocation), Description: body.Description, Labels: body.Labels,
	})
	// Without a server, the action is null.
	return floatingIPs.created(r, f, st, err, actionPart(st, action))
}

func updateFloatingIP(r *Request, id int64, body struct {
	Name        *string           `json:"name" check:"notblank"`
	Labels      map[string]string `json:"labels"`
	Description *string           `json:"description"`
}) (Response, error) {
	st, err := r.Project.UpdateFloatingIP(id, cloud.UpdateFloatingIP{
		UpdateResource: cloud.UpdateResource{Name: body.Name, Labels: body.Labels}, Description: body.Description,
	})
	return floatingIPs.updated(r, id, st, err)
}

func deleteFloatingIP(r *Request, id int64) (Response, error) {
	return noContent(r.Project.DeleteFloatingIP(id, r.date.Before(MustBeUnassigned)))
}

func assignFloatingIP(r *Request, id int64, body struct {
	Server int64 `json:"server" check:"required,min=1"`
}) (Response, error) {
	return started(r.Project.AssignFloatingIP(id, body.Server))
}
