package fakecloud_test

import (
	"strings"
	"testing"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
)

func TestTheControlAPIChangesTheCatalogueAndLimits(t *testing.T) {
	t.Parallel()
	c := startControlled(t, fakecloud.Options{Limits: map[string]int{"server": 3}})
	for _, tt := range []struct {
		method, path, body string
		status             int
		message            string // part of the error
	}{
		{"PUT", "/catalogue/server_types/cx23/locations/fsn1", `{"available": false}`, 200, ""},
		{"PUT", "/catalogue/server_types/114", `{"deprecation": {"unavailable_after": "2030-01-01T00:00:00Z"}}`, 200, ""},
		{"PUT", "/catalogue/server_types/cx23", `{"deprecation": {}}`, 200, ""},
		{"PUT", "/catalogue/server_types/cx23/locations/ash", `{"offered": true, "price_monthly": 9}`, 200, ""},
		{"POST", "/catalogue/server_types", `{"name": "cx24", "copy_of": "cx23", "cores": 3}`, 201, ""},
		{"POST", "/catalogue/server_types", `{"name": "cx24", "copy_of": "cx23"}`, 409, "exists already"},
		{"POST", "/catalogue/server_types", `{"name": "cx25", "copy_of": "cx2"}`, 404, "copy_of"},
		{"POST", "/catalogue/server_types", `{}`, 400, "name"},
		{"PUT", "/catalogue/server_types/cx2/locations/fsn1", `{"available": false}`, 404, "GET /catalogue"},
		{"PUT", "/catalogue/server_types/cx23/locations/mars", `{"available": false}`, 404, "fsn1, nbg1"},
		{"PUT", "/catalogue/server_types/cx23", `{}`, 400, "must change something"},
		{"PUT", "/catalogue/server_types/cx23", `null`, 400, "must change something"},
		{"PUT", "/catalogue/server_types/cx23", `{"availabel": true}`, 400, "availabel"},
		{"PUT", "/catalogue/server_types/cx23", `{"available": "no"}`, 400, "available"},
		{"PUT", "/catalogue/server_types/cx23", `{"available": false} {}`, 400, "one JSON value"},
		{"PUT", "/catalogue/server_types/cx23", `{"price_monthly": 1e400}`, 400, "price_monthly"},
		{"PUT", "/catalogue/server_types/cx23", `{"deprecation": {"unavailable_after": "tomorrow"}}`, 400, "tomorrow"},
		{"DELETE", "/catalogue", "", 200, ""},
		{"GET", "/projects/1/limits", "", 200, ""},
		{"PUT", "/projects/1/limits", `{"server": 2}`, 200, ""},
		{"PUT", "/projects/1/limits", ``, 400, "are required"},
		{"PUT", "/projects/1/limits", `null`, 400, "are required"},
		{"PUT", "/projects/1/limits", `{"server": 1.5}`, 400, "1.5"},
		{"PUT", "/projects/1/limits", `{"server": -1}`, 400, "at least 1"},
		{"PUT", "/projects/1/limits", `{"cluster": 1}`, 400, "must be one of"},
		{"PUT", "/projects/2/limits", `{"server": 1}`, 404, "GET /projects"},
		{"GET", "/projects/2/limits", "", 404, "GET /projects"},
		{"GET", "/projects/x/limits", "", 400, "must be an id"},
	} {
		answer := c.call(t, tt.method, tt.path, tt.body, tt.status)
		if text, _ := answer["error"].(string); !strings.Contains(text, tt.message) || (text != "") != (tt.status >= 400) {
			t.Errorf("%s %s %s: %v, want %q", tt.method, tt.path, tt.body, answer, tt.message)
		}
	}
	if l := c.call(t, "GET", "/projects/1/limits", "", 200); len(l) != 1 || l["server"] != 2.0 {
		t.Errorf("limits: %v", l)
	}
}
