package api

import (
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/cloud"
)

type locationJSON struct {
	ID          int64   `json:"id"`
	Name        string  `json:"name"`
	Description string  `json:"description"`
	Country     string  `json:"country"`
	City        string  `json:"city"`
	Latitude    float64 `json:"latitude"`
	Longitude   float64 `json:"longitude"`
	NetworkZone string  `json:"network_zone"`
}

func encodeLocation(l *cloud.Location) locationJSON {
	return locationJSON{l.ID, l.Name, l.Description, l.Country, l.City, l.Latitude, l.Longitude, l.NetworkZone}
}

var locations = &staticList[cloud.Location]{
	singular: "location", plural: "locations",
	items:  func(c *cloud.Catalogue) []*cloud.Location { return c.Locations },
	id:     func(l *cloud.Location) int64 { return l.ID },
	name:   func(l *cloud.Location) string { return l.Name },
	encode: func(_ Date, l *cloud.Location) any { return encodeLocation(l) },
}
