package cloud

import (
	"cmp"
	"slices"
	"strings"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/dns"
)

// managedIssuer is the name of the authority of managed certificates in CAA records. The API document names Let's Encrypt.
const managedIssuer = "letsencrypt.org"

// issuanceProblem returns the code of the failure if the project's zones prevent a certificate for a domain, else "". A domain without a
// zone has no problem: the real API has them in Hetzner DNS. CNAME records on the way to CAA records are not followed.
func (st *State) issuanceProblem(domain string) Code {
	name, wildcard := strings.CutPrefix(domain, "*.")
	z, ok := st.zoneOf(name)
	if ok && z.Mode == ZoneSecondary {
		return "dns_zone_is_secondary_zone"
	}
	// The first CAA records on the way to the root decide (RFC 8659, section 3).
	for ; ok; z, ok = st.zoneOf(name) {
		label := cmp.Or(strings.TrimSuffix(strings.TrimSuffix(name, z.Name), "."), "@")
		set, found := z.RRSet(label, "CAA")
		switch {
		case found && permitsIssuer(set.Records, wildcard):
			return ""
		case found:
			return "caa_record_does_not_allow_ca"
		}
		_, name, _ = strings.Cut(name, ".")
	}
	return ""
}

// zoneOf returns the zone that a domain belongs to: of those that end its name, the longest.
func (st *State) zoneOf(domain string) (*Zone, bool) {
	for name, ok := domain, true; ok; _, name, ok = strings.Cut(name, ".") {
		if z, found := st.Zones.ByName(name); found {
			return z, true
		}
	}
	return nil, false
}

// permitsIssuer reports whether CAA records permit the authority of managed certificates (RFC 8659, sections 4.2 and 4.3).
// Properties for a wildcard replace the others. Without a property, all authorities are permitted.
func permitsIssuer(records []dns.Record, wildcard bool) bool {
	issuers := map[string][]string{}
	for _, r := range records {
		fields := strings.SplitN(r.Value, " ", 3) // flags, tag, value
		issuer, _, _ := strings.Cut(strings.Trim(fields[2], `"`), ";")
		issuers[fields[1]] = append(issuers[fields[1]], strings.ToLower(strings.TrimSpace(issuer)))
	}
	named := issuers["issue"]
	if wild := issuers["issuewild"]; wildcard && len(wild) > 0 {
		named = wild
	}
	return len(named) == 0 || slices.Contains(named, managedIssuer)
}
