package cloud

import (
	"strings"
	"testing"
	"time"
)

func TestValuesOfRecords(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ kind, value, want string }{ // want is "" if the value is wrong
		{"A", "198.51.100.1", "198.51.100.1"}, {"A", "2001:db8::1", ""}, {"A", "198.51.100", ""}, {"A", "", ""}, {"A", "198.51.100.1 198.51.100.2", ""},
		{"AAAA", "2001:0DB8:0::1", "2001:db8::1"}, {"AAAA", "198.51.100.1", ""}, {"AAAA", "fe80::1%eth0", ""},
		{"CAA", `0 issue "ca.example.net"`, `0 issue "ca.example.net"`}, {"CAA", `256 issue "x"`, ""}, {"CAA", "0 issue", ""},
		{"CNAME", "www", "www"}, {"CNAME", "www.example.net.", "www.example.net."}, {"CNAME", "@", "@"}, {"CNAME", "a..b", ""}, {"CNAME", "a b", ""},
		{"DS", "1 13 2 abcd", "1 13 2 abcd"}, {"DS", "1 13 2 xyz", ""}, {"HINFO", `"PC" "Linux"`, `"PC" "Linux"`},
		{"HTTPS", "1 . alpn=h2,h3 ech", "1 . alpn=h2,h3 ech"}, {"HTTPS", "1 .", "1 ."}, {"HTTPS", "1", ""}, {"SVCB", "0 svc.example.net.", "0 svc.example.net."},
		{"MX", "010   mail", "10 mail"}, {"MX", "mail", ""}, {"MX", "65536 mail", ""}, {"NS", "ns.example.net.", "ns.example.net."}, {"PTR", "host", "host"},
		{"RP", "admin.example.net. .", "admin.example.net. ."}, {"SRV", "0 5 5060 sip", "0 5 5060 sip"}, {"SRV", "0 5 sip", ""},
		{"SOA", "ns. mail. 1 2 3 4 5", "ns. mail. 1 2 3 4 5"}, {"SOA", "ns. mail. 1 2 3 4", ""}, {"TLSA", "3 1 1 abcd", "3 1 1 abcd"}, {"TLSA", "3 1 1", ""},
		{"TXT", `"a b" "c;d"`, `"a b" "c;d"`}, {"TXT", `"say \"a\""`, `"say \"a\""`}, {"TXT", "bare", ""}, {"TXT", `"open`, ""}, {"TXT", "\"two\nlines\"", ""},
		{"TXT", `"` + strings.Repeat("x", 255) + `"`, `"` + strings.Repeat("x", 255) + `"`}, {"TXT", `"` + strings.Repeat("x", 256) + `"`, ""},
	} {
		got, problem := recordValue(tc.kind, tc.value)
		if tc.want == "" && problem == "" || tc.want != "" && (got != tc.want || problem != "") {
			t.Errorf("%s %q: %q, problem %q, want %q", tc.kind, tc.value, got, problem, tc.want)
		}
	}
}

func mustZone(t *testing.T, p Project, in CreateZone) *Zone {
	t.Helper()
	z, _, _, err := p.CreateZone(in)
	if err != nil {
		t.Fatal(err)
	}
	return z
}

func TestAZoneIsUpdatingWhileItIsPublished(t *testing.T) {
	t.Parallel()
	p, clk := serverCloud(t, Options{})
	z := mustZone(t, p, CreateZone{Name: "example.com", Mode: ZonePrimary})
	add := func(p Project, name string) {
		t.Helper()
		if _, _, err := p.CreateRRSet("example.com", RRSet{Name: name, Type: "A", Records: []Record{{Value: "198.51.100.1"}}}); err != nil {
			t.Fatal(err)
		}
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
	for _, tc := range []struct{ before, want uint32 }{{0, 2026100900}, {2026100900, 2026100901}, {2026100999, 2026101000}, {2030010100, 2030010101}} {
		if got := nextSerial(tc.before, day); got != tc.want {
			t.Errorf("after %d: %d, want %d", tc.before, got, tc.want)
		}
	}
	p, _ := serverCloud(t, Options{})
	z := mustZone(t, p, CreateZone{Name: "example.com", Mode: ZonePrimary})
	_, st, err := p.SetRecords("example.com", "@", "SOA", []Record{{Value: "hydrogen.ns.hetzner.com. admin.example.com. 4000000000 1 2 3 4"}})
	if err != nil {
		t.Fatal(err)
	}
	now, _ := st.Zones.Get(z.ID)
	if soa, _ := now.RRSet("@", "SOA"); soa.Records[0].Value != "hydrogen.ns.hetzner.com. admin.example.com. 4000000001 1 2 3 4" {
		t.Errorf("SOA %q", soa.Records[0].Value)
	}
}

// A zone file that can be imported can be exported and imported again, with the same records.
func FuzzZonefile(f *testing.F) {
	head := "@ IN SOA hydrogen.ns.hetzner.com. dns.hetzner.com. ( 1 2 3\n 4 5 )\n@ NS hydrogen.ns.hetzner.com.\n NS oxygen.ns.hetzner.com.\n NS helium.ns.hetzner.de.\n"
	f.Add(head + "www 60 IN A 198.51.100.1 ; comment\n*.a TXT \"a;b\" \"(c)\"\n")
	f.Add("$ORIGIN example.com.\n$TTL 600\n" + head + "example.com. MX 10 mail\nsub.example.com. IN 300 CAA 0 issue \"x\"\n")
	f.Add("(((")
	f.Add("@ IN TXT \"\\")
	f.Fuzz(func(t *testing.T, text string) {
		p, _ := serverCloud(t, Options{})
		z, _, _, err := p.CreateZone(CreateZone{Name: "example.com", Mode: ZonePrimary, Zonefile: text})
		if err != nil || z.checkImported() != nil { // a new zone needs less than an import
			return
		}
		exported, err := z.Zonefile()
		if err != nil {
			t.Fatal(err)
		}
		_, st, err := p.ImportZonefile("example.com", exported)
		if err != nil {
			t.Fatalf("the export cannot be imported: %v\n%s", err, exported)
		}
		if again, _ := st.Zones.Get(z.ID); again.RecordCount() != z.RecordCount() || again.TTL != z.TTL {
			t.Errorf("%d records, then %d:\n%s", z.RecordCount(), again.RecordCount(), exported)
		}
	})
}
