package bind

import (
	"bytes"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/dns"
)

// MaxText is how many characters a string may have if its tag has no len with an end. The real limits are not known; this one bounds what
// a resource takes.
const MaxText = 4096

func (b *binder) checkString(path, s string, checks []check) {
	bounded := len(s) <= MaxText
	for _, c := range checks {
		switch c.name {
		case "len":
			bounded = bounded || !strings.HasSuffix(c.arg, ":")
			b.checkLength(path, utf8.RuneCountInString(s), "characters", []check{c})
		case "oneof":
			if !slices.Contains(strings.Split(c.arg, "|"), s) {
				b.fail(path, "must be one of %s", strings.ReplaceAll(c.arg, "|", ", "))
			}
		case "choice":
			if s != c.arg {
				b.fail(path, "Not a valid choice.") // terraform-provider-hcloud issue 1371
			}
		case "hostname":
			if !dns.IsHostname(s) {
				b.fail(path, "Name must be a valid hostname.") // mysticaltech/terraform-hcloud-kube-hetzner issue 104
			}
		case "notblank":
			if strings.TrimSpace(s) == "" {
				b.fail(path, "must not be empty")
			}
		default:
			panic("bind: unknown check " + c.name + " of string " + path)
		}
	}
	if !bounded && utf8.RuneCountInString(s) > MaxText {
		b.fail(path, "must have at most %d characters", MaxText)
	}
}

func (b *binder) checkNumber(path string, n int64, checks []check) {
	for _, c := range checks {
		switch c.name {
		case "min":
			if lo := mustInt(c.arg); n < lo {
				b.fail(path, "must be at least %d", lo)
			}
		case "max":
			if hi := mustInt(c.arg); n > hi {
				b.fail(path, "must be at most %d", hi)
			}
		case "port":
			if n < 1 || n > 65535 {
				b.fail(path, "must be a port from 1 to 65535")
			}
		default:
			panic("bind: unknown check " + c.name + " of number " + path)
		}
	}
}

func (b *binder) checkLength(path string, n int, unit string, checks []check) {
	for _, c := range checks {
		if c.name != "len" {
			continue
		}
		lo, hi, _ := strings.Cut(c.arg, ":")
		switch {
		case int64(n) < mustInt(lo):
			b.fail(path, "must have at least %s %s", lo, unit)
		case hi != "" && int64(n) > mustInt(hi):
			b.fail(path, "must have at most %s %s", hi, unit)
		}
	}
}

func mustInt(s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		panic("bind: bad number in a check: " + s)
	}
	return n
}

// abbreviate shortens a value for an error message.
func abbreviate(s string) string {
	if r := []rune(s); len(r) > 64 {
		return string(r[:64]) + "…"
	}
	return s
}

// loneSurrogate returns the place of the first \u escape that is one half of a surrogate pair without the other half, or -1.
// The body is valid JSON. encoding/json would replace such an escape with U+FFFD.
func loneSurrogate(body []byte) int {
	for i := 0; ; {
		next := bytes.IndexByte(body[i:], '\\')
		if next < 0 {
			return -1
		}
		i += next
		first, ok := escaped(body[i:])
		if !ok {
			i += 2
			continue
		}
		if utf16.IsSurrogate(first) {
			second, _ := escaped(body[i+6:])
			if utf16.DecodeRune(first, second) == utf8.RuneError {
				return i
			}
			i += 6
		}
		i += 6
	}
}

// escaped returns the code unit of the \u escape at the beginning of valid JSON, if there is one.
func escaped(text []byte) (unit rune, ok bool) {
	if len(text) < 6 || text[0] != '\\' || text[1] != 'u' {
		return 0, false
	}
	n, err := strconv.ParseUint(string(text[2:6]), 16, 16)
	return rune(n), err == nil
}

// field is one field of a request's struct, with its checks.
type field struct {
	index    int
	name     string
	since    string // the first day with the field, or ""
	until    string // the first day without the field, or ""
	required bool
	opt      bool // an Opt
	text     bool // a number or a boolean that may be a text
	checks   []check
	each     []check
}

// on reports whether the field exists on a day. Days in this form have the order of their texts.
func (f *field) on(day string) bool {
	if day == "" {
		return f.until == ""
	}
	return day >= f.since && (f.until == "" || day < f.until)
}

// known reports whether the field exists on a day, or since a later one.
func (f *field) known(day string) bool { return f.on(day) || f.until == "" }

type check struct{ name, arg string }

var schemas sync.Map // reflect.Type → []field

func fieldsOf(t reflect.Type) []field {
	if f, ok := schemas.Load(t); ok {
		return f.([]field)
	}
	var fields []field
	for i := range t.NumField() {
		sf := t.Field(i)
		name, _, _ := strings.Cut(sf.Tag.Get("json"), ",")
		if name == "" || name == "-" {
			continue
		}
		f := field{index: i, name: name, since: sf.Tag.Get("since"), until: sf.Tag.Get("until")}
		f.opt = reflect.PointerTo(sf.Type).Implements(reflect.TypeFor[optional]())
		for c := range strings.SplitSeq(sf.Tag.Get("check"), ",") {
			if c == "" {
				continue
			}
			k, arg, _ := strings.Cut(c, "=")
			switch {
			case k == "required":
				f.required = true
			case k == "text":
				f.text = true
			case strings.HasPrefix(k, "each."):
				f.each = append(f.each, check{strings.TrimPrefix(k, "each."), arg})
			default:
				f.checks = append(f.checks, check{k, arg})
			}
		}
		fields = append(fields, f)
	}
	schemas.Store(t, fields)
	return fields
}
