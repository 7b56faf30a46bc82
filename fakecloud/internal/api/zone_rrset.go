package api

import (
	"cmp"
	"net/http"
	"slices"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/bind"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/cloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/dns"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/store"
)

type rrsetJSON struct {
	ID         string            `json:"id"`
	Name       string            `json:"name"`
	Type       string            `json:"type"`
	TTL        *int              `json:"ttl"`
	Labels     map[string]string `json:"labels"`
	Protection struct {
		Change bool `json:"change"`
	} `json:"protection"`
	Records []recordJSON `json:"records"`
	Zone    int64        `json:"zone"`
}

type recordJSON struct {
	Value   string `json:"value" check:"required,len=0:262144"`
	Comment string `json:"comment"`
}

func encodeRRSet(z *cloud.Zone, s *cloud.RRSet) rrsetJSON {
	records := each(s.Records, func(r dns.Record) recordJSON { return recordJSON(r) })
	out := rrsetJSON{ID: s.ID(), Name: s.Name, Type: s.Type, TTL: s.TTL, Labels: s.Labels, Records: records, Zone: z.ID}
	if out.Labels == nil {
		out.Labels = map[string]string{}
	}
	out.Protection.Change = s.ChangeProtection
	return out
}

type rrsetRequest struct {
	Name    string            `json:"name" check:"required"`
	Type    string            `json:"type" check:"required,oneof=A|AAAA|CAA|CNAME|DS|HINFO|HTTPS|MX|NS|PTR|RP|SOA|SRV|SVCB|TLSA|TXT"`
	TTL     *int              `json:"ttl" check:"min=60,max=2147483647"`
	Labels  map[string]string `json:"labels"`
	Records []recordJSON      `json:"records" check:"required,len=1:50"`
}

func (s rrsetRequest) input() cloud.RRSet {
	return cloud.RRSet{Name: s.Name, Type: s.Type, TTL: s.TTL, Labels: s.Labels, Records: recordsOf(s.Records)}
}

// commentedRecord is a record of update_records. That action changes comments only.
type commentedRecord struct {
	Value   string `json:"value" check:"required,len=0:262144"`
	Comment string `json:"comment" check:"required"`
}

func recordsOf[R recordJSON | commentedRecord](requests []R) (all []dns.Record) {
	for _, r := range requests {
		all = append(all, dns.Record(r))
	}
	return all
}

// maxRRSetsPerPage is larger than MaxPerPage (API document, list_zone_rrsets).
const maxRRSetsPerPage = 100

var rrsetSort = map[string]func(a, b *cloud.RRSet) int{
	"id":      func(a, b *cloud.RRSet) int { return cmp.Compare(a.ID(), b.ID()) },
	"name":    func(a, b *cloud.RRSet) int { return cmp.Compare(a.Name, b.Name) },
	"created": func(a, b *cloud.RRSet) int { return a.Created().Compare(b.Created()) },
}

func rrsetRoutes() []Route {
	all := zones.path() + "/rrsets"
	one := all + "/{rr_name}/{rr_type}"
	return []Route{
		{http.MethodGet, all, "list_zone_rrsets", listRRSets},
		{http.MethodPost, all, "create_zone_rrset", withBody(createRRSet)},
		{http.MethodGet, one, "get_zone_rrset", getRRSet},
		{http.MethodPut, one, "update_zone_rrset", withBody(updateRRSet)},
		{http.MethodDelete, one, "delete_zone_rrset", func(r *Request) (Response, error) {
			return started(r.Project.DeleteRRSet(r.zone(), r.rrName(), r.rrType()))
		}},
		{http.MethodPost, one + "/actions/change_protection", "change_zone_rrset_protection", withBody(changeRRSetProtection)},
		{http.MethodPost, one + "/actions/change_ttl", "change_zone_rrset_ttl", withBody(changeRRSetTTL)},
		{http.MethodPost, one + "/actions/set_records", "set_zone_rrset_records", changeRecords[recordJSON](cloud.Project.SetRecords)},
		{http.MethodPost, one + "/actions/add_records", "add_zone_rrset_records", withBody(addRecords)},
		{http.MethodPost, one + "/actions/remove_records", "remove_zone_rrset_records",
			changeRecords[recordJSON](cloud.Project.RemoveRecords)},
		{http.MethodPost, one + "/actions/update_records", "update_zone_rrset_records", updateRecords},
	}
}

func (r *Request) rrName() string { return r.param("rr_name") }
func (r *Request) rrType() string { return r.param("rr_type") }

