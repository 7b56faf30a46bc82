package cloud

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/catalogue"
)

func TestAChangedOfferDecidesWhatCanBeOrdered(t *testing.T) {
	t.Parallel()
	const gone, soldOut, old = "unsupported location for server type", "resource_unavailable", "is deprecated"
	retires := &catalogue.Deprecation{UnavailableAfter: testNow.Add(time.Hour)}
	for name, tt := range map[string]struct {
		location        string // of the offer
		offer           catalogue.Offer
		step            time.Duration
		fsn1, ash, none string // part of the error of a creation there, and without a location
	}{
		"sold out there":             {"fsn1", catalogue.Offer{Available: new(false)}, 0, soldOut, "", ""},
		"sold out by id":             {"1", catalogue.Offer{Available: new(false)}, 0, soldOut, "", ""},
		"sold out everywhere":        {"", catalogue.Offer{Available: new(false)}, 0, soldOut, soldOut, soldOut},
		"not offered there":          {"fsn1", catalogue.Offer{Offered: new(false)}, 0, gone, "", ""},
		"retires there later":        {"fsn1", catalogue.Offer{Deprecation: retires}, time.Hour - 1, "", "", ""},
		"retired there":              {"fsn1", catalogue.Offer{Deprecation: retires}, time.Hour, gone, "", ""},
		"retired everywhere":         {"", catalogue.Offer{Deprecation: retires}, time.Hour, old, old, old},
		"recommended":                {"", catalogue.Offer{Recommended: new(true)}, 0, "", "", ""},
		"offered where it is, again": {"", catalogue.Offer{Offered: new(true)}, 0, "", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, clk := serverCloud(t, Options{})
			order := func() (errs [3]error) {
				for i, location := range []string{"fsn1", "ash", ""} {
					in := smallServer("s-" + location)
					in.Location = location
					_, _, errs[i] = p.CreateServer(in)
				}
				return errs
			}
			check(t, p.cloud.OfferServerType("small", tt.location, tt.offer))
			clk.Step(tt.step)
			errs := order()
			for i, want := range []string{tt.fsn1, tt.ash, tt.none} {
				if err := errs[i]; (err != nil) != (want != "") || err != nil && !strings.Contains(err.Error(), want) {
					t.Errorf("creation %d: %v, want %q", i, err, want)
				}
			}
			p.cloud.Reset()
			p.cloud.ResetCatalogue()
			for i, err := range order() {
				if err != nil {
					t.Errorf("creation %d after the catalogue was restored: %v", i, err)
				}
			}
		})
	}
}

func TestAChangedOfferDecidesWhatAServerCanBecome(t *testing.T) {
	t.Parallel()
	p, clk := serverCloud(t, Options{})
	id := offServer(t, p, clk, smallServer("a")).ID
	for _, tt := range []struct {
		offer catalogue.Offer
		want  string
	}{
		{catalogue.Offer{Available: new(false)}, "resource_unavailable"},
		{catalogue.Offer{Available: new(true), Deprecation: &catalogue.Deprecation{UnavailableAfter: testNow}}, "invalid_server_type"},
		{catalogue.Offer{Deprecation: &catalogue.Deprecation{}}, ""},
	} {
		check(t, p.cloud.OfferServerType("2", "", tt.offer))
		_, _, err := p.ChangeServerType(id, "big", false)
		wantCode(t, "change to big", err, tt.want)
	}
}

