package dns

import (
	"encoding/hex"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Types are the types of records (API document, create_zone_rrset).
var Types = []string{"A", "AAAA", "CAA", "CNAME", "DS", "HINFO", "HTTPS", "MX", "NS", "PTR", "RP", "SOA", "SRV", "SVCB", "TLSA", "TXT"}

// RData describes the fields of a type's records, in their order. "..." repeats the field before it, also never.
var RData = map[string][]string{
	"A": {"ipv4"}, "AAAA": {"ipv6"}, "CAA": {"uint8", "tag", "text"}, "CNAME": {"host"}, "DS": {"uint16", "uint8", "uint8", "hex"},
	"HINFO": {"text", "text"}, "HTTPS": {"uint16", "host", "param", "..."}, "MX": {"uint16", "host"}, "NS": {"host"}, "PTR": {"host"},
	"RP": {"host", "host"}, "SOA": {"host", "host", "uint32", "uint32", "uint32", "uint32", "uint32"},
	"SRV": {"uint16", "uint16", "uint16", "host"}, "SVCB": {"uint16", "host", "param", "..."}, "TLSA": {"uint8", "uint8", "uint8", "hex"},
	"TXT": {"quoted", "..."},
}

var (
	hostName = regexp.MustCompile(`^(\.|@|([A-Za-z0-9_*]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?\.?)+)$`)
	caaTag   = regexp.MustCompile(`^[a-z0-9]+$`)
	svcParam = regexp.MustCompile(`^[a-z0-9-]+(=.*)?$`)
	// escape is one octet of a character-string, which may have a quote (RFC 1035, section 5.1).
	escape = regexp.MustCompile(`\\([01][0-9]{2}|2[0-4][0-9]|25[0-5]|.)`)
	quoted = regexp.MustCompile(`^"[^"]*"$`)
)

// Canonical returns a record's value in its canonical form: fields separated by one space, addresses as RFC 5952 has
// them. problem is a sentence that says what is wrong, or is "".
func Canonical(kind, value string) (canonical, problem string) {
	fields, err := SplitRecord(value)
	if err != "" {
		return "", "the value " + err
	}
	wanted, length := RData[kind], 0
	for i, f := range fields {
		n := min(i, len(wanted)-1)
		if wanted[n] == "..." {
			n--
		} else if i > n {
			return "", fmt.Sprintf("the value has more than the %d fields of the type %s", len(wanted), kind)
		}
		if fields[i], problem = recordField(wanted[n], f); problem != "" {
			if wanted[n] != "quoted" {
				problem = fmt.Sprintf("%.64q %s", f, problem)
			}
			return "", problem
		}
		length += wireLength(wanted[n], f)
	}
	if length > maxRData {
		return "", fmt.Sprintf("the value must have at most %d bytes", maxRData)
	}
	least := len(wanted)
	if wanted[least-1] == "..." {
		least -= 2
		if kind == "TXT" {
			least = 1
		}
	}
	if len(fields) < least {
		return "", fmt.Sprintf("the value has %d of the %d fields of the type %s", len(fields), least, kind)
	}
	return strings.Join(fields, " "), ""
}

// maxRData is the length of a record's data in bytes (RFC 1035, section 3.2.1: RDLENGTH has 16 bits).
const maxRData = 1<<16 - 1

// wireLength returns how many bytes a field has in a DNS message. It is too large by a few for those that are short anyway.
func wireLength(kind, f string) int {
	switch kind {
	case "hex":
		return len(f) / 2
	case "quoted":
		return len(bare(f)) - 1 // one byte has the length, the quotes have none
	}
	return len(f) + 4
}

// bare returns a character-string with one octet instead of each escape.
func bare(text string) string { return escape.ReplaceAllString(text, "x") }

// recordField checks one field and returns its canonical form. A Terraform configuration and the changelog of octodns-hetzner 2.0.0 have
// the messages about a TXT string.
func recordField(kind, f string) (canonical, problem string) {
	if bits, ok := strings.CutPrefix(kind, "uint"); ok {
		size, _ := strconv.Atoi(bits)
		n, err := strconv.ParseUint(f, 10, size)
		if err != nil {
			return f, fmt.Sprintf("must be a number of %d bits", size)
		}
		return strconv.FormatUint(n, 10), ""
	}
	ok, want := true, ""
	switch kind {
	case "ipv4", "ipv6":
		a, err := netip.ParseAddr(f)
		ok, want = err == nil && a.Is4() == (kind == "ipv4") && a.Zone() == "", "must be an "+strings.Replace(kind, "ip", "IP", 1)+
			" address"
		if ok {
			f = a.String()
		}
	case "host":
		ok, want = hostName.MatchString(f) && len(f) <= 254, "must be a host name"
	case "tag":
		ok, want = caaTag.MatchString(f), "must be a tag such as issue"
	case "hex":
		_, err := hex.DecodeString(f)
		ok, want = err == nil && f != "", "must be hexadecimal"
	case "quoted":
		if !quoted.MatchString(bare(f)) {
			return f, "TXT records must be fully escaped with double quotes"
		}
		ok, want = len(bare(f)) <= 257, "a TXT string exceeds 255 characters"
	case "text":
		ok, want = len(strings.Trim(bare(f), `"`)) <= 255, "must have at most 255 characters"
	case "param":
		ok, want = svcParam.MatchString(f), "must be a parameter such as alpn=h2"
	}
	if !ok {
		return f, want
	}
	return f, ""
}

// SplitRecord splits a record at white space outside of double quotes.
func SplitRecord(value string) (fields []string, problem string) {
	var field strings.Builder
	quoted, escaped := false, false
	end := func() {
		if field.Len() > 0 {
			fields = append(fields, field.String())
			field.Reset()
		}
	}
	for _, c := range value {
		switch {
		case c == '\n' || c == '\r' || c == 0:
			return nil, "must be on one line"
		case escaped:
			escaped = false
		case c == '\\':
			escaped = true
		case c == '"':
			quoted = !quoted
		case (c == ' ' || c == '\t') && !quoted:
			end()
			continue
		}
		field.WriteRune(c)
	}
	if quoted || escaped {
		return nil, "has a quote or backslash without its end"
	}
	end()
	if len(fields) == 0 {
		return nil, "must not be empty"
	}
	return fields, ""
}

// isType reports whether there are records of a type.
func isType(kind string) bool { return slices.Contains(Types, kind) }
