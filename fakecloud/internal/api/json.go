package api

import (
	"encoding/json"
	"net/netip"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"
)

// marshal encodes a value of this program. This cannot fail.
func marshal(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic("api: " + err.Error())
	}
	return b
}

// collect returns what a function appends.
func collect(appendTo func(b []byte) []byte) []byte {
	buffer := bodies.Get().(*[]byte)
	b := appendTo((*buffer)[:0])
	out := slices.Clone(b)
	keepBody(buffer, b)
	return out
}

// appender appends its JSON.
type appender interface{ appendJSON(b []byte) []byte }

// The functions below append what json.Marshal returns, without the cost of reflection. They are for what almost every change encodes:
// servers, actions and events. name is a member's name with the punctuation around it.

func appendInt[T ~int | ~int64](b []byte, name string, v T) []byte {
	return strconv.AppendInt(append(b, name...), int64(v), 10)
}

func appendBool(b []byte, name string, v bool) []byte {
	return strconv.AppendBool(append(b, name...), v)
}

func appendText[T ~string](b []byte, name string, v T) []byte {
	b = append(b, name...)
	for i := range len(v) {
		if c := v[i]; c < ' ' || c >= utf8.RuneSelf || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			return appendOther(b, "", v)
		}
	}
	return append(append(append(b, '"'), v...), '"')
}

func appendTime(b []byte, name string, v time.Time) []byte {
	b = append(b, name...)
	if v.IsZero() {
		return append(b, "null"...)
	}
	return append(v.UTC().AppendFormat(append(b, '"'), time.RFC3339), '"')
}

// appendList appends a list. item appends each of its items.
func appendList[T any](b []byte, name string, list []T, item func([]byte, T) []byte) []byte {
	b = append(append(b, name...), '[')
	for i, v := range list {
		if i > 0 {
			b = append(b, ',')
		}
		b = item(b, v)
	}
	return append(b, ']')
}

func appendIDs(b []byte, name string, ids []int64) []byte {
	return appendList(b, name, ids, func(b []byte, id int64) []byte { return strconv.AppendInt(b, id, 10) })
}

func appendLabels(b []byte, name string, labels map[string]string) []byte {
	b = append(append(b, name...), '{')
	keys := make([]string, 0, 8) // on the stack, because most resources have no more
	for key := range labels {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	for i, key := range keys {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendText(appendText(b, "", key), ":", labels[key])
	}
	return append(b, '}')
}

func appendAddr(b []byte, a netip.Addr) []byte { return append(a.AppendTo(append(b, '"')), '"') }

// appendNullable appends a value that is mostly null.
func appendNullable[T any](b []byte, name string, v *T) []byte {
	if v == nil {
		return append(append(b, name...), "null"...)
	}
	return appendOther(b, name, v)
}

// appendOther appends a value that is seldom there.
func appendOther[T any](b []byte, name string, v T) []byte {
	return append(append(b, name...), marshal(v)...)
}
