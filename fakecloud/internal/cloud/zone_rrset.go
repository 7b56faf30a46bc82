package cloud

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/dns"
)

// RRSet is the set of a zone's records with one name and type. A published one never changes.
type RRSet struct {
	Name             string            `json:"name,omitzero"` // "@" for the zone itself
	Type             string            `json:"type,omitzero"`
	TTL              *int              `json:"ttl,omitzero"` // seconds; nil for the zone's
	Labels           map[string]string `json:"labels,omitempty"`
	ChangeProtection bool              `json:"change_protection,omitzero"`
	Records          []dns.Record      `json:"records,omitzero"`
	created          time.Time
	age              int64 // grows with each new set of the zone
}

// errRRSetProtected is the answer to each change of a protected set. The message is the real API's: libdns/hetzner issue 14,
// caddy-dns/hetzner issue 28.
func errRRSetProtected() *Error { return ErrProtected("RRSet(s) is/are change protected") }

// data returns what DNS knows of the set. The records are those of the set, not copies.
func (s *RRSet) data() dns.RRSet {
	return dns.RRSet{Name: s.Name, Type: s.Type, TTL: s.TTL, Records: s.Records}
}

// ID identifies the set in its zone.
func (s *RRSet) ID() string { return s.Name + "/" + s.Type }

// Created is when the set was created.
func (s *RRSet) Created() time.Time { return s.created }

// RRSets returns all record sets by name and type.
func (z *Zone) RRSets() []*RRSet { return z.sets.all() }

// RRSet returns a record set.
func (z *Zone) RRSet(name, kind string) (*RRSet, bool) { return z.sets.get(name, kind) }

// FindRRSet returns a record set of a zone in primary mode. Errors: incorrect_zone_mode, not_found.
func (z *Zone) FindRRSet(name, kind string) (*RRSet, error) {
	if err := z.RequirePrimary(); err != nil {
		return nil, err
	}
	if s, ok := z.RRSet(name, kind); ok {
		return s, nil
	}
	return nil, &Error{Code: "not_found", Status: 404, Message: fmt.Sprintf("RRSet '%s/%s' not found in zone %s", name, kind, z.Name)}
}

// bump increases the serial number in the SOA record, as every change of a zone in primary mode does.
func (z *Zone) bump(tx *Tx) {
	soa, ok := z.RRSet("@", "SOA")
	if !ok {
		return
	}
	fields := strings.Fields(soa.Records[0].Value)
	if has, err := strconv.ParseUint(fields[2], 10, 32); err == nil {
		z.Serial = max(z.Serial, uint32(has))
	}
	z.Serial = nextSerial(z.Serial, tx.now)
	fields[2] = strconv.FormatUint(uint64(z.Serial), 10)
	next := *soa
	next.Records = []dns.Record{{Value: strings.Join(fields, " "), Comment: soa.Records[0].Comment}}
	tx.putRRSet(z, &next)
}

// nextSerial returns the serial number after one, in the form YYYYMMDDnn (API document, SOA Serial).
func nextSerial(serial uint32, now time.Time) uint32 {
	y, m, d := now.Date()
	return max(serial+1, uint32(((y*100+int(m))*100+d)*100)) //nolint:gosec // fits until the year 42949
}

// ofSet is the path of the fields in an action of a set (cert-manager-webhook-hetzner issue 213).
const ofSet = "records[0]."

// put checks a set and stores it. prefix is the path of its fields.
func (z *Zone) put(tx *Tx, s RRSet, prefix string) error {
	data := s.data()
	if field, problem := data.Check(z.Name); problem != "" {
		return ErrDNS(prefix+field, field+" "+problem)
	}
	if err := ValidateLabels(s.Labels); err != nil {
		return err
	}
	if field, problem := data.CheckRecords(); problem != "" {
		return ErrDNS(prefix+field, problem)
	}
	for _, o := range z.sets.named(s.Name) {
		if (o.Type == "CNAME") != (s.Type == "CNAME") { // a log of MyAvenCEO/avenOS has the message, also for the new CNAME
			other := strings.Replace(o.Type+s.Type, "CNAME", "", 1)
			return ErrDNS(prefix+"type", fmt.Sprintf("(%s, CNAME) conflicts with (%[1]s, %s)", s.Name, other))
		}
	}
	if s.created.IsZero() {
		s.created = tx.now
	}
	s.Labels = labelsOrNone(s.Labels)
	tx.putRRSet(z, &s)
	return nil
}

// putNew is put for a set that is not there. A Pulumi log of MyAvenCEO/avenOS has the message.
func (z *Zone) putNew(tx *Tx, s RRSet, prefix string) error {
	if _, ok := z.RRSet(s.Name, s.Type); ok {
		return ErrUniqueness("name", "RRSet(s) already exist(s)")
	}
	return z.put(tx, s, prefix)
}

// CreateRRSet creates a record set. Errors: not_found, locked, invalid_input, incorrect_zone_mode, uniqueness_error.
func (p Project) CreateRRSet(zone string, s RRSet) (int64, *State, error) {
	return p.onZone(zone, "create_rrset", func(tx *Tx, z *Zone) error {
		if err := z.RequirePrimary(); err != nil {
			return err
		}
		err := z.putNew(tx, s, "rrsets[0].")
		z.bump(tx)
		return err
	})
}

// UpdateRRSet changes labels. Errors: not_found, locked, invalid_input, incorrect_zone_mode.
func (p Project) UpdateRRSet(zone, name, kind string, labels map[string]string) (*State, error) {
	return p.update(func(tx *Tx) error {
		z, err := tx.freeZone(zone)
		if err != nil {
			return err
		}
		s, err := z.FindRRSet(name, kind)
		if err := cmp.Or(err, ValidateLabels(labels)); err != nil || labels == nil {
			return err
		}
		next, changed := *s, z.Clone()
		next.Labels = labelsOrNone(labels)
		tx.putRRSet(changed, &next)
		tx.Zones.Put(changed)
		return nil
	})
}

