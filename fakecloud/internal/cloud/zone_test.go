package cloud

import (
	"testing"
	"time"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/dns"
)

func mustZone(t *testing.T, p Project, in CreateZone) *Zone {
	t.Helper()
	z, _, _, err := p.CreateZone(in)
	check(t, err)
	return z
}

func TestAZoneIsUpdatingWhileItIsPublished(t *testing.T) {
	t.Parallel()
	p, clk := serverCloud(t, Options{})
	z := mustZone(t, p, CreateZone{Name: "example.com", Mode: ZonePrimary})
	add := func(p Project, name string) {
		t.Helper()
		set := RRSet{Name: name, Type: "A", Records: []dns.Record{{Value: "198.51.100.1"}}}
		did(p.CreateRRSet("example.com", set))(t)
	}
	expect := func(when, status string, records int) {
		t.Helper()
		if now, _ := p.View().Zones.Get(z.ID); now.Status() != status || now.RecordCount() != records {
			t.Errorf("%s: %s with %d records, want %s with %d", when, now.Status(), now.RecordCount(), status, records)
		}
	}
	add(p, "a")
	add(p, "b") // at the same time, as Terraform does
	expect("two changes", "updating", 6)
	clk.Step(time.Minute)
	expect("published", "ok", 6)
	add(p.WithOutcome(&ActionOutcome{Fail: true}), "c")
	clk.Step(time.Minute)
	expect("after a failure", "error", 7)
	add(p, "d")
	clk.Step(time.Minute)
	expect("after the next success", "ok", 8)
}

func TestTheSerialNumberGrowsWithEachChange(t *testing.T) {
	t.Parallel()
	day := time.Date(2026, 10, 9, 12, 0, 0, 0, time.UTC)
	for _, tc := range []struct{ before, want uint32 }{{0, 2026100900}, {2026100900, 2026100901}, {2026100999, 2026101000},
		{2030010100, 2030010101}} {
		if got := nextSerial(tc.before, day); got != tc.want {
			t.Errorf("after %d: %d, want %d", tc.before, got, tc.want)
		}
	}
	p, _ := serverCloud(t, Options{})
	z := mustZone(t, p, CreateZone{Name: "example.com", Mode: ZonePrimary})
	_, st, err := p.SetRecords("example.com", "@", "SOA",
		[]dns.Record{{Value: "hydrogen.ns.hetzner.com. admin.example.com. 4000000000 1 2 3 4"}})
	check(t, err)
	now, _ := st.Zones.Get(z.ID)
	if soa, _ := now.RRSet("@", "SOA"); soa.Records[0].Value != "hydrogen.ns.hetzner.com. admin.example.com. 4000000001 1 2 3 4" {
		t.Errorf("SOA %q", soa.Records[0].Value)
	}
}
