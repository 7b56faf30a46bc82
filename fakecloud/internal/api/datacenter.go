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

// datacenters returns the list of data centers, for one request: one for each location.
func datacenters() *staticList[cloud.Datacenter] {
	var c *cloud.Catalogue
	at := map[*cloud.Datacenter]*cloud.Location{}
	return &staticList[cloud.Datacenter]{
		singular: "datacenter", plural: "datacenters",
		items: func(now *cloud.Catalogue) (all []*cloud.Datacenter) {
			c = now
			for _, l := range c.Locations {
				at[&l.Datacenter] = l
				all = append(all, &l.Datacenter)
			}
			return all
		},
		id:     func(d *cloud.Datacenter) int64 { return d.ID },
		name:   func(d *cloud.Datacenter) string { return d.Name },
		encode: func(_ Date, d *cloud.Datacenter) any { return encodeDatacenter(c, at[d]) },
	}
}

// locationOf returns the location that a request names: its location, or the location of its datacenter. Requests have a
// datacenter until DatacenterGone.
func locationOf(r *Request, location, datacenter bind.IDOrName) (string, error) {
	if datacenter == "" {
		return string(location), nil
	}
	if location != "" {
		// LKDevelopment/hetzner-cloud-php-sdk issue 1
		return "", cloud.ErrFields("location and datacenter are mutually exclusive", "datacenter", "location")
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
	resp, err := datacenters().list(r)
	if c := r.catalogue(); err == nil && len(c.Locations) > 0 {
		resp.Parts = append(resp.Parts, Part{Key: "recommendation", JSON: marshal(c.Locations[0].Datacenter.ID)})
	}
	return resp, err
}

func getDatacenter(r *Request) (Response, error) {
	if !r.date.Before(DatacentersGone) {
		return Response{}, cloud.ErrDeprecatedEndpoint(datacentersAnnouncement)
	}
	return datacenters().get(r)
}

// datacenterRoutes are the operations that DatacentersGone removed. They work with an earlier API date.
func datacenterRoutes() []Route {
	return []Route{
		{http.MethodGet, "/datacenters", "list_datacenters", listDatacenters},
		{http.MethodGet, "/datacenters/{id}", "get_datacenter", getDatacenter},
	}
}
