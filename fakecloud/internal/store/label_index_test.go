package store

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
)

// The index must agree with a look at every resource, after any changes, and in the versions before them.
func TestCandidatesAreWhatASelectorMaySelect(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	labels := func() map[string]string {
		out := map[string]string{}
		for _, k := range []string{"a", "b", "ab"} {
			if random.IntN(2) == 0 {
				out[k] = []string{"", "1", "2"}[random.IntN(3)]
			}
		}
		return out
	}
	var ids []int64
	versions := []Table[*row]{newRows()}
	for i := range 300 {
		versions = append(versions, written(versions[i], func(rows *Table[*row]) {
			switch n := random.IntN(10); {
			case n < 6 || len(ids) == 0:
				r := &row{Meta{ID: int64(i + 1), Labels: labels()}}
				rows.Put(r)
				ids = append(ids, r.ID)
			case n < 9:
				rows.Update(ids[random.IntN(len(ids))], func(r *row) { r.Labels = labels() })
			default:
				at := random.IntN(len(ids))
				rows.Delete(ids[at])
				ids = slices.Delete(ids, at, at+1)
			}
		}))
	}
	for i, rows := range versions {
		for _, text := range []string{"a", "a=", "a=1", "a in (1,2,1)", "a,b=1", "a=1,b!=2", "ab,!a", "none", "none=1"} {
			wantCandidates(t, i, rows, text)
		}
	}
	for _, text := range []string{"", "!a", "a!=1", "a notin (1,2)"} {
		s, err := ParseSelector(text)
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := versions[0].Candidates(s); ok {
			t.Errorf("%q has candidates, although it requires no label", text)
		}
	}
}

func wantCandidates(t *testing.T, i int, rows Table[*row], text string) {
	t.Helper()
	s, err := ParseSelector(text)
	if err != nil {
		t.Fatal(err)
	}
	c, ok := rows.Candidates(s)
	if !ok {
		t.Fatalf("%q has no candidates", text)
	}
	got := c.IDs(0, c.Len())
	var want []int64
	for r := range rows.All() {
		selected := s.Matches(r.Labels)
		if c.Exact && selected || !c.Exact && slices.Contains(got, r.ID) {
			want = append(want, r.ID)
		}
		if selected && !slices.Contains(got, r.ID) {
			t.Errorf("version %d: %q selects %d, %v, which is not a candidate", i, text, r.ID, maps.Clone(r.Labels))
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("version %d: %q has the candidates %v, want %v", i, text, got, want)
	}
	for first := range got {
		if page := c.IDs(first, 2); !slices.Equal(page, got[first:min(first+2, len(got))]) {
			t.Errorf("version %d: %q: ids from %d on: %v of %v", i, text, first, page, got)
		}
	}
}
