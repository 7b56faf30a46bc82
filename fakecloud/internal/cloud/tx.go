package cloud

import (
	"maps"
	"slices"
	"time"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/store"
)

// Tx is one write: a private copy of a project's state. It may be used only inside the function
// that it was given to.
type Tx struct {
	*State
	cloud   *Cloud
	project *projectData
	now     time.Time
	log     *store.ChangeLog
	outcome *ActionOutcome
	ending  ActionOutcome // of the action that has its effect
	changed bool          // before the changes of log
	own     bool          // it is a write, or work that a write has made due at once

	// commit makes these effective.
	jobs     []job
	tasks    []*task // for hypervisors
	finished []finishedAction
	rrsets   []rrsetChange  // if the cloud has a disk
	targets  []targetServer // if the cloud has a disk or subscribers
	// rollback runs undo to revert changes of data that projects share.
	undo []func()
}

// Now returns the time of the write, in UTC. For scheduled work, it is the due time.
func (tx *Tx) Now() time.Time { return tx.now }

// NewMeta returns the Meta of a new resource. The caller may not change the labels afterwards.
func (tx *Tx) NewMeta(name string, labels map[string]string) store.Meta {
	labels = labelsOrNone(labels)
	// Resources that are made one after the other often have the same labels. To share them saves a sixth of a server.
	// The Primary IPs in between have none.
	switch c := tx.cloud; {
	case maps.Equal(c.lastLabels, labels):
		labels = c.lastLabels
	case len(labels) > 0:
		c.lastLabels = labels
	}
	return store.Meta{ID: tx.cloud.newID(), Name: name, Labels: labels, Created: tx.now}
}

// schedule makes w due when d has passed. Its work may share its transaction with that of others.
func (tx *Tx) schedule(d time.Duration, w timer) {
	tx.jobs = append(tx.jobs, job{due: tx.now.Add(d), project: tx.project, timer: w})
}

// onFailure registers a function that reverts a change outside State.
func (tx *Tx) onFailure(undo func()) { tx.undo = append(tx.undo, undo) }

func (tx *Tx) rollback() {
	for _, v := range slices.Backward(tx.undo) {
		v()
	}
}

// touch makes a new version of a resource of any kind: see [store.Table.Touch].
func (tx *Tx) touch(r Ref) {
	if i := place(r.Kind); i >= 0 {
		resources[i].table(tx.State).Touch(r.ID)
	}
}

// nested runs fn on a copy of the transaction. If fn fails, it drops the copy.
func (tx *Tx) nested(fn func(*Tx) error) (*Tx, error) {
	inner := tx.cloud.begin(tx.project, tx.State, tx.now, nil)
	if err := fn(inner); err != nil {
		inner.rollback()
		return nil, err
	}
	return inner, nil
}

// adopt adds the changes of a nested transaction to this one.
func (tx *Tx) adopt(inner *Tx) {
	for _, t := range inner.tables() {
		t.Begin(tx.log)
	}
	*tx.State = *inner.State
	for _, c := range inner.log.Changes {
		tx.log.Record(c.Kind, c.ID, c.Old, c.New)
	}
	tx.jobs = append(tx.jobs, inner.jobs...)
	tx.tasks = append(tx.tasks, inner.tasks...)
	tx.finished = append(tx.finished, inner.finished...)
	tx.rrsets = append(tx.rrsets, inner.rrsets...)
	tx.targets = append(tx.targets, inner.targets...)
	tx.undo = append(tx.undo, inner.undo...)
}
