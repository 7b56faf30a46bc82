package api

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/cloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/store"
)

// The sizes of pages (API document, chapter Pagination). A per_page above MaxPerPage counts as MaxPerPage.
const (
	DefaultPerPage = 25
	MaxPerPage     = 50
)

type page struct{ number, size int }

// parsePage reads page and per_page, up to most.
func parsePage(q url.Values, most int) (page, error) {
	p := page{1, DefaultPerPage}
	for _, f := range []struct {
		name string
		dst  *int
	}{{"page", &p.number}, {"per_page", &p.size}} {
		text := q.Get(f.name)
		if text == "" {
			continue
		}
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return p, cloud.ErrField(f.name, "must be a number of at least 1")
		}
		*f.dst = n
	}
	p.size = min(p.size, most)
	return p, nil
}

// first returns how many of total entries are on the pages before this one.
func (p page) first(total int) int {
	if p.number-1 > total/p.size { // also keeps the product below from overflowing
		return total
	}
	return min((p.number-1)*p.size, total)
}

// pagination is the `pagination` of a list's meta. 0 is encoded as null.
type pagination struct {
	page
	previous, next, last, total int
}

func (p page) of(total int) pagination {
	m := pagination{page: p, last: max(1, (total+p.size-1)/p.size), total: total}
	if p.number > 1 {
		m.previous = min(p.number-1, m.last)
	}
	if p.number < m.last {
		m.next = p.number + 1
	}
	return m
}

// appendJSON appends the meta of the list.
func (m *pagination) appendJSON(b []byte) []byte {
	number := func(name string, n int, null bool) {
		b = append(append(append(b, '"'), name...), `":`...)
		if null {
			b = append(b, "null,"...)
			return
		}
		b = append(strconv.AppendInt(b, int64(n), 10), ',')
	}
	b = append(b, `{"pagination":{`...)
	number("page", m.number, false)
	number("per_page", m.size, false)
	number("previous_page", m.previous, m.previous == 0)
	number("next_page", m.next, m.next == 0)
	number("last_page", m.last, false)
	number("total_entries", m.total, false)
	return append(b[:len(b)-1], "}}"...)
}

// maxLinkURL is the length of the longest URL in a Link header, in bytes. Many clients and proxies refuse a response with
// headers of more than 8 KiB, and the header has three URLs.
const maxLinkURL = 2 << 10

// link returns the Link header. Its URLs are on this server and have the request's other parameters. If a URL would be
// too long, it returns "": clients can page by the meta in the body.
func (m *pagination) link(r *Request) string {
	base := url.URL{Scheme: "http", Host: r.HTTP.Host, Path: r.HTTP.URL.Path}
	if r.HTTP.TLS != nil {
		base.Scheme = "https"
	}
	q := maps.Clone(r.Query())
	q.Del("page")
	open := "<" + base.String() + "?"
	if len(q) > 0 {
		open += q.Encode() + "&"
	}
	if len(open) > maxLinkURL {
		return ""
	}
	b := make([]byte, 0, 3*(len(open)+32))
	for _, l := range []struct {
		rel  string
		page int
	}{{"prev", m.previous}, {"next", m.next}, {"last", m.last}} {
		if l.page == 0 {
			continue
		}
		if len(b) > 0 {
			b = append(b, ", "...)
		}
		b = append(append(b, open...), "page="...)
		b = strconv.AppendInt(b, int64(l.page), 10)
		b = append(append(b, ">; rel="...), l.rel...) // without quotes: packer-plugin-hcloud issue 205
	}
	return string(b)
}

// listResponse returns one page of a list of total entries. The document promises nothing about pages while others write:
// each page is a part of the list at the time of its request, so that a deletion moves entries to earlier pages. at returns
// the i-th entry as Request.member does.
func listResponse(r *Request, key string, p page, total int, at func(int) []byte) Response {
	first := p.first(total)
	end := min(first+p.size, total)
	items := make([][]byte, 0, end-first)
	for i := first; i < end; i++ {
		items = append(items, at(i))
	}
	m := p.of(total)
	return Response{
		Status: http.StatusOK, Parts: []Part{{Key: key, Items: items}, {Key: "meta", Value: &m}}, Link: m.link(r),
	}
}

// sortKey is one `sort` parameter.
type sortKey struct {
	field string
	desc  bool
}

// pageAndOrder reads page, per_page up to most, and the sort parameters, with the orders of a list. There may be several of the latter.
func pageAndOrder[F any](q url.Values, most int, orders map[string]F) (p page, keys []sortKey, err error) {
	if p, err = parsePage(q, most); err != nil {
		return p, nil, err
	}
	for _, s := range q["sort"] {
		field, dir, _ := strings.Cut(s, ":")
		if _, ok := orders[field]; !ok || dir != "" && dir != "asc" && dir != "desc" {
			return p, nil, cloud.ErrField("sort", fmt.Sprintf("%q is not a sort order of this list", s))
		}
		keys = append(keys, sortKey{field, dir == "desc"})
	}
	return p, keys, nil
}

// sortEntries sorts by several keys. Entries that are equal in all keys stay in the order of ids.
func sortEntries[T store.Object[T]](entries []*store.Entry[T], keys []sortKey, by map[string]func(a, b T) int) {
	slices.SortStableFunc(entries, func(a, b *store.Entry[T]) int { return compareBy(a.Value, b.Value, keys, by) })
}

// compareBy compares by several keys.
func compareBy[T any](a, b T, keys []sortKey, by map[string]func(a, b T) int) int {
	for _, k := range keys {
		c := by[k.field](a, b)
		if k.desc {
			c = -c
		}
		if c != 0 {
			return c
		}
	}
	return 0
}

// orders returns the comparisons for some of the fields that all resources have.
func orders[T store.Object[T]](fields ...string) map[string]func(a, b T) int {
	all := map[string]func(a, b T) int{"id": compareID[T], "name": compareName[T], "created": compareCreated[T]}
	maps.DeleteFunc(all, func(field string, _ func(a, b T) int) bool { return !slices.Contains(fields, field) })
	return all
}

func compareID[T store.Object[T]](a, b T) int   { return cmp.Compare(a.Header().ID, b.Header().ID) }
func compareName[T store.Object[T]](a, b T) int { return cmp.Compare(a.Header().Name, b.Header().Name) }
func compareCreated[T store.Object[T]](a, b T) int {
	return a.Header().Created.Compare(b.Header().Created)
}

// oneOf returns a test for a repeated query parameter: a value must be one of the parameter's. Without the parameter,
// every value passes. A parameter that is not one of the allowed values is an invalid_input error.
func oneOf(q url.Values, name string, allowed ...string) (func(string) bool, error) {
	want := q[name]
	for _, v := range want {
		if len(allowed) > 0 && !slices.Contains(allowed, v) {
			return nil, cloud.ErrField(name, "must be one of "+strings.Join(allowed, ", "))
		}
	}
	return func(v string) bool { return len(want) == 0 || slices.Contains(want, v) }, nil
}
