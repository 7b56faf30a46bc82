package cloud

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/dns"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/store"
)

// KindZone is the kind of DNS zones.
const KindZone store.Kind = "zone"

// The modes of a zone (API document, Zone Modes).
const (
	ZonePrimary   = "primary"
	ZoneSecondary = "secondary"
)

// DefaultTTL is that of zones (API document, create_zone).
const DefaultTTL = 3600

// AuthoritativeNameservers are the name servers of every zone.
var AuthoritativeNameservers = []string{"hydrogen.ns.hetzner.com.", "oxygen.ns.hetzner.com.", "helium.ns.hetzner.de."}

// Zone is a DNS zone.
//
// Reproduced: both modes, record sets of all types with their rules, zone files, the serial number, protection. A change is
// visible at once; its action is the publication, while which the status is updating. If that fails, it is error until
// the next one succeeds. Left out: transfers from primary name servers, a list of public suffixes (a zone's name needs
// two labels). Package doors/dns answers DNS queries. The name decides how the domain is delegated, see [Delegation].
type Zone struct {
	store.Meta
	Mode               string              `json:"mode,omitzero"`
	TTL                int                 `json:"ttl,omitzero"` // seconds
	PrimaryNameservers []PrimaryNameserver `json:"primary_nameservers,omitzero"`
	DeleteProtection   bool                `json:"delete_protection,omitzero"`
	Serial             uint32              `json:"serial,omitzero"` // YYYYMMDDnn; 0 in secondary mode

	// Delegation is how the parent zone delegated the domain at the last check.
	Delegation Delegation `json:"delegation,omitzero"`

	sets       recordSets
	publishing int  // actions that are running
	failed     bool // the last publication
}

// PrimaryNameserver is where the zones of secondary mode come from.
type PrimaryNameserver struct {
	Address       netip.Addr `json:"address,omitzero"`
	Port          int        `json:"port,omitzero"`
	TSIGKey       string     `json:"tsig_key,omitzero"` // base64
	TSIGAlgorithm string     `json:"tsig_algorithm,omitzero"`
}

// WithoutKeys returns a copy without the TSIG keys of the primary name servers, and reports whether there are any.
func (z *Zone) WithoutKeys() (*Zone, bool) {
	if !slices.ContainsFunc(z.PrimaryNameservers, func(s PrimaryNameserver) bool { return s.TSIGKey != "" }) {
		return z, false
	}
	c := z.Clone()
	c.PrimaryNameservers = slices.Clone(c.PrimaryNameservers)
	for i := range c.PrimaryNameservers {
		c.PrimaryNameservers[i].TSIGKey = ""
	}
	return c, true
}

// Clone implements Object.
func (z *Zone) Clone() *Zone {
	c := *z
	c.sets.owned = false
	return &c
}

// Ref returns the reference to the zone.
func (z *Zone) Ref() Ref { return Ref{KindZone, z.ID} }

// Status is ok, updating or error.
func (z *Zone) Status() string {
	switch {
	case z.publishing > 0:
		return "updating"
	case z.failed:
		return "error"
	}
	return "ok"
}

// RecordCount returns the number of records.
func (z *Zone) RecordCount() int { return z.sets.records }

// FindZone returns the zone with an id or a name. An id takes precedence, because no name is a number.
func (st *State) FindZone(idOrName string) (*Zone, error) {
	z, ok := st.Zones.ByName(idOrName)
	if id, isID := ParseID(idOrName); isID {
		z, ok = st.Zones.Get(id)
	}
	if !ok { // rolschewsky/certbot-dns-hetzner-cloud issue 7, cert-manager-webhook-hetzner issue 32
		return nil, &Error{Code: "not_found", Status: 404, Message: "zone not found"}
	}
	return z, nil
}

// CreateZone is the input of POST /zones.
type CreateZone struct {
	Name               string
	Mode               string
	TTL                int // 0 for DefaultTTL
	Labels             map[string]string
	PrimaryNameservers []PrimaryNameserver // for secondary mode
	RRSets             []RRSet             // for primary mode
	Zonefile           string              // for primary mode, instead of RRSets
}

// CreateZone creates a zone. In primary mode, it gets a SOA record and the NS records of the name servers.
// Errors: invalid_input, uniqueness_error, resource_limit_exceeded.
func (p Project) CreateZone(in CreateZone) (z *Zone, action int64, st *State, err error) {
	st, err = p.update(func(tx *Tx) error {
		if !dns.IsZone(in.Name) {
			return ErrField("name", "must be a domain in lower case, without an ending dot, such as example.com")
		}
		if err := cmp.Or(ValidateLabels(in.Labels), checkNameservers(in.PrimaryNameservers), RequireUniqueName(&tx.Zones, in.Name, 0),
			tx.checkLimit(&tx.Zones)); err != nil {
			return err
		}
		z = &Zone{Meta: tx.NewMeta(in.Name, in.Labels), Mode: in.Mode, TTL: cmp.Or(in.TTL, DefaultTTL), Delegation: notChecked}
		if in.Mode == ZoneSecondary {
			z.PrimaryNameservers = in.PrimaryNameservers
		} else if err := z.fill(tx, in); err != nil {
			return err
		}
		tx.Zones.Put(z)
		action = tx.publish(z.ID, "create_zone")
		tx.checkDelegationLater(z.ID)
		z, _ = tx.Zones.Get(z.ID)
		return nil
	})
	return z, action, st, err
}