func TestAWrongChangeOfTheCatalogueChangesNothing(t *testing.T) {
	t.Parallel()
	p, _ := serverCloud(t, Options{})
	c := p.cloud
	before := c.Catalogue()
	offer := func(serverType, location string, o catalogue.Offer) error {
		return c.OfferServerType(serverType, location, o)
	}
	deprecation := func(announced, end time.Time) error {
		d := catalogue.Deprecation{Announced: announced, UnavailableAfter: end}
		return offer("small", "fsn1", catalogue.Offer{Deprecation: &d})
	}
	price := func(p float64) error { return offer("small", "", catalogue.Offer{PriceMonthly: &p}) }
	add := func(change func(*catalogue.NewServerType)) error {
		n := catalogue.NewServerType{Name: "new", CopyOf: "small"}
		change(&n)
		return c.AddServerType(n)
	}
	for want, err := range map[string]error{
		`"none" does not exist; GET /catalogue`:  offer("none", "", catalogue.Offer{Available: new(false)}),
		"must be one of fsn1, ash":               offer("small", "mars", catalogue.Offer{Available: new(false)}),
		"offer: must change something":           offer("small", "fsn1", catalogue.Offer{}),
		`big is not offered in ash`:              offer("big", "ash", catalogue.Offer{Available: new(false)}),
		"stay in one location at least":          offer("big", "fsn1", catalogue.Offer{Offered: new(false)}),
		"stay in one location":                   offer("small", "", catalogue.Offer{Offered: new(false)}),
		"price_monthly: -1 must be":              price(-1),
		"price_monthly: NaN must be":             price(math.NaN()),
		"price_monthly: +Inf must be":            price(math.Inf(1)),
		"price_monthly: 1.000001e+06 must be":    price(1_000_001),
		"unavailable_after: must be a time":      deprecation(testNow, time.Time{}),
		"unavailable_after: must be":             deprecation(time.Time{}, testNow.AddDate(9000, 0, 0)),
		"announced: must be before":              deprecation(testNow, testNow),
		"not later than now":                     deprecation(testNow.Add(1), testNow.Add(2)),
		"announced: must be":                     deprecation(time.Unix(-1, 0), testNow),
		"name: \"\" must have":                   add(func(n *catalogue.NewServerType) { n.Name = "" }),
		"name: \"42\" must have":                 add(func(n *catalogue.NewServerType) { n.Name = "42" }),
		"server type big exists already":         add(func(n *catalogue.NewServerType) { n.Name = "big" }),
		"copy_of: server type \"\" does not":     add(func(n *catalogue.NewServerType) { n.CopyOf = "" }),
		"cores, memory and disk":                 add(func(n *catalogue.NewServerType) { n.Cores = -1 }),
		"memory and disk: each":                  add(func(n *catalogue.NewServerType) { n.Memory = math.NaN() }),
		"and disk: each":                         add(func(n *catalogue.NewServerType) { n.Disk = 1 << 40 }),
		"cpu_type: \"big\" must be one of":       add(func(n *catalogue.NewServerType) { n.CPUType = "big" }),
		"architecture: \"riscv\" must be one":    add(func(n *catalogue.NewServerType) { n.Architecture = "riscv" }),
		"description and category":               add(func(n *catalogue.NewServerType) { n.Category = "a\x1b[31m" }),
		"category: each must":                    add(func(n *catalogue.NewServerType) { n.Description = strings.Repeat("x", 65) }),
		"limit of \"cluster\": the kind must be": p.SetLimits(Limits{KindServer: 1, "cluster": 1}),
		"limit of \"server\": -1 must be":        p.SetLimits(Limits{KindServer: -1}),
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if c.Catalogue() != before || len(p.View().Limits) != 0 {
		t.Error("a refused change has changed the catalogue or the limits")
	}
}

func TestANewServerTypeIsACopyWithChanges(t *testing.T) {
	t.Parallel()
	p, clk := serverCloud(t, Options{})
	n := catalogue.NewServerType{Name: "large", CopyOf: "big", Cores: 16, Memory: 1.5, Disk: 100, CPUType: "dedicated", Category: "new"}
	check(t, p.cloud.AddServerType(n))
	large, ok := p.View().Catalogue.ServerType("large")
	if !ok || large.ID != 8 || large.Description != "LARGE" || large.Cores != 16 || large.Memory != 1.5 || large.Disk != 100 ||
		large.CPUType != "dedicated" || large.Category != "new" || large.Architecture != "x86" || len(large.Locations) != 1 {
		t.Fatalf("%+v", large)
	}
	in := smallServer("a")
	in.ServerType = "8"
	s := offServer(t, p, clk, in)

	// It is gone while a server becomes one.
	other := offServer(t, p, clk, smallServer("b"))
	did(p.ChangeServerType(other.ID, "large", true))(t)
	p.cloud.ResetCatalogue()
	clk.Step(time.Minute)
	if got := server(t, p, other.ID).Type.Name; got != "small" {
		t.Errorf("a server that was to become large is %s, want small", got)
	}
	if got := p.View().TypeOf(server(t, p, s.ID)); got != large {
		t.Errorf("a large server is %+v", got)
	}
	for i := range maxServerTypes {
		n.Name = "copy-" + itoa(int64(i))
		if err := p.cloud.AddServerType(n); err != nil {
			if i != maxServerTypes-7 || !strings.Contains(err.Error(), "no room") {
				t.Errorf("type %d: %v", i, err)
			}
			return
		}
	}
	t.Error("the catalogue has no largest size")
}

func TestTheCatalogueAtATime(t *testing.T) {
	t.Parallel()
	c := serverCatalogue()
	for _, tt := range []struct {
		now    time.Time
		until  time.Time
		hidden string // the types that are not available in fsn1
	}{
		{testNow, testNow.Add(time.Hour), "soldout retired"},
		{testNow.Add(time.Hour - 1), testNow.Add(time.Hour), "soldout retired"},
		{testNow.Add(time.Hour), time.Time{}, "soldout retired retiring"},
	} {
		at, until := c.At(tt.now)
		var hidden []string
		for _, s := range at.ServerTypes {
			if in, _ := s.In("fsn1"); !in.Available {
				hidden = append(hidden, s.Name)
			}
		}
		if strings.Join(hidden, " ") != tt.hidden || !until.Equal(tt.until) {
			t.Errorf("%v: %v until %v", tt.now, hidden, until)
		}
		if again, _ := at.At(tt.now); again != at {
			t.Error("the catalogue at a time differs from itself")
		}
	}
	if in, _ := c.ServerTypes[4].In("fsn1"); !in.Available {
		t.Error("the catalogue itself has changed")
	}
}

func TestWhatAChangeSaysOfTheWholeType(t *testing.T) {
	t.Parallel()
	p, _ := serverCloud(t, Options{Catalogue: DefaultCatalogue()})
	change := func(location string, o catalogue.Offer) *ServerType {
		t.Helper()
		check(t, p.cloud.OfferServerType("cx23", location, o))
		cx23, _ := p.cloud.Catalogue().ServerType("cx23")
		return cx23
	}
	soon, late := testNow.AddDate(0, 0, 10), testNow.AddDate(1, 0, 0)
	change("fsn1", catalogue.Offer{Deprecation: &catalogue.Deprecation{UnavailableAfter: late}})
	if d := change("nbg1", catalogue.Offer{Deprecation: &catalogue.Deprecation{UnavailableAfter: soon}}).Deprecation; d != nil {
		t.Errorf("deprecated in two of three locations: %+v", d)
	}
	cx23 := change("hel1", catalogue.Offer{Deprecation: &catalogue.Deprecation{UnavailableAfter: soon}})
	if d := cx23.Deprecation; d == nil || !d.UnavailableAfter.Equal(late) || !d.Announced.Equal(testNow) {
		t.Errorf("deprecated in all locations: %+v", d)
	}
	if in, _ := cx23.In("hel1"); !in.Deprecation.Announced.Equal(soon.AddDate(0, 0, -90)) {
		t.Errorf("announced %v, want 90 days before the end", in.Deprecation.Announced)
	}
	cx23 = change("", catalogue.Offer{Deprecation: &catalogue.Deprecation{}})
	if cx23.Deprecation != nil || cx23.Locations[2].Deprecation != nil {
		t.Errorf("taken back: %+v", cx23)
	}
	cx23 = change("ash", catalogue.Offer{Offered: new(true), PriceMonthly: new(6.24)})
	checkPrices(t, p.cloud.Catalogue(), "cx23", cx23.Prices)
	if p := cx23.Prices[3]; p.Location != "ash" || p.Hourly != (Price{"0.0100", "0.0119"}) || p.Monthly != (Price{"6.2400", "7.4256"}) {
		t.Errorf("price in ash: %+v", p)
	}
	if cx23 = change("ash", catalogue.Offer{Offered: new(false)}); len(cx23.Prices) != 3 || len(cx23.Locations) != 3 {
		t.Errorf("left ash: %+v", cx23)
	}
	if built, _ := DefaultCatalogue().ServerType("cx23"); built.Prices[0].Monthly.Net != "5.4900" || built == cx23 {
		t.Error("the built-in catalogue has changed")
	}
}

func TestAForkHasItsOwnCatalogueAndLimits(t *testing.T) {
	t.Parallel()
	p, clk := serverCloud(t, Options{Limits: Limits{KindServer: 1}})
	soldOut := catalogue.Offer{Available: new(false)}
	check(t, errors.Join(p.cloud.OfferServerType("big", "", soldOut), p.SetLimits(Limits{KindVolume: 2})))
	f := p.cloud.Fork(clk)
	defer f.Close()
	fp, _ := f.Project(1)
	if err := errors.Join(f.OfferServerType("small", "", soldOut), fp.SetLimits(Limits{KindVolume: 3}),
		p.cloud.OfferServerType("arm", "", soldOut)); err != nil {
		t.Fatal(err)
	}
	for of, want := range map[Project]string{p: "big arm", fp: "small big"} {
		var got []string
		for _, s := range of.View().Catalogue.ServerTypes {
			if in, _ := s.In("fsn1"); !in.Available && s.Name != "soldout" {
				got = append(got, s.Name)
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("sold out: %v, want %s", got, want)
		}
	}
	if a, b := p.View().Limits[KindVolume], fp.View().Limits[KindVolume]; a != 2 || b != 3 {
		t.Errorf("limits of volumes: %d, in the fork %d", a, b)
	}
	f.ResetCatalogue()
	f.ResetLimits()
	if in, _ := fp.View().Catalogue.ServerTypes[1].In("fsn1"); !in.Available || fp.View().Limits[KindServer] != 1 {
		t.Error("the fork does not have what the cloud began with")
	}
}

func TestLimitsBelongToOneProject(t *testing.T) {
	t.Parallel()
	p, _ := serverCloud(t, Options{Limits: Limits{KindServer: 1}})
	other := p.cloud.AddProject("other")
	own := Limits{KindServer: 2, KindPrimaryIP: 3}
	check(t, p.SetLimits(own))
	own[KindServer] = 0 // is the caller's
	mustCreate(t, p, smallServer("a"))
	_, _, err := p.CreateServer(smallServer("b"))
	wantCode(t, "fourth Primary IP", err, "resource_limit_exceeded")
	mustCreate(t, other, smallServer("a"))
	_, _, err = other.CreateServer(smallServer("b"))
	wantCode(t, "second server of the other project", err, "resource_limit_exceeded")
	check(t, p.SetLimits(Limits{}))
	for _, name := range []string{"b", "c", "d"} {
		mustCreate(t, p, smallServer(name))
	}
	check(t, p.SetLimits(Limits{KindServer: 1}))
	p.cloud.Reset()
	mustCreate(t, p, smallServer("a"))
	_, _, err = p.CreateServer(smallServer("b"))
	wantCode(t, "second server after a reset", err, "resource_limit_exceeded")
}
