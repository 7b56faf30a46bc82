//go:build unix

package contract_test

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/hypervisor"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/longtest"
)

// steer makes a request of the control API, and returns the answer.
func (w *world) steer(status int, method, path string, body any) (answer object) {
	w.Helper()
	text, ok := body.([]byte)
	if body != nil && !ok {
		text, _ = json.Marshal(body) // the bodies of this file can be encoded
	}
	request := httptest.NewRequestWithContext(w.Context(), method, path, strings.NewReader(string(text)))
	request.Header.Set("Content-Type", "application/json")
	response := httptest.NewRecorder()
	w.control.ServeHTTP(response, request)
	if response.Code != status {
		w.Fatalf("%s %s: got %d %s, want %d", method, path, response.Code, response.Body, status)
	}
	if json.Unmarshal(response.Body.Bytes(), &answer) != nil {
		return object{"text": response.Body.Bytes()}
	}
	return answer
}

// work is something that n requests do, or one that concerns n things. It returns how to do it; the preparation is not measured.
type work struct {
	name  string
	parts int // an eighth of the largest number
	make  func(w *world, n int) func()
	waits bool // how long another project's write waits is measured, too
}

// servers makes n servers that a load balancer selects, and returns their paths.
func (w *world) servers(n int) (paths []string) {
	w.Helper()
	balancer := smallLoadBalancer(w, "hub")
	balancer["services"] = []object{tcpService(8022)}
	balancer["targets"] = []object{{"type": "label_selector", "label_selector": object{"selector": "hub=x"}}}
	w.create("load_balancer", "/load_balancers", balancer)
	w.related = map[string]object{"server": {"labels": object{"hub": "x"}}}
	for range n {
		w.serial++
		paths = append(paths, "/servers/"+string(w.id("server")))
	}
	return paths
}

// largeZone makes a zone of n record sets, and returns its path.
func (w *world) largeZone(n int) string {
	w.Helper()
	sets := make([]object, n)
	for i := range sets {
		sets[i] = object{"name": fmt.Sprint("host", i), "type": "A", "records": records("198.51.100.1")}
	}
	return "/zones/" + w.create("zone", "/zones", object{"name": "hub.example", "mode": "primary", "rrsets": sets})
}

func faultRule(i int) object {
	return object{"name": fmt.Sprint("rule", i), "route": "/servers", "effect": object{"kind": "api_error", "code": "conflict"}}
}

// startScenario starts a scenario of n changes, each of the tokens of the default project, and returns its path.
func (w *world) startScenario(n int, more string) string {
	w.Helper()
	file := "name: mine\ndescription: Tokens change.\nchanges:\n" +
		strings.Repeat("  - {tokens: {project: 1, read_only: true}"+more+"}\n", n)
	started := w.steer(201, "POST", "/scenarios", object{"scenario": "mine", "file": file})
	return "/scenarios/" + idOf(started["scenario"])
}

func (w *world) tokens(n int) {
	w.Helper()
	for range n {
		w.steer(201, "POST", "/tokens", object{"project": 1})
	}
}