// fill gives a new zone its record sets.
func (z *Zone) fill(tx *Tx, in CreateZone) error {
	z.Serial = nextSerial(0, tx.now)
	if in.Zonefile != "" {
		if len(in.RRSets) > 0 {
			return ErrField("zonefile", "and rrsets are mutually exclusive")
		}
		if err := z.load(tx, in.Zonefile); err != nil {
			return err
		}
	}
	z.setDefaults(tx)
	if in.Zonefile != "" {
		z.bump(tx)
	}
	for i, s := range in.RRSets {
		if err := z.putNew(tx, s, fmt.Sprintf("rrsets[%d].", i)); err != nil {
			return err
		}
	}
	return nil
}

// setDefaults adds the SOA record and the NS records of a new zone, if its zone file has none.
func (z *Zone) setDefaults(tx *Tx) {
	ns := RRSet{Name: "@", Type: "NS", created: tx.now}
	for _, name := range AuthoritativeNameservers {
		ns.Records = append(ns.Records, dns.Record{Value: name})
	}
	soa := fmt.Sprintf("%s dns.hetzner.com. %d 86400 10800 3600000 3600", AuthoritativeNameservers[0], z.Serial)
	for _, s := range []RRSet{{Name: "@", Type: "SOA", Records: []dns.Record{{Value: soa}}, created: tx.now}, ns} {
		if _, ok := z.RRSet(s.Name, s.Type); !ok {
			tx.putRRSet(z, &s)
		}
	}
}

// checkNameservers checks the primary name servers of a zone.
func checkNameservers(all []PrimaryNameserver) error {
	if len(all) > MaxPrimaryNameservers {
		return ErrField("primary_nameservers", fmt.Sprintf("must have at most %d items", MaxPrimaryNameservers))
	}
	for i, s := range all {
		field := fmt.Sprintf("primary_nameservers.%d.", i)
		if a := s.Address; !a.IsValid() || a.IsPrivate() || a.IsLoopback() || a.IsUnspecified() || a.IsMulticast() ||
			a.IsLinkLocalUnicast() {
			return ErrField(field+"address", "must be a public IPv4 or IPv6 address")
		}
		if slices.ContainsFunc(all[:i], func(o PrimaryNameserver) bool { return o.Address == s.Address }) {
			return ErrField(field+"address", "must be unique")
		}
		if _, err := base64.StdEncoding.DecodeString(s.TSIGKey); err != nil || len(s.TSIGKey) > MaxTSIGKeyBytes {
			return ErrField(field+"tsig_key", fmt.Sprintf("must be base64 encoded, with at most %d characters", MaxTSIGKeyBytes))
		}
	}
	return nil
}

// onZone changes a zone at once and starts the action that publishes it. Errors: not_found, locked, and those of change.
func (p Project) onZone(idOrName, command string, change func(*Tx, *Zone) error) (action int64, st *State, err error) {
	st, err = p.update(func(tx *Tx) error {
		z, err := tx.freeZone(idOrName)
		if err != nil {
			return err
		}
		z = z.Clone()
		if err := change(tx, z); err != nil {
			return err
		}
		tx.Zones.Put(z)
		action = tx.publish(z.ID, command)
		return nil
	})
	return action, st, err
}

// freeZone returns a zone that is not being deleted. Errors: not_found, locked.
func (tx *Tx) freeZone(idOrName string) (*Zone, error) {
	z, err := tx.FindZone(idOrName)
	if err != nil {
		return nil, err
	}
	return z, tx.RequireUnlocked(z.Ref())
}

// publish starts the action that brings a zone to the name servers. Others may start while it runs: clients such as
// Terraform change many record sets of one zone at the same time.
func (tx *Tx) publish(id int64, command string) int64 {
	tx.Zones.Update(id, func(z *Zone) { z.publishing++ })
	return tx.Start(ActionSpec{Command: command, Resources: []Ref{{KindZone, id}}, Does: publication{id}}).ID
}

type publication struct{ Zone int64 }

func (e publication) end(tx *Tx)              { e.finish(tx, false) }
func (e publication) failed(tx *Tx, _ *Error) { e.finish(tx, true) }

func (e publication) finish(tx *Tx, failed bool) {
	tx.Zones.Update(e.Zone, func(z *Zone) { z.publishing--; z.failed = failed })
}

// Zonefile returns the zone in the form of RFC 1035. Errors: incorrect_zone_mode.
func (z *Zone) Zonefile() (string, error) {
	if err := z.RequirePrimary(); err != nil {
		return "", err
	}
	var sets []dns.RRSet
	for _, s := range z.RRSets() {
		sets = append(sets, s.data())
	}
	return dns.FormatFile(z.Name, z.TTL, sets), nil
}

