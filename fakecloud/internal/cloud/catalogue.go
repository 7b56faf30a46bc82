package cloud

import (
	"slices"
	"time"
)

// Catalogue is what Hetzner offers. It is read-only, and all projects share it: a change makes another one. See [Cloud.OfferServerType].
type Catalogue struct {
	Locations         []*Location
	ServerTypes       []*ServerType
	LoadBalancerTypes []*LoadBalancerType
	// Images are the system and app images. Snapshots and backups belong to projects.
	Images  []*Image
	ISOs    []*ISO
	Pricing Pricing
}

// Location is a place where resources can be created.
type Location struct {
	ID                  int64
	Name, Description   string
	Country, City       string
	Latitude, Longitude float64
	NetworkZone         string `yaml:"network_zone"`
	Datacenter          Datacenter
}

// Datacenter is a virtual data center. Until 2026-10-01, the API showed it instead of the location.
type Datacenter struct {
	ID                int64
	Name, Description string
}

// Deprecation is when the deprecation of an item was announced, and until when the item is available.
type Deprecation struct {
	Announced        time.Time `json:"announced,omitzero"`
	UnavailableAfter time.Time `json:"unavailable_after,omitzero" yaml:"unavailable_after"`
	// Back is true for an item of [Catalogue.On] that has retired after that day.
	Back bool `json:"back,omitzero"`
}

// Retired reports whether the time of a deprecated item is over. The item is then in no list and cannot
// be used for new resources, but it can still be read by id. d may be nil.
func (d *Deprecation) Retired(now time.Time) bool {
	return d != nil && !d.Back && !now.Before(d.UnavailableAfter)
}

// on returns the deprecation as it was on a day.
func (d *Deprecation) on(day time.Time) *Deprecation {
	if d == nil || d.Announced.After(day) {
		return nil
	}
	return &Deprecation{d.Announced, d.UnavailableAfter, d.UnavailableAfter.After(day)}
}

// On returns the catalogue with the deprecations of a day: what has retired later can be ordered, whatever the clock shows.
func (c *Catalogue) On(day time.Time) *Catalogue {
	out := *c
	out.ServerTypes = copies(c.ServerTypes, func(t *ServerType) {
		t.Deprecation, t.Locations = t.Deprecation.on(day), slices.Clone(t.Locations)
		for i := range t.Locations {
			in := &t.Locations[i]
			if now := in.Deprecation.on(day); in.Deprecation != nil {
				in.Deprecation, in.Available = now, now == nil || now.Back
			}
		}
	})
	out.LoadBalancerTypes = copies(c.LoadBalancerTypes, func(t *LoadBalancerType) { t.Deprecation = t.Deprecation.on(day) })
	out.Images = copies(c.Images, func(i *Image) { i.Deprecation = i.Deprecation.on(day) })
	out.ISOs = copies(c.ISOs, func(i *ISO) { i.Deprecation = i.Deprecation.on(day) })
	return &out
}

// copies returns changed copies of items.
func copies[T any](items []*T, change func(*T)) []*T {
	out := make([]*T, len(items))
	for i, item := range items {
		copied := *item
		change(&copied)
		out[i] = &copied
	}
	return out
}

// Price is an amount of money in EUR, as decimal strings like those of the API.
type Price struct {
	Net   string `json:"net,omitzero"`
	Gross string `json:"gross,omitzero"`
}

// LocationPrice is the price of a type in one location.
type LocationPrice struct {
	Location          string `json:"location,omitzero"`
	Hourly            Price  `json:"hourly,omitzero"`
	Monthly           Price  `json:"monthly,omitzero"`
	IncludedTraffic   int64  `json:"included_traffic,omitzero"` // bytes per month
	PricePerTBTraffic Price  `json:"price_per_tb_traffic,omitzero"`
}

// ServerType is a kind of server that can be ordered.
type ServerType struct {
	ID           int64                `json:"id,omitzero"`
	Name         string               `json:"name,omitzero"`
	Description  string               `json:"description,omitzero"`
	Category     string               `json:"category,omitzero"`
	Cores        int                  `json:"cores,omitzero"`
	Memory       float64              `json:"memory,omitzero"` // GB
	Disk         int                  `json:"disk,omitzero"`   // GB
	StorageType  string               `json:"storage_type,omitzero"`
	CPUType      string               `json:"cpu_type,omitzero" yaml:"cpu"`
	Architecture string               `json:"architecture,omitzero"`
	Prices       []LocationPrice      `json:"prices,omitzero"`
	Deprecation  *Deprecation         `json:"deprecation,omitzero"`
	Locations    []ServerTypeLocation `json:"locations,omitzero"`
}

