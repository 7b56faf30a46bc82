package cloud

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/dns"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/longtest"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/store"
)

// A change of a zone costs what it changes, and a zone file what it has. These tests count memory, because the time depends on
// what else the machine does. They are not parallel: the counts are those of the process.

// allocated returns how many objects and bytes a function allocates.
func allocated(do func()) (objects, bytes float64) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	do()
	runtime.ReadMemStats(&after)
	return float64(after.Mallocs - before.Mallocs), float64(after.TotalAlloc - before.TotalAlloc)
}

// atMost checks that neither count grows by more than a factor.
func atMost(t *testing.T, factor float64, what string, less, more func()) {
	t.Helper()
	objects, bytes := allocated(less)
	moreObjects, moreBytes := allocated(more)
	if moreObjects > factor*objects || moreBytes > factor*bytes {
		t.Errorf("%s: %.0f objects of %.0f bytes became %.0f of %.0f, more than %.1f times", what, objects, bytes, moreObjects, moreBytes,
			factor)
	}
}

const zonefileHead = "@ SOA hydrogen.ns.hetzner.com. dns.hetzner.com. 1 2 3 4 5\n" +
	"@ NS hydrogen.ns.hetzner.com.\n@ NS oxygen.ns.hetzner.com.\n@ NS helium.ns.hetzner.de.\n"

// zonefileOf returns a zone file with n record sets and those that each zone has.
func zonefileOf(n int) string {
	var file strings.Builder
	file.WriteString(zonefileHead)
	for i := range n {
		fmt.Fprintf(&file, "host-%d A 198.51.100.1\n", i*7919%n)
	}
	return file.String()
}

func rrsetsOf(n int) []RRSet {
	sets := make([]RRSet, n)
	for i := range sets {
		sets[i] = RRSet{Name: fmt.Sprintf("host-%d", i*7919%n), Type: "A", Records: []dns.Record{{Value: "198.51.100.1"}}}
	}
	return sets
}

func TestTheCostOfAZoneIsThatOfItsRecordSets(t *testing.T) {
	longtest.SkipRace(t)
	p, _ := serverCloud(t, Options{})
	names := 0
	create := func(in CreateZone) func() {
		names++
		in.Name, in.Mode = fmt.Sprintf("zone-%d.example", names), ZonePrimary
		return func() { mustZone(t, p, in) }
	}
	mustZone(t, p, CreateZone{Name: "example.com", Mode: ZonePrimary})
	imported := func(n int) func() {
		file := zonefileOf(n)
		return func() {
			did(p.ImportZonefile("example.com", file))(t)
		}
	}
	for n := 500; n < 4000; n *= 2 {
		atMost(t, 2.5, fmt.Sprint("zone file, ", n), create(CreateZone{Zonefile: zonefileOf(n)}),
			create(CreateZone{Zonefile: zonefileOf(2 * n)}))
		atMost(t, 2.5, fmt.Sprint("rrsets, ", n), create(CreateZone{RRSets: rrsetsOf(n)}), create(CreateZone{RRSets: rrsetsOf(2 * n)}))
		atMost(t, 2.5, fmt.Sprint("import, ", n), imported(n), imported(2*n))
	}
}

