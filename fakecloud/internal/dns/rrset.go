package dns

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

const (
	// MaxRecords is the maximum number of records of a set in one request (API document, set_zone_rrset_records).
	MaxRecords = 50
	// maxComment is the maximum number of characters of a record's comment. No document states it; it is far above what zones have.
	maxComment = 1024
)

// RRSet is the set of a zone's records with one name and type.
type RRSet struct {
	Name    string   `json:"name,omitzero"` // "@" for the zone itself
	Type    string   `json:"type,omitzero"`
	TTL     *int     `json:"ttl,omitzero"` // seconds; nil for the zone's
	Records []Record `json:"records,omitzero"`
}

// Record is one record of a set.
type Record struct {
	Value   string `json:"value,omitzero"`
	Comment string `json:"comment,omitzero"`
}

var rrsetName = regexp.MustCompile(`^(@|(\*|` + domainLabel + `)(\.` + domainLabel + `)*)$`)

// Check checks what a zone may not have, whatever the values of the records are. problem says what is wrong with a field, or
// is "".
func (s *RRSet) Check(zone string) (field, problem string) {
	switch {
	case !isType(s.Type):
		return "type", "must be one of " + strings.Join(Types, ", ")
	case !rrsetName.MatchString(s.Name) || len(s.Name)+1+len(zone) > maxName:
		return "name", "must be @, or a name in lower case without the zone and without an ending dot"
	case s.Name == zone || strings.HasSuffix(s.Name, "."+zone):
		return "name", "must not end with the zone's name"
	case len(s.Records) == 0 || len(s.Records) > MaxRecords:
		return "records", fmt.Sprintf("must have between 1 and %d items", MaxRecords)
	case s.Type == "CNAME" && s.Name == "@":
		return "type", "must not be CNAME for the zone itself"
	case s.Type == "SOA" && s.Name != "@":
		return "type", "must be SOA only for the zone itself"
	case (s.Type == "CNAME" || s.Type == "SOA") && len(s.Records) > 1:
		return "records", fmt.Sprintf("must have one item for the type %s", s.Type)
	}
	return "", ""
}

// CheckRecords checks the records and brings their values into the canonical form. problem is that of [RRSet.Check].
func (s *RRSet) CheckRecords() (field, problem string) {
	for i, r := range s.Records {
		field := fmt.Sprintf("records[%d].value", i)
		value, problem := Canonical(s.Type, r.Value)
		if problem != "" {
			return field, problem
		}
		if utf8.RuneCountInString(r.Comment) > maxComment {
			return fmt.Sprintf("records[%d].comment", i), fmt.Sprintf("a comment must have at most %d characters", maxComment)
		}
		if slices.ContainsFunc(s.Records[:i], func(o Record) bool { return o.Value == value }) {
			return field, fmt.Sprintf("duplicate value '%s'", r.Value) // cert-manager-webhook-hetzner issue 213
		}
		s.Records[i].Value = value
	}
	return "", ""
}
