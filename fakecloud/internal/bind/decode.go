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
// distinguishes absent and null. Unknown fields are ignored, because old clients send removed fields. [Unread] names them,
// and [Unknown] makes an error of them. A field with the tag since:"2026-10-05" is unknown before that day, and one with the
// tag until:"2026-07-01" from that day on.
//
// Checks: required; min=N, max=N for numbers; len=A:B for strings (characters) and arrays (items);
// oneof=a|b|c; choice=a; hostname (RFC 1123); port; notblank. The prefix each. applies a check to the items of an array. A field of
// type netip.Addr or netip.Prefix is parsed from a string. A string has at most [MaxText] characters if len does not say more.
//
// An int64 is the id of a resource, and also accepts the id as text, such as "123": hcloud-python 1.18 passes on what its
// caller has. An int and a bool do so with the check text: the real API is known to accept some fields as text.
//
// The cost follows the size of the body. Binding stops when the error has no room for more mistakes, and when the client
// leaves.
package bind

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"strings"
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

// Unread decodes body into out, a pointer to a struct. An empty body counts as {}. The error is a *cloud.Error: json_error if the body is
// not a JSON object or the client left, or invalid_input with the wrong fields. day is a day such as "2026-06-01", or "" for the day after
// all changes. It also returns the paths of up to [MaxUnread] fields with a value that the struct does not have. It leaves out a field that
// comes on a later day.
func Unread(ctx context.Context, body []byte, out any, day string) (unread []string, err error) {
	b := binder{day: day, ctx: ctx}
	if err := b.decode(body, out); err != nil {
		return nil, err
	}
	return b.unread, b.err()
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
	ctx         context.Context // ends when the client has left
	hasLeft     bool
	steps       int
	unread      []string
}

// err returns an error about all noted mistakes, or nil.
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

// stepsPerLook is the number of items between two checks that the client is still there. Most bodies have fewer items: a client that only
// closed its half of the connection gets its answer.
const stepsPerLook = 1024

// ends reports whether the rest of the body need not be bound.
func (b *binder) ends() bool {
	if b.steps++; b.steps%stepsPerLook == 0 {
		b.hasLeft = b.ctx.Err() != nil
	}
	return b.hasLeft || b.mistakes > cloud.MaxMistakes
}

func (b *binder) object(path string, obj map[string]any, out reflect.Value, depth int) {
	if b.findUnknown {
		b.noteUnknown(path, obj, fieldsOf(out.Type()))
	}
	read := 0
	for _, f := range fieldsOf(out.Type()) {
		v, present := obj[f.name]
		if present && f.known(b.day) {
			read++
		}
		if !f.on(b.day) {
			continue
		}
		at := join(path, f.name)
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
	if read < len(obj) {
		b.noteUnread(path, obj, fieldsOf(out.Type()))
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
		if text, isText := v.(string); isText && f.text {
			x, ok = text == "true", text == "true" || text == "false"
		}
		if !ok {
			b.fail(path, "must be a boolean")
			return
		}
		dst.SetBool(x)
	case reflect.Int, reflect.Int64:
		n, ok := integer(v)
		if text, isText := v.(string); isText && (f.text || dst.Kind() == reflect.Int64) {
			n, ok = cloud.ParseID(text)
		}
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
		b.checkString(path, x, nil)
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
		if b.ends() {
			return
		}
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
	var wrong []string
	for k, item := range obj {
		if s, ok := item.(string); ok {
			out[k] = s
		} else {
			wrong = append(wrong, k)
		}
		if b.ends() {
			return
		}
	}
	if len(wrong) > 0 {
		b.fail(path, "the value of %q must be a string", abbreviate(slices.Min(wrong)))
	}
	dst.Set(reflect.ValueOf(out))
}
