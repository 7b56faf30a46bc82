//go:build unix

package contract_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/api"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/contract"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/cputime"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/longtest"
)

// cost is what a request took of the process: its CPU time, allocations and allocated bytes.
type cost struct {
	cpu           time.Duration
	allocs, bytes float64
}

// negligible is a cost that no client notices in others. Growth below it is noise.
var negligible = cost{cpu: 12 * time.Millisecond, allocs: 20_000, bytes: 8 << 20}

// costOf runs f, a request, and waits for all that follows from it, without a garbage collection.
func costOf(f func()) cost {
	settle()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	started := cputime.Used()
	f()
	settle()
	used := cputime.Used() - started
	runtime.ReadMemStats(&after)
	return cost{used, float64(after.Mallocs - before.Mallocs), float64(after.TotalAlloc - before.TotalAlloc)}
}

// exceeds returns in what c is more than the base times a factor, and more than the least that counts. CPU time has a factor of its own.
func (c cost) exceeds(base cost, cpuFactor, factor float64, least cost) string {
	var all []string
	for _, m := range []struct {
		of                      string
		now, was, factor, least float64
	}{
		{"µs of CPU", float64(c.cpu.Microseconds()), float64(base.cpu.Microseconds()), cpuFactor, float64(least.cpu.Microseconds())},
		{"allocations", c.allocs, base.allocs, factor, least.allocs},
		{"bytes", c.bytes, base.bytes, factor, least.bytes},
	} {
		if m.now > m.factor*m.was && m.now-m.was > m.least {
			all = append(all, fmt.Sprintf("%.0f → %.0f %s", m.was, m.now, m.of))
		}
	}
	return strings.Join(all, ", ")
}

func least(a, b cost) cost {
	return cost{min(a.cpu, b.cpu), min(a.allocs, b.allocs), min(a.bytes, b.bytes)}
}

// doubling measures requests that are built of n parts, for growing n.
type doubling struct {
	*testing.T
	of      string
	covered []string
	measure func(func()) cost // nil for costOf
	most    cost              // of the latest case
}

// The most that a request may cost if it has twice as many parts. Linear work is 2, quadratic work is 4. On a busy machine whose
// caches are small, the CPU time of linear work has grown by 2.65.
const (
	growthPerDoubling    = 2.5
	cpuGrowthPerDoubling = 3.2
)

// check measures one request. send makes a request of n parts in a world of its own, and returns how to send it.
func (d *doubling) check(name string, n int, send func(n int) func() int) {
	d.Helper()
	var status int
	costs := d.measure
	if costs == nil {
		costs = costOf
	}
	measure := func(n int) cost {
		request := send(n)
		return costs(func() { status = request() })
	}
	most := measure(8 * n)
	d.covered = append(d.covered, fmt.Sprintf("%s: %d parts, answer %d: %v", name, 8*n, status, most.cpu.Round(time.Microsecond)))
	name = d.of + " " + name
	d.most = most
	if most.exceeds(cost{}, 1, 1, negligible) == "" || excusedCost(name) {
		judge(d.T, name, status, "")
		return
	}
	// Over two doublings, so that a fixed cost does not decide, and again, so that a busy machine or a collection does not.
	few, grew := measure(2*n), ""
	for range 5 {
		runtime.GC()
		grew = most.exceeds(few, cpuGrowthPerDoubling*cpuGrowthPerDoubling, growthPerDoubling*growthPerDoubling, negligible)
		if grew == "" {
			break
		}
		most, few = least(most, measure(8*n)), least(few, measure(2*n))
	}
	if grew != "" {
		grew = fmt.Sprintf("from %d to %d parts: %s", 2*n, 8*n, grew)
	}
	judge(d.T, name, status, grew)
}

// judge fails a test if a case grew more than it may.
func judge(t *testing.T, name string, status int, grew string) {
	t.Helper()
	if grew != "" && !excusedCost(name) {
		t.Errorf("%s (answer %d): %s", name, status, grew)
	}
}

// logCovered prints all cases of a test that passed, if the tests are verbose. A failure would be hard to find among hundreds of lines.
func logCovered(t *testing.T, covered []string) {
	t.Helper()
	t.Logf("%d cases", len(covered))
	if testing.Verbose() && !t.Failed() {
		t.Log("\n" + strings.Join(covered, "\n"))
	}
}

// costExceptions are requests whose cost may grow, as expressions for the names of the cases, with the reason.
var costExceptions = map[string]string{
	`.* list_\w+ (status|mode|type|bound_to|architecture|include_\w+|sort)`: "fields without an index: a list looks at this field " +
		"of each resource",
	`.* related (get|update|list)_(firewalls?|load_balancers?|zone_zonefile)( \w+)?`: "the answer names all servers or records",
	`.* related list_\w+_actions \w+`:                                                "a list of one resource's actions looks at all",
	`.* (update_image|change_image_protection|create_certificate) \d+`: "without an index: each server's image, each certificate's " +
		"fingerprint; under a microsecond each",
	`.* related set_firewall_rules \d+`: "an action for each server (the document's example)",
}

