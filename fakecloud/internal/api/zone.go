package api

import (
	"net/http"
	"net/netip"
	"slices"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/cloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/store"
)

type zoneJSON struct {
	ID                 int64             `json:"id"`
	Name               string            `json:"name"`
	Mode               string            `json:"mode"`
	Status             string            `json:"status"`
	TTL                int               `json:"ttl"`
	RecordCount        int               `json:"record_count"`
	Labels             map[string]string `json:"labels"`
	Created            timeJSON          `json:"created"`
	Protection         protectionJSON    `json:"protection"`
	Registrar          string            `json:"registrar"`
	PrimaryNameservers []nameserverJSON  `json:"primary_nameservers"`
	Authoritative      struct {
		Assigned  []string `json:"assigned"`
		Delegated []string `json:"delegated"`
		LastCheck timeJSON `json:"delegation_last_check"`
		Status    string   `json:"delegation_status"`
	} `json:"authoritative_nameservers"`
}

type nameserverJSON struct {
	Address       netip.Addr `json:"address"`
	Port          int        `json:"port"`
	TSIGKey       string     `json:"tsig_key,omitempty"`
	TSIGAlgorithm string     `json:"tsig_algorithm,omitempty"`
}

func encodeZone(_ Date, _ *cloud.State, z *cloud.Zone) any {
	out := zoneJSON{
		ID: z.ID, Name: z.Name, Mode: z.Mode, Status: z.Status(), TTL: z.TTL, RecordCount: z.RecordCount(), Labels: z.Labels,
		Created: timeJSON(z.Created), Protection: protectionJSON{z.DeleteProtection}, Registrar: "other",
		PrimaryNameservers: each(z.PrimaryNameservers, func(s cloud.PrimaryNameserver) nameserverJSON { return nameserverJSON(s) }),
	}
	a := &out.Authoritative
	a.Assigned, a.Delegated = cloud.AuthoritativeNameservers, append([]string{}, z.Delegation.Nameservers...)
	a.LastCheck, a.Status = timeJSON(z.Delegation.LastCheck), z.Delegation.Status
	return out
}

var zones = &resource[*cloud.Zone]{
	singular: "zone", plural: "zones", kind: cloud.KindZone,
	table:  func(st *cloud.State) *store.Table[*cloud.Zone] { return &st.Zones },
	encode: encodeZone, find: (*cloud.State).FindZone, public: (*cloud.Zone).WithoutKeys,
	sort:   orders[*cloud.Zone]("id", "name", "created"),
	filter: filterBy("mode", func(z *cloud.Zone) string { return z.Mode }, cloud.ZonePrimary, cloud.ZoneSecondary),
}

func zoneRoutes() []Route {
	remove := func(r *Request) (Response, error) { return started(r.Project.DeleteZone(r.zone())) }
	return slices.Concat(zones.routes(withBody(createZone), withBody(updateZone), remove), []Route{
		{http.MethodGet, zones.path() + "/zonefile", "get_zone_zonefile", exportZonefile},
		zones.action("change_primary_nameservers", withBody(changePrimaryNameservers)),
		zones.action("change_protection", withBody(changeZoneProtection)),
		zones.action("change_ttl", withBody(changeZoneTTL)),
		zones.action("import_zonefile", withBody(importZonefile)),
	}, rrsetRoutes(), actionRoutesOf(zones))
}

// zone returns the id or name of the zone in the path.
func (r *Request) zone() string { return r.param("id_or_name") }

type nameserverRequest struct {
	Address       netip.Addr `json:"address" check:"required"`
	Port          *int       `json:"port" check:"port"`
	TSIGKey       string     `json:"tsig_key"`
	TSIGAlgorithm string     `json:"tsig_algorithm" check:"oneof=hmac-md5|hmac-sha1|hmac-sha256"`
}

func nameserversOf(requests []nameserverRequest) []cloud.PrimaryNameserver {
	var all []cloud.PrimaryNameserver
	for _, n := range requests {
		all = append(all, cloud.PrimaryNameserver{Address: n.Address, Port: deref(n.Port, 53), TSIGKey: n.TSIGKey,
			TSIGAlgorithm: n.TSIGAlgorithm})
	}
	return all
}

func createZone(r *Request, body struct {
	Name               string              `json:"name" check:"required"`
	Mode               string              `json:"mode" check:"required,oneof=primary|secondary"`
	TTL                *int                `json:"ttl" check:"min=60,max=2147483647"`
	Labels             map[string]string   `json:"labels"`
	PrimaryNameservers []nameserverRequest `json:"primary_nameservers"`
	RRSets             []rrsetRequest      `json:"rrsets"`
	Zonefile           string              `json:"zonefile" check:"len=0:1048576"`
}) (Response, error) {
	z, action, st, err := r.Project.CreateZone(cloud.CreateZone{
		Name: body.Name, Mode: body.Mode, TTL: deref(body.TTL, 0), Labels: body.Labels, RRSets: each(body.RRSets, rrsetRequest.input),
		PrimaryNameservers: nameserversOf(body.PrimaryNameservers), Zonefile: body.Zonefile,
	})
	return zones.created(r, z, st, err, actionPart(st, action))
}

func updateZone(r *Request, body struct {
	Labels map[string]string `json:"labels"`
}) (Response, error) {
	st, err := r.Project.UpdateZone(r.zone(), body.Labels)
	if err != nil {
		return Response{}, err
	}
	z, err := st.FindZone(r.zone())
	if err != nil {
		return Response{}, err
	}
	return object(http.StatusOK, zones.part(r, st, z.ID, z)), nil
}

func exportZonefile(r *Request) (Response, error) {
	z, err := r.Project.View().FindZone(r.zone())
	if err != nil {
		return Response{}, err
	}
	text, err := z.Zonefile()
	return object(http.StatusOK, Part{Key: "zonefile", JSON: marshal(text)}), err
}

func changePrimaryNameservers(r *Request, body struct {
	PrimaryNameservers []nameserverRequest `json:"primary_nameservers" check:"required"`
}) (Response, error) {
	return started(r.Project.ChangePrimaryNameservers(r.zone(), nameserversOf(body.PrimaryNameservers)))
}

func changeZoneProtection(r *Request, body struct {
	Delete *bool `json:"delete"`
}) (Response, error) {
	return started(r.Project.ChangeZoneProtection(r.zone(), body.Delete))
}

func changeZoneTTL(r *Request, body struct {
	TTL int `json:"ttl" check:"required,min=60,max=2147483647"`
}) (Response, error) {
	return started(r.Project.ChangeZoneTTL(r.zone(), body.TTL))
}

func importZonefile(r *Request, body struct {
	Zonefile string `json:"zonefile" check:"required,len=0:1048576"`
}) (Response, error) {
	return started(r.Project.ImportZonefile(r.zone(), body.Zonefile))
}
