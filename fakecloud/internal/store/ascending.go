package store

import (
	"slices"
	"sort"
	"sync"
	"sync/atomic"

	"github.com/tidwall/btree"
)

// treeDegree is small because a write copies the nodes that it changes. It is a power of two because nodes have room for
// twice as many items then: others get room for up to four times as many.
const treeDegree = 8

// NewTree returns a tree that one goroutine changes.
func NewTree[T any](less func(a, b T) bool) *btree.BTreeG[T] {
	return btree.NewBTreeGOptions(less, btree.Options{NoLocks: true, Degree: treeDegree})
}

// copying serializes CopyTree: a copy writes to the original tree, and two clouds may share that.
var copying sync.Mutex

// CopyTree returns a copy of a tree. Only the copy may be changed from now on. CopyTree is O(1): nodes are copied when they change.
func CopyTree[T any](t *btree.BTreeG[T]) *btree.BTreeG[T] {
	copying.Lock()
	defer copying.Unlock()
	return t.Copy()
}

// maxNewest is the number of items that an ascending set keeps outside its tree. It is small because the change of one of them
// copies all.
const maxNewest = 32

// Ascending is an ordered set for items that are mostly larger than all others when they are added, such as new ids. These stay in a slice
// at first: appending one copies nothing, while adding one to the tree copies a node of each level.
//
// A copy of the struct is a version of the set. Versions share their common items. If others may read a version, it may be changed only
// after a call of Share. Several copies of one version may be changed, even at the same time.
type Ascending[T any] struct {
	tree   *btree.BTreeG[T]
	newest []T // larger than all items of the tree, in order
	// used is how much of newest's array is in use. The one version that counts it up may write behind its own part. Arrays
	// that are copies of one another may share it.
	used     *atomic.Int32
	ownsTree bool // no other version has the tree
}

// NewAscending returns an empty set.
func NewAscending[T any](less func(a, b T) bool) Ascending[T] {
	return Ascending[T]{tree: NewTree(less)}
}

// Share ends the changes of this version. Its copies may be changed, and do not change it.
func (s *Ascending[T]) Share() { s.ownsTree = false }

// Len returns the number of items.
func (s *Ascending[T]) Len() int { return s.tree.Len() + len(s.newest) }

// position returns how many of the newest items are smaller than key, and reports whether the next one equals it.
func (s *Ascending[T]) position(key T) (i int, found bool) {
	i = sort.Search(len(s.newest), func(i int) bool { return !s.tree.Less(s.newest[i], key) })
	return i, i < len(s.newest) && !s.tree.Less(key, s.newest[i])
}

// inTree reports whether an item like key is in the tree, if it is in the set.
func (s *Ascending[T]) inTree(key T) bool { return len(s.newest) == 0 || s.tree.Less(key, s.newest[0]) }

// Get returns the item that equals key.
func (s *Ascending[T]) Get(key T) (item T, ok bool) {
	if s.inTree(key) {
		return s.tree.Get(key)
	}
	i, ok := s.position(key)
	if !ok {
		return item, false
	}
	return s.newest[i], true
}

// GetAt returns the i-th item (from 0).
func (s *Ascending[T]) GetAt(i int) (item T, ok bool) {
	if i < s.tree.Len() {
		return s.tree.GetAt(i)
	}
	if i -= s.tree.Len(); i >= len(s.newest) {
		return item, false
	}
	return s.newest[i], true
}

// Items returns all items in order, in a new slice.
func (s *Ascending[T]) Items() []T { return append(s.tree.Items(), s.newest...) }

// Scan yields all items in order.
func (s *Ascending[T]) Scan(yield func(T) bool) {
	more := true
	s.tree.Scan(func(item T) bool {
		more = yield(item)
		return more
	})
	for i := 0; more && i < len(s.newest); i++ {
		more = yield(s.newest[i])
	}
}

// Ascend yields the items that are not smaller than pivot, in order.
func (s *Ascending[T]) Ascend(pivot T, yield func(T) bool) {
	more := true
	if s.inTree(pivot) {
		s.tree.Ascend(pivot, func(item T) bool {
			more = yield(item)
			return more
		})
	}
	for i, _ := s.position(pivot); more && i < len(s.newest); i++ {
		more = yield(s.newest[i])
	}
}

// Descend yields the items that are not larger than pivot, in the opposite order.
func (s *Ascending[T]) Descend(pivot T, yield func(T) bool) {
	i, found := s.position(pivot)
	if found {
		i++
	}
	for _, item := range slices.Backward(s.newest[:i]) {
		if !yield(item) {
			return
		}
	}
	s.tree.Descend(pivot, yield)
}

// Set adds an item. It replaces the one that equals it.
func (s *Ascending[T]) Set(item T) {
	if s.inTree(item) {
		if last, ok := s.tree.Max(); ok && !s.tree.Less(last, item) {
			s.own().Set(item)
			return
		}
	}
	i, found := s.position(item)
	switch {
	case found:
		s.newest = slices.Clone(s.newest)
		s.newest[i] = item
	case len(s.newest) == maxNewest:
		for _, v := range s.newest {
			s.own().Set(v)
		}
		s.newest = nil
		s.Set(item)
	case i < len(s.newest):
		s.newest = slices.Insert(slices.Clone(s.newest), i, item)
	case i < cap(s.newest) && s.used != nil && s.used.CompareAndSwap(int32(i), int32(i+1)):
		s.newest = append(s.newest, item)
	default:
		s.newest, s.used = append(slices.Clip(s.newest), item), &atomic.Int32{}
		s.used.Store(int32(i + 1))
	}
}

// Delete removes the item that equals key, if there is one.
func (s *Ascending[T]) Delete(key T) {
	if s.inTree(key) {
		s.own().Delete(key)
		return
	}
	if i, found := s.position(key); found {
		s.newest = slices.Delete(slices.Clone(s.newest), i, i+1)
	}
}

// own returns a tree that no other version has. It copies a shared tree. This is O(1): nodes are copied when they change.
func (s *Ascending[T]) own() *btree.BTreeG[T] {
	if !s.ownsTree {
		s.tree, s.ownsTree = CopyTree(s.tree), true
	}
	return s.tree
}
