package cloud

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestTheEmbeddedCatalogueIsConsistent(t *testing.T) {
	t.Parallel()
	c := DefaultCatalogue()
	unique(t, "location", c.Locations, func(l *Location) (int64, string) { return l.ID, l.Name })
	unique(t, "datacenter", c.Locations, func(l *Location) (int64, string) { return l.Datacenter.ID, l.Datacenter.Name })
	unique(t, "server type", c.ServerTypes, func(s *ServerType) (int64, string) { return s.ID, s.Name })
	unique(t, "load balancer type", c.LoadBalancerTypes, func(l *LoadBalancerType) (int64, string) { return l.ID, l.Name })
	unique(t, "image", c.Images, func(i *Image) (int64, string) { return i.ID, i.Name + "/" + i.Architecture })
	unique(t, "ISO", c.ISOs, func(i *ISO) (int64, string) { return i.ID, i.Name })

	flavors := []string{"ubuntu", "centos", "debian", "fedora", "rocky", "alma", "opensuse", "unknown"}
	for _, i := range c.Images {
		if !slices.Contains(flavors, i.OSFlavor) || i.DiskSize <= 0 || i.Created.IsZero() ||
			i.Architecture != "x86" && i.Architecture != "arm" || i.Type != "system" && i.Type != "app" {
			t.Errorf("image %s: %+v", i.Name, i)
		}
		checkDeprecation(t, i.Name, i.Deprecation)
	}
	for _, s := range c.ServerTypes {
		if s.Cores < 1 || s.Memory < 1 || s.Disk < 20 || s.CPUType != "shared" && s.CPUType != "dedicated" || s.Category == "" {
			t.Errorf("server type %s: %+v", s.Name, s)
		}
		var sold, priced []string
		for _, l := range s.Locations {
			sold = append(sold, l.Location.Name)
			checkDeprecation(t, s.Name, l.Deprecation)
		}
		for _, p := range s.Prices {
			priced = append(priced, p.Location)
		}
		if !slices.Equal(sold, priced) || len(sold) == 0 {
			t.Errorf("server type %s: locations %v, prices for %v", s.Name, sold, priced)
		}
		checkPrices(t, c, s.Name, s.Prices)
	}
	for i, l := range c.LoadBalancerTypes {
		checkPrices(t, c, l.Name, l.Prices)
		if len(l.Prices) != len(c.Locations) {
			t.Errorf("load balancer type %s has prices for %d locations", l.Name, len(l.Prices))
		}
		if i > 0 {
			prev := c.LoadBalancerTypes[i-1]
			if l.MaxConnections <= prev.MaxConnections || l.MaxServices <= prev.MaxServices || l.MaxTargets <= prev.MaxTargets ||
				l.MaxAssignedCertificates <= prev.MaxAssignedCertificates {
				t.Errorf("%s does not allow more than %s", l.Name, prev.Name)
			}
		}
	}
	if got := strings.Join(c.NetworkZones(), " "); got != "eu-central us-east us-west ap-southeast" {
		t.Errorf("network zones: %s", got)
	}
}

func unique[T any](t *testing.T, what string, items []*T, key func(*T) (int64, string)) {
	t.Helper()
	ids, names := map[int64]bool{}, map[string]bool{}
	for _, item := range items {
		id, name := key(item)
		if id <= 0 || ids[id] || name == "" || names[name] {
			t.Errorf("%s %d %q: id or name is missing or not unique", what, id, name)
		}
		ids[id], names[name] = true, true
	}
	if len(items) == 0 {
		t.Errorf("no %s", what)
	}
}

func checkDeprecation(t *testing.T, what string, d *Deprecation) {
	t.Helper()
	if d != nil && (d.Announced.IsZero() || !d.UnavailableAfter.After(d.Announced)) {
		t.Errorf("%s: deprecation %+v", what, d)
	}
}

var amount = regexp.MustCompile(`^\d+\.\d{4}$`)

