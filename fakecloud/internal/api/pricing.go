package api

import (
	"net/http"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/cloud"
)

type pricingJSON struct {
	Currency          string             `json:"currency"`
	VATRate           string             `json:"vat_rate"`
	PrimaryIPs        []ipPricingJSON    `json:"primary_ips"`
	FloatingIPs       []ipPricingJSON    `json:"floating_ips"`
	Image             perGBMonthJSON     `json:"image"`
	Volume            perGBMonthJSON     `json:"volume"`
	ServerBackup      serverBackupJSON   `json:"server_backup"`
	ServerTypes       []typePricingJSON  `json:"server_types"`
	LoadBalancerTypes []typePricingJSON  `json:"load_balancer_types"`
	FloatingIP        monthlyPricingJSON `json:"floating_ip"`
}

type ipPricingJSON struct {
	Type   string        `json:"type"`
	Prices []ipPriceJSON `json:"prices"`
}

type ipPriceJSON struct {
	Location string     `json:"location"`
	Hourly   *priceJSON `json:"price_hourly,omitempty"` // Floating IPs have none
	Monthly  priceJSON  `json:"price_monthly"`
}

type perGBMonthJSON struct {
	PricePerGBMonth priceJSON `json:"price_per_gb_month"`
}

type serverBackupJSON struct {
	Percentage string `json:"percentage"`
}

type monthlyPricingJSON struct {
	PriceMonthly priceJSON `json:"price_monthly"`
}

type typePricingJSON struct {
	ID     int64               `json:"id"`
	Name   string              `json:"name"`
	Prices []locationPriceJSON `json:"prices"`
}

// getPricing answers GET /pricing with the catalogue's prices: in euros with German VAT, for every project. Not modelled:
// the currency and VAT of the project's owner.
func getPricing(r *Request) (Response, error) {
	c, now := r.catalogue(), r.api.cloud.Now()
	p := c.Pricing
	out := pricingJSON{
		Currency: p.Currency, VATRate: p.VATRate,
		PrimaryIPs: []ipPricingJSON{
			ipPricing(c, "ipv4", &p.PrimaryIPv4Hourly, p.PrimaryIPv4Monthly),
			ipPricing(c, "ipv6", &p.PrimaryIPv6Hourly, p.PrimaryIPv6Monthly),
		},
		FloatingIPs: []ipPricingJSON{
			ipPricing(c, "ipv4", nil, p.FloatingIPv4Monthly),
			ipPricing(c, "ipv6", nil, p.FloatingIPv6Monthly),
		},
		Image:             perGBMonthJSON{priceJSON(p.ImagePerGBMonth)},
		Volume:            perGBMonthJSON{priceJSON(p.VolumePerGBMonth)},
		ServerBackup:      serverBackupJSON{p.ServerBackupPercentage},
		ServerTypes:       []typePricingJSON{},
		LoadBalancerTypes: []typePricingJSON{},
		FloatingIP:        monthlyPricingJSON{priceJSON(p.FloatingIPMonthly)},
	}
	for _, t := range c.ServerTypes {
		if !t.Retired(now) {
			out.ServerTypes = append(out.ServerTypes, typePricingJSON{t.ID, t.Name, encodeLocationPrices(t.Prices)})
		}
	}
	for _, t := range c.LoadBalancerTypes {
		if !t.Deprecation.Retired(now) {
			out.LoadBalancerTypes = append(out.LoadBalancerTypes, typePricingJSON{t.ID, t.Name, encodeLocationPrices(t.Prices)})
		}
	}
	return object(http.StatusOK, Part{Key: "pricing", Value: compact(marshal(out))}), nil
}

func ipPricing(c *cloud.Catalogue, version string, hourly *cloud.Price, monthly cloud.Price) ipPricingJSON {
	return ipPricingJSON{version, each(c.Locations, func(l *cloud.Location) ipPriceJSON {
		return ipPriceJSON{l.Name, (*priceJSON)(hourly), priceJSON(monthly)}
	})}
}

func pricingRoutes() []Route {
	return []Route{{http.MethodGet, "/pricing", "get_pricing", getPricing}}
}
