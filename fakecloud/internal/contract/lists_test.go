package contract_test

import (
	"cmp"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/contract"
)

// isList reports whether an operation answers in pages.
func isList(op *contract.Operation) bool {
	return op.Method == http.MethodGet && !op.Removed &&
		slices.ContainsFunc(op.Query, func(p contract.Parameter) bool { return p.Name == "per_page" })
}

// lister tests one list of a populated world with each of its query parameters.
type lister struct {
	*world
	op   *contract.Operation
	path string
	all  []object
}

// checkList requests a list with each documented value of each query parameter, and checks the answers: filters select
// exactly the matching entries, sorting sorts, and pages add up. Undocumented values must be refused.
func checkList(w *world, op *contract.Operation) {
	w.Helper()
	l := lister{world: w, op: op, path: existingPath(w, op)}
	if op.ID == "list_network_members" {
		l.path = "/networks/" + idOf(w.first("/networks?name=net", "networks")) + "/members"
	}
	l.all = l.get("per_page=50")
	if len(l.all) < 2 && op.ID != "list_ssh_keys" && !strings.HasSuffix(op.Path, "actions") {
		w.Errorf("%s: %d entries are too few for a test", op.ID, len(l.all))
	}
	for _, parameter := range op.Query {
		l.checkParameter(parameter)
	}
	l.get("nothing=1") // the API ignores an unknown parameter
}

// get returns the entries that the query selects. They must fit on a page.
func (l lister) get(query string) []object {
	l.Helper()
	answer := l.do(200, "GET", l.path+"?"+query, nil)
	var entries []object
	for name, value := range answer {
		if list, ok := value.([]any); ok && name != "meta" {
			for _, entry := range list {
				entries = append(entries, entry.(object))
			}
		}
	}
	return entries
}

// expect compares what a query selects with those of all entries that match.
func (l lister) expect(query string, match func(object) bool) {
	l.Helper()
	var want []object
	for _, entry := range l.all {
		if match(entry) {
			want = append(want, entry)
		}
	}
	if got := l.get("per_page=50&" + query); !slices.EqualFunc(got, want, sameEntry) {
		l.Errorf("%s?%s: got %v, want %v", l.op.ID, query, names(got), names(want))
	}
}

func sameEntry(a, b object) bool { return a["id"] == b["id"] && a["type"] == b["type"] }

func names(entries []object) []string {
	var out []string
	for _, entry := range entries {
		out = append(out, text(entry["id"])+" "+text(entry["name"]))
	}
	return out
}

func (l lister) refused(query string) {
	l.Helper()
	l.refuse(422, "invalid_input", "GET", l.path+"?"+query, nil)
}

func (l lister) checkParameter(p contract.Parameter) {
	l.Helper()
	switch {
	case p.Name == "sort":
		for _, order := range p.Enum {
			l.checkSort(order)
		}
		l.refused("sort=no_such_field")
		l.refused("sort=id:sideways")
	case len(p.Enum) > 0:
		l.checkEnum(p)
	case p.Name == "name" || p.Name == "fingerprint" || p.Name == "ip" || p.Name == "subnet" || p.Name == "bound_to" || p.Name == "id":
		l.checkEqual(p.Name)
	default:
		l.checkSpecial(p)
	}
}

// checkEqual filters by the value of each entry in turn.
func (l lister) checkEqual(field string) {
	l.Helper()
	for _, entry := range l.all {
		if entry[field] == nil {
			continue
		}
		l.expect(field+"="+url.QueryEscape(text(entry[field])), func(other object) bool { return text(other[field]) == text(entry[field]) })
	}
}

// text returns a value in the form of a query.
func text(value any) string {
	if number, ok := value.(float64); ok {
		return fmt.Sprintf("%.0f", number)
	}
	return fmt.Sprint(value)
}

