package dns

import (
	"encoding/binary"
	"errors"
	"slices"
	"strings"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/cloud"
)

// maxChain is how many CNAME records are followed.
const maxChain = 8

// answer is what a question gets.
type answer struct {
	rcode                             dnsmessage.RCode
	authoritative                     bool
	answers, authorities, additionals []record
}

// record is a resource record.
type record struct {
	name string // with a dot at the end
	kind dnsmessage.Type
	ttl  uint32 // seconds
	data []byte
}

// resolve answers a question (RFC 1034, section 4.3.2).
func (s *Server) resolve(q dnsmessage.Question) (a answer) {
	transfer := q.Type == dnsmessage.TypeAXFR || q.Type == 251 // IXFR
	if q.Class != dnsmessage.ClassINET && q.Class != dnsmessage.ClassANY || transfer {
		return answer{rcode: dnsmessage.RCodeRefused}
	}
	owner := q.Name.String()
	var seen []string
	for range maxChain {
		name := strings.ToLower(strings.TrimSuffix(owner, "."))
		z := s.zoneOf(name)
		switch {
		case z == nil && len(seen) > 0, slices.Contains(seen, name): // outside of the cloud, or a loop
			return a
		case z == nil:
			return s.reverse(q, name)
		case z.Mode != cloud.ZonePrimary:
			if len(seen) == 0 {
				a.rcode = dnsmessage.RCodeServerFailure
			}
			return a
		}
		target, err := a.add(z, owner, name, q.Type)
		if err != nil {
			return answer{rcode: dnsmessage.RCodeServerFailure}
		}
		if target == "" {
			return a
		}
		owner, seen = target, append(seen, name)
	}
	return a
}

// zoneOf returns the zone with the longest name that a name is in, or nil. Of zones of several projects, the one that was created
// first counts.
func (s *Server) zoneOf(name string) (found *cloud.Zone) {
	for _, p := range s.cloud.Projects() {
		zones := &p.View().Zones
		if zones.Len() == 0 {
			continue
		}
		for at := name; at != ""; _, at, _ = strings.Cut(at, ".") {
			if z, ok := zones.ByName(at); ok {
				if found == nil || len(z.Name) > len(found.Name) || z.Name == found.Name && z.ID < found.ID {
					found = z
				}
				break
			}
		}
	}
	return found
}

// add adds the records that a zone has for a name. owner is the name as the client wrote it. next is the name at which the answer goes
// on, or "".
func (a *answer) add(z *cloud.Zone, owner, name string, kind dnsmessage.Type) (next string, err error) {
	relative := strings.TrimSuffix(strings.TrimSuffix(name, z.Name), ".")
	switch relative {
	case "":
		relative = "@"
	case "@": // a label that no record has
		relative = "\x00"
	}
	if cut := delegation(z, relative, kind); cut != nil {
		return "", a.refer(z, cut)
	}
	a.authoritative = true
	sets := named(z, relative)
	if len(sets) == 0 {
		around, exists := encloser(z, relative)
		if !exists {
			if sets = named(z, strings.TrimSuffix("*."+around, ".")); len(sets) == 0 {
				a.rcode = dnsmessage.RCodeNameError
			}
		}
	}
	found := false
	for _, set := range sets {
		is := kinds[set.Type]
		if is != kind && kind != dnsmessage.TypeALL && is != dnsmessage.TypeCNAME {
			continue
		}
		found = true
		if err := appendSet(&a.answers, z, set, owner); err != nil {
			return "", err
		}
		if is == dnsmessage.TypeCNAME && kind != is && kind != dnsmessage.TypeALL {
			next = absolute(set.Records[0].Value, z.Name)
		}
	}
	if !found {
		return "", a.deny(z)
	}
	return next, nil
}

// named returns the record sets of a name.
func named(z *cloud.Zone, relative string) []*cloud.RRSet {
	return z.SelectRRSets(cloud.RRSetFilter{Names: []string{relative}})
}

// delegation returns the NS records below the zone's top that a name is at or below, or nil. The DS records there are the zone's.
func delegation(z *cloud.Zone, relative string, kind dnsmessage.Type) *cloud.RRSet {
	if relative == "@" {
		return nil
	}
	for end := len(relative); end >= 0; {
		end = strings.LastIndexByte(relative[:end], '.')
		at := relative[end+1:]
		if set, ok := z.RRSet(at, "NS"); ok && (at != relative || kind != kinds["DS"]) {
			return set
		}
	}
	return nil
}

// refer adds the name servers of a delegation, and those of their addresses that are in the zone.
func (a *answer) refer(z *cloud.Zone, cut *cloud.RRSet) error {
	err := appendSet(&a.authorities, z, cut, cut.Name+"."+z.Name+".")
	for _, r := range cut.Records {
		host := absolute(r.Value, z.Name)
		relative, ok := strings.CutSuffix(strings.ToLower(host), "."+z.Name+".")
		if !ok {
			continue
		}
		for _, kind := range []string{"A", "AAAA"} {
			if set, ok := z.RRSet(relative, kind); ok {
				err = errors.Join(err, appendSet(&a.additionals, z, set, host))
			}
		}
	}
	return err
}

// encloser returns the longest name that exists and that a name is at or below, and whether it is the name itself. A name exists if a
// record has it, or has a name below it.
func encloser(z *cloud.Zone, name string) (around string, exists bool) {
	longest, below := 0, "."+name
	for _, s := range z.RRSets() {
		other := "." + s.Name
		for n := 1; n <= min(len(below), len(other)) && below[len(below)-n] == other[len(other)-n]; n++ {
			if other[len(other)-n] == '.' {
				longest = max(longest, n)
			}
		}
	}
	return name[len(name)-max(longest-1, 0):], longest == len(below)
}

// deny adds the SOA record, with the time that a resolver may remember nothing for (RFC 2308, section 5).
func (a *answer) deny(z *cloud.Zone) error {
	soa, ok := z.RRSet("@", "SOA")
	if !ok {
		return errors.New("the zone has no SOA record")
	}
	if err := appendSet(&a.authorities, z, soa, z.Name+"."); err != nil {
		return err
	}
	if r := &a.authorities[len(a.authorities)-1]; len(r.data) >= 4 {
		r.ttl = min(r.ttl, binary.BigEndian.Uint32(r.data[len(r.data)-4:]))
	}
	return nil
}

// appendSet adds the records of a set.
func appendSet(to *[]record, z *cloud.Zone, set *cloud.RRSet, owner string) error {
	ttl := z.TTL
	if set.TTL != nil {
		ttl = *set.TTL
	}
	for _, r := range set.Records {
		data, err := encode(set.Type, r.Value, z.Name)
		if err != nil {
			return err
		}
		*to = append(*to, record{owner, kinds[set.Type], uint32(ttl), data}) //nolint:gosec // at most dns.MaxTTL
	}
	return nil
}
