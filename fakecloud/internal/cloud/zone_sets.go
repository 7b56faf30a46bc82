package cloud

import (
	"cmp"
	"slices"
	"sort"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/store"
)

// recordSets are the record sets of a zone, in the orders that its lists have. A copy of the struct is a version: see
// [store.Ascending]. A change copies what it changes, and the first change makes the indexes: a secondary zone has none.
type recordSets struct {
	indexes   *rrsetIndexes // nil if there are no sets yet
	owned     bool          // no other version has the indexes
	records   int
	protected int // sets with ChangeProtection
	lastAge   int64
}

// rrsetIndexes are the orders of a zone's record sets, and their labels.
type rrsetIndexes struct {
	byName, byType, byID, byAge store.Ascending[*RRSet]
	labels                      store.LabelIndex // of ages, which identify the sets
}

func newRRSetIndexes() *rrsetIndexes {
	byName := func(a, b *RRSet) bool {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Type, b.Type)) < 0
	}
	byType := func(a, b *RRSet) bool {
		return cmp.Or(cmp.Compare(a.Type, b.Type), cmp.Compare(a.Name, b.Name)) < 0
	}
	return &rrsetIndexes{
		byName: store.NewAscending(byName), byType: store.NewAscending(byType),
		byID:   store.NewAscending(func(a, b *RRSet) bool { return a.ID() < b.ID() }),
		byAge:  store.NewAscending(func(a, b *RRSet) bool { return a.age < b.age }),
		labels: store.NewLabelIndex(),
	}
}

// own returns indexes that no other version has. It copies shared ones.
func (r *recordSets) own() *rrsetIndexes {
	switch {
	case r.indexes == nil:
		r.indexes = newRRSetIndexes()
	case !r.owned:
		c := *r.indexes
		for _, order := range []*store.Ascending[*RRSet]{&c.byName, &c.byType, &c.byID, &c.byAge} {
			order.Share()
		}
		c.labels.Share()
		r.indexes = &c
	}
	r.owned = true
	return r.indexes
}

// get returns a set.
func (r *recordSets) get(name, kind string) (*RRSet, bool) {
	if r.indexes == nil {
		return nil, false
	}
	return r.indexes.byName.Get(&RRSet{Name: name, Type: kind})
}

// put stores a new set, or a new version of one.
func (r *recordSets) put(now *RRSet) {
	before, known := r.get(now.Name, now.Type)
	var labels map[string]string
	if known {
		now.age, labels = before.age, before.Labels
		r.count(before, -1)
	} else {
		r.lastAge++
		now.age = r.lastAge
	}
	r.add(now, labels)
}

// add adds a set with its age. labels are those of the version before.
func (r *recordSets) add(s *RRSet, labels map[string]string) {
	all := r.own()
	r.count(s, 1)
	all.byName.Set(s)
	all.byType.Set(s)
	all.byID.Set(s)
	all.byAge.Set(s)
	all.labels.Relabel(s.age, labels, s.Labels)
}

// remove removes a set.
func (r *recordSets) remove(s *RRSet) {
	all := r.own()
	r.count(s, -1)
	all.byName.Delete(s)
	all.byType.Delete(s)
	all.byID.Delete(s)
	all.byAge.Delete(s)
	all.labels.Relabel(s.age, s.Labels, nil)
}

func (r *recordSets) count(s *RRSet, by int) {
	r.records += by * len(s.Records)
	if s.ChangeProtection {
		r.protected += by
	}
}

// all returns all sets by name and type.
func (r *recordSets) all() []*RRSet {
	if r.indexes == nil {
		return nil
	}
	return r.indexes.byName.Items()
}

// named returns the sets with a name, by type.
func (r *recordSets) named(name string) (sets []*RRSet) {
	if r.indexes == nil {
		return nil
	}
	r.indexes.byName.Ascend(&RRSet{Name: name}, func(s *RRSet) bool {
		if s.Name != name {
			return false
		}
		sets = append(sets, s)
		return true
	})
	return sets
}

// span returns the place of the first set of a type in the order by type, and how many sets have the type.
func (r *recordSets) span(kind string) (first, n int) {
	order := &r.indexes.byType
	from := func(after bool) int {
		return sort.Search(order.Len(), func(i int) bool {
			s, _ := order.GetAt(i)
			return s.Type > kind || s.Type == kind && !after
		})
	}
	first = from(false)
	return first, from(true) - first
}

