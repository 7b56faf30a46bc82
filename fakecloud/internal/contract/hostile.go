package contract

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
)

// Hostile is a request that a server must refuse, or that only reads. It is malformed, truncated, oversized, for a
// resource that does not exist, or wrong in one field.
type Hostile struct {
	Why       string
	Method    string
	Target    string // raw path and query, with the base path
	Header    http.Header
	Body      []byte
	BreaksOff bool // the connection breaks after Body: the next read returns io.ErrUnexpectedEOF
}

// Request returns the hostile request in the form that an http.Handler gets.
func (h Hostile) Request(ctx context.Context) *http.Request {
	// httptest would refuse a malformed target, so that it is set afterwards.
	request := httptest.NewRequestWithContext(ctx, h.Method, "/", http.NoBody)
	target, err := url.ParseRequestURI(h.Target)
	if err != nil {
		path, query, _ := strings.Cut(h.Target, "?")
		target = &url.URL{Path: path, RawQuery: query}
	}
	request.URL, request.RequestURI = target, h.Target
	request.Header = h.Header.Clone()
	body := io.Reader(bytes.NewReader(h.Body))
	request.ContentLength = int64(len(h.Body))
	if h.BreaksOff {
		body = io.MultiReader(body, failingReader{io.ErrUnexpectedEOF})
		request.ContentLength++
	}
	request.Body = io.NopCloser(body)
	return request
}

// Attack has the targets of hostile requests.
type Attack struct {
	Document *Document
	Seed     uint64
	// Token is a valid token. Most attacks use it.
	Token string
	// Operations are the attacked operations.
	Operations []*Operation
	// Path returns the path of an operation, with the base path and with existing ids for the parameters. With ids that do
	// not exist, an attack would only reach not_found.
	Path func(*Operation) string
}

// absentID is an id that no resource of a test has.
const absentID = "4999999999999999"

// lenient are the mistakes that the real API accepts: null counts as absent, and unknown properties are ignored.
var lenient = []Kind{Null, Unknown}

// attacker is a running Attack.
type attacker struct {
	Attack
	*rand.Rand
	invalid map[*Operation][]Case
}

// Requests yields hostile requests without end. The same seed gives the same requests. It returns an error if there are no
// operations, or if it cannot make a valid request of one.
func (a Attack) Requests() (iter.Seq[Hostile], error) {
	if len(a.Operations) == 0 {
		return nil, errors.New("attack: Operations must not be empty")
	}
	invalid := make(map[*Operation][]Case)
	for _, op := range a.Operations {
		cases, err := a.Document.InvalidBodies(op)
		if err != nil {
			return nil, err
		}
		invalid[op] = slices.DeleteFunc(cases, func(c Case) bool {
			// A required field within an optional object may have a default.
			return slices.Contains(lenient, c.Kind) || c.Kind == Missing && strings.Count(c.Field, "/") > 1
		})
	}
	return func(yield func(Hostile) bool) {
		on := attacker{Attack: a, Rand: rand.New(rand.NewPCG(a.Seed, 0)), invalid: invalid} //nolint:gosec // repeatable on purpose
		for {
			op := pick(on.Rand, a.Operations)
			attack := pick(on.Rand, attacks)
			if op.request == nil && attack.body {
				continue
			}
			hostile := attack.make(on, op)
			hostile.Why = attack.name + ": " + hostile.Why
			if !yield(hostile) {
				return
			}
		}
	}, nil
}

// attacks are the kinds of hostile requests. Those with a body are for operations that take one.
var attacks = []struct {
	name string
	body bool
	make func(attacker, *Operation) Hostile
}{
	{"truncated", true, attacker.truncated},
	{"malformed", true, attacker.malformed},
	{"oversized", true, attacker.oversized},
	{"nested", true, attacker.nested},
	{"invalid", true, attacker.invalidField},
	{"invalid", true, attacker.invalidField},
	{"number", true, attacker.strangeNumber},
	{"text", true, attacker.strangeText},
	{"broken off", true, attacker.brokenOff},
	{"id", false, attacker.strangeID},
	{"query", false, attacker.strangeQuery},
	{"method", false, attacker.strangeMethod},
	{"stranger", false, attacker.stranger},
}

func pick[T any](r *rand.Rand, from []T) T { return from[r.IntN(len(from))] }

// to returns a request to op with the attacker's token and the given body.
func (a attacker) to(op *Operation, why string, body []byte) Hostile {
	return Hostile{
		Why: why + " (" + op.ID + ")", Method: op.Method, Target: a.Path(op), Body: body,
		Header: http.Header{"Authorization": {"Bearer " + a.Token}, "Content-Type": {"application/json"}},
	}
}

// valid returns a body that the document allows, as decoded JSON.
func (a attacker) valid(op *Operation) map[string]any {
	instance, err := Synthesize(op.request, Extent(a.IntN(2)))
	object, ok := instance.(map[string]any)
	if err != nil || !ok {
		return map[string]any{}
	}
	return object
}

