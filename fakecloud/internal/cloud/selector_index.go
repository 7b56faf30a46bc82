package cloud

import (
	"cmp"

	"github.com/tidwall/btree"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/store"
)

// selectorTerm is an entry of the index from labels to load balancers and firewalls. A label selector of the owner may select a server with
// that label. term is a label ("key=value"), a key, or "" for a selector that requires no label.
type selectorTerm struct {
	kind     store.Kind
	term     string
	owner    int64
	selector string // "" for a load balancer, whose selectors are indexed together
}

func newSelectorIndex() *btree.BTreeG[selectorTerm] {
	return store.NewTree(func(a, b selectorTerm) bool {
		return cmp.Or(cmp.Compare(a.kind, b.kind), cmp.Compare(a.term, b.term), cmp.Compare(a.owner, b.owner),
			cmp.Compare(a.selector, b.selector)) < 0
	})
}

// termsOf returns the terms of the index that may lead to selectors of a server. Most projects have no selectors.
func (st *State) termsOf(s *Server) []string {
	if st.selectors.Len() == 0 {
		return nil
	}
	return store.LabelTerms(s.Labels)
}

// indexSelectors replaces entries of the index, each for a term of owner.
func (tx *Tx) indexSelectors(owner selectorTerm, before, after []string) {
	tx.selectors = store.CopyTree(tx.selectors)
	for _, owner.term = range before {
		tx.selectors.Delete(owner)
	}
	for _, owner.term = range after {
		tx.selectors.Set(owner)
	}
}

// selecting returns the smallest id above a given one of a load balancer or firewall with one of the terms, 0 for none.
func (st *State) selecting(kind store.Kind, terms []string, above int64) (id int64) {
	for _, term := range terms {
		st.selectors.Ascend(selectorTerm{kind: kind, term: term, owner: above + 1}, func(e selectorTerm) bool {
			if e.kind == kind && e.term == term && (id == 0 || e.owner < id) {
				id = e.owner
			}
			return false
		})
	}
	return id
}
