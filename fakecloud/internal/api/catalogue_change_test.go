package api_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/catalogue"
)

// The server type and the location of the tests below, by their ids in the built-in catalogue.
const cx23, fsn1 = 114.0, 1.0

// order is the body of a request for a server of that type.
var order = map[string]any{"name": "one", "server_type": "cx23", "image": "debian-13", "location": "fsn1"}

// shownPlaces returns what each place of the API and the control API shows of cx23 in fsn1.
func shownPlaces(w *wire, server, ip string) map[string]string {
	w.t.Helper()
	places := map[string]string{}
	ofType := func(place string, serverType any) {
		shown := "not offered"
		m := serverType.(map[string]any)
		locations, _ := m["locations"].([]any) // of an API date without them
		for _, l := range locations {
			if l := l.(map[string]any); l["id"] == fsn1 {
				shown = fmt.Sprintf("available %v recommended %v deprecated %v", l["available"], l["recommended"], l["deprecation"] != nil)
			}
		}
		for _, p := range m["prices"].([]any) {
			if p := p.(map[string]any); p["location"] == "fsn1" {
				shown += fmt.Sprintf(" price %v", p["price_monthly"].(map[string]any)["net"])
			}
		}
		places[place] = shown
	}
	ofDatacenter := func(place string, datacenter any) {
		if types, ok := datacenter.(map[string]any)["server_types"].(map[string]any); ok {
			places[place] = fmt.Sprintf("supported %v available %v",
				slices.Contains(types["supported"].([]any), any(cx23)), slices.Contains(types["available"].([]any), any(cx23)))
		}
	}
	first := func(list []any, id any) any {
		i := slices.IndexFunc(list, func(v any) bool { return v.(map[string]any)["id"] == id })
		if i < 0 {
			w.t.Fatalf("%v is not in the list", id)
		}
		return list[i]
	}
	state, err := w.cloud.State(w.t.Context(), fakecloud.Selection{Kinds: []string{"server"}})
	var dump struct {
		Projects []struct {
			Resources struct{ Servers []map[string]any }
		}
	}
	if err := errorOr(err, json.Unmarshal(state, &dump)); err != nil {
		w.t.Fatal(err)
	}
	ofType("GET /state", dump.Projects[0].Resources.Servers[0]["server_type"])
	var control map[string]any
	raw, err := w.cloud.Catalogue(w.t.Context())
	if err := errorOr(err, json.Unmarshal(raw, &control)); err != nil {
		w.t.Fatal(err)
	}
	ofType("GET /catalogue", first(control["server_types"].([]any), cx23))
	ofType("GET /server_types/{id}", w.get("/server_types/114")["server_type"])
	written := w.do(http.MethodPut, "/servers/"+server, map[string]any{"labels": map[string]any{}}, 200)["server"].(map[string]any)
	ofType("PUT /servers/{id}", written["server_type"])
	for range 3 { // a page is kept at the second request
		one := w.get("/servers/" + server)["server"].(map[string]any)
		listed := w.get("/servers")["servers"].([]any)[0].(map[string]any)
		ofType("GET /servers/{id}", one["server_type"])
		ofType("GET /servers", listed["server_type"])
		ofDatacenterOf := func(place string, resource map[string]any) {
			if d, ok := resource["datacenter"]; ok {
				ofDatacenter(place, d)
			}
		}
		ofDatacenterOf("datacenter of GET /servers/{id}", one)
		ofDatacenterOf("datacenter of GET /servers", listed)
		ofDatacenterOf("datacenter of GET /primary_ips/{id}", w.get("/primary_ips/" + ip)["primary_ip"].(map[string]any))
		ofDatacenterOf("datacenter of GET /primary_ips", w.get("/primary_ips")["primary_ips"].([]any)[0].(map[string]any))
	}
	return places
}

