package cloud

import (
	"testing"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/dns"
)

func TestZonesDecideWhetherACertificateIsIssued(t *testing.T) {
	t.Parallel()
	const denied, secondary = Code("caa_record_does_not_allow_ca"), Code("dns_zone_is_secondary_zone")
	caa := func(name string, values ...string) RRSet {
		set := RRSet{Name: name, Type: "CAA"}
		for _, v := range values {
			set.Records = append(set.Records, dns.Record{Value: v})
		}
		return set
	}
	p, _ := certificateProject(t, Options{})
	for _, in := range []CreateZone{
		{Name: "second.example", Mode: ZoneSecondary},
		{Name: "plain.example"},
		{Name: "other.example", RRSets: []RRSet{
			caa("@", `0 issue "pki.example"`, `0 iodef "mailto:a@other.example"`),
			caa("ours", `0 issue "pki.example"`, `0 issue "LetsEncrypt.org; validationmethods=dns-01"`),
			caa("report", `0 iodef "mailto:a@other.example"`),
		}},
		{Name: "sub.other.example"},
		{Name: "none.example", RRSets: []RRSet{caa("@", `0 issue ";"`)}},
		{Name: "wild.example", RRSets: []RRSet{caa("@", `0 issue "letsencrypt.org"`, `0 issuewild "pki.example"`),
			caa("free", `0 issue "pki.example"`, `0 issuewild "letsencrypt.org"`)}},
	} {
		if in.Mode == "" {
			in.Mode = ZonePrimary
		}
		if _, _, _, err := p.CreateZone(in); err != nil {
			t.Fatal(in.Name, err)
		}
	}
	for domain, want := range map[string]Code{
		"without.zone.example":       "",
		"second.example":             secondary,
		"*.www.second.example":       secondary,
		"notsecond.example":          "",
		"www.plain.example":          "",
		"other.example":              denied,
		"a.b.other.example":          denied,
		"*.other.example":            denied,
		"ours.other.example":         "",
		"www.ours.other.example":     "",
		"*.ours.other.example":       "",
		"report.other.example":       "",
		"www.sub.other.example":      denied,
		"none.example":               denied,
		"wild.example":               "",
		"*.wild.example":             denied,
		"*.free.wild.example":        "",
		"free.wild.example":          denied,
		"www.dns-zone-not-found.net": "",
	} {
		if got := p.View().issuanceProblem(domain); got != want {
			t.Errorf("%s: %q, want %q", domain, got, want)
		}
	}
}

func TestACertificateIsIssuedWhenItsZonePermitsIt(t *testing.T) {
	t.Parallel()
	p, _ := certificateProject(t, Options{})
	_, _, _, err := p.CreateZone(CreateZone{Name: "a.example", Mode: ZonePrimary, RRSets: []RRSet{
		{Name: "@", Type: "CAA", Records: []dns.Record{{Value: `0 issue "pki.example"`}}},
	}})
	check(t, err)
	c, action, st, err := p.CreateManagedCertificate(CreateManagedCertificate{Name: "web", DomainNames: []string{"www.a.example"}})
	check(t, err)
	if a, _ := st.Actions.Get(action); a.ErrorCode != "caa_record_does_not_allow_ca" {
		t.Fatalf("the creation ended with %+v", a)
	}
	did(p.DeleteRRSet("a.example", "@", "CAA"))(t)
	if _, st, err = p.RetryCertificate(c.ID); err != nil {
		t.Fatal(err)
	}
	if c, _ = st.Certificates.Get(c.ID); c.Issuance != IssuanceCompleted {
		t.Errorf("after the record is gone, a retry gives %+v", c)
	}
}
