package dns

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/cputime"
)

// A zone file with valid records can be exported and read again, with the same records.
func FuzzParseFile(f *testing.F) {
	head := "@ IN SOA hydrogen.ns.hetzner.com. dns.hetzner.com. ( 1 2 3\n 4 5 )\n@ NS hydrogen.ns.hetzner.com.\n NS " +
		"oxygen.ns.hetzner.com.\n NS helium.ns.hetzner.de.\n"
	f.Add(head + "www 60 IN A 198.51.100.1 ; comment\n*.a TXT \"a;b\" \"(c)\"\n")
	f.Add("$ORIGIN example.com.\n$TTL 600\n" + head + "example.com. MX 10 mail\nsub.example.com. IN 300 CAA 0 issue \"x\"\n")
	f.Add("(((")
	f.Add("@ IN TXT \"\\")
	f.Fuzz(func(t *testing.T, text string) {
		ttl, sets, ok := parsed(text)
		if !ok {
			return
		}
		ttl = cmp.Or(ttl, 3600)
		exported := FormatFile("example.com", ttl, slices.Clone(sets))
		ttlAgain, again, ok := parsed(exported)
		if !ok {
			t.Fatalf("the export cannot be imported:\n%s", exported)
		}
		soaFirst(sets)
		if ttlAgain != ttl || !reflect.DeepEqual(again, sets) {
			t.Errorf("%v with the TTL %d, then %v with %d:\n%s", sets, ttl, again, ttlAgain, exported)
		}
	})
}

// parsed reads the zone file of example.com and reports whether its records are valid.
func parsed(text string) (ttl int, sets []RRSet, ok bool) {
	ttl, sets, err := ParseFile("example.com", text)
	if err != nil {
		return 0, nil, false
	}
	for i := range sets {
		_, wrong := sets[i].Check("example.com")
		_, wrongRecord := sets[i].CheckRecords()
		if cmp.Or(wrong, wrongRecord) != "" {
			return 0, nil, false
		}
	}
	return ttl, sets, true
}

// TestAZoneFileIsReadInLinearTime sees what allocates nothing, such as a search in a list. The least of three measurements counts,
// in the process's CPU time: those are little changed by other programs.
func TestAZoneFileIsReadInLinearTime(t *testing.T) {
	least := func(times, n int) time.Duration {
		file, best := hosts(n), time.Hour
		for range 3 {
			start := cputime.Used()
			for range times {
				if _, sets, err := ParseFile("example.com", file); err != nil || len(sets) != n {
					t.Fatalf("%d sets, %v", len(sets), err)
				}
			}
			best = min(best, cputime.Used()-start)
		}
		return best
	}
	if few, many := least(8, 2000), least(1, 16_000); many > 4*few {
		t.Errorf("8 times 2,000 entries took %v, 16,000 took %v", few, many)
	}
}

// hosts returns a zone file with n record sets.
func hosts(n int) string {
	var file strings.Builder
	for i := range n {
		fmt.Fprintf(&file, "host-%d A 198.51.100.1\n", i*7919%n)
	}
	return file.String()
}
