package api

import (
	"encoding/json"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"testing"
	"time"
)

// every has a field for each function that appends a member.
type every struct {
	ID     int64             `json:"id"`
	On     bool              `json:"on"`
	Text   string            `json:"text"`
	Time   timeJSON          `json:"time"`
	Addrs  []netip.Addr      `json:"addrs"`
	IDs    []int64           `json:"ids"`
	Labels map[string]string `json:"labels"`
	Other  *priceJSON        `json:"other"`
}

func (e every) appendJSON(b []byte) []byte {
	b = appendInt(b, `{"id":`, e.ID)
	b = appendBool(b, `,"on":`, e.On)
	b = appendText(b, `,"text":`, e.Text)
	b = appendTime(b, `,"time":`, time.Time(e.Time))
	b = appendList(b, `,"addrs":`, e.Addrs, appendAddr)
	b = appendIDs(b, `,"ids":`, e.IDs)
	b = appendLabels(b, `,"labels":`, e.Labels)
	return append(appendNullable(b, `,"other":`, e.Other), '}')
}

// TestAppendersEncodeAsTheLibrary compares each appender with json.Marshal, for values with every field set at random.
func TestAppendersEncodeAsTheLibrary(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(1, 2))
	for _, value := range []appender{every{}, EventJSON{}} {
		for range 2000 {
			filled := reflect.New(reflect.TypeOf(value)).Elem()
			fill(rnd, filled)
			want, err := json.Marshal(filled.Interface())
			if err != nil {
				t.Fatal(err)
			}
			if got := collect(filled.Interface().(appender).appendJSON); string(got) != string(want) {
				t.Fatalf("%T:\n got %s\nwant %s", value, got, want)
			}
		}
	}
}

var texts = []string{"", "web-1", "fsn1", "a \"quoted\" \\ text", "<b>&amp;</b>", "Nürnberg", "line\nbreak\x7f", "\u2028\u2029", "bad\xff"}

// fill sets a value and all parts of it to random values. Numbers and pointers are sometimes zero, lists and maps are empty but not nil.
func fill(rnd *rand.Rand, v reflect.Value) {
	switch v.Interface().(type) {
	case timeJSON, time.Time:
		at := time.Unix(rnd.Int64N(2_000_000_000), rnd.Int64N(2)*1234)
		v.Set(reflect.ValueOf(at.UTC()).Convert(v.Type()))
		if rnd.IntN(4) == 0 {
			v.SetZero()
		}
		return
	case netip.Addr:
		v.Set(reflect.ValueOf(netip.AddrFrom4([4]byte{10, 0, 0, byte(rnd.IntN(255))})))
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(texts[rnd.IntN(len(texts))])
	case reflect.Bool:
		v.SetBool(rnd.IntN(2) == 0)
	case reflect.Int, reflect.Int64:
		v.SetInt(rnd.Int64N(3) * (rnd.Int64() >> rnd.IntN(63)))
	case reflect.Uint64:
		v.SetUint(uint64(rnd.IntN(2)) * (rnd.Uint64() >> rnd.IntN(64)))
	case reflect.Pointer:
		if v.SetZero(); rnd.IntN(3) > 0 {
			v.Set(reflect.New(v.Type().Elem()))
			fill(rnd, v.Elem())
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), rnd.IntN(4), 4))
		for i := range v.Len() {
			fill(rnd, v.Index(i))
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for range rnd.IntN(4) {
			key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			fill(rnd, key)
			fill(rnd, value)
			v.SetMapIndex(key, value)
		}
	case reflect.Struct:
		for _, field := range v.Fields() {
			fill(rnd, field)
		}
	default:
		panic("no random value for a " + v.Type().String())
	}
}
