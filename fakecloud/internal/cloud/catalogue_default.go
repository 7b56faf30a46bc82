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
		Location    `yaml:",inline"`
		PriceRegion string `yaml:"price_region"`
	}
	ServerTypes []struct {
		ServerType    `yaml:",inline"` // its description is by default the name in capitals
		offerData     `yaml:",inline"`
		Deprecated    map[string]*Deprecation
		UnavailableIn []string `yaml:"unavailable_in"`
		Recommended   bool
	} `yaml:"server_types"`
	LoadBalancerTypes []struct {
		LoadBalancerType `yaml:",inline"`
		offerData        `yaml:",inline"`
	} `yaml:"load_balancer_types"`
	Images []struct {
		Name, Type, Description, Flavor, Version string

		Created    time.Time
		DiskSize   float64 `yaml:"disk_size"`
		IDs        map[string]int64
		Deprecated *Deprecation
	}
	ISOs        []ISO
	pricingData `yaml:",inline"`
}

// offerData is by price region.
type offerData struct {
	Monthly   map[string]float64
	TrafficTB map[string]float64 `yaml:"traffic_tb"`
}

type pricingData struct {
	Currency            string
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
		b.Locations = append(b.Locations, new(l.Location))
	}
}

func (b *catalogueBuilder) serverTypes() {
	for _, d := range b.data.ServerTypes {
		t := new(d.ServerType)
		t.Description, t.StorageType = cmp.Or(d.Description, strings.ToUpper(d.Name)), "local"
		t.Prices, t.Deprecation = b.prices(d.offerData), d.Deprecated["all"]
		for _, l := range b.Locations {
			region := b.regions[l.Name]
			if _, sold := d.Monthly[region]; !sold {
				continue
			}
			in := ServerTypeLocation{Location: l, Deprecation: cmp.Or(d.Deprecated[region], t.Deprecation), Recommended: d.Recommended}
			in.Available = in.Deprecation == nil && !slices.Contains(d.UnavailableIn, l.Name)
			t.Locations = append(t.Locations, in)
		}
		b.ServerTypes = append(b.ServerTypes, t)
	}
}

func (b *catalogueBuilder) loadBalancerTypes() {
	for _, d := range b.data.LoadBalancerTypes {
		d.Description, d.Prices = strings.ToUpper(d.Name), b.prices(d.offerData)
		b.LoadBalancerTypes = append(b.LoadBalancerTypes, new(d.LoadBalancerType))
	}
}

func (b *catalogueBuilder) images() {
	for _, d := range b.data.Images {
		for _, arch := range slices.Backward(slices.Sorted(maps.Keys(d.IDs))) { // x86 first
			b.Images = append(b.Images, &Image{
				Meta: store.Meta{ID: d.IDs[arch], Name: d.Name, Labels: map[string]string{}, Created: d.Created},
				Type: cmp.Or(d.Type, "system"), Status: "available", Description: d.Description,
				DiskSize: d.DiskSize, OSFlavor: d.Flavor, OSVersion: d.Version,
				Architecture: arch, RapidDeploy: true, Deprecation: d.Deprecated,
			})
		}
	}
	slices.SortFunc(b.Images, func(x, y *Image) int { return cmp.Compare(x.ID, y.ID) })
}

func (b *catalogueBuilder) isos() {
	for _, d := range b.data.ISOs {
		d.Type = "public"
		b.ISOs = append(b.ISOs, &d)
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
func (b *catalogueBuilder) prices(d offerData) []LocationPrice {
	var out []LocationPrice
	for _, l := range b.Locations {
		region := b.regions[l.Name]
		m, sold := d.Monthly[region]
		if !sold {
			continue
		}
		out = append(out, LocationPrice{
			Location: l.Name, Hourly: b.price(hourly(m)), Monthly: b.price(m),
			IncludedTraffic:   int64(d.TrafficTB[region] * terabyte),
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
