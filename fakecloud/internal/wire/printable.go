package wire

import (
	"strconv"
	"strings"
)

// Printable returns a text of somebody else in which each character that is not printable is escaped as in Go, such as \n or \x1b. A
// terminal obeys control characters, and a line break forges a line.
func Printable(s string) string {
	other := func(r rune) bool { return !strconv.IsPrint(r) }
	if !strings.ContainsFunc(s, other) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if other(r) {
			b.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}
