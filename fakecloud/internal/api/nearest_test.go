package api

import (
	"slices"
	"strings"
	"testing"
)

func TestTheNearestKnownPath(t *testing.T) {
	t.Parallel()
	known := knownPaths(Routes())
	for path, want := range map[string]string{
		"/v1/server":                          "GET /v1/servers, POST /v1/servers",
		"/v1/servers/":                        "GET /v1/servers, POST /v1/servers",
		"/v1//servers":                        "GET /v1/servers, POST /v1/servers",
		"/servers":                            "GET /v1/servers, POST /v1/servers",
		"/v1/v1/servers":                      "GET /v1/servers, POST /v1/servers",
		"/v1/servers/5":                       "GET /v1/servers/{id}, PUT /v1/servers/{id}, DELETE /v1/servers/{id}",
		"/v1/servers/5/action/poweron":        "POST /v1/servers/{id}/actions/poweron",
		"/v1/servers/5/actions/power_on":      "POST /v1/servers/{id}/actions/poweron",
		"/v1/servers/my-name/actions/poweron": "POST /v1/servers/{id}/actions/poweron",
		"/v1/servers/5/no/such/thing":         "",
		"/v1/loadbalancers/5":                 "GET /v1/load_balancers/{id}, PUT /v1/load_balancers/{id}, DELETE /v1/load_balancers/{id}",
		"/v1/load-balancers":                  "GET /v1/load_balancers, POST /v1/load_balancers",
		"/v1/storage_boxes":                   "",
		"/v1":                                 "",
		"/":                                   "",
		"":                                    "",
		"/v1/é":                               "",
	} {
		operations := nearest(known, path)
		slices.Sort(operations)
		names := strings.Split(want, ", ")
		slices.Sort(names)
		if got := strings.Join(operations, ", "); got != strings.Join(names, ", ") {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
}

// TestTheCostOfTheNearestPathIsBounded counts allocations. Each comparison needs one.
func TestTheCostOfTheNearestPathIsBounded(t *testing.T) {
	known := knownPaths(Routes())
	for name, long := range map[string]func(n int) string{
		"segments":    func(n int) string { return strings.Repeat("/server", n/7) },
		"ids":         func(n int) string { return "/v1/servers" + strings.Repeat("/5", n/2) },
		"one segment": func(n int) string { return "/v1/" + strings.Repeat("s", n) },
		"an action":   func(n int) string { return "/v1/servers/5/actions/" + strings.Repeat("p", n) },
		"slashes":     func(n int) string { return strings.Repeat("/", n) + "servers" },
	} {
		cost := func(n int) float64 {
			path := long(n)
			return testing.AllocsPerRun(10, func() { nearest(known, path) })
		}
		if short, longer := cost(1000), cost(64_000); longer > short || longer > 1000 {
			t.Errorf("%s: %v allocations for 1 kB, %v for 64 kB", name, short, longer)
		}
	}
}

func FuzzTheNearestPath(f *testing.F) {
	known := knownPaths(Routes())
	f.Add("/v1/servers/5/actions/power_on")
	f.Fuzz(func(_ *testing.T, path string) { nearest(known, path) })
}
