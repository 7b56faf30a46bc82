package bind

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/cloud"
)

type inner struct {
	Port int     `json:"port" check:"required,port"`
	Kind *string `json:"kind" check:"oneof=tcp|http"`
}

type request struct {
	Name   string            `json:"name" check:"required,hostname"`
	Type   IDOrName          `json:"type" check:"required"`
	Count  *int              `json:"count" check:"min=1,max=5"`
	Flag   *bool             `json:"flag"`
	Labels map[string]string `json:"labels"`
	IDs    []int64           `json:"ids" check:"len=1:3,each.min=1"`
	Inner  *inner            `json:"inner"`
	List   []inner           `json:"list"`
	IP     netip.Addr        `json:"ip"`
	Range  netip.Prefix      `json:"range"`
	Text   string            `json:"text" check:"len=0:4"`
	DNSPtr Opt[string]       `json:"dns_ptr" check:"notblank"`
	Note   string            `json:"note" check:"len=0:"`
	Long   string            `json:"long" check:"len=0:5000"`
}

func read(ctx context.Context, body []byte, out any, day string) error {
	_, err := Unread(ctx, body, out, day)
	return err
}

func TestAllFieldsArrive(t *testing.T) {
	t.Parallel()
	var got request
	err := read(t.Context(), []byte(`{
		"name": "a.b", "type": 7, "count": 5.0, "flag": false, "labels": {"a": "b"}, "ids": [1, 2],
		"inner": {"port": 80, "kind": "tcp"}, "list": [{"port": 1}], "ip": "10.0.0.1", "range": "10.0.0.0/8",
		"text": "äöüß", "dns_ptr": null, "unknown": {"is": "ignored"}, "ignored": 1}`), &got, "")
	if err != nil {
		t.Fatal(err)
	}
	five, no, tcp := 5, false, "tcp"
	want := request{
		Name: "a.b", Type: "7", Count: &five, Flag: &no, Labels: map[string]string{"a": "b"}, IDs: []int64{1, 2},
		Inner: &inner{80, &tcp}, List: []inner{{Port: 1}}, IP: netip.MustParseAddr("10.0.0.1"),
		Range: netip.MustParsePrefix("10.0.0.0/8"), Text: "äöüß", DNSPtr: Opt[string]{Present: true, Null: true},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if got.DNSPtr.Ptr() != nil {
		t.Error("null has a value")
	}
}

func TestTheErrorNamesEveryWrongField(t *testing.T) {
	t.Parallel()
	ok := map[string]any{"name": "a", "type": "t"}
	for name, tc := range map[string]struct {
		set  map[string]any
		want string // names of the fields, in the order of the error
	}{
		"nothing wrong": {nil, ""},
		"missing":       {map[string]any{"name": nil, "type": nil}, "name type"},
		"wrong types": {map[string]any{"name": 1, "type": true, "count": "1", "flag": "no", "labels": []int{}, "ids": 1,
			"inner": "x", "list": map[string]int{}, "ip": 1, "range": false, "text": 1, "dns_ptr": 1},
			"name type count flag labels ids inner list ip range text dns_ptr"},
		"bad values": {map[string]any{"name": "a b", "type": " ", "ip": "1.2.3", "range": "10.0.0.0", "text": "abcde",
			"dns_ptr": ""}, "name type ip range text dns_ptr"},
		"out of range":       {map[string]any{"count": 6}, "count"},
		"a fraction":         {map[string]any{"count": 1.5}, "count"},
		"an enormous number": {map[string]any{"count": json.Number("1e400")}, "count"},
		"too many items":     {map[string]any{"ids": []int{1, 2, 3, 4}}, "ids"},
		"a bad item":         {map[string]any{"ids": []any{1, "b", nil}}, "ids.1 ids.2"},
		"ids as text":        {map[string]any{"ids": []any{"1", "9223372036854775807"}}, ""},
		"bad ids as text":    {map[string]any{"ids": []any{"0", "-1", "01"}}, "ids.0 ids.1 ids.2"},
		"more bad ids":       {map[string]any{"ids": []any{"1.0", " 1", "9223372036854775808"}}, "ids.0 ids.1 ids.2"},
		"a long string":      {map[string]any{"note": strings.Repeat("ä", MaxText)}, ""},
		"a longer string": {map[string]any{"note": strings.Repeat("ä", MaxText+1), "type": strings.Repeat("a", MaxText+1)},
			"type note"},
		"a string with len":    {map[string]any{"long": strings.Repeat("a", MaxText+1)}, ""},
		"an item out of range": {map[string]any{"ids": []any{1, 0}}, "ids.1"},
		"a bad label":          {map[string]any{"labels": map[string]any{"a": 1}}, "labels"},
		"nested":               {map[string]any{"inner": map[string]any{"port": 0, "kind": "udp"}}, "inner.port inner.kind"},
		"nested in a list":     {map[string]any{"list": []any{map[string]any{"port": 1}, map[string]any{}}}, "list.1.port"},
		"an IPv6 zone":         {map[string]any{"ip": "fe80::1%eth0"}, "ip"},
		"null where optional":  {map[string]any{"count": nil, "inner": nil, "labels": nil, "ids": nil}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := map[string]any{}
			maps.Copy(in, ok)
			maps.Copy(in, tc.set)
			body, _ := json.Marshal(in)
			err := read(t.Context(), body, new(request), "")
			var e *cloud.Error
			if err != nil && !errors.As(err, &e) {
				t.Fatalf("not an API error: %v", err)
			}
			var names []string
			if e != nil {
				if e.Code != "invalid_input" || e.Status != 422 {
					t.Errorf("%d %s", e.Status, e.Code)
				}
				for _, f := range e.Fields {
					names = append(names, f.Name)
					if len(f.Messages) == 0 {
						t.Errorf("%s has no message", f.Name)
					}
				}
			}
			if got := strings.Join(names, " "); got != tc.want {
				t.Errorf("fields %q, want %q", got, tc.want)
			}
		})
	}
}

