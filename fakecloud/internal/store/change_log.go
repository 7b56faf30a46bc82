package store

// Change is the change of one resource in one transaction: its value before and after. A value is nil
// if the resource did not exist.
type Change struct {
	Kind     Kind
	ID       int64
	Old, New any
}

// ChangeLog collects the changes of a transaction: one record per resource, in the order of the first
// changes.
type ChangeLog struct {
	Changes []Change
	index   map[int64]int // by id, which is unique over all kinds; not used for few changes
}

// fewChanges are found faster without an index. Most transactions have no more.
const fewChanges = 16

// maxSpareChanges limits the memory of an empty log. A cloud keeps as many as it has needed at once.
const maxSpareChanges = 100

// Clear empties the log.
func (l *ChangeLog) Clear() {
	if len(l.Changes) > maxSpareChanges {
		*l = ChangeLog{}
		return
	}
	clear(l.Changes)
	l.Changes = l.Changes[:0]
	clear(l.index)
}

// place returns the place of the change of a resource, or -1.
func (l *ChangeLog) place(id int64) int {
	if len(l.Changes) > fewChanges {
		if i, ok := l.index[id]; ok {
			return i
		}
		return -1
	}
	for i := range l.Changes {
		if l.Changes[i].ID == id {
			return i
		}
	}
	return -1
}

// has reports whether the log has a change of a resource.
func (l *ChangeLog) has(id int64) bool { return l.place(id) >= 0 }

// Record adds a change. It keeps the value before the first change of a resource.
func (l *ChangeLog) Record(kind Kind, id int64, before, after any) {
	if i := l.place(id); i >= 0 {
		l.Changes[i].New = after
		return
	}
	if l.Changes == nil {
		l.Changes = make([]Change, 0, 4)
	}
	l.Changes = append(l.Changes, Change{kind, id, before, after})
	if len(l.Changes) <= fewChanges {
		return
	}
	if l.index == nil {
		l.index = make(map[int64]int, 2*fewChanges)
	}
	for i := len(l.index); i < len(l.Changes); i++ {
		l.index[l.Changes[i].ID] = i
	}
}
