package api_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/api"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/cloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/contract"
)

// today is a day after all changes and retirements that the catalogue knows.
var today = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// wire sends raw requests to a cloud's handler. If there is an API document, it checks all answers with it.
type wire struct {
	t       *testing.T
	cloud   *fakecloud.Cloud
	handler http.Handler
	clock   *clocktesting.FakeClock
}

func newWire(t *testing.T, o fakecloud.Options) *wire {
	t.Helper()
	w := &wire{t: t, clock: clocktesting.NewFakeClock(today)}
	o.Clock = w.clock
	w.cloud = fakecloud.New(o)
	t.Cleanup(w.cloud.Close)
	w.handler = w.cloud.Handler()
	if path, err := contract.Find(); err == nil {
		var document *contract.Document
		if o.APIDate == "" {
			document = contract.ForTest(t)
		} else {
			document = documentOf(t, path, o.APIDate)
		}
		recorder := contract.NewRecorder(document)
		w.handler = recorder.Middleware(w.handler)
		t.Cleanup(func() {
			if err := recorder.Err(); err != nil {
				t.Error(err)
			}
		})
	}
	return w
}

// documentOf loads the API document in the form of an earlier day.
func documentOf(t *testing.T, path, day string) *contract.Document {
	t.Helper()
	asOf, err := time.Parse(time.DateOnly, day)
	if err != nil {
		t.Fatal(err)
	}
	d, err := contract.Load(path, contract.AsOf(asOf))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func (w *wire) do(method, path string, body any, wantStatus int) map[string]any {
	w.t.Helper()
	var b []byte
	switch body := body.(type) {
	case nil:
	case string:
		b = []byte(body)
	default:
		var err error
		if b, err = json.Marshal(body); err != nil {
			w.t.Fatal(err)
		}
	}
	r := httptest.NewRequest(method, "/v1"+path, bytes.NewReader(b))
	r.Header.Set("Authorization", "Bearer "+fakecloud.DefaultToken)
	rec := httptest.NewRecorder()
	w.handler.ServeHTTP(rec, r)
	if rec.Code != wantStatus {
		w.t.Fatalf("%s %s: status %d, want %d: %s", method, path, rec.Code, wantStatus, rec.Body)
	}
	if rec.Body.Len() == 0 {
		return nil
	}
	var out map[string]any
	if err := json.Unmarshal(rec.Body.Bytes(), &out); err != nil {
		w.t.Fatalf("%s %s: %v: %s", method, path, err, rec.Body)
	}
	return out
}

func (w *wire) get(path string) map[string]any {
	w.t.Helper()
	return w.do(http.MethodGet, path, nil, http.StatusOK)
}

// refused sends a request that must fail and returns the error's code.
func (w *wire) refused(method, path string, body any, wantStatus int) string {
	w.t.Helper()
	e := w.do(method, path, body, wantStatus)["error"].(map[string]any)
	return e["code"].(string)
}

// names returns the names of a list's items, or the id if an item has no name.
func names(list map[string]any, key string) []string {
	var out []string
	for _, item := range list[key].([]any) {
		m := item.(map[string]any)
		if name, ok := m["name"].(string); ok {
			out = append(out, name)
		} else {
			out = append(out, fmt.Sprintf("%.0f", m["id"]))
		}
	}
	return out
}

func TestTheCatalogueIsListedFilteredAndSorted(t *testing.T) {
	t.Parallel()
	w := newWire(t, fakecloud.Options{})
	for _, tt := range []struct {
		path, key, want string
	}{
		{"/locations", "locations", "fsn1 nbg1 hel1 ash hil sin"},
		{"/locations?sort=name:desc", "locations", "sin nbg1 hil hel1 fsn1 ash"},
		{"/locations?name=hel1", "locations", "hel1"},
		{"/locations?name=nowhere", "locations", ""},
		{"/locations?per_page=2&page=2", "locations", "hel1 ash"},
		{"/locations?page=9", "locations", ""},
		{"/server_types?name=cx23", "server_types", "cx23"},
		{"/server_types?name=cx11", "server_types", ""},
		{"/load_balancer_types", "load_balancer_types", "lb11 lb21 lb31"},
		{"/load_balancer_types?name=lb21", "load_balancer_types", "lb21"},
		{"/isos?architecture=arm", "isos",
			"alpine-virt-3.22.1-aarch64.iso debian-13.1.0-arm64-netinst.iso FreeBSD-14.3-RELEASE-arm64-aarch64-dvd1.iso " +
				"netboot.xyz-arm64.iso"},
		{"/isos?architecture=arm&include_architecture_wildcard=true&sort=id:desc&per_page=2", "isos",
			"netboot.xyz-arm64.iso FreeBSD-14.3-RELEASE-arm64-aarch64-dvd1.iso"},
		{"/isos?name=FreeBSD-11.0-RELEASE-amd64-dvd1", "isos", ""},
	} {
		if got := strings.Join(names(w.get(tt.path), tt.key), " "); got != tt.want {
			t.Errorf("%s: got %s, want %s", tt.path, got, tt.want)
		}
	}
	for _, path := range []string{
		"/locations?sort=city", "/locations?page=0", "/isos?architecture=riscv",
		"/isos?include_architecture_wildcard=true", "/isos?include_architecture_wildcard=perhaps",
	} {
		if code := w.refused(http.MethodGet, path, nil, http.StatusUnprocessableEntity); code != "invalid_input" {
			t.Errorf("%s: %s", path, code)
		}
	}
	for _, path := range []string{"/locations/77", "/server_types/x", "/load_balancer_types/0", "/isos/1", "/images/1"} {
		if code := w.refused(http.MethodGet, path, nil, http.StatusNotFound); code != "not_found" {
			t.Errorf("%s: %s", path, code)
		}
	}
}

func TestTheWildcardListsISOsForAllArchitectures(t *testing.T) {
	t.Parallel()
	c := cloud.New(cloud.Options{Catalogue: &cloud.Catalogue{ISOs: []*cloud.ISO{
		{ID: 1, Name: "intel", Type: "public", Architecture: "x86"}, {ID: 2, Name: "any", Type: "public"},
	}}})
	t.Cleanup(c.Close)
	c.AddToken(fakecloud.DefaultToken, cloud.Token{Project: 1})
	w := &wire{t: t, handler: api.New(api.Options{Cloud: c})}
	for query, want := range map[string]string{
		"": "intel any", "architecture=x86": "intel", "architecture=arm": "",
		"architecture=arm&include_architecture_wildcard=true": "any",
		"architecture=x86&include_architecture_wildcard=true": "intel any",
	} {
		if got := strings.Join(names(w.get("/isos?"+query), "isos"), " "); got != want {
			t.Errorf("%s: got %s, want %s", query, got, want)
		}
	}
	if iso := w.get("/isos/2")["iso"].(map[string]any); iso["architecture"] != nil {
		t.Errorf("ISO: %v", iso)
	}
}

func TestARetiredServerTypeLeavesTheListButCanBeReadByID(t *testing.T) {
	t.Parallel()
	w := newWire(t, fakecloud.Options{})
	for _, path := range []string{"/locations/6", "/server_types/117", "/load_balancer_types/3", "/isos/42", "/isos/120012"} {
		w.get(path)
	}
	list := names(w.get("/server_types?per_page=50"), "server_types")
	if slices.Contains(list, "cx11") || slices.Contains(list, "cx22") || !slices.Contains(list, "cpx11") {
		t.Errorf("list: %v", list)
	}
	cx11 := w.get("/server_types/1")["server_type"].(map[string]any)
	deprecation, _ := cx11["deprecation"].(map[string]any)
	if cx11["name"] != "cx11" || cx11["deprecated"] != true || deprecation["unavailable_after"] != "2024-09-06T00:00:00Z" {
		t.Errorf("cx11: %v", cx11)
	}
	pricing := w.get("/pricing")["pricing"].(map[string]any)
	if priced := names(pricing, "server_types"); !slices.Equal(priced, list) {
		t.Errorf("there are prices for %v", priced)
	}
}

func TestAServerTypeShowsTheLocationsOfItsDeprecation(t *testing.T) {
	t.Parallel()
	w := newWire(t, fakecloud.Options{})
	cpx11 := w.get("/server_types/22")["server_type"].(map[string]any)
	if cpx11["deprecated"] != false || cpx11["deprecation"] != nil {
		t.Errorf("deprecated as a whole: %v", cpx11)
	}
	where := map[any]bool{}
	for _, l := range cpx11["locations"].([]any) {
		l := l.(map[string]any)
		where[l["name"]] = l["deprecation"] != nil
		if l["available"] == where[l["name"]] {
			t.Errorf("in %v: %v", l["name"], l)
		}
	}
	if len(where) != 6 || !where["fsn1"] || where["ash"] {
		t.Errorf("deprecated in: %v", where)
	}
}

func TestImagesAreFiltered(t *testing.T) {
	t.Parallel()
	w := newWire(t, fakecloud.Options{})
	for _, tt := range []struct {
		query, want string
	}{
		{"name=ubuntu-24.04&sort=id", strings.Repeat(" ubuntu-24.04", 2)[1:]},
		{"name=ubuntu-24.04&architecture=arm", "ubuntu-24.04"},
		{"name=debian-11", ""},
		{"name=debian-11&architecture=x86&include_deprecated=true", "debian-11"},
		{"name=debian-11&architecture=x86&include_deprecated=True", "debian-11"}, // Python writes it like this
		{"name=fedora-41&include_deprecated=true", ""},
		{"type=app&architecture=x86&sort=name", "docker-ce wordpress"},
		{"type=app&type=system&architecture=x86&sort=name:desc&per_page=2", "wordpress ubuntu-26.04"},
		{"architecture=x86&type=system&sort=created&per_page=3", "centos-stream-9 ubuntu-22.04 rocky-9"},
		{"type=snapshot", ""},
		{"status=creating", ""},
		{"label_selector=some-key", ""},
		{"label_selector=!some-key&name=debian-13&architecture=x86", "debian-13"},
		{"bound_to=4711", ""},
	} {
		if got := strings.Join(names(w.get("/images?"+tt.query), "images"), " "); got != tt.want {
			t.Errorf("%s: got %s, want %s", tt.query, got, tt.want)
		}
	}
	for _, query := range []string{"type=floppy", "status=lost", "architecture=vax", "bound_to=x", "sort=size", "include_deprecated=2",
		"label_selector=a%20b"} {
		if code := w.refused(http.MethodGet, "/images?"+query, nil, http.StatusUnprocessableEntity); code != "invalid_input" {
			t.Errorf("%s: %s", query, code)
		}
	}
}

func TestADeprecatedImageShowsBothForms(t *testing.T) {
	t.Parallel()
	w := newWire(t, fakecloud.Options{})
	fedora := w.get("/images/199030328")["image"].(map[string]any)
	deprecation, _ := fedora["deprecation"].(map[string]any)
	if fedora["deprecated"] != "2025-11-05T00:00:00Z" || deprecation["announced"] != fedora["deprecated"] ||
		deprecation["unavailable_after"] != "2026-02-05T00:00:00Z" {
		t.Errorf("fedora-41: %v", fedora)
	}
	debian := w.get("/images/310557660")["image"].(map[string]any)
	for _, field := range []string{"deprecated", "deprecation"} {
		if v, there := debian[field]; !there || v != nil {
			t.Errorf("debian-13: %s is %v", field, v)
		}
	}
}

func TestSystemImagesCannotBeChanged(t *testing.T) {
	t.Parallel()
	w := newWire(t, fakecloud.Options{})
	const image = "/images/161547269"
	for _, tt := range []struct {
		method, path string
		body         any
		status       int
		code         string
	}{
		{http.MethodPut, image, map[string]any{"description": "mine"}, 422, "unsupported_error"},
		{http.MethodPut, image, map[string]any{"type": "backup"}, 422, "invalid_input"},
		{http.MethodPut, image, "{", 400, "json_error"},
		{http.MethodDelete, image, nil, 422, "unsupported_error"},
		{http.MethodPost, image + "/actions/change_protection", map[string]any{"delete": true}, 422, "unsupported_error"},
		{http.MethodPost, image + "/actions/change_protection", map[string]any{"delete": "yes"}, 422, "invalid_input"},
		{http.MethodDelete, "/images/4711", nil, 404, "not_found"},
		{http.MethodGet, "/images/4711/actions", nil, 404, "not_found"},
	} {
		if code := w.refused(tt.method, tt.path, tt.body, tt.status); code != tt.code {
			t.Errorf("%s %s: %s, want %s", tt.method, tt.path, code, tt.code)
		}
	}
	if actions := w.get(image + "/actions")["actions"].([]any); len(actions) != 0 {
		t.Errorf("actions: %v", actions)
	}
}

func TestDatacentersExistOnlyWithAnEarlierAPIDate(t *testing.T) {
	t.Parallel()
	w := newWire(t, fakecloud.Options{})
	for _, path := range []string{"/datacenters", "/datacenters/4"} {
		e := w.do(http.MethodGet, path, nil, http.StatusGone)["error"].(map[string]any)
		details, _ := e["details"].(map[string]any)
		if e["code"] != "deprecated_api_endpoint" || !strings.HasPrefix(fmt.Sprint(details["announcement"]), "https://") {
			t.Errorf("%s: %v", path, e)
		}
	}

	w = newWire(t, fakecloud.Options{APIDate: "2026-09-30"})
	list := w.get("/datacenters?sort=name")
	if got := strings.Join(names(list, "datacenters"), " "); got != "ash-dc1 fsn1-dc14 hel1-dc2 hil-dc1 nbg1-dc3 sin-dc1" {
		t.Errorf("datacenters: %s", got)
	}
	if list["recommendation"] != 4.0 || list["meta"] == nil {
		t.Errorf("recommendation %v, meta %v", list["recommendation"], list["meta"])
	}
	dc, _, err := w.cloud.Client().Datacenter.GetByName(t.Context(), "hel1-dc2") //nolint:staticcheck // this tests the old call
	if err != nil || dc == nil || dc.Location.Name != "hel1" {
		t.Fatalf("hel1-dc2: %+v, %v", dc, err)
	}
	types := dc.ServerTypes //nolint:staticcheck // as above
	if len(types.Available) == 0 || len(types.Supported) <= len(types.Available) {
		t.Errorf("hel1-dc2: server types %+v", types)
	}
	if got := w.get("/datacenters/4")["datacenter"].(map[string]any)["name"]; got != "fsn1-dc14" {
		t.Errorf("datacenter 4: %v", got)
	}
	if code := w.refused(http.MethodGet, "/datacenters/99", nil, http.StatusNotFound); code != "not_found" {
		t.Errorf("datacenter 99: %s", code)
	}
}

func TestAClientReadsTheCatalogue(t *testing.T) {
	t.Parallel()
	client := newWire(t, fakecloud.Options{}).cloud.Client()
	ctx := t.Context()

	lb, _, err := client.LoadBalancerType.GetByName(ctx, "lb11")
	if err != nil || lb == nil || lb.MaxTargets != 25 || lb.MaxServices != 5 || len(lb.Pricings) != 6 {
		t.Errorf("lb11: %+v, %v", lb, err)
	}
	st, _, err := client.ServerType.GetByName(ctx, "cax11")
	if err != nil || st == nil || st.Architecture != hcloud.ArchitectureARM || len(st.Locations) != 3 {
		t.Errorf("cax11: %+v, %v", st, err)
	}
	location, _, err := client.Location.GetByName(ctx, "ash")
	if err != nil || location == nil || location.NetworkZone != hcloud.NetworkZoneUSEast {
		t.Errorf("ash: %+v, %v", location, err)
	}
	image, _, err := client.Image.GetForArchitecture(ctx, "debian-12", hcloud.ArchitectureARM)
	if err != nil || image == nil || image.ID != 114690389 {
		t.Errorf("debian-12: %+v, %v", image, err)
	}
	all, err := client.Image.AllWithOpts(ctx, hcloud.ImageListOpts{
		Type: []hcloud.ImageType{hcloud.ImageTypeSystem}, IncludeDeprecated: true,
		ListOpts: hcloud.ListOpts{PerPage: 10},
	})
	if err != nil || len(all) < 30 {
		t.Errorf("%d system images, %v", len(all), err)
	}
	prices, _, err := client.Pricing.Get(ctx)
	if err != nil || prices.Image.PerGBMonth.Net != "0.0143" || len(prices.PrimaryIPs) != 2 || len(prices.LoadBalancerTypes) != 3 {
		t.Errorf("pricing: %+v, %v", prices, err)
	}
	iso, _, err := client.ISO.GetByName(ctx, "netboot.xyz.iso")
	if err != nil || iso == nil || *iso.Architecture != hcloud.ArchitectureX86 {
		t.Errorf("netboot.xyz: %+v, %v", iso, err)
	}
}
