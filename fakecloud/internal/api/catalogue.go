package api

import (
	"cmp"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/cloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/store"
)

// staticList shows one kind of the catalogue's items. A resource shows the objects of projects.
//
// Every list can be sorted by id and name. The API document has `sort` for some lists only, but clients send it to all.
type staticList[T any] struct {
	singular, plural string
	items            func(*cloud.Catalogue) []*T
	id               func(*T) int64
	name             func(*T) string
	// encode returns the value that is encoded as JSON on a date.
	encode func(Date, *T) any
	// retired, if set, reports whether an item is missing from the list. It can still be read by id.
	retired func(*T, time.Time) bool
	// filter, if set, reads the list's own query parameters and returns a test.
	filter func(url.Values) (func(*T) bool, error)
}

// offer is a catalogue as it is until a time, with the JSON of its items.
type offer struct {
	*cloud.Catalogue
	changed *cloud.Catalogue // as the last change has made it
	until   time.Time        // zero: until the next change
	json    sync.Map         // by the item
}

// offer returns the offer of a catalogue now. It makes one after each change only.
func (a *API) offer(c *cloud.Catalogue) *offer {
	o := a.offers.Load()
	if o != nil && (o.changed == c || o.Catalogue == c) && (o.until.IsZero() || a.cloud.Now().Before(o.until)) {
		return o
	}
	o = &offer{changed: c}
	o.Catalogue, o.until = c.At(a.cloud.Now())
	a.offers.Store(o)
	return o
}

// current returns the state with the catalogue as it is now: a server type that has retired since the last change is not available.
func (a *API) current(st *cloud.State) *cloud.State {
	c := a.offer(st.Catalogue).Catalogue
	if c == st.Catalogue {
		return st
	}
	now := *st
	now.Catalogue = c
	return &now
}

// catalogue returns the catalogue as it is now.
func (r *Request) catalogue() *cloud.Catalogue {
	return r.api.offer(r.Project.View().Catalogue).Catalogue
}

// json returns the JSON of an item of a catalogue on a date. For the date of the API, it is encoded once.
func (l *staticList[T]) json(a *API, date Date, c *cloud.Catalogue, item *T) []byte {
	if date != a.date {
		return marshal(l.encode(date, item))
	}
	o := a.offer(c)
	if b, ok := o.json.Load(item); ok {
		return b.([]byte)
	}
	b := marshal(l.encode(date, item))
	o.json.Store(item, b)
	return b
}

// member returns an item of a catalogue as Request.member does.
func (l *staticList[T]) member(r *Request, c *cloud.Catalogue, item *T) []byte {
	return r.member(compact(l.json(r.api, r.date, c, item)).appendJSON)
}

// appendItem appends an item of a catalogue as a member of another object, or null for none.
func (l *staticList[T]) appendItem(b []byte, name string, a *API, date Date, st *cloud.State, item *T) []byte {
	b = append(b, name...)
	if item == nil {
		return append(b, "null"...)
	}
	return append(b, l.json(a, date, st.Catalogue, item)...)
}

// get answers GET /<list>/{id}.
func (l *staticList[T]) get(r *Request) (Response, error) {
	kind := store.Kind(l.singular)
	id, err := r.ID(kind)
	if err != nil {
		return Response{}, err
	}
	c := r.catalogue()
	items := l.items(c)
	i := slices.IndexFunc(items, func(t *T) bool { return l.id(t) == id })
	if i < 0 {
		return Response{}, cloud.ErrNotFound(kind, id)
	}
	return object(http.StatusOK, Part{Key: l.singular, JSON: l.member(r, c, items[i])}), nil
}

// list answers GET /<list> with the items that the query selects, in the query's order or by id.
func (l *staticList[T]) list(r *Request) (Response, error) {
	q := r.Query()
	by := map[string]func(a, b *T) int{
		"id":   func(a, b *T) int { return cmp.Compare(l.id(a), l.id(b)) },
		"name": func(a, b *T) int { return cmp.Compare(l.name(a), l.name(b)) },
	}
	p, keys, err := pageAndOrder(q, MaxPerPage, by)
	if err != nil {
		return Response{}, err
	}
	named, _ := oneOf(q, "name") // any value is allowed
	match := func(*T) bool { return true }
	if l.filter != nil {
		if match, err = l.filter(q); err != nil {
			return Response{}, err
		}
	}
	c, now := r.catalogue(), r.api.cloud.Now()
	var found []*T
	for _, item := range l.items(c) {
		if named(l.name(item)) && match(item) && (l.retired == nil || !l.retired(item, now)) {
			found = append(found, item)
		}
	}
	keys = append(keys, sortKey{field: "id"})
	slices.SortStableFunc(found, func(a, b *T) int { return compareBy(a, b, keys, by) })
	return listResponse(r, l.plural, p, len(found), func(i int) []byte { return l.member(r, c, found[i]) }), nil
}

// routes returns the two operations.
func (l *staticList[T]) routes() []Route {
	return []Route{
		{http.MethodGet, "/" + l.plural, "list_" + l.plural, l.list},
		{http.MethodGet, "/" + l.plural + "/{id}", "get_" + l.singular, l.get},
	}
}

type deprecationJSON struct {
	Announced        timeJSON `json:"announced"`
	UnavailableAfter timeJSON `json:"unavailable_after"`
}

func encodeDeprecation(d *cloud.Deprecation) *deprecationJSON {
	if d == nil {
		return nil
	}
	return &deprecationJSON{timeJSON(d.Announced), timeJSON(d.UnavailableAfter)}
}

// deprecatedSince returns the older form of a deprecation: its time only.
func deprecatedSince(d *cloud.Deprecation) timeJSON {
	if d == nil {
		return timeJSON{}
	}
	return timeJSON(d.Announced)
}

type priceJSON struct {
	Net   string `json:"net"`
	Gross string `json:"gross"`
}

type locationPriceJSON struct {
	Location          string    `json:"location"`
	Hourly            priceJSON `json:"price_hourly"`
	Monthly           priceJSON `json:"price_monthly"`
	IncludedTraffic   int64     `json:"included_traffic"`
	PricePerTBTraffic priceJSON `json:"price_per_tb_traffic"`
}

// includedTraffic returns the traffic that a type includes in a location.
func includedTraffic(prices []cloud.LocationPrice, in *cloud.Location) int64 {
	for _, p := range prices {
		if p.Location == in.Name {
			return p.IncludedTraffic
		}
	}
	return 0
}

func encodeLocationPrices(prices []cloud.LocationPrice) []locationPriceJSON {
	return each(prices, func(p cloud.LocationPrice) locationPriceJSON {
		return locationPriceJSON{p.Location, priceJSON(p.Hourly), priceJSON(p.Monthly), p.IncludedTraffic, priceJSON(p.PricePerTBTraffic)}
	})
}