func checkPrices(t *testing.T, c *Catalogue, what string, prices []LocationPrice) {
	t.Helper()
	for _, p := range prices {
		if _, ok := c.Location(p.Location); !ok || p.IncludedTraffic <= 0 {
			t.Errorf("%s: %+v", what, p)
		}
		for _, m := range []Price{p.Hourly, p.Monthly, p.PricePerTBTraffic} {
			if !amount.MatchString(m.Net) || !amount.MatchString(m.Gross) || m.Net == "0.0000" {
				t.Errorf("%s in %s: price %+v", what, p.Location, m)
			}
		}
	}
}

func TestServerTypesRetireOnTheirDay(t *testing.T) {
	t.Parallel()
	c := DefaultCatalogue()
	for _, tt := range []struct {
		name, location string
		at             time.Time
		retiredThere   bool
		retired        bool
	}{
		{"cx11", "fsn1", time.Date(2024, 9, 5, 23, 59, 59, 0, time.UTC), false, false},
		{"cx11", "fsn1", time.Date(2024, 9, 6, 0, 0, 0, 0, time.UTC), true, true},
		{"cpx11", "fsn1", time.Date(2026, 11, 20, 0, 0, 0, 0, time.UTC), true, false},
		{"cpx11", "ash", time.Date(2026, 11, 20, 0, 0, 0, 0, time.UTC), false, false},
		{"cx23", "hel1", time.Date(2126, 1, 1, 0, 0, 0, 0, time.UTC), false, false},
	} {
		st, ok := c.ServerType(tt.name)
		if !ok {
			t.Fatalf("no %s", tt.name)
		}
		in, ok := st.In(tt.location)
		if !ok || in.Deprecation.Retired(tt.at) != tt.retiredThere || st.Retired(tt.at) != tt.retired {
			t.Errorf("%s at %v: in %s %v, anywhere %v", tt.name, tt.at, tt.location, in.Deprecation.Retired(tt.at), st.Retired(tt.at))
		}
	}
	if _, ok := c.ServerTypes[0].In("sin"); ok {
		t.Error("cx11 exists in sin")
	}
}

func TestABrokenCatalogueFileIsRefused(t *testing.T) {
	t.Parallel()
	for name, content := range map[string]string{
		"unknown field": "locations:\n- {id: 1, colour: x}\n",
		"not a date":    "images:\n- {name: x, created: yesterday}\n",
		"not YAML":      "\t: {",
	} {
		if _, err := loadCatalogue(func(string) ([]byte, error) { return []byte(content), nil }); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// The values are from answers of the real API that are quoted in public threads.
func TestTheCatalogueAgreesWithTheRealAPI(t *testing.T) {
	t.Parallel()
	c := DefaultCatalogue()
	if s, _ := c.ServerType("cpx11"); s.Description != "CPX 11" || s.Category != "regular_purpose" {
		t.Errorf("cpx11: %q, %q", s.Description, s.Category)
	}
	if s, _ := c.ServerType("cx11"); s.Deprecation.Announced != time.Date(2024, 6, 6, 8, 0, 0, 0, time.UTC) || s.Description != "CX11" {
		t.Errorf("cx11: %+v", s.Deprecation)
	}
	for id, want := range map[string]string{
		"8637": "Windows Server 2022 English", "8638": "Windows Server 2022 German", "122898": "SystemRescue 12.02",
	} {
		if iso, ok := c.ISO(id); !ok || iso.Description != want {
			t.Errorf("ISO %s: %+v", id, iso)
		}
	}
	if _, ok := c.ISO("SW_DVD9_Win_Server_STD_CORE_2022__64Bit_German_DC_STD_MLF_X22-74292.iso"); !ok {
		t.Error("ISO 8638 does not have the name that the CLI uses")
	}
	if iso, _ := c.ISO("122898"); iso == nil || iso.Name != "systemrescue-12.02-amd64.iso" {
		t.Errorf("ISO 122898: %+v", iso)
	}
	for _, i := range c.Images {
		if i.ID == 103908070 && i.Name != "ubuntu-20.04" {
			t.Errorf("%s has the id of ubuntu-20.04 for arm", i.Name)
		}
	}
}