// RequirePrimary returns incorrect_zone_mode if the records of the zone are not managed here.
func (z *Zone) RequirePrimary() error {
	if z.Mode != ZonePrimary {
		return ErrOperation("incorrect_zone_mode", "operation is not supported for zones in secondary mode")
	}
	return nil
}

// UpdateZone changes labels. Errors: not_found, locked, invalid_input.
func (p Project) UpdateZone(idOrName string, labels map[string]string) (*State, error) {
	return p.update(func(tx *Tx) error {
		z, err := tx.freeZone(idOrName)
		if err != nil {
			return err
		}
		return setMeta(&tx.Zones, z.ID, UpdateResource{Labels: labels})
	})
}

// DeleteZone deletes a zone with its records. Errors: not_found, locked, protected.
func (p Project) DeleteZone(idOrName string) (action int64, st *State, err error) {
	st, err = p.update(func(tx *Tx) error {
		z, err := tx.freeZone(idOrName)
		if err != nil {
			return err
		}
		if z.DeleteProtection {
			return ErrProtected("zone deletion is protected")
		}
		if z.sets.protected > 0 {
			return errRRSetProtected()
		}
		action = tx.Start(ActionSpec{Command: "delete_zone", Resources: []Ref{z.Ref()}, Does: zoneRemoval{z.ID}}).ID
		return nil
	})
	return action, st, err
}

type zoneRemoval struct{ Zone int64 }

func (e zoneRemoval) end(tx *Tx) { tx.Zones.Delete(e.Zone) }

// ChangeZoneProtection sets the delete protection; nil changes nothing. Errors: not_found, locked.
func (p Project) ChangeZoneProtection(idOrName string, protect *bool) (int64, *State, error) {
	return p.onZone(idOrName, "change_protection", func(_ *Tx, z *Zone) error {
		set(&z.DeleteProtection, protect)
		return nil
	})
}

// ChangeZoneTTL sets the default TTL in seconds, also of a secondary zone: the document denies that, a maintained client
// asserts it (COVERAGE.md, amendments). Errors: not_found, locked.
func (p Project) ChangeZoneTTL(idOrName string, ttl int) (int64, *State, error) {
	return p.onZone(idOrName, "change_ttl", func(tx *Tx, z *Zone) error {
		z.TTL = ttl
		z.bump(tx)
		return nil
	})
}

// ChangePrimaryNameservers replaces the primary name servers. Errors: not_found, locked, invalid_input, incorrect_zone_mode.
func (p Project) ChangePrimaryNameservers(idOrName string, all []PrimaryNameserver) (int64, *State, error) {
	return p.onZone(idOrName, "change_primary_nameservers", func(_ *Tx, z *Zone) error {
		if z.Mode != ZoneSecondary {
			return ErrOperation("incorrect_zone_mode", "operation is not supported for zones in primary mode")
		}
		z.PrimaryNameservers = all
		return checkNameservers(all)
	})
}

// ImportZonefile replaces all record sets. Errors: not_found, locked, invalid_input, incorrect_zone_mode, protected.
func (p Project) ImportZonefile(idOrName, text string) (int64, *State, error) {
	return p.onZone(idOrName, "import_zonefile", func(tx *Tx, z *Zone) error {
		if err := z.RequirePrimary(); err != nil {
			return err
		}
		if z.sets.protected > 0 {
			return errRRSetProtected()
		}
		if err := z.load(tx, text); err != nil {
			return err
		}
		z.bump(tx)
		return z.checkImported()
	})
}

// checkImported checks that a zone has what an import must have. A new zone made from a zone file gets it.
func (z *Zone) checkImported() error {
	if _, ok := z.RRSet("@", "SOA"); !ok {
		return ErrField("zonefile", "has no SOA record")
	}
	ns, ok := z.RRSet("@", "NS")
	for _, name := range AuthoritativeNameservers {
		if !ok || !slices.ContainsFunc(ns.Records, func(r dns.Record) bool { return r.Value == name }) {
			return ErrField("zonefile", "has no NS record of "+name)
		}
	}
	return nil
}

// load replaces all record sets by those of a zone file.
func (z *Zone) load(tx *Tx, text string) error {
	ttl, sets, err := dns.ParseFile(z.Name, text)
	if err != nil {
		return ErrDNS("zonefile", err.Error())
	}
	z.sets, z.TTL = recordSets{}, cmp.Or(ttl, z.TTL)
	for _, s := range sets {
		if err := z.put(tx, RRSet{Name: s.Name, Type: s.Type, TTL: s.TTL, Records: s.Records}, ""); err != nil {
			return ErrDNS("zonefile", fmt.Sprintf("%s/%s: %s", s.Name, s.Type, strings.TrimSuffix(err.Error(), " (invalid_input)")))
		}
	}
	return nil
}
