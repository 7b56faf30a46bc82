package faults

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/fault"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/wire"
)

// Operation is one operation of the API that a rule can select.
type Operation struct{ Method, Route, ID string }

// Limits of the texts of a rule, in bytes. Each action that a rule lets fail keeps its message.
const (
	maxText = 1 << 10
	maxBody = 1 << 20
)

// check normalizes a rule and returns everything that is wrong with it.
func check(r *fault.Rule, operations []Operation) error {
	r.Method = strings.ToUpper(r.Method)
	for _, p := range []*string{&r.Route, &r.Path} {
		if rest := strings.TrimPrefix(*p, "/v1"); rest != *p && strings.HasPrefix(rest, "/") {
			*p = rest
		}
	}
	var errs []error
	e := &r.Effect
	for _, text := range []struct {
		field string
		most  int
		is    string
	}{
		{"name", 128, r.Name}, {"path", maxText, r.Path}, {"client", maxText, r.Client}, {"token", maxText, r.Token},
		{"effect.message", maxText, e.Message}, {"effect.content_type", maxText, e.ContentType}, {"effect.server", maxText, e.Server},
		{"effect.body", maxBody, e.Body},
	} {
		if len(text.is) > text.most {
			errs = append(errs, fmt.Errorf("%s: must have at most %d characters", text.field, text.most))
		}
	}
	errs = append(errs, checkSelection(r, operations), checkNumbers(r), checkEffect(&r.Effect))
	return errors.Join(errs...)
}

// checkSelection returns an error if no operation matches the rule. The error lists the possible values.
func checkSelection(r *fault.Rule, all []Operation) error {
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
		{"operation", r.Operation, func(o Operation) bool { return o.ID == r.Operation },
			func() []string { return similarOperations(r.Operation, left) }},
		{"resource", r.Resource, func(o Operation) bool { return ResourceOf(o.Route) == r.Resource }, func() []string { return resources }},
		{"route", r.Route, func(o Operation) bool { return wire.MatchRoute(r.Route, o.Route) },
			func() []string { return similarRoutes(r.Route, left) }},
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
			return fmt.Errorf("%s %.200q: no operation of the API matches; must be one of %s", step.field, step.value,
				strings.Join(slices.Compact(others), ", "))
		}
		left = next
	}
	if r.Writes && !slices.ContainsFunc(left, func(o Operation) bool { return wire.IsWrite(o.Method) }) {
		return errors.New("writes: the other fields select only operations that read; remove writes or change them")
	}
	if readsOnly(r) && (r.Writes || !slices.ContainsFunc(left, func(o Operation) bool { return !wire.IsWrite(o.Method) })) {
		return fmt.Errorf("effect.kind %s: takes reads, but the other fields select only operations that write; change them", r.Effect.Kind)
	}
	if r.Project < 0 {
		return fmt.Errorf("project %d: must be the id of a project, at least 1", r.Project)
	}
	return nil
}

// fits reports whether a path belongs to a route.
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

// similarRoutes returns the routes with the same first part as a route that does not exist. If no route has that part, it returns the first
// parts of all routes.
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

// similarOperations returns the operations that have most words in common with one that does not exist.
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

func checkNumbers(r *fault.Rule) error {
	var errs []error
	for _, f := range []struct {
		name  string
		value int
	}{{"first", r.First}, {"every", r.Every}, {"from", r.From}, {"to", r.To}, {"max", r.Max}} {
		if f.value < 0 {
			errs = append(errs, fmt.Errorf("%s %d: must not be negative", f.name, f.value))
		}
	}
	if r.First > 0 && (r.From > 0 || r.To > 0) {
		errs = append(errs, errors.New("first: cannot be combined with from and to"))
	}
	if r.To > 0 && r.From > r.To {
		errs = append(errs, fmt.Errorf("from %d, to %d: from must not be greater than to", r.From, r.To))
	}
	if math.IsNaN(r.Probability) || r.Probability < 0 || r.Probability > 1 {
		errs = append(errs, fmt.Errorf("probability %v: must be 0 to 1", r.Probability))
	}
	return errors.Join(errs...)
}