func TestAChangeOfARecordSetCostsTheSameInALargeZone(t *testing.T) {
	longtest.SkipRace(t)
	p, _ := serverCloud(t, Options{})
	for name, n := range map[string]int{"small.example": 100, "large.example": 10_000} {
		mustZone(t, p, CreateZone{Name: name, Mode: ZonePrimary, RRSets: rrsetsOf(n)})
	}
	must := func(_ int64, _ *State, err error) {
		t.Helper()
		check(t, err)
	}
	values := func(n int) []dns.Record {
		all := make([]dns.Record, n)
		for i := range all {
			all[i] = dns.Record{Value: fmt.Sprintf("198.51.100.%d", i), Comment: "c"}
		}
		return all
	}
	for what, do := range map[string]func(zone, name string){
		"create_rrset": func(zone, name string) {
			must(p.CreateRRSet(zone, RRSet{Name: name, Type: "A", Records: values(1)}))
		},
		"change": func(zone, name string) {
			must(p.AddRecords(zone, name, "AAAA", nil, []dns.Record{{Value: "2001:db8::1"}}))
			must(p.SetRecords(zone, name, "AAAA", []dns.Record{{Value: "2001:db8::1"}, {Value: "2001:db8::2"}}))
			must(p.UpdateRecords(zone, name, "AAAA", []dns.Record{{Value: "2001:db8::1", Comment: "c"}}))
			must(p.ChangeRRSetTTL(zone, name, "AAAA", new(int)))
			must(p.ChangeRRSetProtection(zone, name, "AAAA", false))
			must(p.RemoveRecords(zone, name, "AAAA", []dns.Record{{Value: "2001:db8::1"}}))
			must(p.DeleteRRSet(zone, name, "AAAA"))
		},
	} {
		times := 0
		in := func(zone string) func() {
			return func() {
				for range 20 {
					times++
					do(zone, fmt.Sprintf("new-%d", times))
				}
			}
		}
		in("small.example")() // the first one makes what is kept
		atMost(t, 3, what, in("small.example"), in("large.example"))
	}
}

func TestAReadOfRecordSetsCostsTheSameInALargeZone(t *testing.T) {
	longtest.SkipRace(t)
	p, _ := serverCloud(t, Options{})
	create := func(name string, n int) *Zone {
		sets := rrsetsOf(n)
		for i := range 10 {
			sets[i*7].Labels = map[string]string{"few": "yes"}
		}
		sets = append(sets, RRSet{Name: "mail", Type: "MX", Records: []dns.Record{{Value: "10 mail"}}})
		return mustZone(t, p, CreateZone{Name: name, Mode: ZonePrimary, RRSets: sets})
	}
	small, large := create("small.example", 100), create("large.example", 10_000)
	selector, _ := store.ParseSelector("few")
	for what, do := range map[string]func(*Zone) (found, want int){
		"one":   func(z *Zone) (int, int) { _, ok := z.RRSet("host-7", "A"); return map[bool]int{true: 1}[ok], 1 },
		"count": func(z *Zone) (int, int) { return min(z.RecordCount(), 100), 100 },
		"page": func(z *Zone) (n, want int) {
			for _, o := range []store.Order{store.ByName, ByRRSetID, ByAge} {
				for _, desc := range []bool{false, true} {
					page, _, _ := z.RRSetPage(RRSetFilter{}, store.Page{Order: o, Desc: desc, First: 50, N: 25})
					n += len(page)
				}
			}
			return n, 150
		},
		"type": func(z *Zone) (int, int) {
			page, total, _ := z.RRSetPage(RRSetFilter{Types: []string{"MX"}}, store.Page{Order: store.ByName, N: 25})
			return len(page), total
		},
		"types": func(z *Zone) (int, int) { return len(z.SelectRRSets(RRSetFilter{Types: []string{"MX", "NS"}})), 2 },
		"name":  func(z *Zone) (int, int) { return len(z.SelectRRSets(RRSetFilter{Names: []string{"host-7", "@"}})), 3 },
		"label": func(z *Zone) (int, int) { return len(z.SelectRRSets(RRSetFilter{Labels: selector})), 10 },
	} {
		for _, z := range []*Zone{small, large} {
			if found, want := do(z); found != want {
				t.Errorf("%s of %s: %d, want %d", what, z.Name, found, want)
			}
		}
		twenty := func(z *Zone) func() {
			return func() {
				for range 20 {
					do(z)
				}
			}
		}
		atMost(t, 2, what, twenty(small), twenty(large))
	}
}

