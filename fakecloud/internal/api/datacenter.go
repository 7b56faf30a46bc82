package api

import (
	"fmt"
	"net/http"
	"strconv"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/bind"
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
		encode: func(_ Date, l *cloud.Location) any { return encodeDatacenter(c, l) },
	}
}

// locationOf returns the location that a request names: its location, or the location of its datacenter. Requests have a
// datacenter until DatacenterGone.
func locationOf(r *Request, location, datacenter bind.IDOrName) (string, error) {
	if datacenter == "" {
		return string(location), nil
	}
	if location != "" {
		return "", cloud.ErrField("datacenter", "must not be given together with location")
	}
	for _, l := range r.Project.View().Catalogue.Locations {
		if string(datacenter) == l.Datacenter.Name || string(datacenter) == strconv.FormatInt(l.Datacenter.ID, 10) {
			return l.Name, nil
		}
	}
	return "", cloud.ErrField("datacenter", fmt.Sprintf("datacenter '%s' not found", abbreviate(string(datacenter))))
}

func listDatacenters(r *Request) (Response, error) {
	if !r.date.Before(DatacentersGone) {
		return Response{}, cloud.ErrDeprecatedEndpoint(datacentersAnnouncement)
	}
	c := r.catalogue()
	list := datacentersOf(c)
	p, err := parsePage(r.Query())
	if err != nil {
		return Response{}, err
	}
	found, err := list.find(r, c)
	if err != nil {
		return Response{}, err
	}
	resp := listResponse(r, list.plural, p, len(found), func(i int) []byte { return marshal(list.encode(r.date, found[i])) })
	if len(c.Locations) > 0 {
		resp.Chunks[len(resp.Chunks)-1] = append([]byte(`,"recommendation":`), append(marshal(c.Locations[0].Datacenter.ID), '}')...)
	}
	return resp, nil
}

func getDatacenter(r *Request) (Response, error) {
	if !r.date.Before(DatacentersGone) {
		return Response{}, cloud.ErrDeprecatedEndpoint(datacentersAnnouncement)
	}
	id, err := r.ID("datacenter")
	if err != nil {
		return Response{}, err
	}
	c := r.catalogue()
	for _, l := range c.Locations {
		if l.Datacenter.ID == id {
			return object(http.StatusOK, Part{Key: "datacenter", JSON: marshal(encodeDatacenter(c, l))}), nil
		}
	}
	return Response{}, cloud.ErrNotFound("datacenter", id)
}

// datacenterRoutes are the operations that DatacentersGone removed. They work with an earlier API date.
func datacenterRoutes() []Route {
	return []Route{
		{http.MethodGet, "/datacenters", "list_datacenters", listDatacenters},
		{http.MethodGet, "/datacenters/{id}", "get_datacenter", getDatacenter},
	}
}
