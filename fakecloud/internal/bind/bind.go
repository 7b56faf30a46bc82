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
// type netip.Addr or netip.Prefix is parsed from a string. A string has at most [MaxText] characters if len does not say more.
//
// An int64 is the id of a resource, and also accepts the id as text, such as "123": hcloud-python 1.18 passes on what its
// caller has. An int is a number, and does not.
//
// The cost follows the size of the body. It ends after the first mistakes that an error has room for, and when the client
// has left.
package bind

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
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
// if the body is not a JSON object or the client has left, or invalid_input with the wrong fields. day is a day such as
// "2026-06-01", or "" for the day after all changes.
func JSON(ctx context.Context, body []byte, out any, day string) error {
	b := binder{day: day, left: ctx.Done()}
	if err := b.decode(body, out); err != nil {
		return err
	}
	return b.err()
}

// Unknown returns a *cloud.Error, invalid_input, with the fields of body that the struct of out does not have, or nil. It
// does not report the errors that [JSON] finds.
func Unknown(ctx context.Context, body []byte, out any, day string) error {
	b := binder{day: day, left: ctx.Done(), findUnknown: true}
	if b.decode(body, out) != nil {
		return nil //nolint:nilerr // JSON reports it
	}
	return b.err()
}

// decode returns an error if the body is not a JSON object. It notes all other mistakes.
func (b *binder) decode(body []byte, out any) error {
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
	if at := loneSurrogate(body); at >= 0 {
		return cloud.ErrJSON(fmt.Sprintf(`the half of a surrogate pair at byte %d is not a character; send both halves, such as \ud83d\ude00`, at))
	}
	b.object("", obj, reflect.ValueOf(out).Elem(), 0)
	return nil
}

type binder struct {
	day         string
	findUnknown bool // note unknown fields instead of mistakes
	fields      []cloud.FieldError
	mistakes    int             // the messages in fields
	left        <-chan struct{} // closed when the client has left
	hasLeft     bool
	steps       int
}

// err returns the error for what was noted, or nil.
func (b *binder) err() error {
	switch {
	case b.hasLeft:
		return cloud.ErrJSON("the client has left")
	case len(b.fields) > 0:
		return cloud.ErrInvalidInput(b.fields...)
	}
	return nil
}

func (b *binder) fail(path, format string, args ...any) {
	if !b.findUnknown {
		b.note(path, fmt.Sprintf(format, args...))
	}
}

// note adds a mistake. The mistakes of one field come one after the other.
func (b *binder) note(path, message string) {
	b.mistakes++
	if last := len(b.fields) - 1; last >= 0 && b.fields[last].Name == path {
		b.fields[last].Messages = append(b.fields[last].Messages, message)
		return
	}
	b.fields = append(b.fields, cloud.FieldError{Name: path, Messages: []string{message}})
}

// stepsPerLook is how many items are bound before the binder looks whether the client has left. Most bodies have fewer items:
// a client that has only closed its half of the connection gets its answer.
const stepsPerLook = 1024

// ends reports whether the rest of the body need not be bound.
func (b *binder) ends() bool {
	if b.steps++; b.steps%stepsPerLook == 0 {
		select {
		case <-b.left:
			b.hasLeft = true
		default:
		}
	}
	return b.hasLeft || b.mistakes > cloud.MaxMistakes
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
	message := "is unknown: must be one of " + strings.Join(known, ", ")
	for _, name := range slices.Sorted(maps.Keys(obj)) {
		if !slices.Contains(known, name) && !b.ends() {
			b.note(join(path, abbreviate(name)), message)
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
