package api

import (
	"encoding/json"
	"iter"
	"time"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/cloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/store"
)

// Shown shows one kind of resource like the API, but without secrets. It is for the control API's dump and event stream: those need no
// token.
type Shown interface {
	Kind() store.Kind
	// Plural is the kind's name in paths and lists.
	Plural() string
	// Len returns how many there are in a state.
	Len(st *cloud.State) int
	// All yields the id and the JSON of all resources in a state, at a time, by id.
	All(st *cloud.State, now time.Time) iter.Seq2[int64, json.RawMessage]
	// Append appends the JSON of one resource at a time, or nothing if it does not exist. It is not kept: see [API.Event].
	Append(b []byte, st *cloud.State, id int64, now time.Time) []byte
}

// ShownResources returns all kinds that a project owns, in the order of a dump and in the form of the API's date.
func (a *API) ShownResources() []Shown {
	var all []Shown
	for _, l := range resources() {
		if l.shown != nil {
			all = append(all, l.shown(a))
		}
	}
	return all
}

// shownResource is a resource in the form of the API's date.
type shownResource[T store.Object[T]] struct {
	*resource[T]
	api *API
}

// on returns the resource in the form of the API's date.
func (d *resource[T]) on(a *API) Shown { return shownResource[T]{d, a} }

// Kind implements Shown.
func (s shownResource[T]) Kind() store.Kind { return s.kind }

// Plural implements Shown.
func (s shownResource[T]) Plural() string { return s.plural }

// Len implements Shown.
func (s shownResource[T]) Len(st *cloud.State) int { return s.table(st).Len() }

// All implements Shown.
func (s shownResource[T]) All(st *cloud.State, now time.Time) iter.Seq2[int64, json.RawMessage] {
	return func(yield func(int64, json.RawMessage) bool) {
		for e := range s.table(st).Entries() {
			if !yield(e.Value.Header().ID, collect(func(b []byte) []byte { return s.append(b, st, e, now) })) {
				return
			}
		}
	}
}

// append appends the JSON of one version, without secrets.
func (s shownResource[T]) append(b []byte, st *cloud.State, e *store.Entry[T], now time.Time) []byte {
	st = s.api.current(st)
	v := e.Value
	if s.public != nil {
		if public, ok := s.public(v); ok {
			v = public
		}
	}
	return version[T]{s.resource, s.api, s.api.date, st, v, now}.appendJSON(b)
}

// Append implements Shown.
func (s shownResource[T]) Append(b []byte, st *cloud.State, id int64, now time.Time) []byte {
	e, ok := s.table(st).Entry(id)
	if !ok {
		return b
	}
	return s.append(b, st, e, now)
}