// onRRSet changes a record set that is there and not protected. change returns nil to delete it.
// Errors: not_found, locked, incorrect_zone_mode, protected, and those of change.
func (p Project) onRRSet(zone, name, kind, command string, change func(*Tx, *Zone, RRSet) (*RRSet, error)) (int64, *State, error) {
	return p.onZone(zone, command, func(tx *Tx, z *Zone) error {
		s, err := z.FindRRSet(name, kind)
		switch {
		case err != nil:
			return err
		case s.ChangeProtection && command != "change_rrset_protection":
			return errRRSetProtected()
		}
		next := *s
		next.Records = slices.Clone(s.Records)
		now, err := change(tx, z, next)
		switch {
		case err != nil:
			return err
		case now != nil:
			err = z.put(tx, *now, ofSet)
		case kind == "SOA":
			return ErrField("records", "must not be empty: a zone needs its SOA record")
		default:
			tx.removeRRSet(z, s)
		}
		z.bump(tx)
		return err
	})
}

// DeleteRRSet deletes a record set. Errors: those of onRRSet, invalid_input (SOA).
func (p Project) DeleteRRSet(zone, name, kind string) (int64, *State, error) {
	return p.onRRSet(zone, name, kind, "delete_rrset", func(*Tx, *Zone, RRSet) (*RRSet, error) { return nil, nil })
}

// ChangeRRSetProtection sets the protection against changes. Errors: those of onRRSet.
func (p Project) ChangeRRSetProtection(zone, name, kind string, on bool) (int64, *State, error) {
	return p.onRRSet(zone, name, kind, "change_rrset_protection", func(_ *Tx, _ *Zone, s RRSet) (*RRSet, error) {
		s.ChangeProtection = on
		return &s, nil
	})
}

// ChangeRRSetTTL sets the TTL in seconds, nil for the zone's. Errors: those of onRRSet.
func (p Project) ChangeRRSetTTL(zone, name, kind string, ttl *int) (int64, *State, error) {
	return p.onRRSet(zone, name, kind, "change_rrset_ttl", func(_ *Tx, _ *Zone, s RRSet) (*RRSet, error) {
		s.TTL = ttl
		return &s, nil
	})
}

// SetRecords replaces the records. Errors: those of onRRSet, invalid_input.
func (p Project) SetRecords(zone, name, kind string, records []dns.Record) (int64, *State, error) {
	return p.onRRSet(zone, name, kind, "set_rrset_records", func(_ *Tx, _ *Zone, s RRSet) (*RRSet, error) {
		s.Records = records
		return &s, nil
	})
}

// AddRecords adds records to a set, and creates the set if it is missing. A TTL must be the one of the set.
// Errors: those of onRRSet, invalid_input.
func (p Project) AddRecords(zone, name, kind string, ttl *int, records []dns.Record) (int64, *State, error) {
	return p.onZone(zone, "add_rrset_records", func(tx *Tx, z *Zone) error {
		if err := z.RequirePrimary(); err != nil {
			return err
		}
		next := RRSet{Name: name, Type: kind, TTL: ttl}
		if s, ok := z.RRSet(name, kind); ok {
			if s.ChangeProtection {
				return errRRSetProtected()
			}
			if ttl != nil && s.TTL != nil && *ttl != *s.TTL {
				return ErrField("ttl", fmt.Sprintf("must be the TTL of the RRSet, %d", *s.TTL))
			}
			next = *s
			next.TTL = cmp.Or(s.TTL, ttl)
		}
		next.Records = slices.Concat(next.Records, records)
		err := z.put(tx, next, ofSet)
		z.bump(tx)
		return err
	})
}

// RemoveRecords removes records from a set, and deletes the set with the last one. Errors: those of onRRSet,
// invalid_input.
func (p Project) RemoveRecords(zone, name, kind string, records []dns.Record) (int64, *State, error) {
	return p.onRRSet(zone, name, kind, "remove_rrset_records", func(_ *Tx, _ *Zone, s RRSet) (*RRSet, error) {
		err := eachKnown(&s, records, func(i int, _ dns.Record) { s.Records = slices.Delete(s.Records, i, i+1) })
		if err != nil || len(s.Records) == 0 {
			return nil, err
		}
		return &s, nil
	})
}

// UpdateRecords changes the comments of records. Errors: those of onRRSet, invalid_input.
func (p Project) UpdateRecords(zone, name, kind string, records []dns.Record) (int64, *State, error) {
	return p.onRRSet(zone, name, kind, "update_rrset_records", func(_ *Tx, _ *Zone, s RRSet) (*RRSet, error) {
		err := eachKnown(&s, records, func(i int, r dns.Record) { s.Records[i].Comment = r.Comment })
		return &s, err
	})
}

// eachKnown calls do for the records, with their number in the set. The records must be distinct and in the set.
func eachKnown(s *RRSet, records []dns.Record, do func(int, dns.Record)) error {
	given := make(map[string]bool)
	for n, r := range records {
		value, _ := dns.Canonical(s.Type, r.Value)
		field := fmt.Sprintf("%srecords[%d].value", ofSet, n)
		if given[value] {
			return ErrDNS(field, fmt.Sprintf("duplicate value '%s'", r.Value))
		}
		given[value] = true
		i := slices.IndexFunc(s.Records, func(has dns.Record) bool { return has.Value == value })
		if i < 0 {
			return ErrDNS(field, fmt.Sprintf("the value '%s' is not in the RRSet", r.Value))
		}
		do(i, r)
	}
	return nil
}
