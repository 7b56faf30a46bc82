package api

import (
	"encoding/json"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/cloud"
)

type serverTypeJSON struct {
	ID           int64                    `json:"id"`
	Name         string                   `json:"name"`
	Description  string                   `json:"description"`
	Category     string                   `json:"category"`
	Cores        int                      `json:"cores"`
	Memory       float64                  `json:"memory"`
	Disk         int                      `json:"disk"`
	StorageType  string                   `json:"storage_type"`
	CPUType      string                   `json:"cpu_type"`
	Architecture string                   `json:"architecture"`
	Prices       []locationPriceJSON      `json:"prices"`
	Deprecated   bool                     `json:"deprecated"`
	Deprecation  *deprecationJSON         `json:"deprecation"`
	Locations    []serverTypeLocationJSON `json:"locations,omitempty"`
}

type serverTypeLocationJSON struct {
	ID          int64            `json:"id"`
	Name        string           `json:"name"`
	Deprecation *deprecationJSON `json:"deprecation"`
	*serverTypeAvailabilityJSON
}

// serverTypeAvailabilityJSON are the fields of the change ServerTypeAvailability.
type serverTypeAvailabilityJSON struct {
	Available   bool `json:"available"`
	Recommended bool `json:"recommended"`
}

func encodeServerType(d Date, t *cloud.ServerType) serverTypeJSON {
	out := serverTypeJSON{
		ID: t.ID, Name: t.Name, Description: t.Description, Category: t.Category,
		Cores: t.Cores, Memory: t.Memory, Disk: t.Disk,
		StorageType: t.StorageType, CPUType: t.CPUType, Architecture: t.Architecture,
		Prices:     encodeLocationPrices(t.Prices),
		Deprecated: t.Deprecation != nil, Deprecation: encodeDeprecation(t.Deprecation),
	}
	if d.Before(ServerTypeLocations) {
		return out
	}
	out.Locations = make([]serverTypeLocationJSON, len(t.Locations))
	for i, l := range t.Locations {
		out.Locations[i] = serverTypeLocationJSON{ID: l.Location.ID, Name: l.Location.Name, Deprecation: encodeDeprecation(l.Deprecation)}
		if !d.Before(ServerTypeAvailability) {
			out.Locations[i].serverTypeAvailabilityJSON = &serverTypeAvailabilityJSON{l.Available, l.Recommended}
		}
	}
	return out
}

// serverTypes are the server types. A type that is retired in all locations leaves the list, but can be read by id.
var serverTypes = &staticList[cloud.ServerType]{
	singular: "server_type", plural: "server_types",
	items:   func(c *cloud.Catalogue) []*cloud.ServerType { return c.ServerTypes },
	id:      func(t *cloud.ServerType) int64 { return t.ID },
	name:    func(t *cloud.ServerType) string { return t.Name },
	encode:  func(d Date, t *cloud.ServerType) any { return encodeServerType(d, t) },
	retired: (*cloud.ServerType).Retired,
}

// ServerTypes returns the JSON of all server types of the catalogue, including those that are retired in all locations.
func (a *API) ServerTypes() []json.RawMessage {
	o := a.offer(a.cloud.Catalogue())
	all := make([]json.RawMessage, len(o.ServerTypes))
	for i, t := range o.ServerTypes {
		all[i] = serverTypes.json(a, a.date, o.Catalogue, t)
	}
	return all
}
