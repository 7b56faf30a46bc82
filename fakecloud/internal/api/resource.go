package api

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/cloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/store"
)

// resource describes one kind of resource for the API: its table, its JSON, and how its list can be sorted and filtered.
type resource[T store.Object[T]] struct {
	singular, plural string // keys in the JSON of responses
	kind             store.Kind
	table            func(*cloud.State) *store.Table[T]
	// encode returns the value that is encoded as JSON on a date.
	encode func(Date, *cloud.State, T) any
	// append, if set, appends the JSON of a version, instead of encode.
	append func([]byte, version[T]) []byte
	// sort has a comparison for each field of the list's `sort` parameter.
	sort map[string]func(a, b T) int
	// filter, if set, reads the list's own query parameters (beyond name and label_selector) and
	// returns a test, or nil if the query has none of them.
	filter func(url.Values) (func(T) bool, error)
	// lookup, if set, reads a query parameter that has an index. It returns the ids that the parameter selects, in order, or false if the
	// query does not have the parameter.
	lookup func(*cloud.State, url.Values) ([]int64, bool)
	// public, if set, returns a copy without the secrets that the API shows, and reports whether there are any.
	public func(T) (T, bool)
	// find, if set, finds a resource by the path's {id_or_name}. Otherwise the path has an {id}.
	find func(st *cloud.State, idOrName string) (T, error)
}

// idOf returns the id of the resource in the path. Only a resource with find must exist.
func (d *resource[T]) idOf(r *Request, st *cloud.State) (int64, error) {
	if d.find == nil {
		return r.ID(d.kind)
	}
	v, err := d.find(st, r.param("id_or_name"))
	if err != nil {
		return 0, err
	}
	return v.Header().ID, nil
}

// path returns the path of one resource.
func (d *resource[T]) path() string {
	if d.find != nil {
		return "/" + d.plural + "/{id_or_name}"
	}
	return "/" + d.plural + "/{id}"
}

// routes returns the routes of the list of resources, and those of one resource.
func (d *resource[T]) routes(create, update, remove handler) []Route {
	return []Route{
		{http.MethodGet, "/" + d.plural, "list_" + d.plural, d.list},
		{http.MethodPost, "/" + d.plural, "create_" + d.singular, create},
		{http.MethodGet, d.path(), "get_" + d.singular, d.get},
		{http.MethodPut, d.path(), "update_" + d.singular, update},
		{http.MethodDelete, d.path(), "delete_" + d.singular, remove},
	}
}

// action returns the route of an action. Its operationId has the singular after the verb, such as change_server_type.
func (d *resource[T]) action(name string, handle handler) Route {
	verb, what, _ := strings.Cut(name, "_")
	return Route{http.MethodPost, d.path() + "/actions/" + name, strings.TrimSuffix(verb+"_"+d.singular+"_"+what, "_"), handle}
}

// filterBy returns a resource.filter: a query parameter that may be repeated has the wanted values of a field.
func filterBy[T any](name string, field func(T) string, allowed ...string) func(url.Values) (func(T) bool, error) {
	return func(q url.Values) (func(T) bool, error) {
		wanted, err := oneOf(q, name, allowed...)
		if err != nil || len(q[name]) == 0 {
			return nil, err
		}
		return func(v T) bool { return wanted(field(v)) }, nil
	}
}

// version is one version of a resource in a state, as a date shows it.
type version[T store.Object[T]] struct {
	*resource[T]
	api  *API
	date Date
	st   *cloud.State
	v    T
	now  time.Time // of an action: its progress is that at a time
}

func (r version[T]) appendJSON(b []byte) []byte {
	r.st = r.api.current(r.st)
	if r.append != nil {
		return r.append(b, r)
	}
	return append(b, marshal(r.encode(r.date, r.st, r.v))...)
}

// json returns one version of a resource on the request's date as Request.member does.
func (d *resource[T]) json(r *Request, st *cloud.State, e *store.Entry[T]) []byte {
	st = r.api.current(st)
	encode := func(v T) []byte { return r.member(version[T]{d, r.api, r.date, st, v, r.arrived}.appendJSON) }
	if !r.cached() {
		return encode(e.Value)
	}
	return e.Encoded(st.Catalogue, encode)
}

