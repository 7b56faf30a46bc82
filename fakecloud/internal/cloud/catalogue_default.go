package cloud

import (
	"bytes"
	"cmp"
	"embed"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/store"
)

//go:embed catalogue/*.yaml
var catalogueFiles embed.FS

// DefaultCatalogue returns the embedded catalogue. It resembles Hetzner's offer of November 2026.
// The files in the folder catalogue name their sources, and the data without a source. The result is
// shared and must not be changed.
func DefaultCatalogue() *Catalogue { return embeddedCatalogue() }

var embeddedCatalogue = sync.OnceValue(func() *Catalogue {
	c, err := loadCatalogue(func(name string) ([]byte, error) { return catalogueFiles.ReadFile("catalogue/" + name) })
	if err != nil {
		panic("cloud: embedded catalogue: " + err.Error()) // a test loads it
	}
	return c
})

// The types below are the format of the embedded files.

type catalogueData struct {
	Locations []struct {
		ID          int64          `yaml:"id"`
		Name        string         `yaml:"name"`
		Description string         `yaml:"description"`
		Country     string         `yaml:"country"`
		City        string         `yaml:"city"`
		Latitude    float64        `yaml:"latitude"`
		Longitude   float64        `yaml:"longitude"`
		NetworkZone string         `yaml:"network_zone"`
		PriceRegion string         `yaml:"price_region"`
		Datacenter  datacenterData `yaml:"datacenter"`
	} `yaml:"locations"`
	ServerTypes []struct {
		ID            int64                      `yaml:"id"`
		Name          string                     `yaml:"name"`
		Description   string                     `yaml:"description"` // default: the name in capitals
		Cores         int                        `yaml:"cores"`
		Memory        float64                    `yaml:"memory"`
		Disk          int                        `yaml:"disk"`
		CPU           string                     `yaml:"cpu"`
		Architecture  string                     `yaml:"architecture"`
		Category      string                     `yaml:"category"`
		Monthly       map[string]float64         `yaml:"monthly"`
		TrafficTB     map[string]float64         `yaml:"traffic_tb"`
		Deprecated    map[string]deprecationData `yaml:"deprecated"`
		UnavailableIn []string                   `yaml:"unavailable_in"`
		Recommended   bool                       `yaml:"recommended"`
	} `yaml:"server_types"`
	LoadBalancerTypes []struct {
		ID                      int64              `yaml:"id"`
		Name                    string             `yaml:"name"`
		MaxConnections          int                `yaml:"max_connections"`
		MaxServices             int                `yaml:"max_services"`
		MaxTargets              int                `yaml:"max_targets"`
		MaxAssignedCertificates int                `yaml:"max_assigned_certificates"`
		Monthly                 map[string]float64 `yaml:"monthly"`
		TrafficTB               map[string]float64 `yaml:"traffic_tb"`
	} `yaml:"load_balancer_types"`
	Images []struct {
		Name        string           `yaml:"name"`
		Type        string           `yaml:"type"`
		Description string           `yaml:"description"`
		Flavor      string           `yaml:"flavor"`
		Version     string           `yaml:"version"`
		Created     day              `yaml:"created"`
		DiskSize    float64          `yaml:"disk_size"`
		IDs         map[string]int64 `yaml:"ids"`
		Deprecated  *deprecationData `yaml:"deprecated"`
	} `yaml:"images"`
	ISOs []struct {
		ID           int64            `yaml:"id"`
		Name         string           `yaml:"name"`
		Description  string           `yaml:"description"`
		Architecture string           `yaml:"architecture"`
		Deprecated   *deprecationData `yaml:"deprecated"`
	} `yaml:"isos"`
	pricingData `yaml:",inline"`
}

type pricingData struct {
	Currency            string             `yaml:"currency"`
	VATPercent          int64              `yaml:"vat_percent"`
	ImagePerGBMonth     float64            `yaml:"image_per_gb_month"`
	VolumePerGBMonth    float64            `yaml:"volume_per_gb_month"`
	ServerBackupPercent int64              `yaml:"server_backup_percent"`
	PrimaryIPv4Monthly  float64            `yaml:"primary_ipv4_monthly"`
	PrimaryIPv6Monthly  float64            `yaml:"primary_ipv6_monthly"`
	FloatingIPv4Monthly float64            `yaml:"floating_ipv4_monthly"`
	FloatingIPv6Monthly float64            `yaml:"floating_ipv6_monthly"`
	TrafficPerTB        map[string]float64 `yaml:"traffic_per_tb"`
}