func TestOtherBodiesThanObjectsAreJSONErrors(t *testing.T) {
	t.Parallel()
	for _, body := range []string{`{`, `[]`, `1`, `"a"`, `null`, `{"name": "a"} {}`, `{"name":}`, "\xff", `{"a":1,}`,
		strings.Repeat("[", 1<<16)} {
		var e *cloud.Error
		if err := read(t.Context(), []byte(body), new(request), ""); !errors.As(err, &e) || e.Code != "json_error" || e.Status != 400 {
			t.Errorf("%.20q: %v", body, err)
		}
	}
	var e *cloud.Error
	if err := read(t.Context(), nil, new(request), ""); !errors.As(err, &e) || e.Code != "invalid_input" {
		t.Errorf("no body: %v, want the required fields", err)
	}
}

// JSON can name code units that are not characters. encoding/json would store U+FFFD without an error.
func TestHalvesOfSurrogatePairsAreJSONErrors(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		`\ud800`: false, `\udc00`: false, `\ud800\ud800`: false, `\udc00\ud800`: false, `\ud83d\n`: false, `a\\\ud800`: false,
		`\uD83D x`: false, `\ud83d\ude00`: true, `\uD83D\uDE00\u00e4`: true, `\\ud800`: true, `\\\\ud800`: true, `\"\ufffd`: true, ``: true,
	} {
		for _, body := range []string{`{"name": "a", "type": "t", "note": "` + text + `"}`, `{"name": "a", "type": "t", "` + text +
			`": 1}`} {
			var e *cloud.Error
			err := read(t.Context(), []byte(body), new(request), "")
			if errors.As(err, &e); want && err != nil || !want && (e == nil || e.Code != "json_error") {
				t.Errorf("%s: %v", body, err)
			}
		}
	}
}

// A client that left gets no answer, so that a long body is not bound to its end. A short one is: the client may have closed only its half
// of the connection.
func TestBindingEndsWhenTheClientHasLeft(t *testing.T) {
	t.Parallel()
	gone, leave := context.WithCancel(t.Context())
	leave()
	for n, want := range map[int]cloud.Code{100: "", 10_000: "json_error"} {
		for name, body := range map[string]string{
			"items":  `{"name": "a", "type": "t", "list": [` + strings.TrimSuffix(strings.Repeat(`{"port": 1},`, n), ",") + `]}`,
			"labels": `{"name": "a", "type": "t", "labels": {` + manyLabels(n) + `}}`,
		} {
			var e *cloud.Error
			if err := read(gone, []byte(body), new(request), ""); want == "" && err != nil || want != "" &&
				(!errors.As(err, &e) || e.Code != want) {
				t.Errorf("%d %s: %v, want %q", n, name, err, want)
			}
		}
	}
}

func manyLabels(n int) string {
	labels := make([]string, n)
	for i := range labels {
		labels[i] = fmt.Sprintf(`"k%d": "v"`, i)
	}
	return strings.Join(labels, ",")
}

// Days are compared as texts: the first day with a field is its since, the last day is the one before its until.
func TestAFieldIsUnknownOutsideOfItsDays(t *testing.T) {
	t.Parallel()
	type request struct {
		Came int `json:"came" since:"2026-10-05" check:"required"`
		Went int `json:"went" until:"2026-07-01"`
	}
	for day, want := range map[string]request{
		"2026-06-30": {0, 2}, "2026-07-01": {0, 0}, "2026-10-04": {0, 0}, "2026-10-05": {1, 0}, "": {1, 0},
	} {
		var got request
		body := []byte(`{"came": 1, "went": 2}`)
		if err := read(t.Context(), body, &got, day); err != nil || got != want {
			t.Errorf("%q: %+v, %v; want %+v", day, got, err, want)
		}
		var unknown *cloud.Error
		if err := Unknown(t.Context(), body, new(request), day); !errors.As(err, &unknown) {
			t.Errorf("%q: no field is unknown", day)
		}
		if err := read(t.Context(), []byte(`{"came": "text"}`), new(request), day); (err != nil) != (want.Came != 0) {
			t.Errorf("%q: a wrong value: %v", day, err)
		}
	}
}

func FuzzJSON(f *testing.F) {
	f.Add([]byte(`{"name":"a","type":1,"inner":{"port":1},"list":[{"port":2}],"ids":[1]}`))
	f.Add([]byte(`{"list":[[[[]]]],"labels":{"a":{}}}`))
	f.Add([]byte(`{"name":"\ud83d\ude00","type":"\\\udc00","ids":["1"]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		var e *cloud.Error
		if err := read(t.Context(), body, new(request), ""); err != nil && !errors.As(err, &e) {
			t.Errorf("%q: %v is not an API error", body, err)
		}
	})
}
