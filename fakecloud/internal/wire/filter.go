package wire

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/journal"
)

// Query returns a filter as query parameters for ParseFilter.
func Query(f journal.Filter) url.Values {
	q := url.Values{}
	set := func(name, value string, isSet bool) {
		if isSet {
			q.Set(name, value)
		}
	}
	for name, s := range map[string]string{
		"method": f.Method, "route": f.Route, "path": f.Path, "operation": f.Operation,
		"error_code": f.ErrorCode, "client": f.Client, "fault": f.Fault,
	} {
		set(name, s, s != "")
	}
	set("status", strconv.Itoa(f.Status), f.Status != 0)
	set("resource_id", strconv.FormatInt(f.ResourceID, 10), f.ResourceID != 0)
	set("project", strconv.FormatInt(f.Project, 10), f.Project != 0)
	set("since", strconv.FormatUint(f.Since, 10), f.Since != 0)
	for name, b := range map[string]bool{"writes": f.Writes, "errors": f.Errors, "dropped": f.Dropped} {
		set(name, "true", b)
	}
	return q
}

// ParseFilter reads a filter from query parameters. Their names are those of the fields: method, route, path, operation,
// resource_id, status, error_code, client, fault, project, since, writes, errors, dropped. It ignores the parameters in
// others. Any other parameter is an error that lists the existing ones.
func ParseFilter(q url.Values, others ...string) (journal.Filter, error) {
	var f journal.Filter
	var err error
	number := func(s string, bits int) uint64 {
		n, e := strconv.ParseUint(s, 10, bits)
		if e != nil {
			err = fmt.Errorf("%q: must be a number", s)
		}
		return n
	}
	truth := func(s string) bool {
		if s == "" { // ?writes is enough
			return true
		}
		b, e := strconv.ParseBool(s)
		if e != nil {
			err = fmt.Errorf("%q: must be true or false", s)
		}
		return b
	}
	set := map[string]func(string){
		"method":      func(s string) { f.Method = strings.ToUpper(s) },
		"route":       func(s string) { f.Route = s },
		"path":        func(s string) { f.Path = s },
		"operation":   func(s string) { f.Operation = s },
		"resource_id": func(s string) { f.ResourceID = int64(number(s, 63)) },
		"status":      func(s string) { f.Status = int(number(s, 31)) },
		"error_code":  func(s string) { f.ErrorCode = s },
		"client":      func(s string) { f.Client = s },
		"fault":       func(s string) { f.Fault = s },
		"project":     func(s string) { f.Project = int64(number(s, 63)) },
		"since":       func(s string) { f.Since = number(s, 64) },
		"writes":      func(s string) { f.Writes = truth(s) },
		"errors":      func(s string) { f.Errors = truth(s) },
		"dropped":     func(s string) { f.Dropped = truth(s) },
	}
	for key, values := range q {
		if slices.Contains(others, key) {
			continue
		}
		fn, ok := set[key]
		if !ok {
			names := slices.Clone(others)
			for name := range set {
				names = append(names, name)
			}
			slices.Sort(names)
			return f, fmt.Errorf("unknown parameter %q: must be one of %s", key, strings.Join(names, ", "))
		}
		fn(values[len(values)-1])
		if err != nil {
			return f, fmt.Errorf("parameter %s=%w", key, err)
		}
	}
	return f, nil
}

// SelectionQuery returns the projects and kinds of a fakecloud.Selection as query parameters.
func SelectionQuery(projects []int64, kinds []string) url.Values {
	q := url.Values{"kind": kinds}
	for _, p := range projects {
		q.Add("project", strconv.FormatInt(p, 10))
	}
	return q
}