// rrsetChange is the change of a record set of a zone: the log of a transaction has only that of the zone.
type rrsetChange struct {
	zone int64
	set  *RRSet
	gone bool
}

// putRRSet stores a new record set of a zone of this transaction, or a new version of one.
func (tx *Tx) putRRSet(z *Zone, s *RRSet) {
	z.sets.put(s)
	tx.noteRRSet(rrsetChange{z.ID, s, false})
}

func (tx *Tx) removeRRSet(z *Zone, s *RRSet) {
	z.sets.remove(s)
	tx.noteRRSet(rrsetChange{z.ID, s, true})
}

func (tx *Tx) noteRRSet(c rrsetChange) {
	if tx.cloud.saver != nil {
		tx.rrsets = append(tx.rrsets, c)
	}
}

// The orders of a zone's record sets in addition to those of tables.
const (
	ByRRSetID store.Order = iota + store.ByName + 1
	ByAge
)

// RRSetFilter selects record sets. Empty fields select all.
type RRSetFilter struct {
	Names, Types []string
	Labels       store.Selector
}

// matches reports whether a filter selects a set.
func (f *RRSetFilter) matches(s *RRSet) bool {
	return (len(f.Names) == 0 || slices.Contains(f.Names, s.Name)) &&
		(len(f.Types) == 0 || slices.Contains(f.Types, s.Type)) && f.Labels.Matches(s.Labels)
}

// RRSetPage returns a page of all record sets, or of those of one type, and how many there are. ok is false if the zone does
// not maintain the order of such a filter: see [Zone.SelectRRSets]. The cost depends on the size of the page.
func (z *Zone) RRSetPage(f RRSetFilter, p store.Page) (page []*RRSet, total int, ok bool) {
	if len(f.Names) > 0 || len(f.Types) > 1 || !f.Labels.Empty() || len(f.Types) == 1 && p.Order != store.ByName {
		return nil, 0, false
	}
	all := z.sets.indexes
	if all == nil {
		return nil, 0, true
	}
	order := &all.byName
	switch p.Order {
	case ByRRSetID:
		order = &all.byID
	case ByAge:
		order = &all.byAge
	}
	total = order.Len()
	n := min(p.N, total-p.First)
	if len(f.Types) == 1 {
		order = &all.byType
		var first int
		first, total = z.sets.span(f.Types[0])
		n = min(p.N, total-p.First)
		if p.Desc {
			first = order.Len() - first - total
		}
		p.First += first
	}
	if n <= 0 {
		return nil, total, true
	}
	return store.PageOf(order, p, n, func(s *RRSet) *RRSet { return s }), total, true
}

// SelectRRSets returns the record sets that a filter selects, by name and type. The cost depends on how many have one of the
// names, one of the types, or a label that the selector requires.
func (z *Zone) SelectRRSets(f RRSetFilter) []*RRSet {
	if z.sets.indexes == nil {
		return nil
	}
	sets := z.sets.candidates(&f)
	sets = slices.DeleteFunc(sets, func(s *RRSet) bool { return !f.matches(s) })
	slices.SortFunc(sets, func(a, b *RRSet) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Type, b.Type))
	})
	return sets
}

// candidates returns the sets that a filter may select.
func (r *recordSets) candidates(f *RRSetFilter) (sets []*RRSet) {
	distinct := func(all []string) []string { return slices.Compact(slices.Sorted(slices.Values(all))) }
	if len(f.Names) > 0 {
		for _, name := range distinct(f.Names) {
			sets = append(sets, r.named(name)...)
		}
		return sets
	}
	labelled, ok := r.indexes.labels.Candidates(f.Labels)
	typed := 0
	for _, kind := range distinct(f.Types) {
		_, n := r.span(kind)
		typed += n
	}
	switch {
	case ok && (len(f.Types) == 0 || labelled.Len() <= typed):
		for _, age := range labelled.IDs(0, labelled.Len()) {
			s, _ := r.indexes.byAge.Get(&RRSet{age: age})
			sets = append(sets, s)
		}
		return sets
	case len(f.Types) == 0:
		return r.all()
	}
	for _, kind := range distinct(f.Types) {
		if first, n := r.span(kind); n > 0 {
			sets = append(sets, store.PageOf(&r.indexes.byType, store.Page{First: first}, n, func(s *RRSet) *RRSet { return s })...)
		}
	}
	return sets
}
