package control

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/api"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/cloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/requestlog"
)

// FuzzChangesOfTheCatalogue sends any body. A refused one changes nothing, and an accepted one leaves a catalogue that can be shown.
func FuzzChangesOfTheCatalogue(f *testing.F) {
	f.Add(`{"available": false, "recommended": true, "price_monthly": 1e-9, "offered": true}`)
	f.Add(`{"deprecation": {"announced": "2026-01-01T00:00:00Z", "unavailable_after": "9999-12-31T23:59:59.999999999+14:00"}}`)
	f.Add(`{"name": "a", "copy_of": "cx23", "memory": 1e-300, "disk": 1, "cpu_type": "shared", "architecture": "arm"}`)
	f.Add(`{"server": 1, "primary_ip": 9223372036854775807}`)
	f.Add(`{"offered": false}`)
	core := cloud.New(cloud.Options{})
	f.Cleanup(core.Close)
	c := New(core, api.New(api.Options{Cloud: core, Journal: &requestlog.Log{}}), &requestlog.Log{}, "instant", 0)
	handler, project := c.Handler(), core.Projects()[0]
	f.Fuzz(func(t *testing.T, body string) {
		core.ResetCatalogue()
		core.ResetLimits()
		for _, target := range []string{"POST /catalogue/server_types", "PUT /catalogue/server_types/cx23",
			"PUT /catalogue/server_types/cx23/locations/ash", "PUT /catalogue/server_types/cx23/locations/fsn1", "PUT /projects/1/limits"} {
			before, limits := core.Catalogue(), len(project.View().Limits)
			method, path, _ := strings.Cut(target, " ")
			r := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
			r.Host, r.Header = "localhost", http.Header{"Content-Type": {"application/json"}}
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, r)
			changed := core.Catalogue() != before || len(project.View().Limits) != limits
			if w.Code == http.StatusForbidden || w.Code >= 500 || w.Code >= 400 && changed {
				t.Errorf("%s: %d %s; changed is %v", target, w.Code, w.Body, changed)
			}
		}
		for _, s := range core.Catalogue().ServerTypes {
			if len(s.Locations) == 0 || len(s.Locations) != len(s.Prices) {
				t.Errorf("%s has %d locations and %d prices", s.Name, len(s.Locations), len(s.Prices))
			}
		}
		c.API.ServerTypes() // panics if a value cannot be encoded
	})
}
