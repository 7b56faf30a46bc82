package store

import (
	"iter"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Kind is a type of resource, such as "server". It is the `type` in an action's `resources`. Each
// resource's file declares its own.
type Kind string

// Meta is what every resource has. Resources embed it.
type Meta struct {
	// ID is unique over all projects and all kinds. A client that mixes up two ids gets a 404, not
	// another resource.
	ID int64 `json:"id,omitzero"`
	// Name, if not empty, is unique within project and kind.
	Name string `json:"name,omitzero"`
	// Labels is replaced as a whole, never changed in place.
	Labels map[string]string `json:"labels,omitempty"`
	// Created is in UTC.
	Created time.Time `json:"created,omitzero"`
}

// Header returns the fields that all resources share.
func (m *Meta) Header() *Meta { return m }

// Object is a pointer to a resource's struct. Clone returns a copy that has slices and maps of its
// own, except those that are only replaced as a whole.
type Object[T any] interface {
	Header() *Meta
	Clone() T
}

// Entry is one published version of a resource. It never changes.
type Entry[T any] struct {
	Value   T
	id      int64 // that of Value, which a search would have to load
	encoded atomic.Pointer[encoded]
}

// encoded is the encoded form of an entry. It depends on the entry, and on with.
type encoded struct {
	with  any
	bytes []byte
}

// Encoded returns the entry's encoded form. It calls encode once for this version of the resource and for with, or a few times if the first
// readers race. The result is shared and must not be changed. with is an immutable value, or a pointer to one, that the form depends on,
// besides the resource.
func (e *Entry[T]) Encoded(with any, encode func(T) []byte) []byte {
	if known := e.encoded.Load(); known != nil && known.with == with {
		return known.bytes
	}
	b := encode(e.Value)
	e.encoded.Store(&encoded{with, b})
	return b
}

// Table holds the resources of one kind of one project, ordered by id and by name. A published
// table is read-only; writing to it is possible only between Begin and Publish.
type Table[T Object[T]] struct {
	*version[T]
	log   *ChangeLog // nil in a published table
	owned bool       // whether the version is the transaction's own; false in a published table
}

// version is what a table holds. Transactions that do not change it share it.
type version[T Object[T]] struct {
	kind     Kind
	nameless bool // the resources have no names
	ids      Ascending[*Entry[T]]
	// names and labels find ids. A new version of a resource seldom changes them.
	names  Ascending[*nameEntry]
	labels LabelIndex
	keys   *sync.Pool // search keys: entries with only an id
	pages  *pageCache
}

// NewTable returns an empty, published table.
func NewTable[T Object[T]](kind Kind) Table[T] {
	return Table[T]{version: &version[T]{
		kind: kind,
		keys: &sync.Pool{}, pages: &pageCache{},
		labels: NewLabelIndex(),
		ids:    NewAscending(func(a, b *Entry[T]) bool { return a.id < b.id }),
		names: NewAscending(func(a, b *nameEntry) bool {
			if a.name != b.name {
				return a.name < b.name
			}
			return a.id < b.id
		}),
	}}
}

// NewNamelessTable returns a table of resources that have no names.
func NewNamelessTable[T Object[T]](kind Kind) Table[T] {
	t := NewTable[T](kind)
	t.nameless = true
	return t
}

// nameEntry is the id of a resource with a name, perhaps an empty one. It never changes. The index has pointers to such entries, because it
// copies nodes.
type nameEntry struct {
	name string
	id   int64
}

// Kind returns the kind of the resources in the table.
func (t *Table[T]) Kind() Kind { return t.kind }

// Len returns the number of resources.
func (t *Table[T]) Len() int { return t.ids.Len() }

// Entry returns the published version of the resource with this id.
func (t *Table[T]) Entry(id int64) (*Entry[T], bool) {
	// The search key is reused: to allocate it would cost more than the lookup.
	key, _ := t.keys.Get().(*Entry[T])
	if key == nil {
		key = &Entry[T]{}
	}
	key.id = id
	e, ok := t.ids.Get(key)
	t.keys.Put(key)
	return e, ok
}

// Has reports whether there is a resource with this id.
func (t *Table[T]) Has(id int64) bool {
	_, ok := t.Entry(id)
	return ok
}

// Get returns the resource with this id, for reading only.
func (t *Table[T]) Get(id int64) (T, bool) {
	if e, ok := t.Entry(id); ok {
		return e.Value, true
	}
	var zero T
	return zero, false
}

// ByName returns the resource with exactly this name.
func (t *Table[T]) ByName(name string) (T, bool) {
	if e, ok := t.EntryByName(name); ok {
		return e.Value, true
	}
	var zero T
	return zero, false
}

// EntryByName returns the published version of the resource with exactly this name.
func (t *Table[T]) EntryByName(name string) (*Entry[T], bool) {
	var found *nameEntry
	t.names.Ascend(&nameEntry{name: name}, func(n *nameEntry) bool {
		found = n
		return false
	})
	if found == nil || found.name != name {
		return nil, false
	}
	return t.Entry(found.id)
}

// All yields all resources by ascending id, for reading only.
func (t *Table[T]) All() iter.Seq[T] {
	return func(yield func(T) bool) {
		t.ids.Scan(func(e *Entry[T]) bool { return yield(e.Value) })
	}
}

// Entries yields all entries by ascending id.
func (t *Table[T]) Entries() iter.Seq[*Entry[T]] {
	return func(yield func(*Entry[T]) bool) { t.ids.Scan(yield) }
}

// Order is one of the two orders that a table maintains.
type Order int

// The maintained orders. The order by creation time is the order by id, because ids only grow.
const (
	ByID Order = iota
	ByName
)

// Page is a part of a table: up to N entries, starting with number First (from 0), in an order or its
// reverse.
type Page struct {
	Order    Order
	Desc     bool
	First, N int
}

// Page returns the entries of a page. Its cost depends on the size of the page, not of the table.
func (t *Table[T]) Page(p Page) []*Entry[T] {
	n := min(p.N, t.Len()-p.First)
	if p.First < 0 || n <= 0 {
		return nil
	}
	if p.Order == ByName {
		return PageOf(&t.names, p, n, func(n *nameEntry) *Entry[T] {
			e, _ := t.Entry(n.id)
			return e
		})
	}
	return PageOf(&t.ids, p, n, func(e *Entry[T]) *Entry[T] { return e })
}

// ordered is an ordered set.
type ordered[Item any] interface {
	Len() int
	GetAt(i int) (Item, bool)
	Ascend(from Item, yield func(Item) bool)
	Descend(from Item, yield func(Item) bool)
}

// PageOf returns n entries of a page of a set.
func PageOf[Item, E any](set ordered[Item], p Page, n int, entry func(Item) E) []E {
	page := make([]E, 0, n)
	add := func(i Item) bool {
		page = append(page, entry(i))
		return len(page) < n
	}
	if p.Desc {
		first, _ := set.GetAt(set.Len() - 1 - p.First)
		set.Descend(first, add)
	} else {
		first, _ := set.GetAt(p.First)
		set.Ascend(first, add)
	}
	return page
}

// PageKey is what an encoded page of a table depends on, in addition to the table: parts of a request.
type PageKey struct {
	Host, Query string
	TLS         bool
	With        any // see Entry.Encoded
}

// EncodedPage is the answer to a request for a page.
type EncodedPage struct {
	Body []byte
	Link string
}

// CachedPage returns a page of [Table.CachePage], or nil.
func (t *Table[T]) CachedPage(key PageKey) *EncodedPage {
	if known := t.pages.list.Load(); known != nil {
		for i := range *known {
			if (*known)[i].key == key {
				return (*known)[i].page
			}
		}
	}
	return nil
}

// CachePage keeps a page until the table changes or until a page with another key.With is kept, if it is asked for twice and is one of
// the first: while others write, most pages are asked for once, and to keep them would cost more than to encode them.
func (t *Table[T]) CachePage(key PageKey, encode func() EncodedPage) {
	known := t.pages.list.Load()
	var all []cachedPage
	if known != nil {
		all = slices.DeleteFunc(slices.Clone(*known), func(c cachedPage) bool { return c.key.With != key.With })
	}
	if i := slices.IndexFunc(all, func(c cachedPage) bool { return c.key == key }); i >= 0 {
		page := encode()
		all[i].page = &page
	} else if len(all) == maxCachedPages {
		return
	} else {
		all = append(all, cachedPage{key: key})
	}
	t.pages.list.CompareAndSwap(known, &all) // if two readers do this at the same time, one is not kept
}

// maxCachedPages limits the memory of one version of a table. It is small because clients poll the
// first pages.
const maxCachedPages = 8

// pageCache holds encoded pages of one version of a table.
type pageCache struct{ list atomic.Pointer[[]cachedPage] }

type cachedPage struct {
	key  PageKey
	page *EncodedPage // nil after the first request
}

// Put stores a new resource or a new version of one.
func (t *Table[T]) Put(v T) {
	old, _ := t.Entry(v.Header().ID)
	t.Replace(old, v)
}

// Replace is Put with the entry of the version before, nil for a new resource.
func (t *Table[T]) Replace(old *Entry[T], v T) {
	t.own()
	m := v.Header()
	if old == nil {
		t.ids.Set(&Entry[T]{Value: v, id: m.ID})
		t.rename(m.ID, nil, m)
		t.labels.Relabel(m.ID, nil, m.Labels)
		t.log.Record(t.kind, m.ID, nil, v)
		return
	}
	before := old.Value
	t.rename(m.ID, before.Header(), m)
	t.labels.Relabel(m.ID, before.Header().Labels, m.Labels)
	if t.log.has(m.ID) {
		// This transaction made the entry: readers do not have it yet.
		old.Value = v
	} else {
		t.ids.Set(&Entry[T]{Value: v, id: m.ID})
	}
	t.log.Record(t.kind, m.ID, before, v)
}

// Update stores a changed copy of a resource and returns it. If the resource does not exist, it does
// nothing and returns false.
func (t *Table[T]) Update(id int64, change func(T)) (T, bool) {
	e, ok := t.Entry(id)
	if !ok {
		var zero T
		return zero, false
	}
	v := e.Value.Clone()
	change(v)
	t.Replace(e, v)
	return v, true
}

// Touch makes a new version of a resource with the same fields. Call it when a part of another
// resource changes that this resource shows.
func (t *Table[T]) Touch(id int64) {
	if !t.log.has(id) { // else this transaction has made a new version
		t.Update(id, func(T) {})
	}
}

// Delete removes a resource, if it is there.
func (t *Table[T]) Delete(id int64) {
	old, ok := t.Entry(id)
	if !ok {
		return
	}
	t.own()
	t.ids.Delete(old)
	t.rename(id, old.Value.Header(), nil)
	t.labels.Relabel(id, old.Value.Header().Labels, nil)
	t.log.Record(t.kind, id, old.Value, nil)
}

// rename updates the index of names after a resource changed. before or after is nil if the resource did not exist.
func (t *Table[T]) rename(id int64, before, after *Meta) {
	if t.nameless || before != nil && after != nil && before.Name == after.Name {
		return
	}
	if before != nil {
		t.names.Delete(&nameEntry{before.Name, id})
	}
	if after != nil {
		t.names.Set(&nameEntry{after.Name, id})
	}
}

// own begins a write. It gives the transaction a version that shares the unchanged parts.
func (t *Table[T]) own() {
	if t.log == nil {
		panic("store: write to a published table of " + string(t.kind))
	}
	if t.owned {
		return
	}
	v := *t.version
	v.pages = &pageCache{}
	v.ids.Share()
	v.names.Share()
	v.labels.Share()
	t.version, t.owned = &v, true
}

// Init makes the table an empty one.
func (t *Table[T]) Init(kind Kind) { *t = NewTable[T](kind) }

// Begin permits changes. The log records them. The original of this copy does not change with it.
func (t *Table[T]) Begin(log *ChangeLog) { t.log, t.owned = log, false }

// Publish ends the changes.
func (t *Table[T]) Publish() { t.Begin(nil) }

// RecordAll records the creation, or the deletion, of everything in the table.
func (t *Table[T]) RecordAll(log *ChangeLog, created bool) {
	for v := range t.All() {
		if created {
			log.Record(t.kind, v.Header().ID, nil, v)
		} else {
			log.Record(t.kind, v.Header().ID, v, nil)
		}
	}
}
