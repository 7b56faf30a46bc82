package api

import (
	"net/http"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/cloud"
)

// datacentersAnnouncement is the URL in the 410 of the removed endpoints.
const datacentersAnnouncement = "https://docs.hetzner.cloud/changelog#2026-04-01-datacenter-deprecations"

type datacenterJSON struct {
	ID          int64                     `json:"id"`
	Name        string                    `json:"name"`
	Description string                    `json:"description"`
	Location    locationJSON              `json:"location"`
	ServerTypes datacenterServerTypesJSON `json:"server_types"`
}

type datacenterServerTypesJSON struct {
	Supported             []int64 `json:"supported"`
	Available             []int64 `json:"available"`
	AvailableForMigration []int64 `json:"available_for_migration"`
}

// encodeDatacenter shows the virtual data center of a location. Not modelled: types that are available for migration
// only.
func encodeDatacenter(c *cloud.Catalogue, l *cloud.Location) datacenterJSON {
	types := datacenterServerTypesJSON{[]int64{}, []int64{}, []int64{}}
	for _, t := range c.ServerTypes {
		in, ok := t.In(l.Name)
		if !ok {
			continue
		}
		types.Supported = append(types.Supported, t.ID)
		if in.Available {
			types.Available = append(types.Available, t.ID)
			types.AvailableForMigration = append(types.AvailableForMigration, t.ID)
		}
	}
	return datacenterJSON{l.Datacenter.ID, l.Datacenter.Name, l.Datacenter.Description, encodeLocation(l), types}
}

// datacentersOf returns the list of a catalogue's data centers: one for each location.
func datacentersOf(c *cloud.Catalogue) *staticList[cloud.Location] {
	return &staticList[cloud.Location]{
		singular: "datacenter", plural: "datacenters",
		items:  func(c *cloud.Catalogue) []*cloud.Location { return c.Locations },
		id:     func(l *cloud.Location) int64 { return l.Datacenter.ID },
		name:   func(l *cloud.Location) string { return l.Datacenter.Name },
		encode: func(l *cloud.Location) any { return encodeDatacenter(c, l) },
	}
}

func listDatacenters(r *Request) (Response, error) {
	if !r.api.date.Before(DatacentersGone) {
		return Response{}, cloud.ErrDeprecatedEndpoint(datacentersAnnouncement)
	}
	c := r.Project.View().Catalogue
	list := datacentersOf(c)
	p, err := parsePage(r.Query())
	if err != nil {
		return Response{}, err
	}
	found, err := list.find(r)
	if err != nil {
		return Response{}, err
	}
	resp := listResponse(r, list.plural, p, len(found), func(i int) []byte { return marshal(list.encode(found[i])) })
	if len(c.Locations) > 0 {
		resp.Chunks[len(resp.Chunks)-1] = append([]byte(`,"recommendation":`), append(marshal(c.Locations[0].Datacenter.ID), '}')...)
	}
	return resp, nil
}

func getDatacenter(r *Request) (Response, error) {
	if !r.api.date.Before(DatacentersGone) {
		return Response{}, cloud.ErrDeprecatedEndpoint(datacentersAnnouncement)
	}
	id, err := r.ID("datacenter")
	if err != nil {
		return Response{}, err
	}
	c := r.Project.View().Catalogue
	for _, l := range c.Locations {
		if l.Datacenter.ID == id {
			return object(http.StatusOK, Part{"datacenter", marshal(encodeDatacenter(c, l))}), nil
		}
	}
	return Response{}, cloud.ErrNotFound("datacenter", id)
}

// datacenterRoutes are the operations that were removed on 2026-10-01. They work with an earlier API date.
func datacenterRoutes() []Route {
	return []Route{
		{http.MethodGet, "/datacenters", "list_datacenters", listDatacenters},
		{http.MethodGet, "/datacenters/{id}", "get_datacenter", getDatacenter},
	}
}