func errorOr(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// step is a change of the catalogue, with the items that all places show after it.
type step struct {
	change     func(*fakecloud.Cloud) error
	step       time.Duration
	ofType     string
	datacenter string
	listed     bool // in GET /server_types and GET /pricing
}

func offer(o catalogue.Offer) func(*fakecloud.Cloud) error {
	return func(c *fakecloud.Cloud) error { return c.OfferServerType(context.Background(), "cx23", "fsn1", o) }
}

// TestAllPlacesShowTheSameCatalogue changes the catalogue and looks at each place that shows a part of it, with the API of today, of a
// day with data centers, and of one without locations of server types.
func TestAllPlacesShowTheSameCatalogue(t *testing.T) {
	t.Parallel()
	const was = "available true recommended true deprecated false price 5.4900"
	end := today.Add(time.Hour)
	everywhere := func(c *fakecloud.Cloud) error {
		return c.OfferServerType(context.Background(), "114", "", catalogue.Offer{
			Available: new(true), Deprecation: &catalogue.Deprecation{UnavailableAfter: end},
		})
	}
	steps := []step{
		{offer(catalogue.Offer{Recommended: new(true)}), 0, was, "supported true available true", true},
		{offer(catalogue.Offer{Available: new(false), Recommended: new(false)}), 0,
			"available false recommended false deprecated false price 5.4900", "supported true available false", true},
		{offer(catalogue.Offer{Available: new(true), PriceMonthly: new(7.77)}), 0,
			"available true recommended false deprecated false price 7.7700", "supported true available true", true},
		{offer(catalogue.Offer{Offered: new(false)}), 0, "not offered", "supported false available false", true},
		{func(c *fakecloud.Cloud) error { return c.ResetCatalogue(context.Background()) }, 0, was, "supported true available true", true},
		{everywhere, time.Hour - 1, "available true recommended true deprecated true price 5.4900", "supported true available true", true},
		{nil, 1, "available false recommended true deprecated true price 5.4900", "supported true available false", false},
		{func(c *fakecloud.Cloud) error {
			return c.OfferServerType(context.Background(), "cx23", "", catalogue.Offer{Deprecation: &catalogue.Deprecation{}})
		}, 0, was, "supported true available true", true},
	}
	for _, date := range []string{"", "2026-06-30", "2026-03-31", "2025-09-23"} {
		t.Run("API date "+date, func(t *testing.T) {
			t.Parallel()
			w := newWire(t, fakecloud.Options{APIDate: date})
			if date != "" {
				w.handler = w.cloud.Handler() // the document does not describe these days
			}
			made := w.do(http.MethodPost, "/servers", order, 201)["server"].(map[string]any)
			id := func(v any) string { return fmt.Sprintf("%.0f", v) }
			ip := id(made["public_net"].(map[string]any)["ipv4"].(map[string]any)["id"])
			for i, s := range steps {
				if s.change != nil {
					if err := s.change(w.cloud); err != nil {
						t.Fatal(err)
					}
				}
				w.clock.Step(s.step)
				checkPlaces(w, i, s, date, shownPlaces(w, id(made["id"]), ip))
			}
		})
	}
}

// checkPlaces compares the places with the step's expectations.
func checkPlaces(w *wire, i int, s step, date string, places map[string]string) {
	w.t.Helper()
	want := s.ofType
	switch {
	case date == "" || date >= "2026-04-01":
	case date >= "2025-09-24": // without available and recommended
		for _, b := range []string{"true", "false"} {
			want = strings.Replace(strings.Replace(want, "available "+b, "available <nil>", 1), "recommended "+b, "recommended <nil>", 1)
		}
	default: // without locations
		_, price, _ := strings.Cut(want, " price ")
		want = "not offered"
		if price != "" {
			want += " price " + price
		}
	}
	datacenters := 0
	for _, place := range slices.Sorted(maps.Keys(places)) {
		expected := want
		if strings.HasPrefix(place, "datacenter") {
			expected, datacenters = s.datacenter, datacenters+1
		}
		if got := places[place]; got != expected {
			w.t.Errorf("step %d: %s shows %q, want %q", i, place, got, expected)
		}
	}
	if (datacenters == 4) != (date != "") {
		w.t.Errorf("%d places show data centers", datacenters)
	}
	if listed := slices.Contains(names(w.get("/server_types?per_page=50"), "server_types"), "cx23"); listed != s.listed {
		w.t.Errorf("step %d: in the list of server types: %v", i, listed)
	}
	prices := w.get("/pricing")["pricing"].(map[string]any)
	if listed := slices.Contains(names(prices, "server_types"), "cx23"); listed != s.listed {
		w.t.Errorf("step %d: in the prices: %v", i, listed)
	}
	if date != "" {
		dc := w.get("/datacenters/4")["datacenter"].(map[string]any)["server_types"].(map[string]any)
		got := fmt.Sprintf("supported %v available %v", slices.Contains(dc["supported"].([]any), any(cx23)),
			slices.Contains(dc["available"].([]any), any(cx23)))
		if got != s.datacenter {
			w.t.Errorf("step %d: the data center shows %q", i, got)
		}
	}
}

// TestReadersSeeWholeCatalogues reads while the catalogue changes: the locations of a type are all available, or none is.
func TestReadersSeeWholeCatalogues(t *testing.T) {
	t.Parallel()
	w := newWire(t, fakecloud.Options{})
	w.do(http.MethodPost, "/servers", order, 201)
	stop := make(chan struct{})
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			client := w.cloud.Client()
			for {
				select {
				case <-stop:
					return
				default:
				}
				servers, err := client.Server.All(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				available := 0
				for _, l := range servers[0].ServerType.Locations {
					if l.Available {
						available++
					}
				}
				if n := len(servers[0].ServerType.Locations); available != 0 && available != n {
					t.Errorf("%d of %d locations are available", available, n)
				}
			}
		})
	}
	for i := range 300 {
		if err := w.cloud.OfferServerType(t.Context(), "cx23", "", catalogue.Offer{Available: new(i%2 == 0)}); err != nil {
			t.Error(err)
		}
		if err := w.cloud.SetLimits(t.Context(), 1, map[string]int{"server": i + 2}); err != nil {
			t.Error(err)
		}
		fork := w.cloud.Fork()
		if err := fork.ResetCatalogue(t.Context()); err != nil {
			t.Error(err)
		}
		fork.Close()
	}
	close(stop)
	readers.Wait()
}