// parameters has the fields of each kind of effect, in addition to latency.
var parameters = map[fault.Kind][]string{
	fault.KindAPIError:         {"after", "code", "message", "status"},
	fault.KindHTTPStatus:       {"after", "status", "body", "content_type"},
	fault.KindLatency:          {"after"},
	fault.KindDrop:             {"after"},
	fault.KindReset:            {"after"},
	fault.KindCutBody:          {"bytes"},
	fault.KindFailAction:       {"code", "message"},
	fault.KindSlowAction:       {"duration", "times"},
	fault.KindHangAction:       {},
	fault.KindSlowGuest:        {"duration"},
	fault.KindIgnoreShutdown:   {},
	fault.KindStayOff:          {},
	fault.KindEmpty:            {},
	fault.KindHide:             {"server"},
	fault.KindExhaustRateLimit: {},
}

// maxTimes is how many times as long slow_action can make actions take.
const maxTimes = 1000

var validCode = regexp.MustCompile(`^[a-z][a-z0-9_]{0,99}$`)

func checkEffect(e *fault.Effect) error {
	allowed, ok := parameters[e.Kind]
	if !ok {
		kinds := fmt.Sprint(slices.Sorted(maps.Keys(parameters)))
		return fmt.Errorf("effect.kind %.64q: must be one of %s", e.Kind, strings.Trim(strings.ReplaceAll(kinds, " ", ", "), "[]"))
	}
	var errs []error
	for _, f := range []struct {
		name string
		set  bool
	}{
		{"after", e.After}, {"code", e.Code != ""}, {"message", e.Message != ""}, {"status", e.Status != 0},
		{"body", e.Body != ""}, {"content_type", e.ContentType != ""}, {"bytes", e.Bytes != 0},
		{"duration", e.Duration != 0}, {"times", e.Times != 0}, {"server", e.Server != ""},
	} {
		if f.set && !slices.Contains(allowed, f.name) {
			errs = append(errs, fmt.Errorf("effect.%s: not a field of %s; it has only %s", f.name, e.Kind,
				strings.Join(append([]string{"latency"}, allowed...), ", ")))
		}
	}
	if e.Latency < 0 || time.Duration(e.Latency) > 24*time.Hour {
		errs = append(errs, fmt.Errorf("effect.latency %v: must be 0 to 24h", time.Duration(e.Latency)))
	}
	return errors.Join(append(errs, checkKind(e))...)
}

func checkSlowAction(e *fault.Effect) error {
	d := time.Duration(e.Duration)
	switch {
	case d != 0 && e.Times != 0:
		return errors.New("effect.duration and times: only one can be set; remove the other")
	case e.Times != 0 && (e.Times < 2 || e.Times > maxTimes):
		return fmt.Errorf("effect.times %d: must be 2 to %d", e.Times, maxTimes)
	case e.Times == 0 && (d <= 0 || d > 24*time.Hour):
		return fmt.Errorf("effect.duration %v: must be more than 0, at most 24h", d)
	}
	return nil
}

func checkKind(e *fault.Effect) error {
	switch e.Kind {
	case fault.KindAPIError:
		if _, ok := Codes[e.Code]; !ok {
			return fmt.Errorf("effect.code %.64q: must be one of %s", e.Code, strings.Join(slices.Sorted(maps.Keys(Codes)), ", "))
		}
		if e.Status != 0 && (e.Status < 400 || e.Status > 599) {
			return fmt.Errorf("effect.status %d: must be 400 to 599", e.Status)
		}
	case fault.KindSlowAction, fault.KindSlowGuest:
		return checkSlowAction(e)
	case fault.KindHide:
		if e.Server == "" {
			return errors.New("effect.server: is required, the name or id of a server")
		}
	case fault.KindHTTPStatus:
		if e.Status < 200 || e.Status > 599 {
			return fmt.Errorf("effect.status %d: must be 200 to 599", e.Status)
		}
		if e.Body != "" && (e.Status == http.StatusNoContent || e.Status == http.StatusNotModified) {
			return fmt.Errorf("effect.body: must be empty for status %d", e.Status)
		}
		if strings.ContainsFunc(e.ContentType, func(r rune) bool { return r < ' ' || r > '~' }) {
			return fmt.Errorf("effect.content_type %.64q: must be printable ASCII", e.ContentType)
		}
	case fault.KindLatency:
		if e.Latency == 0 {
			return errors.New("effect.latency: is required")
		}
	case fault.KindFailAction:
		if e.Code != "" && !validCode.MatchString(e.Code) {
			return fmt.Errorf("effect.code %.64q: must be a word such as action_failed", e.Code)
		}
	case fault.KindCutBody:
		if e.Bytes < 0 {
			return fmt.Errorf("effect.bytes %d: must not be negative", e.Bytes)
		}
	}
	return nil
}