// encode returns the JSON of a decoded value. This cannot fail.
func encode(value any) []byte {
	text, err := json.Marshal(value)
	if err != nil {
		panic("contract: " + err.Error())
	}
	return text
}

func (a attacker) truncated(op *Operation) Hostile {
	body := encode(a.valid(op))
	if len(body) < 3 {
		body = []byte(`{"name": "x"}`)
	}
	return a.to(op, "ends too early", body[:1+a.IntN(len(body)-1)])
}

func (a attacker) brokenOff(op *Operation) Hostile {
	hostile := a.truncated(op)
	hostile.BreaksOff = true
	return hostile
}

func (a attacker) malformed(op *Operation) Hostile {
	body := encode(a.valid(op))
	switch a.IntN(5) {
	case 0:
		return a.to(op, "more follows", append(body, pick(a.Rand, []string{"}", "{}", "x", "\x00", ",", "]", "null"})...))
	case 1:
		other := pick(a.Rand, []string{"[]", `"text"`, "42", "true", "[{}]", "-", "NaN", "Infinity", "'a'", "<xml/>", "name=x",
			"\xef\xbb\xbf{}", "{'name': 1}", "{name: 1}", `{"a": 1,}`, "//\n{}"})
		return a.to(op, "no JSON object", []byte(other))
	case 2:
		at := 1 + bytes.IndexByte(body, '{')
		return a.to(op, "not UTF-8", slices.Insert(slices.Clone(body), at, []byte("\"\xff\xfe\": 1, ")...))
	case 3:
		noise := make([]byte, 1+a.IntN(512))
		for i := range noise {
			noise[i] = byte(a.Uint32())
		}
		noise[0] = byte(a.IntN(32)) // nothing that JSON begins with, except for white space
		return a.to(op, "noise", append(noise, 'x'))
	default:
		return a.to(op, "bad escape", []byte(`{"name": "\`+pick(a.Rand, []string{`x41`, `u12`, `uZZZZ`, `'`})+`"}`))
	}
}

// oversizedBytes is more than a server should read of one request; user_data, the largest field that
// the document bounds, has 32 KiB.
const oversizedBytes = 2 << 20

// tooMuch are values of that size: a string, an array, an object. They are made once, as JSON.
var tooMuch = sync.OnceValue(func() []string {
	var object strings.Builder
	for i := range oversizedBytes / 20 {
		fmt.Fprintf(&object, `,"key-%010d":""`, i)
	}
	return []string{
		`"` + strings.Repeat("A", oversizedBytes) + `"`,
		"[1" + strings.Repeat(",1", oversizedBytes/2) + "]",
		"{" + object.String()[1:] + "}",
	}
})

func (a attacker) oversized(op *Operation) Hostile {
	name := pick(a.Rand, sortedKeys(properties(op.request)))
	return a.to(op, name+" of several MB", []byte(`{"`+name+`":`+pick(a.Rand, tooMuch())+"}"))
}

func (a attacker) nested(op *Operation) Hostile {
	name := pick(a.Rand, sortedKeys(properties(op.request)))
	depth := pick(a.Rand, []int{100, 1000, 9000, 11000, 100000}) // encoding/json stops at 10000
	pair := pick(a.Rand, [][2]string{{"[", "]"}, {`{"a":`, "}"}})
	body := `{"` + name + `":` + strings.Repeat(pair[0], depth) + "1" + strings.Repeat(pair[1], depth) + "}"
	return a.to(op, fmt.Sprintf("%s nested %d deep", name, depth), []byte(body))
}

func (a attacker) invalidField(op *Operation) Hostile {
	if len(a.invalid[op]) == 0 {
		return a.truncated(op)
	}
	invalid := pick(a.Rand, a.invalid[op])
	return a.to(op, invalid.String(), invalid.Body)
}

// strangeNumber puts a number that is not a valid integer into a field for integers.
func (a attacker) strangeNumber(op *Operation) Hostile {
	instance := a.valid(op)
	var names []string
	for _, name := range sortedKeys(properties(op.request)) {
		if hasType(property(op.request, name), "integer") {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return a.truncated(op)
	}
	name := pick(a.Rand, names)
	strange := pick(a.Rand, []string{"1e999", "-1e999", "9223372036854775808", "-9223372036854775809", "1.5", "1e-7", "0.1",
		strings.Repeat("9", 5000)})
	instance[name] = json.Number(strange)
	return a.to(op, name+" is "+cut(strange), encode(instance))
}

// strangeText puts text that is dangerous in other programs into each string. Many fields take any text. The request must
// fail all the same: its resource does not exist, or it lacks a required field.
func (a attacker) strangeText(op *Operation) Hostile {
	strange := pick(a.Rand, []string{
		"\x00", "a\x00b", "\r\nX-Injected: 1", "../../../../etc/passwd", "'; DROP TABLE servers; --", "{{.}}", "${jndi:ldap://x}",
		"%s%n%x", "\u202egnp.exe", "\U0001F4A9", "<script>alert(1)</script>", "-", ".", "", " ", strings.Repeat("a.", 40000), "\ufffd",
	})
	instance := a.valid(op)
	for name, value := range instance {
		switch value.(type) {
		case string:
			instance[name] = strange
		case map[string]any:
			instance[name] = map[string]any{strange: strange}
		}
	}
	hostile := a.to(op, "", nil)
	if strings.Contains(op.Path, "{") {
		hostile.Target = fillPath(op, absentID)
	} else if names := list(op.request["required"]); len(names) > 0 {
		delete(instance, pick(a.Rand, names).(string))
	} else {
		return a.truncated(op)
	}
	hostile.Why, hostile.Body = fmt.Sprintf("%.20q in each string (%s)", strange, op.ID), encode(instance)
	return hostile
}

// fillPath returns the path of an operation with the same text for each parameter of the template.
func fillPath(op *Operation, value string) string {
	segments := slices.Clone(op.segments)
	for i := range segments {
		if isParameter(segments[i]) {
			segments[i] = value
		}
	}
	return "/v1/" + strings.Join(segments, "/")
}

func (a attacker) strangeID(op *Operation) Hostile {
	id := pick(a.Rand, []string{
		"0", "-1", absentID, "99999999999999999999", "1.5", "1e1", "0x1", "abc", "%00", "%2e%2e%2f%2e%2e", "..;", "1%20OR%201=1",
		"%F0%9F%92%A9", "%ff", "*", "null", "true", "[]", "{id}", "+1", "%0d%0aX-Injected:1", strings.Repeat("9", 4000),
		strings.Repeat("a", 4000),
	})
	hostile := a.to(op, "", nil)
	hostile.Why, hostile.Target = "an id of "+cut(id)+" ("+op.ID+")", fillPath(op, id)
	if !strings.Contains(op.Path, "{") {
		hostile.Target = "/v1/" + id + op.Path
	}
	if op.request != nil {
		hostile.Body = encode(a.valid(op))
	}
	return hostile
}

// strangeQuery reads with parameters that make no sense. The server may ignore or refuse them.
func (a attacker) strangeQuery(op *Operation) Hostile {
	var lists []*Operation
	for _, candidate := range a.Operations {
		if candidate.Method == http.MethodGet && len(candidate.Query) > 0 {
			lists = append(lists, candidate)
		}
	}
	if len(lists) == 0 {
		return a.strangeID(op)
	}
	op = pick(a.Rand, lists)
	names := []string{"nothing"}
	for _, parameter := range op.Query {
		names = append(names, parameter.Name)
	}
	values := []string{
		"", "0", "-1", "1.5", "abc", "99999999999999999999", "9223372036854775807", "id:sideways", ":", ":asc", "%00", "%zz", "%", "a=b=c",
		"!", "!!a", "a in (",
		"a in ()", "a notin b", "k==", "==v", ",,,", "((((", strings.Repeat("a,", 2000), strings.Repeat("%28", 2000), "%ff%fe",
		"2026-13-99T99:99:99Z",
		"%F0%9F%92%A9", "null", "[]", "*",
	}
	var pairs []string
	for range 1 + a.IntN(4) {
		pairs = append(pairs, pick(a.Rand, names)+"="+pick(a.Rand, values))
	}
	if a.IntN(20) == 0 {
		pairs = slices.Repeat(pairs, 500)
	}
	hostile := a.to(op, cut(strings.Join(pairs, "&")), nil)
	hostile.Target += "?" + strings.Join(pairs, pick(a.Rand, []string{"&", ";"}))
	return hostile
}

func (a attacker) strangeMethod(op *Operation) Hostile {
	hostile := a.to(op, "", nil)
	hostile.Method = pick(a.Rand, []string{"PATCH", "TRACE", "OPTIONS", "FOO", "PROPFIND", "get", "QUERY"})
	hostile.Why = hostile.Method + " " + op.Path
	return hostile
}

// stranger sends a valid request without a valid token.
func (a attacker) stranger(op *Operation) Hostile {
	hostile := a.to(op, "", nil)
	hostile.Header.Del("Authorization")
	token := pick(a.Rand, []string{"-", "", "Bearer", "Bearer ", "bearer", "Basic YTpi", "Bearer " + strings.Repeat("x", 64), "Bearer " +
		strings.Repeat("y", 100000), a.Token, "Bearer " + a.Token + "x", "Bearer \x00", "Bearer \xff"})
	if token != "-" {
		hostile.Header.Set("Authorization", token)
	}
	if op.request != nil {
		hostile.Body = encode(a.valid(op))
	}
	hostile.Why = fmt.Sprintf("authorized by %.20q (%s)", token, op.ID)
	return hostile
}
