// Package bind reads a request's JSON body into a struct. Its error, the API's invalid_input, names all wrong fields, not
// only the first one.
//
// The struct's tags are the request's schema:
//
//	type createServer struct {
//		Name       string            `json:"name" check:"required,hostname"`
//		ServerType bind.IDOrName     `json:"server_type" check:"required"`
//		Labels     map[string]string `json:"labels"`
//		Networks   []int64           `json:"networks" check:"each.min=1"`
//		PublicNet  *publicNet        `json:"public_net"`
//	}
//
// A field is optional unless it is `required`. JSON null counts as absent, but a required field may not be null. [Opt]
// distinguishes absent and null. Unknown fields are ignored like in the real API, because old clients send removed
// fields. [Unknown] finds them. A field with the tag since:"2026-10-05" is unknown before that day, and one with the tag
// until:"2026-07-01" from that day on.
//
// Checks: required; min=N, max=N for numbers; len=A:B for strings (characters) and arrays (items);
// oneof=a|b|c; hostname (RFC 1123); port; notblank. The prefix each. applies a check to the items of an array. A field of
// type netip.Addr or netip.Prefix is parsed from a string.
package bind

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/cloud"
)

// IDOrName is a field that takes the id (a JSON number or string) or the name of a resource.
type IDOrName string

// Opt is a field that may be absent, null or set.
type Opt[T any] struct {
	Present bool // the field is in the body, null or not
	Null    bool
	Value   T
}

// Ptr returns nil unless the field has a value.
func (o Opt[T]) Ptr() *T {
	if !o.Present || o.Null {
		return nil
	}
	return &o.Value
}

func (o *Opt[T]) opt() (present, null *bool, value any) { return &o.Present, &o.Null, &o.Value }

type optional interface {
	opt() (present, null *bool, value any)
}

const maxDepth = 64

// JSON decodes body into out, a pointer to a struct. An empty body counts as {}. The error is a *cloud.Error: json_error
// if the body is not a JSON object, or invalid_input with all wrong fields. day is a day such as "2026-06-01", or "" for
// the day after all changes.
func JSON(body []byte, out any, day string) error { return decode(body, out, &binder{day: day}) }

// Unknown returns a *cloud.Error, invalid_input, with the fields of body that the struct of out does not have, or nil. It
// does not report the errors that [JSON] finds.
func Unknown(body []byte, out any, day string) error {
	b := binder{day: day, findUnknown: true}
	_ = decode(body, out, &b)
	if len(b.unknown) > 0 {
		return cloud.ErrInvalidInput(b.unknown...)
	}
	return nil
}

func decode(body []byte, out any, b *binder) error {
	if len(bytes.TrimSpace(body)) == 0 {
		body = []byte("{}")
	}
	if !utf8.Valid(body) {
		return cloud.ErrJSON("it is not UTF-8")
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
			return cloud.ErrJSON(fmt.Sprintf("%v at byte %d", syntax, syntax.Offset))
		}
		if errors.Is(err, io.ErrUnexpectedEOF) {
			return cloud.ErrJSON("it ends too early")
		}
		return cloud.ErrJSON(err.Error())
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return cloud.ErrJSON("there is more after the first value")
	}
	obj, ok := v.(map[string]any)
	if !ok {
		return cloud.ErrJSON("it is not an object")
	}
	b.object("", obj, reflect.ValueOf(out).Elem(), 0)
	if len(b.fields) > 0 {
		return cloud.ErrInvalidInput(b.fields...)
	}
	return nil
}

type binder struct {
	day         string
	fields      []cloud.FieldError
	findUnknown bool
	unknown     []cloud.FieldError
}

func (b *binder) fail(path, format string, args ...any) {
	msg := fmt.Sprintf(format, args...)
	for i := range b.fields {
		if b.fields[i].Name == path {
			b.fields[i].Messages = append(b.fields[i].Messages, msg)
			return
		}
	}
	b.fields = append(b.fields, cloud.FieldError{Name: path, Messages: []string{msg}})
}

