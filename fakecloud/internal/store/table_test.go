package store

import (
	"fmt"
	"testing"
)

// row is a resource without fields.
type row struct{ Meta }

func (r *row) Clone() *row {
	c := *r
	return &c
}

// newRows returns a published table with rows that have names, and the ids 1, 2 and so on.
func newRows(names ...string) Table[*row] {
	return written(NewTable[*row]("row"), func(t *Table[*row]) {
		for i, n := range names {
			t.Put(&row{Meta{ID: int64(i + 1), Name: n}})
		}
	})
}

// written returns the version of a table after a write.
func written(t Table[*row], write func(*Table[*row])) Table[*row] {
	t.Begin(&ChangeLog{})
	write(&t)
	t.Publish()
	return t
}

func TestWritingToAPublishedTablePanics(t *testing.T) {
	t.Parallel()
	defer func() {
		if recover() == nil {
			t.Error("want a panic")
		}
	}()
	rows := newRows()
	rows.Put(&row{})
}

func TestPagesOfATable(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		rows Table[*row]
		page Page
		want string
	}{
		{newRows(), Page{N: 2}, ""},
		{newRows("c", "a", "b"), Page{N: 2}, "ca"},
		{newRows("c", "a", "b"), Page{First: 2, N: 2}, "b"},
		{newRows("c", "a", "b"), Page{Desc: true, N: 5}, "bac"},
		{newRows("c", "a", "b"), Page{Order: ByName, N: 3}, "abc"},
		{newRows("c", "a", "b"), Page{Order: ByName, Desc: true, First: 1, N: 9}, "ba"},
		{newRows("c", "a", "b"), Page{First: 3, N: 1}, ""},
	} {
		if got := namesOf(tc.rows, tc.page); got != tc.want {
			t.Errorf("%+v: %s, want %s", tc.page, got, tc.want)
		}
	}
}

func namesOf(rows Table[*row], p Page) (names string) {
	for _, e := range rows.Page(p) {
		names += e.Value.Name
	}
	return names
}

func TestATableKeepsBothOrders(t *testing.T) {
	t.Parallel()
	before := newRows("c", "a", "d", "b")
	rows := written(before, func(rows *Table[*row]) {
		a, _ := rows.ByName("a")
		rows.Delete(a.ID)
	})
	for _, tc := range []struct {
		rows  Table[*row]
		order Order
		want  string
	}{
		{rows, ByID, "cdb"}, {rows, ByName, "bcd"}, {before, ByID, "cadb"}, {before, ByName, "abcd"},
	} {
		if got := namesOf(tc.rows, Page{Order: tc.order, N: 9}); got != tc.want {
			t.Errorf("order %d: %s, want %s", tc.order, got, tc.want)
		}
	}
}

// The second request for a page keeps it until the table changes.
func TestAPageIsKeptUntilItsTableChanges(t *testing.T) {
	t.Parallel()
	rows, encoded := newRows(), 0
	ask := func(key PageKey) (cached bool) {
		if rows.CachedPage(key) != nil {
			return true
		}
		rows.CachePage(key, func() EncodedPage {
			encoded++
			return EncodedPage{}
		})
		return false
	}
	key := PageKey{Host: "a", Query: "page=2"}
	for id := range int64(2) {
		rows = written(rows, func(rows *Table[*row]) { rows.Put(&row{Meta{ID: id + 1}}) })
		for request, want := range []bool{false, false, true, true} {
			if got := ask(key); got != want {
				t.Errorf("version %d, request %d: cached is %v", id, request, got)
			}
		}
	}
	if encoded != 2 {
		t.Errorf("encoded %d times, want once for each version", encoded)
	}
	for _, other := range []PageKey{
		{"b", "page=2", false, nil}, {"a", "page=3", false, nil}, {"a", "page=2", true, nil}, {"a", "page=2", false, rows},
	} {
		if ask(other) {
			t.Errorf("%v got the page of another request", other)
		}
	}
	for i := range 3 * maxCachedPages {
		ask(PageKey{Query: fmt.Sprint(i)})
	}
	if kept := len(*rows.pages.list.Load()); kept != maxCachedPages {
		t.Errorf("%d pages are kept, want %d", kept, maxCachedPages)
	}
	ask(PageKey{With: rows})
	if kept := len(*rows.pages.list.Load()); kept != 1 {
		t.Errorf("%d pages are kept after what they show has changed, want 1", kept)
	}
}

func TestAnEntryIsEncodedOnceWithTheSame(t *testing.T) {
	t.Parallel()
	rows := written(newRows(), func(rows *Table[*row]) { rows.Put(&row{Meta{ID: 1}}) })
	e, _ := rows.Entry(1)
	one, other := new(1), new(1)
	for i, tt := range []struct {
		with    any
		encoded bool
	}{{one, true}, {one, false}, {other, true}, {one, true}, {nil, true}} {
		encoded := false
		e.Encoded(tt.with, func(*row) []byte { encoded = true; return []byte{} })
		if encoded != tt.encoded {
			t.Errorf("call %d: encoded is %v", i, encoded)
		}
	}
}