func (l lister) checkEnum(p contract.Parameter) {
	l.Helper()
	for _, value := range p.Enum {
		l.expect(p.Name+"="+value, func(entry object) bool { return entry[p.Name] == value })
	}
	if p.Array && len(p.Enum) > 1 {
		l.expect(p.Name+"="+p.Enum[0]+"&"+p.Name+"="+p.Enum[1], func(entry object) bool {
			return entry[p.Name] == p.Enum[0] || entry[p.Name] == p.Enum[1]
		})
	}
	l.refused(p.Name + "=no-such-value")
}

// checkSpecial checks the parameters that do not name a field of the entries.
func (l lister) checkSpecial(p contract.Parameter) {
	l.Helper()
	switch p.Name {
	case "page":
		l.checkPages()
	case "per_page":
		l.refused("per_page=0")
		l.refused("per_page=many")
		l.get("per_page=1000") // counts as the maximum
	case "label_selector":
		l.expect("label_selector="+url.QueryEscape("env=test"), func(entry object) bool { return at(entry, "labels", "env") == "test" })
		l.expect("label_selector="+url.QueryEscape("env in (test,other),!absent"),
			func(entry object) bool { return at(entry, "labels", "env") == "test" })
		l.expect("label_selector="+url.QueryEscape("env!=test"), func(entry object) bool {
			return at(entry, "labels", "env") != nil && at(entry, "labels", "env") != "test"
		})
		l.expect("label_selector="+url.QueryEscape("!env"), func(entry object) bool { return at(entry, "labels", "env") == nil })
		l.refused("label_selector=" + url.QueryEscape("a in ("))
	case "include_deprecated":
		if more := l.get("per_page=50&include_deprecated=true"); len(more) <= len(l.all) {
			l.Errorf("%s: no deprecated entries in %v", l.op.ID, names(more))
		}
		l.expect("include_deprecated=False", func(object) bool { return true }) // Python writes it like this
		l.refused("include_deprecated=yes")
	case "include_architecture_wildcard":
		l.refused("include_architecture_wildcard=true") // needs an architecture
		l.expect("architecture=arm&include_architecture_wildcard=true", func(entry object) bool {
			return entry["architecture"] == "arm" || entry["architecture"] == nil
		})
	default:
		l.Errorf("%s: the parameter %s is not checked: add it to checkSpecial", l.op.ID, p.Name)
	}
}

func (l lister) checkPages() {
	l.Helper()
	var paged []object
	for page := 1; page <= len(l.all)/2+1; page++ {
		paged = append(paged, l.get(fmt.Sprintf("per_page=2&page=%d", page))...)
	}
	if !slices.EqualFunc(paged, l.all, sameEntry) {
		l.Errorf("%s in pages of two: %v, want %v", l.op.ID, names(paged), names(l.all))
	}
	if beyond := l.get("page=1000"); len(beyond) > 0 {
		l.Errorf("%s: page 1000 has %v", l.op.ID, names(beyond))
	}
	l.refused("page=0")
	l.refused("page=9223372036854775808") // more than 64 bits
}

func (l lister) checkSort(order string) {
	l.Helper()
	field, direction, _ := strings.Cut(order, ":")
	got := l.get("per_page=50&sort=" + order)
	if len(got) != len(l.all) {
		l.Errorf("%s?sort=%s: %v, want all of %v", l.op.ID, order, names(got), names(l.all))
	}
	if !slices.IsSortedFunc(got, func(a, b object) int {
		if direction == "desc" {
			a, b = b, a
		}
		return compareValues(a[field], b[field])
	}) {
		l.Errorf("%s?sort=%s: not in this order: %v", l.op.ID, order, names(got))
	}
}

// compareValues compares decoded JSON: numbers, addresses and text. null comes first.
func compareValues(a, b any) int {
	if a == nil || b == nil {
		return cmp.Compare(fmt.Sprint(a != nil), fmt.Sprint(b != nil))
	}
	if x, ok := a.(float64); ok {
		return cmp.Compare(x, b.(float64))
	}
	x, errX := netip.ParseAddr(a.(string))
	y, errY := netip.ParseAddr(b.(string))
	if errX == nil && errY == nil {
		return x.Compare(y)
	}
	return cmp.Compare(a.(string), b.(string))
}
