package wire

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/journal"
)

// parameters returns pointers to the fields of a filter, by the names of their query parameters.
func parameters(f *journal.Filter) map[string]any {
	return map[string]any{
		"method": &f.Method, "route": &f.Route, "path": &f.Path, "operation": &f.Operation, "resource_id": &f.ResourceID,
		"status": &f.Status, "error_code": &f.ErrorCode, "client": &f.Client, "fault": &f.Fault, "project": &f.Project,
		"since": &f.Since, "writes": &f.Writes, "errors": &f.Errors, "dropped": &f.Dropped,
	}
}

// Query returns a filter as query parameters for ParseFilter.
func Query(f journal.Filter) url.Values {
	q := url.Values{}
	for name, field := range parameters(&f) {
		if v := reflect.ValueOf(field).Elem(); !v.IsZero() {
			q.Set(name, fmt.Sprint(v))
		}
	}
	return q
}

// ParseFilter reads a filter from query parameters. It ignores the parameters in others. Any other parameter is an error that lists
// the existing ones.
func ParseFilter(q url.Values, others ...string) (journal.Filter, error) {
	var f journal.Filter
	all := parameters(&f)
	for key, values := range q {
		if slices.Contains(others, key) {
			continue
		}
		field, ok := all[key]
		if !ok {
			names := slices.Sorted(slices.Values(slices.AppendSeq(slices.Clone(others), maps.Keys(all))))
			return f, fmt.Errorf("unknown parameter %q: must be one of %s", key, strings.Join(names, ", "))
		}
		text := values[len(values)-1]
		if err := set(reflect.ValueOf(field).Elem(), text); err != nil {
			return f, fmt.Errorf("parameter %s=%q: %w", key, text, err)
		}
	}
	f.Method = strings.ToUpper(f.Method)
	return f, nil
}

// set sets a field to the value that a text has.
func set(field reflect.Value, text string) error {
	switch field.Kind() {
	case reflect.String:
		field.SetString(text)
	case reflect.Bool:
		b, err := strconv.ParseBool(text)
		if err != nil && text != "" { // ?writes is enough
			return errors.New("must be true or false")
		}
		field.SetBool(b || text == "")
	default:
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil || field.CanInt() && (n > math.MaxInt64 || field.OverflowInt(int64(n))) {
			return errors.New("must be a number")
		}
		field.Set(reflect.ValueOf(n).Convert(field.Type()))
	}
	return nil
}

// MatchRoute reports whether the pattern of a filter or of a fault rule selects a route: with * at its end, all that begin so.
func MatchRoute(pattern, route string) bool {
	if prefix, ok := strings.CutSuffix(pattern, "*"); ok {
		return strings.HasPrefix(route, prefix)
	}
	return pattern == route
}

// IsWrite reports whether the field Writes of a filter or of a fault rule selects a method.
func IsWrite(method string) bool { return method != "GET" && method != "HEAD" }

// SelectionQuery returns the projects and kinds of a fakecloud.Selection as query parameters.
func SelectionQuery(projects []int64, kinds []string) url.Values {
	q := url.Values{"kind": kinds}
	for _, p := range projects {
		q.Add("project", strconv.FormatInt(p, 10))
	}
	return q
}
