package dns

import (
	"regexp"
	"strings"
)

// IsLabel reports whether text has 1 to 63 characters, each an ASCII letter or digit, or, except for the first and the last, one of
// inner. It takes less than a tenth of the time of a regular expression.
func IsLabel(text, inner string) bool {
	for i := range len(text) {
		c := text[i]
		letter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
		if !letter && (i == 0 || i == len(text)-1 || strings.IndexByte(inner, c) < 0) {
			return false
		}
	}
	return text != "" && len(text) <= 63
}

// maxName is the number of characters of a name.
const maxName = 253

// IsHostname reports whether s is a hostname as per RFC 1123: labels of letters, digits and dashes, separated by periods,
// with at most 253 characters.
func IsHostname(s string) bool {
	for label := range strings.SplitSeq(s, ".") {
		if !IsLabel(label, "-") {
			return false
		}
	}
	return len(s) <= maxName
}

// domainLabel is a label of a host name, in lower case. topLevel is the last one: no public suffix ends with a number.
const (
	domainLabel = `[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?`
	topLevel    = `[a-z]([a-z0-9-]{0,61}[a-z0-9])?`
)

var zoneName = regexp.MustCompile(`^(` + domainLabel + `\.)+` + topLevel + `$`)

// IsZone reports whether name may be that of a zone: a domain in lower case, without an ending dot.
func IsZone(name string) bool { return len(name) <= 255 && zoneName.MatchString(name) }
