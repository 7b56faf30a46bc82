package bind

import (
	"encoding/json"
	"math"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/cloud"
)

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
		if text, isText := v.(string); isText && dst.Kind() == reflect.Int64 {
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
	slices.Sort(wrong)
	for _, k := range wrong[:min(len(wrong), cloud.MaxMistakes+1)] {
		b.fail(path, "the value of %q must be a string", abbreviate(k))
	}
	dst.Set(reflect.ValueOf(out))
}
