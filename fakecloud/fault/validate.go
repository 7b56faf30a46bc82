package fault

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/cloud"
)

// Operation is one operation of the API that a rule can be about.
type Operation struct{ Method, Route, ID string }

// Parse reads a rule from JSON. An unknown field is an error.
func Parse(data []byte) (Rule, error) {
	var r Rule
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&r); err != nil {
		return Rule{}, fmt.Errorf("fault rule: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return Rule{}, errors.New("fault rule: there is more after the first JSON value")
	}
	return r, nil
}

// check normalizes a rule and returns everything that is wrong with it.
func (r *Rule) check(operations []Operation) error {
	r.Method = strings.ToUpper(r.Method)
	for _, p := range []*string{&r.Route, &r.Path} {
		if rest := strings.TrimPrefix(*p, "/v1"); rest != *p && strings.HasPrefix(rest, "/") {
			*p = rest
		}
	}
	var errs []error
	if len(r.Name) > 128 {
		errs = append(errs, errors.New("name: longer than 128 characters"))
	}
	errs = append(errs, r.checkSelection(operations), r.checkNumbers(), r.Effect.check())
	return errors.Join(errs...)
}

// checkSelection finds out whether the rule can ever match, and says what it could have named.
func (r *Rule) checkSelection(all []Operation) error {
	left := all
	var resources []string
	for _, o := range all {
		resources = append(resources, ResourceOf(o.Route))
	}
	for _, step := range []struct {
		field, value string
		match        func(Operation) bool
		others       func() []string
	}{
		{"operation", r.Operation, func(o Operation) bool { return o.ID == r.Operation }, func() []string { return similarOperations(r.Operation, left) }},
		{"resource", r.Resource, func(o Operation) bool { return ResourceOf(o.Route) == r.Resource }, func() []string { return resources }},
		{"route", r.Route, func(o Operation) bool { return matchRoute(r.Route, o.Route) }, func() []string { return similarRoutes(r.Route, left) }},
		{"path", r.Path, func(o Operation) bool { return fits(r.Path, o.Route) }, func() []string { return similarRoutes(r.Path, left) }},
		{"method", r.Method, func(o Operation) bool { return o.Method == r.Method }, func() []string {
			var m []string
			for _, o := range left {
				m = append(m, o.Method)
			}
			return m
		}},
	} {
		if step.value == "" {
			continue
		}
		var next []Operation
		for _, o := range left {
			if step.match(o) {
				next = append(next, o)
			}
		}
		if len(next) == 0 {
			others := step.others()
			slices.Sort(others)
			return fmt.Errorf("%s %.200q: no operation of the API matches; there are %s", step.field, step.value,
				strings.Join(slices.Compact(others), ", "))
		}
		left = next
	}
	if r.Writes && !slices.ContainsFunc(left, func(o Operation) bool { return isWrite(o.Method) }) {
		return errors.New("writes: what the rule selects otherwise only reads")
	}
	if r.Project < 0 {
		return fmt.Errorf("project %d: ids of projects start at 1", r.Project)
	}
	return nil
}

// fits tells whether a path is one of a route.
func fits(path, route string) bool {
	p, t := strings.Split(path, "/"), strings.Split(route, "/")
	if len(p) != len(t) {
		return false
	}
	for i := range t {
		if !strings.HasPrefix(t[i], "{") && t[i] != p[i] {
			return false
		}
	}
	return true
}

// similarRoutes lists the routes that begin like one that does not exist, or else what they may
// begin with.
func similarRoutes(route string, operations []Operation) []string {
	first := func(s string) string {
		s, _, _ = strings.Cut(strings.TrimPrefix(s, "/"), "/")
		return "/" + s
	}
	var same, firsts []string
	for _, o := range operations {
		if first(o.Route) == first(route) {
			same = append(same, o.Route)
		}
		firsts = append(firsts, first(o.Route)+"…")
	}
	if len(same) > 0 {
		return same
	}
	return firsts
}

// similarOperations lists the operations that have a word in common with one that does not exist.
func similarOperations(id string, operations []Operation) []string {
	words := strings.Split(id, "_")
	best, most := []string{}, 0
	for _, o := range operations {
		n := 0
		for w := range strings.SplitSeq(o.ID, "_") {
			if slices.Contains(words, w) {
				n++
			}
		}
		if n > most {
			best, most = best[:0], n
		}
		if n == most {
			best = append(best, o.ID)
		}
	}
	return best
}

