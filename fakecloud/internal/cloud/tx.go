package cloud

import (
	"slices"
	"time"
)

// Tx is one write: a private copy of a project's state. It may be used only inside the function
// that it was given to.
type Tx struct {
	*State
	cloud   *Cloud
	project *projectData
	now     time.Time
	log     *changeLog
	outcome *ActionOutcome

	jobs      []job                  // scheduled, if the transaction succeeds
	followers map[int64][]*actionRun // actions that wait for another, if it succeeds
	tasks     []*task                // handed to hypervisors, if the transaction succeeds
	undo      []func()               // takes back changes of what projects share, if it fails
}

// Now returns the time of the write, in UTC. For work that was scheduled it is the time at which it
// was due.
func (tx *Tx) Now() time.Time { return tx.now }

// NewMeta returns the Meta of a new resource.
func (tx *Tx) NewMeta(name string, labels map[string]string) Meta {
	return Meta{ID: tx.cloud.newID(), Name: name, Labels: cloneLabels(labels), Created: tx.now}
}

// schedule runs fn in a transaction of its own when d has passed.
func (tx *Tx) schedule(d time.Duration, fn func(*Tx)) {
	tx.jobs = append(tx.jobs, job{due: tx.now.Add(d), project: tx.project, run: fn})
}

func (tx *Tx) after(action int64, run *actionRun) {
	if tx.followers == nil {
		tx.followers = map[int64][]*actionRun{}
	}
	tx.followers[action] = append(tx.followers[action], run)
}

// takeFollowers returns and forgets the actions that wait for another one. They stay forgotten if
// the transaction fails: call it only where nothing can fail any more.
func (tx *Tx) takeFollowers(action int64) []*actionRun {
	waiting := slices.Concat(tx.project.followers[action], tx.followers[action])
	delete(tx.followers, action)
	delete(tx.project.followers, action)
	return waiting
}

// onFailure registers how to take back a change of something that is not in State.
func (tx *Tx) onFailure(undo func()) { tx.undo = append(tx.undo, undo) }

func (tx *Tx) rollback() {
	for _, v := range slices.Backward(tx.undo) {
		v()
	}
}

// touch makes a new version of a resource of any kind: see [Table.Touch].
func (tx *Tx) touch(r Ref) {
	for _, t := range tx.tables() {
		if t.Kind() == r.Kind {
			t.Touch(r.ID)
		}
	}
}

// nested runs fn on a copy of the transaction.
func (tx *Tx) nested(fn func(*Tx) error) (*Tx, error) {
	inner := tx.cloud.begin(tx.project, tx.State, tx.now, nil)
	if err := fn(inner); err != nil {
		inner.rollback()
		return nil, err
	}
	return inner, nil
}

// adopt makes what a nested transaction did part of this one.
func (tx *Tx) adopt(inner *Tx) {
	outer := tx.tables()
	for i, t := range inner.tables() {
		t.join(outer[i])
	}
	*tx.State = *inner.State
	for _, c := range inner.log.changes {
		tx.log.record(c.kind, c.id, c.old, c.new)
	}
	tx.jobs = append(tx.jobs, inner.jobs...)
	for id, runs := range inner.followers {
		for _, r := range runs {
			tx.after(id, r)
		}
	}
	tx.tasks = append(tx.tasks, inner.tasks...)
	tx.undo = append(tx.undo, inner.undo...)
}