// part returns a resource as a member of the response of a write. If the write deleted the resource at once, it returns last instead. It
// does not keep the JSON, since that is larger than the resource: many resources are created and never read.
func (d *resource[T]) part(r *Request, st *cloud.State, id int64, last T) Part {
	if now, ok := d.table(st).Get(id); ok {
		last = now
	}
	return Part{Key: d.singular, Value: version[T]{d, r.api, r.date, st, last, r.arrived}}
}

// get answers GET /<resource>/{id}.
func (d *resource[T]) get(r *Request) (Response, error) {
	st := r.Project.View()
	id, err := d.idOf(r, st)
	if err != nil {
		return Response{}, err
	}
	e, ok := d.table(st).Entry(id)
	if !ok {
		return Response{}, cloud.ErrNotFound(d.kind, id)
	}
	return object(http.StatusOK, Part{Key: d.singular, JSON: d.json(r, st, e)}), nil
}

// list answers GET /<resource>. Most clients poll lists without filters: these are cached until the table changes.
func (d *resource[T]) list(r *Request) (Response, error) {
	st := r.api.current(r.Project.View())
	key := store.PageKey{Host: r.HTTP.Host, Query: r.HTTP.URL.RawQuery, TLS: r.HTTP.TLS != nil, With: st.Catalogue}
	cacheable := r.cached() && len(key.Host)+len(key.Query) <= maxLinkURL
	if cacheable {
		if page := d.table(st).CachedPage(key); page != nil {
			return Response{Status: http.StatusOK, Body: page.Body, Link: page.Link}, nil
		}
	}
	resp, err := d.page(r, st)
	if cacheable && err == nil && unfiltered(r.Query()) {
		d.table(st).CachePage(key, func() store.EncodedPage {
			return store.EncodedPage{Body: resp.append(nil, r.level()), Link: resp.Link}
		})
	}
	return resp, err
}

// unfiltered reports whether a query only chooses a page of a list. Then its answer depends on nothing but the list's table
// and the catalogue.
func unfiltered(q url.Values) bool {
	for name := range q {
		if name != "page" && name != "per_page" && name != "sort" {
			return false
		}
	}
	return true
}

// page returns the page of the list that the request asks for.
func (d *resource[T]) page(r *Request, st *cloud.State) (Response, error) {
	q := r.Query()
	p, keys, err := pageAndOrder(q, MaxPerPage, d.sort)
	if err != nil {
		return Response{}, err
	}
	f, err := d.filters(st, q)
	if err != nil {
		return Response{}, err
	}
	table := d.table(st)
	order, desc, ordered := indexed(keys)
	if len(f.tests) == 0 && !f.looked && ordered {
		first := p.first(table.Len())
		page := table.Page(store.Page{Order: order, Desc: desc, First: first, N: p.size})
		return listResponse(r, d.plural, p, table.Len(), func(i int) []byte { return d.json(r, st, page[i-first]) }), nil
	}
	selected := len(f.tests) == 1 && !f.looked && ordered && order == store.ByID && !desc
	if candidates, ok := table.Candidates(f.selector); ok && candidates.Exact && selected {
		first := p.first(candidates.Len())
		ids := candidates.IDs(first, p.size)
		return listResponse(r, d.plural, p, candidates.Len(), func(i int) []byte {
			e, _ := table.Entry(ids[i-first])
			return d.json(r, st, e)
		}), nil
	}
	entries := d.collect(table, f)
	if len(keys) > 0 {
		sortEntries(entries, keys, d.sort)
	}
	return listResponse(r, d.plural, p, len(entries), func(i int) []byte { return d.json(r, st, entries[i]) }), nil
}

// indexed returns the table's order that the sort keys ask for, and reports in ok whether the table maintains it. Then a
// page costs the same for every number of resources.
func indexed(keys []sortKey) (o store.Order, desc, ok bool) {
	switch {
	case len(keys) == 0:
		return store.ByID, false, true
	case len(keys) == 1 && slices.Contains([]string{"id", "created", "started"}, keys[0].field): // actions have started
		return store.ByID, keys[0].desc, true
	case len(keys) == 1 && keys[0].field == "name":
		return store.ByName, keys[0].desc, true
	}
	return 0, false, false
}

