package cloud

import (
	"maps"
	"slices"
	"strings"
)

// labelled are the ids of the resources of a table that have a label, "key=value".
type labelled struct {
	label string
	ids   *idSet
}

// idSet is a set of ids, which does not change.
type idSet struct{ ascending[int64] }

// hasID reports whether a set, which may be nil, has the id.
func hasID(set *idSet, id int64) bool {
	if set == nil {
		return false
	}
	_, ok := set.Get(id)
	return ok
}

// withID returns a copy of a set, which may be nil, with or without the id. The copy shares what has not changed.
func withID(set *idSet, id int64, in bool) *idSet {
	var s idSet
	if set == nil {
		s.ascending = newAscending(func(a, b int64) bool { return a < b })
	} else {
		s = *set
	}
	if in {
		s.Set(id)
	} else {
		s.Delete(id)
	}
	s.share()
	return &s
}

// labelIndex finds the ids of what has a label.
type labelIndex struct{ ascending[labelled] }

func newLabelIndex() labelIndex {
	return labelIndex{newAscending(func(a, b labelled) bool { return a.label < b.label })}
}

// relabel updates the index after the labels of a resource changed.
func (x *labelIndex) relabel(id int64, before, after map[string]string) {
	if len(before)+len(after) == 0 || maps.Equal(before, after) {
		return
	}
	change := func(label string, has bool) {
		old, _ := x.Get(labelled{label: label})
		if now := (labelled{label, withID(old.ids, id, has)}); now.ids.Len() == 0 {
			x.Delete(now)
		} else {
			x.Set(now)
		}
	}
	for k, v := range before {
		if now, ok := after[k]; !ok || now != v {
			change(k+"="+v, false)
		}
	}
	for k, v := range after {
		if was, ok := before[k]; !ok || was != v {
			change(k+"="+v, true)
		}
	}
}

// Candidates are the resources that have a label that a selector requires.
type Candidates struct {
	// Exact is whether the selector selects all of them.
	Exact bool
	sets  []*idSet // without common ids: a resource has one value for a key
}

// Candidates returns the resources that a selector may select, by the requirement that leaves the fewest. ok is false if
// the selector requires no label: it may select every resource.
func (t *Table[T]) Candidates(s Selector) (Candidates, bool) { return t.labels.candidates(s) }

func (x *labelIndex) candidates(s Selector) (best Candidates, ok bool) {
	for _, r := range s.requirements {
		if r.op != opIn && r.op != opExists {
			continue
		}
		c := Candidates{Exact: len(s.requirements) == 1}
		if r.op == opExists {
			prefix := r.key + "="
			x.Ascend(labelled{label: prefix}, func(l labelled) bool {
				if !strings.HasPrefix(l.label, prefix) {
					return false
				}
				c.sets = append(c.sets, l.ids)
				return true
			})
		} else {
			for _, v := range slices.Compact(slices.Sorted(slices.Values(r.values))) {
				if l, ok := x.Get(labelled{label: r.key + "=" + v}); ok {
					c.sets = append(c.sets, l.ids)
				}
			}
		}
		if !ok || c.Len() < best.Len() {
			best, ok = c, true
		}
	}
	return best, ok
}

// Len returns the number of candidates.
func (c Candidates) Len() int {
	n := 0
	for _, ids := range c.sets {
		n += ids.Len()
	}
	return n
}

// IDs returns n ids of the candidates in ascending order, after the first ones.
func (c Candidates) IDs(first, n int) []int64 {
	n = min(n, c.Len()-first)
	if n <= 0 {
		return nil
	}
	if len(c.sets) == 1 {
		out := make([]int64, 0, n)
		start, _ := c.sets[0].GetAt(first)
		c.sets[0].Ascend(start, func(id int64) bool {
			out = append(out, id)
			return len(out) < n
		})
		return out
	}
	var all []int64
	for _, ids := range c.sets {
		all = append(all, ids.Items()...)
	}
	slices.Sort(all)
	return all[first : first+n]
}
