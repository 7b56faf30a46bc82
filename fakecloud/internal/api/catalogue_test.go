package api_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

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

// fieldsOf returns the names in an error's details.fields.
func fieldsOf(body map[string]any) string {
	e, _ := body["error"].(map[string]any)
	details, _ := e["details"].(map[string]any)
	fields, _ := details["fields"].([]any)
	var names []string
	for _, f := range fields {
		name, _ := f.(map[string]any)["name"].(string)
		names = append(names, name)
	}
	return strings.Join(names, " ")
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