// In returns the entry of a location; ok is false if the type does not exist there.
func (t *ServerType) In(location string) (in ServerTypeLocation, ok bool) {
	return find(t.Locations, func(l ServerTypeLocation) bool { return l.Location.Name == location })
}

// Retired reports whether the server type is retired in all locations.
func (t *ServerType) Retired(now time.Time) bool {
	return !slices.ContainsFunc(t.Locations, func(l ServerTypeLocation) bool { return !l.Deprecation.Retired(now) })
}

// ServerTypeLocation says whether a server type can be ordered in a location.
type ServerTypeLocation struct {
	Location    *Location    `json:"location,omitzero"`
	Deprecation *Deprecation `json:"deprecation,omitzero"`
	// Available is false if the type is sold out. In a catalogue of [Catalogue.At], it is also false if the type is retired.
	Available   bool `json:"available,omitzero"`
	Recommended bool `json:"recommended,omitzero"`
}

// LoadBalancerType is a kind of load balancer, with its limits.
type LoadBalancerType struct {
	ID                      int64
	Name, Description       string
	MaxConnections          int `yaml:"max_connections"`
	MaxServices             int `yaml:"max_services"`
	MaxTargets              int `yaml:"max_targets"`
	MaxAssignedCertificates int `yaml:"max_assigned_certificates"`
	Deprecation             *Deprecation
	Prices                  []LocationPrice
}

// ISO is an ISO image that can be attached to a server.
type ISO struct {
	ID                int64
	Name, Description string
	Type              string       // public or private
	Architecture      string       // "" is any
	Deprecation       *Deprecation `yaml:"deprecated"`
}

// Pricing is the part of GET /pricing that is not about server types and load balancer types.
type Pricing struct {
	Currency               string
	VATRate                string
	ImagePerGBMonth        Price
	VolumePerGBMonth       Price
	FloatingIPMonthly      Price
	ServerBackupPercentage string
	PrimaryIPv4Hourly      Price
	PrimaryIPv4Monthly     Price
	PrimaryIPv6Hourly      Price
	PrimaryIPv6Monthly     Price
	FloatingIPv4Monthly    Price
	FloatingIPv6Monthly    Price
}

// byIDOrName finds an item by id or by name: many fields of requests accept both.
func byIDOrName[T any](items []*T, idOrName string, key func(*T) (int64, string)) (*T, bool) {
	id, isID := ParseID(idOrName)
	return find(items, func(t *T) bool {
		itemID, name := key(t)
		return name == idOrName || isID && itemID == id
	})
}

// find returns the first item for which is returns true.
func find[T any](items []T, is func(T) bool) (item T, ok bool) {
	if i := slices.IndexFunc(items, is); i >= 0 {
		return items[i], true
	}
	return item, false
}

// Location finds a location by id or name.
func (c *Catalogue) Location(idOrName string) (*Location, bool) {
	return byIDOrName(c.Locations, idOrName, func(l *Location) (int64, string) { return l.ID, l.Name })
}

// ServerType finds a server type by id or name.
func (c *Catalogue) ServerType(idOrName string) (*ServerType, bool) {
	return byIDOrName(c.ServerTypes, idOrName, func(t *ServerType) (int64, string) { return t.ID, t.Name })
}

// LoadBalancerType finds a load balancer type by id or name.
func (c *Catalogue) LoadBalancerType(idOrName string) (*LoadBalancerType, bool) {
	return byIDOrName(c.LoadBalancerTypes, idOrName, func(t *LoadBalancerType) (int64, string) { return t.ID, t.Name })
}

// ISO finds an ISO by id or name.
func (c *Catalogue) ISO(idOrName string) (*ISO, bool) {
	return byIDOrName(c.ISOs, idOrName, func(i *ISO) (int64, string) { return i.ID, i.Name })
}

// Image finds a system or app image by id.
func (c *Catalogue) Image(id int64) (*Image, bool) {
	return find(c.Images, func(i *Image) bool { return i.ID == id })
}

// ImageByName finds a system or app image by name and architecture. The name alone is not unique.
func (c *Catalogue) ImageByName(name, architecture string) (*Image, bool) {
	return find(c.Images, func(i *Image) bool { return i.Name == name && i.Architecture == architecture })
}

// NetworkZones returns the names of all network zones.
func (c *Catalogue) NetworkZones() []string {
	var zones []string
	for _, l := range c.Locations {
		if !slices.Contains(zones, l.NetworkZone) {
			zones = append(zones, l.NetworkZone)
		}
	}
	return zones
}
