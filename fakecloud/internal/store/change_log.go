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
	index   map[int64]int // by id, which is unique over all kinds
}

// maxSpareChanges limits the memory of an empty log.
const maxSpareChanges = 1000

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

// has reports whether the log has a change of a resource.
func (l *ChangeLog) has(id int64) bool {
	_, ok := l.index[id]
	return ok
}

// Record adds a change. It keeps the value before the first change of a resource.
func (l *ChangeLog) Record(kind Kind, id int64, before, after any) {
	if i, ok := l.index[id]; ok {
		l.Changes[i].New = after
		return
	}
	if l.index == nil {
		l.index = make(map[int64]int, 8)
		l.Changes = make([]Change, 0, 8)
	}
	l.index[id] = len(l.Changes)
	l.Changes = append(l.Changes, Change{kind, id, before, after})
}
