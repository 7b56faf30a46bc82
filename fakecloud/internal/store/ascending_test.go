package store

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// numbered is an item of a set by key. Its number tells versions of it apart.
type numbered struct{ key, number int }

func byKey(n numbered, key int) int { return n.key - key }

// TestAnAscendingSetEqualsASortedSlice changes a set at random. All its versions, and none of those that were dropped, must have
// what a sorted slice has.
func TestAnAscendingSetEqualsASortedSlice(t *testing.T) {
	t.Parallel()
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 0))
		type version struct {
			set  Ascending[numbered]
			want []numbered
		}
		now := version{set: NewAscending(func(a, b numbered) bool { return a.key < b.key })}
		var all []version
		write := func(v version) version {
			v.set.Share()
			v.want = slices.Clone(v.want)
			for range r.IntN(3 * maxNewest) {
				if r.IntN(40) == 0 { // leave only what is in the tree
					v.want = v.want[:len(v.want)-len(v.set.newest)]
					for _, n := range v.set.newest {
						v.set.Delete(n)
					}
				}
				item := numbered{r.IntN(2000), r.Int()}
				if len(v.want) > 0 && r.IntN(4) > 0 {
					item.key = v.want[len(v.want)-1].key + 1 + r.IntN(3)
				}
				if len(v.want) > 0 && r.IntN(5) == 0 {
					item.key = v.want[len(v.want)-1-r.IntN(min(len(v.want), 2*maxNewest))].key
				}
				i, found := slices.BinarySearchFunc(v.want, item.key, byKey)
				switch {
				case found && r.IntN(3) > 0:
					v.set.Delete(item)
					v.want = slices.Delete(v.want, i, i+1)
				case found:
					v.set.Set(item)
					v.want[i] = item
				default:
					v.set.Set(item)
					v.want = slices.Insert(v.want, i, item)
				}
			}
			return v
		}
		for range 30 {
			if len(all) > 0 && r.IntN(4) == 0 {
				now = all[r.IntN(len(all))] // another branch begins
			}
			write(now) // dropped
			now = write(now)
			all = append(all, now)
		}
		for i := range all {
			checkAscending(t, &all[i].set, all[i].want, r)
		}
	}
}

func checkAscending(t *testing.T, set *Ascending[numbered], want []numbered, r *rand.Rand) {
	t.Helper()
	take := func(into *[]numbered, n int) func(numbered) bool {
		return func(item numbered) bool {
			*into = append(*into, item)
			return len(*into) < n
		}
	}
	equal := func(what string, got, want []numbered) {
		if !slices.Equal(got, want) {
			t.Fatalf("%s: %v, want %v", what, got, want)
		}
	}
	equal("Items", set.Items(), want)
	n := 1 + r.IntN(len(want)+10)
	var scanned []numbered
	set.Scan(take(&scanned, n))
	equal("Scan", scanned, want[:min(n, len(want))])
	if set.Len() != len(want) {
		t.Fatalf("Len: %d, want %d", set.Len(), len(want))
	}
	if _, ok := set.GetAt(len(want)); ok {
		t.Fatalf("GetAt returns an item behind the last one")
	}
	for range 20 {
		pivot := numbered{key: r.IntN(2200)}
		i, found := slices.BinarySearchFunc(want, pivot.key, byKey)
		if got, ok := set.Get(pivot); ok != found || ok && got != want[i] {
			t.Fatalf("Get(%d): %v, %v, want %v", pivot.key, got, ok, found)
		}
		if at, ok := set.GetAt(i); ok != (i < len(want)) || ok && at != want[i] {
			t.Fatalf("GetAt(%d): %v, %v", i, at, ok)
		}
		n := 1 + r.IntN(2*maxNewest)
		var up, down []numbered
		set.Ascend(pivot, take(&up, n))
		equal("Ascend", up, want[i:min(i+n, len(want))])
		if found {
			i++
		}
		set.Descend(pivot, take(&down, n))
		slices.Reverse(down)
		equal("Descend", down, want[max(0, i-n):i])
	}
}