func listRRSets(r *Request) (Response, error) {
	q := r.Query()
	p, keys, err := pageAndOrder(q, maxRRSetsPerPage, rrsetSort)
	if err != nil {
		return Response{}, err
	}
	if _, err := oneOf(q, "type", dns.Types...); err != nil {
		return Response{}, err
	}
	f := cloud.RRSetFilter{Names: q["name"], Types: q["type"]}
	if f.Labels, err = store.ParseSelector(q.Get("label_selector")); err != nil {
		return Response{}, cloud.ErrSelector(err)
	}
	z, err := r.Project.View().FindZone(r.zone())
	if err != nil {
		return Response{}, err
	}
	if err := z.RequirePrimary(); err != nil {
		return Response{}, err
	}
	if order, desc, ok := rrsetOrder(keys); ok {
		// The requested page may be beyond the end. Only the total shows that.
		_, total, ok := z.RRSetPage(f, store.Page{Order: order})
		if ok {
			first := p.first(total)
			page, _, _ := z.RRSetPage(f, store.Page{Order: order, Desc: desc, First: first, N: p.size})
			return listResponse(r, "rrsets", p, total, func(i int) []byte { return r.value(encodeRRSet(z, page[i-first])) }), nil
		}
	}
	all := z.SelectRRSets(f)
	slices.SortStableFunc(all, func(a, b *cloud.RRSet) int { return compareBy(a, b, keys, rrsetSort) })
	return listResponse(r, "rrsets", p, len(all), func(i int) []byte { return r.value(encodeRRSet(z, all[i])) }), nil
}

// rrsetOrder returns the order that the sort keys ask for, and reports in ok whether zones maintain it.
func rrsetOrder(keys []sortKey) (o store.Order, desc, ok bool) {
	switch len(keys) {
	case 0:
		return store.ByName, false, true
	case 1:
		o, ok = map[string]store.Order{"name": store.ByName, "id": cloud.ByRRSetID, "created": cloud.ByAge}[keys[0].field]
		return o, keys[0].desc, ok
	}
	return 0, false, false
}

// rrsetPart returns a set as a member of the response.
func rrsetPart(st *cloud.State, zone, name, kind string) (Part, error) {
	z, err := st.FindZone(zone)
	if err != nil {
		return Part{}, err
	}
	s, err := z.FindRRSet(name, kind)
	if err != nil {
		return Part{}, err
	}
	return Part{Key: "rrset", Value: compact(marshal(encodeRRSet(z, s)))}, nil
}

func getRRSet(r *Request) (Response, error) {
	part, err := rrsetPart(r.Project.View(), r.zone(), r.rrName(), r.rrType())
	return object(http.StatusOK, part), err
}

func createRRSet(r *Request, body rrsetRequest) (Response, error) {
	action, st, err := r.Project.CreateRRSet(r.zone(), body.input())
	if err != nil {
		return Response{}, err
	}
	part, err := rrsetPart(st, r.zone(), body.Name, body.Type)
	return startedWith(st, action, err, part)
}

func updateRRSet(r *Request, body struct {
	Labels  map[string]string      `json:"labels"`
	Records bind.Opt[[]recordJSON] `json:"records"`
}) (Response, error) {
	// An error, because many clients expect this to change the records. null counts as absent, as for all fields.
	if body.Records.Present && !body.Records.Null {
		err := cloud.ErrInvalidInput() // ddclient issue 871, opnsense/plugins issue 5243
		err.Message, err.Details = "can't update records with this endpoint", "null"
		return Response{}, err
	}
	st, err := r.Project.UpdateRRSet(r.zone(), r.rrName(), r.rrType(), body.Labels)
	if err != nil {
		return Response{}, err
	}
	part, err := rrsetPart(st, r.zone(), r.rrName(), r.rrType())
	return object(http.StatusOK, part), err
}

func changeRRSetProtection(r *Request, body struct {
	Change bool `json:"change" check:"required"`
}) (Response, error) {
	return started(r.Project.ChangeRRSetProtection(r.zone(), r.rrName(), r.rrType(), body.Change))
}

func changeRRSetTTL(r *Request, body struct {
	TTL bind.Opt[int] `json:"ttl" check:"min=60,max=2147483647"`
}) (Response, error) {
	if !body.TTL.Present {
		return Response{}, cloud.ErrField("ttl", "is required; null is the TTL of the zone")
	}
	return started(r.Project.ChangeRRSetTTL(r.zone(), r.rrName(), r.rrType(), body.TTL.Ptr()))
}

// changeRecords answers the actions that take a list of records.
func changeRecords[R recordJSON | commentedRecord](do func(cloud.Project, string, string, string, []dns.Record) (int64, *cloud.State,
	error)) handler {
	return withBody(func(r *Request, body struct {
		Records []R `json:"records" check:"required,len=1:50"`
	}) (Response, error) {
		return started(do(r.Project, r.zone(), r.rrName(), r.rrType(), recordsOf(body.Records)))
	})
}

// updateRecords answers with 200, unlike all other actions (API document, update_zone_rrset_records).
func updateRecords(r *Request) (Response, error) {
	resp, err := changeRecords[commentedRecord](cloud.Project.UpdateRecords)(r)
	if err == nil {
		resp.Status = http.StatusOK
	}
	return resp, err
}

func addRecords(r *Request, body struct {
	TTL     *int         `json:"ttl" check:"min=60,max=2147483647"`
	Records []recordJSON `json:"records" check:"required,len=1:50"`
}) (Response, error) {
	return started(r.Project.AddRecords(r.zone(), r.rrName(), r.rrType(), body.TTL, recordsOf(body.Records)))
}