func excusedCost(name string) bool { return matching(costExceptions, name) != "" }

// withoutCollector keeps garbage up to 2 GiB until the test ends: a collection would be counted in another request than its own.
func withoutCollector(t *testing.T) {
	t.Helper()
	percent, limit := debug.SetGCPercent(-1), debug.SetMemoryLimit(2<<30)
	t.Cleanup(func() {
		debug.SetGCPercent(percent)
		debug.SetMemoryLimit(limit)
	})
}

// part is a list, object or text of a body: a place that can have any number of parts.
type part struct {
	pointer string
	most    int // how many parts to make
	build   func(w *world, n int) any
}

// The number of parts of the largest request: about as many as the largest allowed body has, and fewer if each names a resource of
// its own.
const (
	maxParts     = 8000
	maxResources = 800
)

// partsOf returns all parts of a body.
func partsOf(at string, value any) (all []part) {
	add := func(most int, build func(*world, int) any) { all = append(all, part{at, most, build}) }
	switch value := value.(type) {
	case []any:
		add(maxParts, func(_ *world, n int) any { return slices.Repeat([]any{nil}, n) })
		add(maxParts, func(_ *world, n int) any { return slices.Repeat([]any{object{}}, n) })
		for i, entry := range value {
			most := maxParts
			if refers(at, entry) {
				most = maxResources
			}
			add(most, func(w *world, n int) any { return entries(w, at, entry, n) })
			all = append(all, partsOf(fmt.Sprintf("%s/%d", at, i), entry)...)
		}
	case object:
		add(maxParts, func(_ *world, n int) any {
			more := maps.Clone(value)
			for i := range n {
				more[fmt.Sprint("more", i)] = fmt.Sprint("value", i)
			}
			return more
		})
		for _, name := range slices.Sorted(maps.Keys(value)) {
			all = append(all, partsOf(at+"/"+name, value[name])...)
		}
	case string:
		add(maxParts, func(_ *world, n int) any { return longText(at, value, n) })
	}
	return all
}

// longText returns a text of n parts: records of a zone file, terms of a selector, or repetitions.
func longText(at, value string, n int) string {
	var b strings.Builder
	switch {
	case strings.HasSuffix(at, "/zonefile"):
		b.WriteString(value)
		for i := range n {
			fmt.Fprintf(&b, "\nhost%d 3600 IN A 198.51.%d.%d", i, i>>8&255, i&255)
		}
	case strings.HasSuffix(at, "/selector"):
		for i := range n {
			fmt.Fprintf(&b, "key%d=value,", i)
		}
		b.WriteString(value)
	default:
		b.WriteString(strings.Repeat(value+"x", n))
	}
	return b.String()
}

// entries returns a list of n different entries like the given one.
func entries(w *world, at string, entry any, n int) []any {
	w.Helper()
	list := make([]any, n)
	for i := range list {
		list[i] = vary(w, at, entry, i)
	}
	return list
}

// referred says which kind of resource a number names, by the end of its path.
var referred = []struct{ suffix, kind string }{
	{"/server/id", "server"}, {"/networks", "network"}, {"/volumes", "volume"}, {"/firewalls/firewall", "firewall"},
	{"/ssh_keys", "ssh_key"}, {"/certificates", "certificate"},
}

// kindAt returns the kind of resource that a number names, or "".
func kindAt(at string) string {
	for _, r := range referred {
		if strings.HasSuffix(at, r.suffix) {
			return r.kind
		}
	}
	return ""
}

// refers reports whether a value names a resource.
func refers(at string, value any) bool {
	switch value := value.(type) {
	case object:
		return slices.ContainsFunc(slices.Collect(maps.Keys(value)), func(name string) bool { return refers(at+"/"+name, value[name]) })
	case []any:
		return slices.ContainsFunc(value, func(v any) bool { return refers(at, v) })
	case float64:
		return kindAt(at) != ""
	}
	return false
}

// vary returns a value that differs from others in its number. What names a resource names a new one.
func vary(w *world, at string, value any, i int) any {
	w.Helper()
	switch value := value.(type) {
	case object:
		other := make(object, len(value))
		for name, v := range value {
			other[name] = vary(w, at+"/"+name, v, i)
		}
		return other
	case []any:
		other := make([]any, len(value))
		for j, v := range value {
			other[j] = vary(w, at, v, i)
		}
		return other
	case float64:
		if kind := kindAt(at); kind != "" {
			w.serial++
			return w.id(kind)
		}
		return value + float64(i)
	case string:
		return varyText(at, value, i)
	}
	return value
}

