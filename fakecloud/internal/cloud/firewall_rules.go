package cloud

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// FirewallRule permits traffic.
type FirewallRule struct {
	Direction      string         `json:"direction,omitzero"` // in or out
	Protocol       string         `json:"protocol,omitzero"`  // tcp, udp, icmp, esp, gre
	Port           string         `json:"port,omitzero"`      // "80" or "1024-5000"; "" unless the protocol is tcp or udp
	SourceIPs      []netip.Prefix `json:"source_ips,omitzero"`
	DestinationIPs []netip.Prefix `json:"destination_ips,omitzero"`
	Description    *string        `json:"description,omitzero"`
}

// checkFirewallRules returns an invalid_input error with all mistakes, or nil.
func checkFirewallRules(rules []FirewallRule) error {
	if len(rules) > MaxRulesPerFirewall {
		return ErrField("rules", fmt.Sprintf("must have at most %d items", MaxRulesPerFirewall))
	}
	var wrong []FieldError
	effective := 0
	for i, r := range rules {
		effective += len(r.SourceIPs) + len(r.DestinationIPs)
		r.check(func(field, message string) {
			if !strings.HasPrefix(field, "rules.") {
				field = fmt.Sprintf("rules.%d.%s", i, field)
			}
			wrong = append(wrong, FieldError{Name: field, Messages: []string{message}})
		})
	}
	if len(wrong) > 0 {
		return ErrInvalidInput(wrong...)
	}
	if effective > MaxEffectiveRules {
		return ErrField("rules", fmt.Sprintf("has %d effective rules, one for each IP of a rule: must have at most %d", effective,
			MaxEffectiveRules))
	}
	return nil
}

func (r FirewallRule) check(fail func(field, message string)) {
	wanted, other := "source_ips", "destination_ips"
	ips, others := r.SourceIPs, r.DestinationIPs
	if r.Direction == "out" {
		wanted, other, ips, others = other, wanted, others, ips
	}
	switch {
	case len(ips) == 0: // hcloud-k8s/terraform-hcloud-kubernetes issue 198
		fail("rules."+wanted, wanted+" needs to have at least one entry")
	case len(ips) > MaxIPsPerFirewallRule:
		fail(wanted, fmt.Sprintf("must have at most %d items", MaxIPsPerFirewallRule))
		ips = nil // one mistake is enough
	}
	for i, ip := range ips {
		switch field := fmt.Sprintf("%s.%d", wanted, i); {
		case ip.Addr().Is4In6():
			// No packet has such an address: the rule would permit nothing, although its author means IPv4.
			fail(field, fmt.Sprintf("%s is an IPv4 network in the form of IPv6: must be written as IPv4", ip))
		case ip != ip.Masked():
			fail(field, fmt.Sprintf("%s has host bits set: must be a network such as %s, or a single host", ip, ip.Masked()))
		}
	}
	if len(others) > 0 {
		fail(other, fmt.Sprintf("is not possible for the direction %s", r.Direction))
	}
	switch ports := r.Protocol == "tcp" || r.Protocol == "udp"; {
	case ports && r.Port == "":
		fail("port", "is required for the protocols tcp and udp")
	case ports && !isPortRange(r.Port):
		fail("port", "must be a port such as 80, a range such as 1024-5000, or any")
	case !ports && r.Port != "":
		fail("port", "is only possible for the protocols tcp and udp")
	}
	if r.Description != nil && utf8.RuneCountInString(*r.Description) > 255 {
		fail("description", "must have at most 255 characters")
	}
}

// inBeforeOut returns the rules as the API shows them: those for `in` before those for `out`, each in the order of the request.
func inBeforeOut(rules []FirewallRule) []FirewallRule {
	rules = slices.Clone(rules)
	slices.SortStableFunc(rules, func(a, b FirewallRule) int { return cmp.Compare(a.Direction, b.Direction) })
	return rules
}

// isPortRange reports whether s is a port, two ports with a dash, the lower one first, or "any". The API takes and shows "any" for all
// ports, although the document does not say so (terraform-provider-hcloud #335).
func isPortRange(s string) bool {
	if s == "any" {
		return true
	}
	lower, upper, isRange := strings.Cut(s, "-")
	from, ok := parsePort(lower)
	if !ok || !isRange {
		return ok
	}
	to, ok := parsePort(upper)
	return ok && to >= from
}

// parsePort reads a port in its canonical form. "080" would be shown as it was written, but compared as another text than "80".
func parsePort(s string) (port uint64, ok bool) {
	port, err := strconv.ParseUint(s, 10, 16)
	return port, err == nil && port > 0 && s[0] != '0'
}