// filters are the filters of a list.
type filters[T any] struct {
	names    []string
	selector store.Selector
	tests    []func(T) bool // one for each kind of filter in the query
	ids      []int64        // of resource.lookup
	looked   bool           // whether only ids match
}

func (f *filters[T]) match(v T) bool {
	for _, test := range f.tests {
		if !test(v) {
			return false
		}
	}
	return true
}

// filters reads all filters of a list.
func (d *resource[T]) filters(st *cloud.State, q url.Values) (f filters[T], err error) {
	if f.names = q["name"]; len(f.names) > 0 {
		f.tests = append(f.tests, func(v T) bool { return slices.Contains(f.names, v.Header().Name) })
	}
	if s := q.Get("label_selector"); s != "" {
		if f.selector, err = store.ParseSelector(s); err != nil {
			return f, cloud.ErrSelector(err)
		}
		if !f.selector.Empty() {
			f.tests = append(f.tests, func(v T) bool { return f.selector.Matches(v.Header().Labels) })
		}
	}
	if d.lookup != nil {
		f.ids, f.looked = d.lookup(st, q)
	}
	if d.filter != nil {
		own, err := d.filter(q)
		if err != nil {
			return f, err
		}
		if own != nil {
			f.tests = append(f.tests, own)
		}
	}
	return f, nil
}

// collect returns the entries that match, by id. It uses the table's indexes of names and labels, so that the cost depends
// on how many resources have these, not on how many exist.
func (d *resource[T]) collect(t *store.Table[T], f filters[T]) []*store.Entry[T] {
	var out []*store.Entry[T]
	add := func(e *store.Entry[T], ok bool) {
		if ok && f.match(e.Value) {
			out = append(out, e)
		}
	}
	if f.looked {
		for _, id := range f.ids {
			add(t.Entry(id))
		}
		return out
	}
	if len(f.names) > 0 {
		for _, name := range slices.Compact(slices.Sorted(slices.Values(f.names))) {
			add(t.EntryByName(name))
		}
		slices.SortFunc(out, func(a, b *store.Entry[T]) int { return compareID(a.Value, b.Value) })
		return out
	}
	if candidates, ok := t.Candidates(f.selector); ok {
		for _, id := range candidates.IDs(0, candidates.Len()) {
			add(t.Entry(id))
		}
		return out
	}
	for e := range t.Entries() {
		add(e, true)
	}
	return out
}

// updateRequest is the body of PUT operations that change only name and labels.
type updateRequest struct {
	Name   *string           `json:"name" check:"len=1:"`
	Labels map[string]string `json:"labels"`
}

// update answers PUT /<resource>/{id} with an updateRequest.
func (d *resource[T]) update(do func(cloud.Project, int64, cloud.UpdateResource) (*cloud.State, error)) handler {
	return withIDAndBody(d.kind, func(r *Request, id int64, body updateRequest) (Response, error) {
		st, err := do(r.Project, id, cloud.UpdateResource{Name: body.Name, Labels: body.Labels})
		return d.updated(r, id, st, err)
	})
}

// created answers a request that has created a resource: 201, with other parts after the resource.
func (d *resource[T]) created(r *Request, v T, st *cloud.State, err error, parts ...Part) (Response, error) {
	if err != nil {
		return Response{}, err
	}
	id := v.Header().ID
	return Response{Status: http.StatusCreated, Parts: append([]Part{d.part(r, st, id, v)}, parts...), Created: id}, nil
}

// updated answers a request that has changed a resource.
func (d *resource[T]) updated(r *Request, id int64, st *cloud.State, err error) (Response, error) {
	if err != nil {
		return Response{}, err
	}
	var none T
	return object(http.StatusOK, d.part(r, st, id, none)), nil
}

// remove answers DELETE /<resource>/{id} with 204.
func (d *resource[T]) remove(do func(cloud.Project, int64) error) handler {
	return withID(d.kind, func(r *Request, id int64) (Response, error) { return noContent(do(r.Project, id)) })
}