type datacenterData struct {
	ID          int64  `yaml:"id"`
	Name        string `yaml:"name"`
	Description string `yaml:"description"`
}

type deprecationData struct {
	Announced        day `yaml:"announced"`
	UnavailableAfter day `yaml:"unavailable_after"`
}

func (d *deprecationData) deprecation() *Deprecation {
	if d == nil {
		return nil
	}
	return &Deprecation{Announced: d.Announced.Time, UnavailableAfter: d.UnavailableAfter.Time}
}

// day is a date such as 2026-01-01, or a point in time such as 2024-06-06T08:00:00Z.
type day struct{ time.Time }

// UnmarshalYAML implements yaml.Unmarshaler.
func (d *day) UnmarshalYAML(node *yaml.Node) (err error) {
	layout := time.DateOnly
	if strings.Contains(node.Value, "T") {
		layout = time.RFC3339
	}
	d.Time, err = time.Parse(layout, node.Value)
	return err
}

// loadCatalogue reads and links the files of a catalogue.
func loadCatalogue(read func(name string) ([]byte, error)) (*Catalogue, error) {
	var data catalogueData
	for _, name := range []string{
		"locations.yaml", "server_types.yaml", "load_balancer_types.yaml", "images.yaml", "isos.yaml", "pricing.yaml",
	} {
		b, err := read(name)
		if err != nil {
			return nil, err
		}
		dec := yaml.NewDecoder(bytes.NewReader(b))
		dec.KnownFields(true)
		if err := dec.Decode(&data); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	b := catalogueBuilder{data: &data, regions: map[string]string{}}
	b.locations()
	b.serverTypes()
	b.loadBalancerTypes()
	b.images()
	b.isos()
	b.pricing()
	return &b.Catalogue, nil
}

type catalogueBuilder struct {
	Catalogue
	data    *catalogueData
	regions map[string]string // price region by location
}

func (b *catalogueBuilder) locations() {
	for _, l := range b.data.Locations {
		b.regions[l.Name] = l.PriceRegion
		b.Locations = append(b.Locations, &Location{
			ID: l.ID, Name: l.Name, Description: l.Description, Country: l.Country, City: l.City,
			Latitude: l.Latitude, Longitude: l.Longitude, NetworkZone: l.NetworkZone,
			Datacenter: Datacenter(l.Datacenter),
		})
	}
}

func (b *catalogueBuilder) serverTypes() {
	for _, d := range b.data.ServerTypes {
		t := &ServerType{
			ID: d.ID, Name: d.Name, Description: cmp.Or(d.Description, strings.ToUpper(d.Name)), Category: d.Category,
			Cores: d.Cores, Memory: d.Memory, Disk: d.Disk, StorageType: "local",
			CPUType: d.CPU, Architecture: d.Architecture,
			Prices: b.prices(d.Monthly, d.TrafficTB),
		}
		if all, ok := d.Deprecated["all"]; ok {
			t.Deprecation = all.deprecation()
		}
		for _, l := range b.Locations {
			region := b.regions[l.Name]
			if _, sold := d.Monthly[region]; !sold {
				continue
			}
			in := ServerTypeLocation{Location: l, Deprecation: t.Deprecation, Recommended: d.Recommended}
			if dep, ok := d.Deprecated[region]; ok {
				in.Deprecation = dep.deprecation()
			}
			in.Available = in.Deprecation == nil && !slices.Contains(d.UnavailableIn, l.Name)
			t.Locations = append(t.Locations, in)
		}
		b.ServerTypes = append(b.ServerTypes, t)
	}
}

func (b *catalogueBuilder) loadBalancerTypes() {
	for _, d := range b.data.LoadBalancerTypes {
		b.LoadBalancerTypes = append(b.LoadBalancerTypes, &LoadBalancerType{
			ID: d.ID, Name: d.Name, Description: strings.ToUpper(d.Name),
			MaxConnections: d.MaxConnections, MaxServices: d.MaxServices, MaxTargets: d.MaxTargets,
			MaxAssignedCertificates: d.MaxAssignedCertificates,
			Prices:                  b.prices(d.Monthly, d.TrafficTB),
		})
	}
}

func (b *catalogueBuilder) images() {
	for _, d := range b.data.Images {
		for _, arch := range slices.Backward(slices.Sorted(maps.Keys(d.IDs))) { // x86 first
			b.Images = append(b.Images, &Image{
				Meta: store.Meta{ID: d.IDs[arch], Name: d.Name, Labels: map[string]string{}, Created: d.Created.Time},
				Type: cmp.Or(d.Type, "system"), Status: "available", Description: d.Description,
				DiskSize: d.DiskSize, OSFlavor: d.Flavor, OSVersion: d.Version,
				Architecture: arch, RapidDeploy: true, Deprecation: d.Deprecated.deprecation(),
			})
		}
	}
	slices.SortFunc(b.Images, func(x, y *Image) int { return cmp.Compare(x.ID, y.ID) })
}

func (b *catalogueBuilder) isos() {
	for _, d := range b.data.ISOs {
		b.ISOs = append(b.ISOs, &ISO{
			ID: d.ID, Name: d.Name, Description: d.Description, Type: "public",
			Architecture: d.Architecture, Deprecation: d.Deprecated.deprecation(),
		})
	}
}

func (b *catalogueBuilder) pricing() {
	d := b.data.pricingData
	ipv4 := b.price(d.PrimaryIPv4Monthly)
	b.Pricing = Pricing{
		Currency: d.Currency, VATRate: fmt.Sprintf("%d.00", d.VATPercent),
		ImagePerGBMonth:        b.price(d.ImagePerGBMonth),
		VolumePerGBMonth:       b.price(d.VolumePerGBMonth),
		FloatingIPMonthly:      b.price(d.FloatingIPv4Monthly),
		ServerBackupPercentage: fmt.Sprintf("%d.00", d.ServerBackupPercent),
		PrimaryIPv4Hourly:      b.price(hourly(d.PrimaryIPv4Monthly)),
		PrimaryIPv4Monthly:     ipv4,
		PrimaryIPv6Hourly:      b.price(hourly(d.PrimaryIPv6Monthly)),
		PrimaryIPv6Monthly:     b.price(d.PrimaryIPv6Monthly),
		FloatingIPv4Monthly:    b.price(d.FloatingIPv4Monthly),
		FloatingIPv6Monthly:    b.price(d.FloatingIPv6Monthly),
	}
}

// hoursPerMonth is the ratio of the published monthly prices to the hourly ones.
const hoursPerMonth = 624

func hourly(monthly float64) float64 { return monthly / hoursPerMonth }

const terabyte = 1 << 40 // the API counts included traffic in binary terabytes: 20 TB are 21990232555520

// prices turns prices by region into prices by location.
func (b *catalogueBuilder) prices(monthly, trafficTB map[string]float64) []LocationPrice {
	var out []LocationPrice
	for _, l := range b.Locations {
		region := b.regions[l.Name]
		m, sold := monthly[region]
		if !sold {
			continue
		}
		out = append(out, LocationPrice{
			Location: l.Name, Hourly: b.price(hourly(m)), Monthly: b.price(m),
			IncludedTraffic:   int64(trafficTB[region] * terabyte),
			PricePerTBTraffic: b.price(b.data.TrafficPerTB[region]),
		})
	}
	return out
}

func (b *catalogueBuilder) price(net float64) Price { return newPrice(net, b.data.VATPercent) }

// newPrice returns a net amount and its gross amount, with four decimals as in the API.
func newPrice(net float64, vatPercent int64) Price {
	units := int64(net*1e4 + 0.5) // ten-thousandths of a euro, rounded
	gross := units * (100 + vatPercent)
	return Price{
		Net:   fmt.Sprintf("%d.%04d", units/1e4, units%1e4),
		Gross: fmt.Sprintf("%d.%04d", (gross+50)/1e6, (gross+50)/100%1e4),
	}
}
