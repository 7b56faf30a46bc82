package cloud

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
)

// The index must agree with a look at every resource, after any changes, and in states that were read before them.
func TestCandidatesAreWhatASelectorMaySelect(t *testing.T) {
	t.Parallel()
	p, _ := clockedCloud(t)
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
	states := []*State{p.View()}
	for i := range 300 {
		must(t, p, func(tx *Tx) {
			switch n := random.IntN(10); {
			case n < 6 || len(ids) == 0:
				k := &SSHKey{Meta: tx.NewMeta(fmt.Sprint("key-", i), labels())}
				tx.SSHKeys.Put(k)
				ids = append(ids, k.ID)
			case n < 9:
				tx.SSHKeys.Update(ids[random.IntN(len(ids))], func(k *SSHKey) { k.Labels = labels() })
			default:
				at := random.IntN(len(ids))
				tx.SSHKeys.Delete(ids[at])
				ids = slices.Delete(ids, at, at+1)
			}
		})
		states = append(states, p.View())
	}
	for i, st := range states {
		for _, text := range []string{"a", "a=", "a=1", "a in (1,2,1)", "a,b=1", "a=1,b!=2", "ab,!a", "none", "none=1"} {
			wantCandidates(t, i, st, text)
		}
	}
	for _, text := range []string{"", "!a", "a!=1", "a notin (1,2)"} {
		s, err := ParseSelector(text)
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := p.View().SSHKeys.Candidates(s); ok {
			t.Errorf("%q has candidates, although it requires no label", text)
		}
	}
}

func wantCandidates(t *testing.T, i int, st *State, text string) {
	t.Helper()
	s, err := ParseSelector(text)
	if err != nil {
		t.Fatal(err)
	}
	c, ok := st.SSHKeys.Candidates(s)
	if !ok {
		t.Fatalf("%q has no candidates", text)
	}
	got := c.IDs(0, c.Len())
	var want []int64
	for k := range st.SSHKeys.All() {
		selected := s.Matches(k.Labels)
		if c.Exact && selected || !c.Exact && slices.Contains(got, k.ID) {
			want = append(want, k.ID)
		}
		if selected && !slices.Contains(got, k.ID) {
			t.Errorf("state %d: %q selects %d, %v, which is not a candidate", i, text, k.ID, maps.Clone(k.Labels))
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("state %d: %q has the candidates %v, want %v", i, text, got, want)
	}
	for first := range got {
		if page := c.IDs(first, 2); !slices.Equal(page, got[first:min(first+2, len(got))]) {
			t.Errorf("state %d: %q: ids from %d on: %v of %v", i, text, first, page, got)
		}
	}
}
