package remote_test

import (
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/catalogue"
)

func TestChangesOfTheCatalogueAreTheSame(t *testing.T) {
	each(t, func(t *testing.T, c *fakecloud.Cloud, is controls) {
		ctx := t.Context()
		ok(t, is.OfferServerType(ctx, "cx23", "", catalogue.Offer{Available: new(false), PriceMonthly: new(0.5)}))
		if err := createServer(ctx, c, "one"); !hcloud.IsError(err, hcloud.ErrorCodeResourceUnavailable) {
			t.Errorf("sold out: %v", err)
		}
		end := must[time.Time](t)(is.Now(ctx)).Add(time.Hour).Truncate(time.Second)
		ok(t, is.OfferServerType(ctx, "cx23", "fsn1", catalogue.Offer{
			Available: new(true), Deprecation: &catalogue.Deprecation{UnavailableAfter: end},
		}))
		ok(t, createServer(ctx, c, "one"))
		ok(t, is.AddServerType(ctx, catalogue.NewServerType{Name: "cx24", CopyOf: "cx23", Cores: 3}))
		var shown struct {
			ServerTypes []struct {
				Name      string `json:"name"`
				Cores     int    `json:"cores"`
				Locations []struct {
					Deprecation *struct {
						UnavailableAfter time.Time `json:"unavailable_after"`
					} `json:"deprecation"`
				} `json:"locations"`
			} `json:"server_types"`
		}
		ok(t, json.Unmarshal(must[json.RawMessage](t)(is.Catalogue(ctx)), &shown))
		last := shown.ServerTypes[len(shown.ServerTypes)-1]
		if last.Name != "cx24" || last.Cores != 3 || !last.Locations[0].Deprecation.UnavailableAfter.Equal(end) {
			t.Errorf("%+v, want the end %v", last, end)
		}
		for name, err := range map[string]error{
			"type":      is.OfferServerType(ctx, "a/b%", "fsn1", catalogue.Offer{Available: new(false)}),
			"location":  is.OfferServerType(ctx, "cx23", "a/b%", catalogue.Offer{Available: new(false)}),
			"copied to": is.AddServerType(ctx, catalogue.NewServerType{Name: "cx25", CopyOf: "none"}),
		} {
			if !errors.Is(err, catalogue.ErrNotFound) {
				t.Errorf("unknown %s: %v", name, err)
			}
		}
		if err := is.AddServerType(ctx, catalogue.NewServerType{Name: "cx24", CopyOf: "cx23"}); !errors.Is(err, catalogue.ErrExists) {
			t.Errorf("a taken name: %v", err)
		}
		for name, err := range map[string]error{
			"no change": is.OfferServerType(ctx, "cx23", "", catalogue.Offer{}),
			"price":     is.OfferServerType(ctx, "cx23", "", catalogue.Offer{PriceMonthly: new(math.NaN())}),
			"name":      is.AddServerType(ctx, catalogue.NewServerType{Name: "CX", CopyOf: "cx23"}),
		} {
			if err == nil {
				t.Errorf("%s: no error", name)
			}
		}
		ok(t, is.ResetCatalogue(ctx))
		cx23, _, err := c.Client().ServerType.GetByName(ctx, "cx23")
		if err != nil || !cx23.Locations[1].Available || cx23.Pricings[0].Monthly.Net != "5.4900" {
			t.Errorf("restored: %+v, %v", cx23, err)
		}
	})
}

func TestLimitsAreTheSame(t *testing.T) {
	each(t, func(t *testing.T, c *fakecloud.Cloud, is controls) {
		ctx := t.Context()
		ok(t, is.SetLimits(ctx, 1, map[string]int{"server": 1, "volume": 0}))
		if l := must[map[string]int](t)(is.Limits(ctx, 1)); len(l) != 1 || l["server"] != 1 {
			t.Errorf("%v", l)
		}
		ok(t, createServer(ctx, c, "one"))
		if err := createServer(ctx, c, "two"); !hcloud.IsError(err, hcloud.ErrorCodeResourceLimitExceeded) {
			t.Errorf("%v", err)
		}
		_, unknown := is.Limits(ctx, 7)
		for want, err := range map[string]error{
			"project 7 does not exist": unknown,
			"project 7 does":           is.SetLimits(ctx, 7, nil),
			"must be one of":           is.SetLimits(ctx, 1, map[string]int{"server": 5, "cluster": 1}),
			"-1 must be":               is.SetLimits(ctx, 1, map[string]int{"server": -1}),
		} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %s", err, want)
			}
		}
		ok(t, is.Reset(ctx, fakecloud.KeepLimits))
		if l := must[map[string]int](t)(is.Limits(ctx, 1)); l["server"] != 1 {
			t.Errorf("kept: %v", l)
		}
		ok(t, is.SetLimits(ctx, 1, nil))
		if l := must[map[string]int](t)(is.Limits(ctx, 1)); len(l) != 0 {
			t.Errorf("without limits: %v", l)
		}
	})
}