func (r *Rule) checkNumbers() error {
	var errs []error
	for _, f := range []struct {
		name  string
		value int
	}{{"first", r.First}, {"every", r.Every}, {"from", r.From}, {"to", r.To}, {"max", r.Max}} {
		if f.value < 0 {
			errs = append(errs, fmt.Errorf("%s %d: may not be negative", f.name, f.value))
		}
	}
	if r.First > 0 && (r.From > 0 || r.To > 0) {
		errs = append(errs, errors.New("first: cannot be combined with from and to"))
	}
	if r.To > 0 && r.From > r.To {
		errs = append(errs, fmt.Errorf("from %d, to %d: the range is empty", r.From, r.To))
	}
	if math.IsNaN(r.Probability) || r.Probability < 0 || r.Probability > 1 {
		errs = append(errs, fmt.Errorf("probability %v: want 0 to 1", r.Probability))
	}
	return errors.Join(errs...)
}

// parameters says which of an effect's fields each kind has, beyond latency.
var parameters = map[Kind][]string{
	KindAPIError:         {"after", "code", "message", "status"},
	KindHTTPStatus:       {"after", "status", "body", "content_type"},
	KindLatency:          {"after"},
	KindDrop:             {"after"},
	KindReset:            {"after"},
	KindCutBody:          {"bytes"},
	KindFailAction:       {"code", "message"},
	KindHangAction:       {},
	KindExhaustRateLimit: {},
}

var validCode = regexp.MustCompile(`^[a-z][a-z0-9_]{0,99}$`)

func (e *Effect) check() error {
	allowed, ok := parameters[e.Kind]
	if !ok {
		kinds := slices.Sorted(maps.Keys(parameters))
		return fmt.Errorf("effect.kind %.64q: there are %v", e.Kind, kinds)
	}
	var errs []error
	for _, f := range []struct {
		name string
		set  bool
	}{
		{"after", e.After}, {"code", e.Code != ""}, {"message", e.Message != ""}, {"status", e.Status != 0},
		{"body", e.Body != ""}, {"content_type", e.ContentType != ""}, {"bytes", e.Bytes != 0},
	} {
		if f.set && !slices.Contains(allowed, f.name) {
			errs = append(errs, fmt.Errorf("effect.%s: %s has no such field, only %s", f.name, e.Kind,
				strings.Join(append([]string{"latency"}, allowed...), ", ")))
		}
	}
	if e.Latency < 0 || time.Duration(e.Latency) > 24*time.Hour {
		errs = append(errs, fmt.Errorf("effect.latency %v: want 0 to 24h", time.Duration(e.Latency)))
	}
	return errors.Join(append(errs, e.checkKind())...)
}

func (e *Effect) checkKind() error {
	switch e.Kind {
	case KindAPIError:
		if _, ok := Codes[e.Code]; !ok {
			return fmt.Errorf("effect.code %.64q: the API has no such error code; it has %s", e.Code, strings.Join(codeNames(), ", "))
		}
		if e.Status != 0 && (e.Status < 400 || e.Status > 599) {
			return fmt.Errorf("effect.status %d: an error's status is 400 to 599", e.Status)
		}
	case KindHTTPStatus:
		if e.Status < 200 || e.Status > 599 {
			return fmt.Errorf("effect.status %d: want 200 to 599", e.Status)
		}
		if e.Body != "" && (e.Status == http.StatusNoContent || e.Status == http.StatusNotModified) {
			return fmt.Errorf("effect.body: an answer with status %d has none", e.Status)
		}
		if strings.ContainsFunc(e.ContentType, func(r rune) bool { return r < ' ' || r > '~' }) {
			return fmt.Errorf("effect.content_type %.64q: is not a header's value", e.ContentType)
		}
	case KindLatency:
		if e.Latency == 0 {
			return errors.New("effect.latency: is required")
		}
	case KindFailAction:
		if e.Code != "" && !validCode.MatchString(string(e.Code)) {
			return fmt.Errorf("effect.code %.64q: is not a code; they look like %s", e.Code, cloud.ActionFailedCode)
		}
	case KindCutBody:
		if e.Bytes < 0 {
			return fmt.Errorf("effect.bytes %d: may not be negative", e.Bytes)
		}
	}
	return nil
}

func codeNames() []string {
	names := make([]string, 0, len(Codes))
	for c := range Codes {
		names = append(names, string(c))
	}
	slices.Sort(names)
	return names
}