// field is one field of a request's struct, with its checks.
type field struct {
	index    int
	name     string
	since    string // the first day with the field, or ""
	until    string // the first day without the field, or ""
	required bool
	opt      bool // an Opt
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

// noteUnknown records the fields of an object that its struct does not have.
func (b *binder) noteUnknown(path string, obj map[string]any, fields []field) {
	var known []string
	for _, f := range fields {
		if f.on(b.day) {
			known = append(known, f.name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(obj)) {
		if !slices.Contains(known, name) {
			b.unknown = append(b.unknown, cloud.FieldError{
				Name:     join(path, name),
				Messages: []string{"is unknown: must be one of " + strings.Join(known, ", ")},
			})
		}
	}
}

func (b *binder) object(path string, obj map[string]any, out reflect.Value, depth int) {
	if b.findUnknown {
		b.noteUnknown(path, obj, fieldsOf(out.Type()))
	}
	for _, f := range fieldsOf(out.Type()) {
		if !f.on(b.day) {
			continue
		}
		at := join(path, f.name)
		v, present := obj[f.name]
		dst := out.Field(f.index)
		if f.opt {
			o, _ := reflect.TypeAssert[optional](dst.Addr())
			isPresent, isNull, value := o.opt()
			*isPresent, *isNull = present, present && v == nil
			if f.required && !present {
				b.fail(at, "is required")
			}
			if present && v != nil {
				b.value(at, v, reflect.ValueOf(value).Elem(), f, depth)
			}
			continue
		}
		switch {
		case v != nil:
			b.value(at, v, dst, f, depth)
		case f.required && present:
			b.fail(at, "may not be null")
		case f.required:
			b.fail(at, "is required")
		}
	}
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

var (
	typeIDOrName = reflect.TypeFor[IDOrName]()
	typeAddr     = reflect.TypeFor[netip.Addr]()
	typePrefix   = reflect.TypeFor[netip.Prefix]()
)

// value stores v in dst, or records why it cannot. v is not nil.
func (b *binder) value(path string, v any, dst reflect.Value, f field, depth int) {
	if depth > maxDepth {
		b.fail(path, "is nested too deeply")
		return
	}
	switch {
	case dst.Kind() == reflect.Pointer:
		p := reflect.New(dst.Type().Elem())
		b.value(path, v, p.Elem(), f, depth)
		dst.Set(p)
		return
	case dst.Type() == typeIDOrName:
		b.idOrName(path, v, dst)
		return
	case dst.Type() == typeAddr, dst.Type() == typePrefix:
		b.address(path, v, dst)
		return
	}
	switch dst.Kind() {
	case reflect.String:
		s, ok := v.(string)
		if !ok {
			b.fail(path, "must be a string")
			return
		}
		dst.SetString(s)
		b.checkString(path, s, f.checks)
	case reflect.Bool:
		x, ok := v.(bool)
		if !ok {
			b.fail(path, "must be a boolean")
			return
		}
		dst.SetBool(x)
	case reflect.Int, reflect.Int64:
		n, ok := integer(v)
		if !ok {
			b.fail(path, "must be an integer")
			return
		}
		dst.SetInt(n)
		b.checkNumber(path, n, f.checks)
	case reflect.Slice:
		b.slice(path, v, dst, f, depth)
	case reflect.Map:
		b.stringMap(path, v, dst)
	case reflect.Struct:
		obj, ok := v.(map[string]any)
		if !ok {
			b.fail(path, "must be an object")
			return
		}
		b.object(path, obj, dst, depth+1)
	default:
		panic("bind: unsupported type " + dst.Type().String() + " of field " + path)
	}
}

// integer accepts numbers without a fraction, also in the forms 80.0 and 8e1.
func integer(v any) (int64, bool) {
	num, ok := v.(json.Number)
	if !ok {
		return 0, false
	}
	if n, err := num.Int64(); err == nil {
		return n, true
	}
	x, err := num.Float64()
	if err != nil || x != math.Trunc(x) || math.Abs(x) >= 1<<53 {
		return 0, false
	}
	return int64(x), true
}

func (b *binder) idOrName(path string, v any, dst reflect.Value) {
	switch x := v.(type) {
	case string:
		if strings.TrimSpace(x) == "" {
			b.fail(path, "must not be empty")
			return
		}
		dst.SetString(x)
	default:
		n, ok := integer(v)
		if !ok {
			b.fail(path, "must be an id or a name")
			return
		}
		dst.SetString(strconv.FormatInt(n, 10))
	}
}

func (b *binder) address(path string, v any, dst reflect.Value) {
	s, ok := v.(string)
	if !ok {
		b.fail(path, "must be a string")
		return
	}
	if dst.Type() == typeAddr {
		a, err := netip.ParseAddr(s)
		if err != nil || a.Zone() != "" {
			b.fail(path, "%q is not an IP address", abbreviate(s))
			return
		}
		dst.Set(reflect.ValueOf(a.Unmap()))
		return
	}
	p, err := netip.ParsePrefix(s)
	if err != nil {
		b.fail(path, "%q is not an IP range in CIDR notation", abbreviate(s))
		return
	}
	dst.Set(reflect.ValueOf(p))
}

func (b *binder) slice(path string, v any, dst reflect.Value, f field, depth int) {
	items, ok := v.([]any)
	if !ok {
		b.fail(path, "must be an array")
		return
	}
	b.checkLength(path, len(items), "items", f.checks)
	out := reflect.MakeSlice(dst.Type(), len(items), len(items))
	for i, item := range items {
		at := join(path, strconv.Itoa(i))
		if item == nil {
			b.fail(at, "may not be null")
			continue
		}
		b.value(at, item, out.Index(i), field{checks: f.each}, depth+1)
	}
	dst.Set(out)
}

func (b *binder) stringMap(path string, v any, dst reflect.Value) {
	obj, ok := v.(map[string]any)
	if !ok {
		b.fail(path, "must be an object")
		return
	}
	out := make(map[string]string, len(obj))
	for k, item := range obj {
		s, ok := item.(string)
		if !ok {
			b.fail(path, "the value of %q must be a string", abbreviate(k))
			continue
		}
		out[k] = s
	}
	dst.Set(reflect.ValueOf(out))
}

func (b *binder) checkString(path, s string, checks []check) {
	for _, c := range checks {
		switch c.name {
		case "len":
			b.checkLength(path, utf8.RuneCountInString(s), "characters", []check{c})
		case "oneof":
			if !contains(c.arg, s) {
				b.fail(path, "must be one of %s", strings.ReplaceAll(c.arg, "|", ", "))
			}
		case "hostname":
			if !cloud.IsHostname(s) {
				b.fail(path, "must be a valid hostname as per RFC 1123")
			}
		case "notblank":
			if strings.TrimSpace(s) == "" {
				b.fail(path, "must not be empty")
			}
		default:
			panic("bind: unknown check " + c.name + " of string " + path)
		}
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

func contains(list, s string) bool {
	for item := range strings.SplitSeq(list, "|") {
		if item == s {
			return true
		}
	}
	return false
}

// abbreviate shortens a value for an error message.
func abbreviate(s string) string {
	if r := []rune(s); len(r) > 64 {
		return string(r[:64]) + "…"
	}
	return s
}