func varyText(at, value string, i int) string {
	name := at[strings.LastIndex(at, "/")+1:]
	if address, err := netip.ParseAddr(value); err == nil {
		return nextAddress(address, i).String()
	}
	if network, err := netip.ParsePrefix(value); err == nil {
		return netip.PrefixFrom(nextAddress(network.Addr(), i), network.Addr().BitLen()).String()
	}
	switch name {
	case "type", "protocol", "direction", "mode", "network_zone", "tsig_algorithm", "tsig_key":
		return value
	case "port":
		return strconv.Itoa(1 + i)
	case "domain_names":
		return fmt.Sprintf("d%d.%s", i, value)
	case "selector":
		return fmt.Sprintf("key%d=%d", i, i)
	}
	return value + strconv.Itoa(i)
}

func nextAddress(a netip.Addr, i int) netip.Addr {
	b := a.AsSlice()
	for at := len(b) - 1; at >= 0 && i > 0; at-- {
		sum := int(b[at]) + i&255
		b[at] = byte(sum)
		i = i>>8 + sum>>8
	}
	next, _ := netip.AddrFromSlice(b)
	return next
}

// TestCostOfEveryList sends each request with 2,000 and 8,000 parts in each of its lists, objects and texts: valid ones,
// wrong ones and unknown ones. The cost may at most be linear. The cases follow from the table of routes and from the API
// document, so that a new field is covered by itself.
func TestCostOfEveryList(t *testing.T) {
	longtest.SkipRace(t)
	document := contract.ForTest(t)
	withoutCollector(t)
	var covered []string
	for _, op := range someOperations(t, document, 8) {
		if op.RequestSchema() == nil {
			continue
		}
		// A test of its own, at whose end its worlds are forgotten: a thousand of them would fill the heap.
		t.Run(op.ID, func(t *testing.T) {
			eachWay(t, func(t *testing.T, y *way) {
				d := &doubling{T: t, of: y.name + " list"}
				for i, makeSample := range samplesOf(op) {
					d.checkParts(&fieldTest{T: t, document: document, op: op, sample: makeSample, way: y}, i)
				}
				covered = append(covered, d.covered...)
			})
		})
	}
	logCovered(t, covered)
}

// checkParts measures a request with each of its parts. sample is the number of the request's sample.
func (d *doubling) checkParts(f *fieldTest, sample int) {
	d.Helper()
	_, _, body := f.prepare()
	for j, p := range partsOf("", decoded(d.T, body)) {
		most := p.most
		for _, _, body := f.with(p, most); len(body) > api.MaxBodyBytes; _, _, body = f.with(p, most) {
			most /= 2
		}
		d.check(fmt.Sprintf("%s %s %d.%d", f.op.ID, p.pointer, sample, j), most/8, func(n int) func() int {
			w, path, body := f.with(p, n)
			f.way.attended(w)
			return func() int { return w.send(f.op.Method, path, body).Code }
		})
	}
}

// with returns a new world, and the path and body of a request in it that has n of a part.
func (f *fieldTest) with(p part, n int) (w *world, path string, body []byte) {
	f.Helper()
	w, path, body = f.prepare()
	w.serial = 1
	value := p.build(w, n)
	if p.pointer != "" {
		value = edit(decoded(f.T, body), strings.Split(p.pointer, "/")[1:], value)
	}
	body, err := json.Marshal(value)
	if err != nil {
		f.Fatal(err)
	}
	return w, path, body
}

func decoded(t *testing.T, body []byte) (instance any) {
	t.Helper()
	if err := json.Unmarshal(body, &instance); err != nil {
		t.Fatal(err)
	}
	return instance
}

// TestCostOfEveryQuery sends each parameter of each query 1,000 and 4,000 times, and selectors of as many terms.
func TestCostOfEveryQuery(t *testing.T) {
	longtest.SkipRace(t)
	document := contract.ForTest(t)
	withoutCollector(t)
	operations := someOperations(t, document, 20)
	eachWay(t, func(t *testing.T, y *way) {
		w := y.newWorld(t, nil)
		populate(w)
		y.attended(w)
		d := &doubling{T: t, of: y.name + " query"}
		for _, op := range operations {
			if !op.Removed {
				d.checkQuery(w, op)
			}
		}
		logCovered(t, d.covered)
	})
}

// checkQuery measures a request with each of its parameters.
func (d *doubling) checkQuery(w *world, op *contract.Operation) {
	d.Helper()
	path := existingPath(w, op)
	for _, p := range op.Query {
		values := func(i int) string {
			if len(p.Enum) > 0 {
				return p.Enum[i%len(p.Enum)]
			}
			return strconv.Itoa(1_000_000 + i)
		}
		d.check(op.ID+" "+p.Name, 500, func(n int) func() int {
			query := make(url.Values)
			for i := range n {
				query.Add(p.Name, values(i))
			}
			if p.Name == "label_selector" {
				query.Set(p.Name, longText("/selector", "key=value", n))
			}
			return func() int { return w.send(op.Method, path+"?"+query.Encode(), nil).Code }
		})
	}
}
