package store

import (
	"maps"
	"slices"
	"strings"
)

// labelled are the ids of the resources of a table that have a label, "key=value".
type labelled struct {
	label string
	ids   *IDSet
}

// IDSet is an immutable set of ids. nil is an empty one.
type IDSet struct{ set Ascending[int64] }

// Has reports whether the set has an id.
func (s *IDSet) Has(id int64) bool {
	if s == nil {
		return false
	}
	_, ok := s.set.Get(id)
	return ok
}

// With returns a copy of the set with or without an id. The copy shares what has not changed.
func (s *IDSet) With(id int64, in bool) *IDSet {
	var c IDSet
	if s == nil {
		c.set = NewAscending(func(a, b int64) bool { return a < b })
	} else {
		c = *s
	}
	if in {
		c.set.Set(id)
	} else {
		c.set.Delete(id)
	}
	c.set.Share()
	return &c
}

// Items returns the ids in ascending order, in a new slice.
func (s *IDSet) Items() []int64 {
	if s == nil {
		return nil
	}
	return s.set.Items()
}

// LabelIndex finds ids by label. A copy of the struct is a version: see [Ascending].
type LabelIndex struct{ labels Ascending[labelled] }

// NewLabelIndex returns an empty index.
func NewLabelIndex() LabelIndex {
	return LabelIndex{NewAscending(func(a, b labelled) bool { return a.label < b.label })}
}

// Share ends the changes of this version: see [Ascending].
func (x *LabelIndex) Share() { x.labels.Share() }

// Relabel updates the index after the labels of a resource changed.
func (x *LabelIndex) Relabel(id int64, before, after map[string]string) {
	if len(before)+len(after) == 0 || maps.Equal(before, after) {
		return
	}
	change := func(label string, has bool) {
		old, _ := x.labels.Get(labelled{label: label})
		if now := (labelled{label, old.ids.With(id, has)}); now.ids.set.Len() == 0 {
			x.labels.Delete(now)
		} else {
			x.labels.Set(now)
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
	sets  []*IDSet // without common ids: a resource has one value for a key
}

// Candidates returns the resources that a selector may select, by the requirement that leaves the fewest. ok is false if
// the selector requires no label: it may select every resource.
func (t *Table[T]) Candidates(s Selector) (Candidates, bool) { return t.labels.Candidates(s) }

// Candidates is [Table.Candidates] for the index's ids.
func (x *LabelIndex) Candidates(s Selector) (best Candidates, ok bool) {
	for _, r := range s.requirements {
		if r.op != opIn && r.op != opExists {
			continue
		}
		c := Candidates{Exact: len(s.requirements) == 1}
		if r.op == opExists {
			prefix := r.key + "="
			x.labels.Ascend(labelled{label: prefix}, func(l labelled) bool {
				if !strings.HasPrefix(l.label, prefix) {
					return false
				}
				c.sets = append(c.sets, l.ids)
				return true
			})
		} else {
			for _, v := range slices.Compact(slices.Sorted(slices.Values(r.values))) {
				if l, ok := x.labels.Get(labelled{label: r.key + "=" + v}); ok {
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
		n += ids.set.Len()
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
		start, _ := c.sets[0].set.GetAt(first)
		c.sets[0].set.Ascend(start, func(id int64) bool {
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