// controlWork is all that grows at the control API.
var controlWork = []work{
	{name: "fault rules", parts: 60, make: func(w *world, n int) func() {
		return func() {
			for i := range n {
				w.steer(201, "POST", "/faults", faultRule(i))
			}
			w.steer(200, "GET", "/faults", nil)
			for i := range n {
				w.steer(200, "DELETE", "/faults/"+fmt.Sprint("rule", i), nil)
			}
		}
	}},
	{name: "tokens", parts: 100, make: func(w *world, n int) func() { return func() { w.tokens(n) } }},
	{name: "projects", parts: 50, make: func(w *world, n int) func() {
		return func() {
			var paths []string
			for i := range n {
				made := w.steer(201, "POST", "/projects", object{"name": fmt.Sprint("p", i)})
				paths = append(paths, "/projects/"+idOf(made["project"]))
			}
			w.steer(200, "GET", "/projects", nil)
			for _, path := range paths {
				w.steer(200, "DELETE", path, nil)
			}
		}
	}},
	{name: "changes of a scenario", parts: 12, make: func(w *world, n int) func() {
		w.tokens(100)
		return func() { w.steer(200, "DELETE", w.startScenario(n, ""), nil) }
	}},
	{name: "tokens of a scenario", parts: 100, make: func(w *world, n int) func() {
		w.tokens(n)
		return func() { w.steer(200, "DELETE", w.startScenario(8, ""), nil) }
	}},
	{name: "scenarios", parts: 50, make: func(w *world, n int) func() {
		return func() {
			var paths []string
			for range n {
				paths = append(paths, w.startScenario(1, ", until: 2h"))
			}
			w.steer(200, "GET", "/scenarios", nil)
			for _, path := range paths {
				w.steer(200, "DELETE", path, nil)
			}
		}
	}},
	{name: "forks", parts: 12, make: func(w *world, n int) func() {
		return func() {
			for range n {
				w.steer(201, "POST", "/fork", nil)
			}
			w.steer(200, "GET", "/forks", nil)
			for i := range n {
				w.steer(200, "DELETE", fmt.Sprint("/forks/", i+1), nil)
			}
		}
	}},
	{name: "server types", parts: 12, make: func(w *world, n int) func() {
		return func() {
			for i := range n {
				w.steer(201, "POST", "/catalogue/server_types", object{"name": fmt.Sprint("t", i), "copy_of": "cx23"})
			}
			w.steer(200, "DELETE", "/catalogue", nil)
		}
	}},
	{name: "usage reports", parts: 50, make: func(w *world, n int) func() {
		servers := w.servers(n)
		return func() {
			for _, path := range servers {
				w.steer(200, "PUT", path+"/usage", object{"cpu": 1})
			}
		}
	}},
	{name: "health reports", parts: 50, make: func(w *world, n int) func() {
		w.servers(n)
		return func() { w.steer(200, "POST", "/clock/step", object{"by": "20s"}) }
	}},
	{name: "requests", parts: 500, make: func(w *world, n int) func() {
		return func() {
			for range n {
				w.send("GET", "/locations/1", nil)
				synctest.Wait() // who waits for requests has seen it
			}
			w.steer(200, "GET", "/journal", nil)
		}
	}},
	{name: "selected servers", parts: 50, make: func(w *world, n int) func() { return func() { w.servers(n) } }},
	{name: "tasks", parts: 50, make: (*world).tasks},
	{name: "snapshot", parts: 50, waits: true, make: func(w *world, n int) func() {
		w.servers(n)
		return func() { w.steer(200, "PUT", "/snapshot", w.steer(200, "GET", "/snapshot", nil)["text"]) }
	}},
	{name: "reset of servers", parts: 50, waits: true, make: func(w *world, n int) func() {
		w.servers(n)
		return func() { w.steer(200, "POST", "/projects/1/reset", nil) }
	}},
	{name: "reset", parts: 1000, waits: true, make: func(w *world, n int) func() {
		w.largeZone(n)
		return func() { w.steer(200, "POST", "/projects/1/reset", nil) }
	}},
	{name: "deletion of a zone", parts: 1000, waits: true, make: func(w *world, n int) func() {
		path := w.largeZone(n)
		return func() { w.do(201, "DELETE", path, nil) }
	}},
}

// tasks lets a hypervisor do the work of n new servers.
func (w *world) tasks(n int) func() {
	w.Helper()
	session, err := w.cloud.AttachHypervisor(w.Context(), hypervisor.Options{Name: "one"})
	if err != nil {
		w.Fatal(err)
	}
	return func() {
		w.servers(n)
		for range n {
			task, err := session.Next(w.Context())
			if err = errors.Join(err, session.Complete(w.Context(), task.Action, nil)); err != nil {
				w.Fatal(err)
			}
		}
	}
}

// TestCostOfTheControlAPI does each work with twice and with eight times as many parts. The cost may at most be linear, and so may be how
// long another project's write waits meanwhile. Who selects servers costs at most twice as much with a disk or a subscriber.
func TestCostOfTheControlAPI(t *testing.T) {
	longtest.SkipRace(t)
	withoutCollector(t)
	var covered []string
	var inMemory cost
	eachWay(t, func(t *testing.T, y *way) {
		d := &doubling{T: t, of: y.name}
		for _, all := range controlWork {
			if all.waits {
				w := (*world)(nil)
				d.measure = func(f func()) cost { return w.waitOf(f) }
				d.check("a write during "+all.name, all.parts, func(n int) func() int {
					w = y.newWorld(t, nil)
					do := all.make(w, n)
					y.attended(w)
					return func() int { do(); return 0 }
				})
			}
			d.measure = costOf
			d.check(all.name, all.parts, func(n int) func() int {
				w := y.newWorld(t, nil)
				do := all.make(w, n)
				y.attended(w)
				return func() int { do(); return 0 }
			})
			if all.name == "selected servers" {
				inMemory = cmp.Or(inMemory, d.most)
				if more := d.most.exceeds(inMemory, cpuGrowthPerDoubling, 2, negligible); more != "" {
					t.Errorf("%s %s, of memory's cost: %s", y.name, all.name, more)
				}
			}
		}
		covered = append(covered, d.covered...)
	})
	logCovered(t, covered)
}
