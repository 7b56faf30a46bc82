package cloud

import (
	"slices"
	"strings"
	"time"
)

// Delegation is how the parent zone delegates a domain (API document, authoritative_nameservers).
type Delegation struct {
	Status      string    `json:"status,omitzero"`
	Nameservers []string  `json:"nameservers,omitzero"` // those of the parent zone
	LastCheck   time.Time `json:"last_check,omitzero"`  // zero before the first check
}

// notChecked is what a new zone shows. Two maintained clients assert it.
var notChecked = Delegation{Status: "unknown"}

// delegationCheckAfter is when a new zone's delegation is checked, on the cloud's clock. The real time is not known.
const delegationCheckAfter = 10 * time.Minute

// foreignNameservers are name servers that are not Hetzner's.
var foreignNameservers = []string{"ns1.example.net.", "ns2.example.net."}

// delegations are the results of a check, with the name servers in the parent zone.
var delegations = []Delegation{
	{Status: "valid", Nameservers: AuthoritativeNameservers},
	{Status: "partially-valid", Nameservers: slices.Concat(AuthoritativeNameservers, []string{"ns1.first-ns.de."})},
	{Status: "invalid", Nameservers: foreignNameservers},
	{Status: "lame", Nameservers: foreignNameservers},
	{Status: "unregistered"},
	{Status: "unknown"},
}

// delegationOf returns the result of a check. It asks no name server of the real world. A domain name that is one of the statuses, or
// begins with one and a dash, has this status:
//
//	valid.example, valid-shop.example  are delegated to the assigned name servers
//	lame-shop.example                  is delegated to name servers that do not know the zone
//	shop.example                       is not registered, as all others
func delegationOf(domain string, now time.Time) Delegation {
	label, _, _ := strings.Cut(domain, ".")
	found := Delegation{Status: "unregistered"}
	for _, d := range delegations {
		if label == d.Status || strings.HasPrefix(label, d.Status+"-") {
			found = d
		}
	}
	found.LastCheck = now
	return found
}

// checkDelegationLater schedules the check of a new zone. It is the only one: the result would not change.
func (tx *Tx) checkDelegationLater(zone int64) {
	tx.schedule(delegationCheckAfter, delegationCheck{zone})
}

type delegationCheck struct{ Zone int64 }

func (e delegationCheck) about() Ref { return Ref{KindZone, e.Zone} }

func (e delegationCheck) due(tx *Tx) {
	tx.Zones.Update(e.Zone, func(z *Zone) { z.Delegation = delegationOf(z.Name, tx.Now()) })
}