// TestTheOrdersOfRecordSetsAreThoseOfTheirList compares the indexes with a list of all sets, also those of states that were read.
func TestTheOrdersOfRecordSetsAreThoseOfTheirList(t *testing.T) {
	longtest.SkipRace(t)
	t.Parallel()
	p, _ := serverCloud(t, Options{})
	mustZone(t, p, CreateZone{Name: "example.com", Mode: ZonePrimary})
	r := rand.New(rand.NewPCG(2, 0))
	names, kinds := []string{"@", "a", "a-b", "a.b", "b"}, []string{"A", "AAAA", "MX", "TXT"}
	values := map[string]string{"A": "198.51.100.1", "AAAA": "2001:db8::1", "MX": "1 mail", "TXT": `"t"`}
	before := map[*State]string{}
	for range 300 {
		name, kind := names[r.IntN(len(names))], kinds[r.IntN(len(kinds))]
		labels := map[string]string{"n": strconv.Itoa(r.IntN(3))}
		switch r.IntN(4) {
		case 0:
			_, _, _ = p.DeleteRRSet("example.com", name, kind)
		case 1:
			_, _ = p.UpdateRRSet("example.com", name, kind, labels)
		case 2:
			_, _, _ = p.ChangeRRSetProtection("example.com", name, kind, false)
		default:
			_, _, _ = p.CreateRRSet("example.com", RRSet{Name: name, Type: kind, Labels: labels,
				Records: []dns.Record{{Value: values[kind]}}})
		}
		before[p.View()] = showRRSets(t, p.View())
	}
	for st, want := range before {
		if now := showRRSets(t, st); now != want {
			t.Fatalf("a later write changed a state from\n%s\nto\n%s", want, now)
		}
	}
}

// showRRSets returns all that a list of a zone's record sets can show, after a comparison with a sorted list of them.
func showRRSets(t *testing.T, st *State) (shown string) {
	t.Helper()
	z, err := st.FindZone("example.com")
	check(t, err)
	ids := func(all []*RRSet) (ids []string) {
		for _, s := range all {
			ids = append(ids, s.ID())
		}
		return ids
	}
	records := 0
	for _, s := range z.RRSets() {
		records += len(s.Records)
	}
	shown = fmt.Sprintln(ids(z.RRSets()), records)
	if records != z.RecordCount() {
		t.Errorf("%d records, want %d", z.RecordCount(), records)
	}
	byName := func(a, b *RRSet) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Type, b.Type)) }
	for order, compare := range map[store.Order]func(a, b *RRSet) int{
		store.ByName: byName, ByAge: func(a, b *RRSet) int { return cmp.Compare(a.age, b.age) },
		ByRRSetID: func(a, b *RRSet) int { return cmp.Compare(a.ID(), b.ID()) },
	} {
		want := slices.SortedFunc(slices.Values(z.RRSets()), compare)
		first := min(3, len(want))
		page, total, _ := z.RRSetPage(RRSetFilter{}, store.Page{Order: order, First: first, N: 4})
		if got := ids(page); total != len(want) || !slices.Equal(got, ids(want[first:min(first+4, len(want))])) {
			t.Fatalf("order %d: %v of %v", order, got, ids(want))
		}
	}
	for _, text := range []string{"", "n=1", "n", "!n"} {
		labels, _ := store.ParseSelector(text)
		for _, f := range []RRSetFilter{
			{Labels: labels}, {Labels: labels, Types: []string{"A"}}, {Labels: labels, Types: []string{"MX", "A", "A"}},
			{Labels: labels, Names: []string{"a-b", "a", "a"}}, {Labels: labels, Names: []string{"a"}, Types: []string{"TXT"}},
		} {
			var want []*RRSet
			for _, s := range z.RRSets() {
				if f.matches(s) {
					want = append(want, s)
				}
			}
			if got := ids(z.SelectRRSets(f)); !slices.Equal(got, ids(want)) {
				t.Fatalf("%v: %v, want %v", f, got, ids(want))
			}
			if page, total, ok := z.RRSetPage(f, store.Page{Order: store.ByName, Desc: true, N: 2}); ok {
				slices.Reverse(want)
				if got := ids(page); total != len(want) || !slices.Equal(got, ids(want[:min(2, len(want))])) {
					t.Fatalf("%v, the last two: %v of %v", f, got, ids(want))
				}
			}
			shown += fmt.Sprintln(ids(want))
		}
	}
	return shown
}
