package cloud

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/store"
)

// ActionStatus is the status of an action.
type ActionStatus string

// The three statuses of an action (API document, chapter Actions).
const (
	ActionRunning ActionStatus = "running"
	ActionSuccess ActionStatus = "success"
	ActionFailed  ActionStatus = "error"
)

// Ref names one resource.
type Ref struct {
	Kind store.Kind `json:"type"`
	ID   int64      `json:"id"`
}

func compareRef(a, b Ref) int {
	return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.ID, b.ID))
}

// KindAction is the kind of actions.
const KindAction store.Kind = "action"

// Action is an asynchronous task that targets one or more resources.
// It is forgotten some time after its end: see finishedAction.
type Action struct {
	store.Meta
	Command   string       `json:"command,omitzero"`
	Status    ActionStatus `json:"status,omitzero"`
	Finished  time.Time    `json:"finished,omitzero"`
	Resources []Ref        `json:"resources,omitzero"` // never changed
	// ErrorCode and ErrorMessage are set when Status is "error".
	ErrorCode    Code   `json:"error_code,omitzero"`
	ErrorMessage string `json:"error_message,omitzero"`

	waited, takes time.Duration // before it began, and from then to its end; takes is 0 if it is not known
	plan          *actionPlan   // what it has yet to do; nil when it has ended
}

// actionPlan is what a running action has yet to do. It never changes.
type actionPlan struct {
	Does    effect
	Locks   []Ref
	Guest   *GuestWork
	After   int64 // the action that must succeed first, if it was running
	Outcome *ActionOutcome
}

// Progress returns the progress at a time, in percent. While the action runs, it is the quarters that have passed, so that
// clients see it grow; 0 for an action of less than a second. It is not stored: to change it costs nothing.
func (a *Action) Progress(now time.Time) int {
	switch {
	case a.Status != ActionRunning:
		return 100
	case a.takes < time.Second:
		return 0
	}
	passed := now.Sub(a.Created) - a.waited
	return 25 * int(min(max(passed, 0)/(a.takes/4), 3))
}

// Clone implements Object.
func (a *Action) Clone() *Action { return new(*a) }

// ActionTable holds a project's actions and the locks of the running ones.
type ActionTable struct {
	store.Table[*Action]
	byResource store.Ascending[resourceAction]
	all        kindIndex
	running    kindIndex
	unfinished int // the number of running actions
	locks      store.Ascending[lock]
	waiting    store.Ascending[follower]
}

// kindIndex orders actions by the kinds of their resources, and then by id.
type kindIndex struct {
	keys   store.Ascending[uint64] // see Ref.key; the ids are those of actions
	counts [kindSlots]uint32       // of keys, by kind
}

const kindSlots = 16 // more than there are kinds

func newKindIndex() kindIndex {
	return kindIndex{keys: store.NewAscending(func(a, b uint64) bool { return a < b })}
}

// change adds or removes an action.
func (x *kindIndex) change(a *Action, add bool) {
	for i, r := range a.Resources {
		if slices.ContainsFunc(a.Resources[:i], func(other Ref) bool { return other.Kind == r.Kind }) {
			continue
		}
		key := Ref{r.Kind, a.ID}.key()
		if add {
			x.keys.Set(key)
			x.counts[key>>kindShift]++
		} else {
			x.keys.Delete(key)
			x.counts[key>>kindShift]--
		}
	}
}

// page returns the ids of a page of the actions of a kind.
func (x *kindIndex) page(kind store.Kind, p store.Page) []int64 {
	slot := Ref{Kind: kind}.key() >> kindShift
	before, count := 0, int(x.counts[slot])
	for _, n := range x.counts[:slot] {
		before += int(n)
	}
	n := min(p.N, count-p.First)
	if n <= 0 {
		return nil
	}
	if p.Desc {
		p.First += x.keys.Len() - before - count
	} else {
		p.First += before
	}
	return store.PageOf(&x.keys, p, n, func(key uint64) int64 { return int64(key & (1<<kindShift - 1)) })
}

// resourceAction and lock name a resource by its key.
type resourceAction struct {
	resource uint64
	action   int64
}

type lock resourceAction

// follower is an action that waits for the end of another one.
type follower struct{ after, action int64 }

// key orders references by kind and id. It has no pointers: these make large trees expensive to copy and to collect. Servers are
// last, because most new actions are those of new servers: see store.Ascending.
func (r Ref) key() uint64 {
	return uint64(len(resources)-place(r.Kind))<<kindShift | uint64(r.ID)
}

const kindShift = 56 // ids are below 2^53

// Init is [store.Table.Init], for the indexes, too.
func (t *ActionTable) Init(kind store.Kind) {
	*t = ActionTable{
		Table: store.NewNamelessTable[*Action](kind),
		byResource: store.NewAscending(func(a, b resourceAction) bool {
			return cmp.Or(cmp.Compare(a.resource, b.resource), cmp.Compare(a.action, b.action)) < 0
		}),
		locks: store.NewAscending(func(a, b lock) bool {
			return cmp.Or(cmp.Compare(a.resource, b.resource), cmp.Compare(a.action, b.action)) < 0
		}),
		waiting: store.NewAscending(func(a, b follower) bool {
			return cmp.Or(cmp.Compare(a.after, b.after), cmp.Compare(a.action, b.action)) < 0
		}),
	}
	t.all, t.running = newKindIndex(), newKindIndex()
}

// Publish is [store.Table.Publish], for the indexes, too.
func (t *ActionTable) Publish() { t.Begin(nil) }

// Begin is [store.Table.Begin], for the indexes, too.
func (t *ActionTable) Begin(l *store.ChangeLog) {
	t.Table.Begin(l)
	t.byResource.Share()
	t.all.keys.Share()
	t.running.keys.Share()
	t.locks.Share()
	t.waiting.Share()
}

// start records a new action.
func (t *ActionTable) start(a *Action) {
	t.Put(a)
	t.index(a)
}

// index adds an action to the indexes.
func (t *ActionTable) index(a *Action) {
	for _, r := range a.Resources {
		t.byResource.Set(resourceAction{r.key(), a.ID})
	}
	t.all.change(a, true)
	if a.Status == ActionRunning {
		t.running.change(a, true)
		t.unfinished++
	}
}

// takeFollowers removes the actions that wait for another one, and returns their ids in the order of their start.
func (t *ActionTable) takeFollowers(after int64) (ids []int64) {
	t.waiting.Ascend(follower{after: after}, func(f follower) bool {
		if f.after == after {
			ids = append(ids, f.action)
		}
		return f.after == after
	})
	for _, id := range ids {
		t.waiting.Delete(follower{after, id})
	}
	return ids
}

// finish records the end of a running action.
func (t *ActionTable) finish(id int64, change func(*Action)) {
	if a, ok := t.Update(id, change); ok {
		t.running.change(a, false)
		t.unfinished--
	}
}

// forget removes a finished action.
func (t *ActionTable) forget(id int64) {
	a, ok := t.Get(id)
	if !ok {
		return
	}
	t.Delete(id)
	for _, r := range a.Resources {
		t.byResource.Delete(resourceAction{r.key(), id})
	}
	t.all.change(a, false)
}

// Unfinished returns the number of running actions.
func (t *ActionTable) Unfinished() int { return t.unfinished }

// CountOfKind returns how many actions target any resource of a kind. With running, it counts only those that have not ended.
func (t *ActionTable) CountOfKind(kind store.Kind, running bool) int {
	return int(t.kinds(running).counts[Ref{Kind: kind}.key()>>kindShift])
}

// PageOfKind returns a page of the actions that CountOfKind counts. Its cost depends on the size of the page. The order is by id.
func (t *ActionTable) PageOfKind(kind store.Kind, running bool, p store.Page) []*store.Entry[*Action] {
	ids := t.kinds(running).page(kind, p)
	page := make([]*store.Entry[*Action], len(ids))
	for i, id := range ids {
		page[i], _ = t.Entry(id)
	}
	return page
}

func (t *ActionTable) kinds(running bool) *kindIndex {
	if running {
		return &t.running
	}
	return &t.all
}

// OfKind yields the actions that CountOfKind counts, by ascending id.
func (t *ActionTable) OfKind(kind store.Kind, running bool) iter.Seq[*store.Entry[*Action]] {
	start := Ref{Kind: kind}.key()
	return func(yield func(*store.Entry[*Action]) bool) {
		t.kinds(running).keys.Ascend(start, func(key uint64) bool {
			if key>>kindShift != start>>kindShift {
				return false
			}
			e, ok := t.Entry(int64(key - start))
			return !ok || yield(e)
		})
	}
}

// Of yields the actions that target one resource, by ascending id. They stay after the resource is
// deleted.
func (t *ActionTable) Of(ref Ref) iter.Seq[*store.Entry[*Action]] {
	resource := ref.key()
	return func(yield func(*store.Entry[*Action]) bool) {
		t.byResource.Ascend(resourceAction{resource: resource}, func(ra resourceAction) bool {
			if ra.resource != resource {
				return false
			}
			e, ok := t.Entry(ra.action)
			return !ok || yield(e)
		})
	}
}

// LockedBy returns the id of the running action that locks a resource: the first one, if there are several.
func (t *ActionTable) LockedBy(ref Ref) (id int64, ok bool) {
	t.locks.Ascend(lock{resource: ref.key()}, func(l lock) bool {
		id, ok = l.action, l.resource == ref.key()
		return false
	})
	return id, ok
}

// Locked reports whether a running action locks a resource.
func (t *ActionTable) Locked(ref Ref) bool {
	_, ok := t.LockedBy(ref)
	return ok
}

// ActionSpec describes an action to start.
type ActionSpec struct {
	// Command is one of commands. It determines the action's locks.
	Command   string
	Resources []Ref // not changed afterwards
	// Locks are further resources that refuse other actions until this one ends. Call [Tx.RequireUnlocked] first, unless the action may run
	// while another one locks the resource.
	Locks []Ref
	// After is the id of an action that must succeed first. If that action fails, this one fails, too.
	// If it is zero, or that action is not running, this one begins now.
	After int64
	// Immediate ends the action in the same transaction and ignores the profile. It is for changes
	// that the real API makes before it answers.
	Immediate bool
	// Guest, if set, is the effect of the action on a server's guest. If a hypervisor has that
	// guest, the hypervisor ends the action, not the profile.
	Guest *GuestWork
	// Does is what the action does; nil for nothing.
	Does effect
}

// An effect is what an action does to the resources. It is a value, not a function, so that a running action can be copied and
// stored. It has one of the methods end and try, and may have the others:
//
//	end(*Tx)                    makes the effect visible
//	try(*Tx) error              the same; if it fails, its changes are dropped and the action fails. The code and message are
//	                            those of the error, if it is an *Error. It costs more than end.
//	begin(*Tx)                  runs when the action begins: its duration counts from then
//	failed(*Tx, *Error)         runs after the action has failed, and reverts what was done in advance
//	amend(*State, *hypervisor.Guest)  changes the description of the server for the hypervisor: to its state after the action
type effect any

// ActionOutcome overrides how the actions end that a request starts. Fault rules use it.
type ActionOutcome struct {
	// Fail makes the action end in an error with this code and message.
	Fail        bool   `json:"fail,omitzero"`
	FailCode    Code   `json:"fail_code,omitzero"`
	FailMessage string `json:"fail_message,omitzero"`
	// Hang keeps the action running, and its locks held, until [Cloud.ResumeActions].
	Hang bool `json:"hang,omitzero"`
	// Rule is the name of the fault rule.
	Rule string `json:"rule,omitzero"`
	// Duration overrides the profile when it is positive.
	Duration time.Duration `json:"duration,omitzero"`
	// Times makes the action take that many times as long when it is positive.
	Times int `json:"times,omitzero"`
	// GuestTakes is how long the guest takes to shut down when it is positive. GuestIgnores makes it ignore the request.
	GuestTakes   time.Duration `json:"guest_takes,omitzero"`
	GuestIgnores bool          `json:"guest_ignores,omitzero"`
	// StaysOff lets a server be off after an action that starts it.
	StaysOff bool `json:"stays_off,omitzero"`
}

// ActionFailedCode is the error code of a failed action that has no more specific one.
const ActionFailedCode Code = "action_failed"

// failure is how an outcome makes an action fail; nil if it does not.
func (o *ActionOutcome) failure() *Error {
	if o == nil || !o.Fail {
		return nil
	}
	return &Error{Code: cmp.Or(o.FailCode, ActionFailedCode), Message: cmp.Or(o.FailMessage, "Action failed")}
}

// Start records an action as running and schedules its end. After the transaction, read the action from the state: the returned one is then
// outdated.
func (tx *Tx) Start(spec ActionSpec) *Action {
	locks := append(commands[spec.Command].locked(spec.Resources), spec.Locks...)
	a := &Action{
		Meta:      store.Meta{ID: tx.cloud.newID(), Created: tx.now},
		Command:   spec.Command,
		Status:    ActionRunning,
		Resources: spec.Resources,
		plan:      &actionPlan{Does: spec.Does, Locks: locks, Guest: spec.Guest, Outcome: tx.outcome},
	}
	tx.Actions.start(a)
	for _, r := range locks {
		tx.Actions.locks.Set(lock{r.key(), a.ID})
		tx.touch(r)
	}
	if spec.Immediate && tx.outcome == nil {
		tx.endAction(a.ID, nil)
		a, _ = tx.Actions.Get(a.ID)
		return a
	}
	if spec.After != 0 {
		if prev, ok := tx.Actions.Get(spec.After); ok && prev.Status == ActionRunning {
			a.plan.After = prev.ID // no reader has the action yet
			tx.Actions.waiting.Set(follower{prev.ID, a.ID})
			return a
		}
	}
	if d, ends := tx.beginAction(a); ends {
		a.takes = d
	}
	return a
}

// hanging is not the id of an action: the actions that follow it wait for ResumeActions.
const hanging = 0

// ResumeActions ends the hanging actions in the order of their start and returns their number. They end as they would without the fault
// rule. If a hypervisor has the guest of an action, the action becomes its task.
func (c *Cloud) ResumeActions() (n int) {
	for d := range c.projects.Load().Scan {
		_, _ = Project{cloud: c, data: d}.update(func(tx *Tx) error {
			n += tx.resume(func(*Action) bool { return true })
			return nil
		})
	}
	return n
}

// resumeOf is ResumeActions for the actions that a fault rule keeps running. The caller holds Cloud.mu.
func (c *Cloud) resumeOf(rule string) {
	for d := range c.projects.Load().Scan {
		_ = c.write(d, c.writeTime(c.Now()), nil, func(tx *Tx) error { // a project that was dropped has none
			tx.resume(func(a *Action) bool { return a.plan.Outcome != nil && a.plan.Outcome.Rule == rule })
			return nil
		})
	}
}

// resume ends the hanging actions that are selected and returns their number.
func (tx *Tx) resume(selected func(*Action) bool) (n int) {
	var stay []int64
	// The end of one begins those that wait for it, and these may hang, too.
	for ids := tx.Actions.takeFollowers(hanging); len(ids) > 0; ids = tx.Actions.takeFollowers(hanging) {
		for _, id := range ids {
			if a, _ := tx.Actions.Get(id); !selected(a) {
				stay = append(stay, id)
				continue
			}
			a, _ := tx.Actions.Update(id, func(a *Action) {
				p := *a.plan
				p.Outcome, a.plan = nil, &p
			})
			if !tx.handOver(a) {
				tx.endAction(id, nil)
			}
			n++
		}
	}
	for _, id := range stay {
		tx.Actions.waiting.Set(follower{hanging, id})
	}
	return n
}

// beginAction begins a running action. It returns how long the action takes from now, if it ends by itself.
func (tx *Tx) beginAction(a *Action) (d time.Duration, ends bool) {
	if does, ok := a.plan.Does.(interface{ begin(*Tx) }); ok {
		does.begin(tx)
	}
	if tx.handOver(a) {
		return 0, false
	}
	d = tx.cloud.profile()(a.Command)
	if o := a.plan.Outcome; o != nil {
		if o.Hang {
			tx.Actions.waiting.Set(follower{hanging, a.ID})
			return 0, false
		}
		if o.Duration > 0 {
			d = o.Duration
		}
		if o.Times > 0 {
			d *= time.Duration(min(o.Times, 1000)) // a snapshot may have any number
		}
	}
	tx.schedule(d, actionEnds{a.ID})
	return d, true
}

// actionEnds is due when an action ends by itself.
type actionEnds struct{ Action int64 }

func (e actionEnds) about() Ref { return Ref{KindAction, e.Action} }

func (e actionEnds) due(tx *Tx) { tx.endAction(e.Action, nil) }

// endAction ends an action, if it runs: with a failure, or as its outcome says if failure is nil. Without an outcome, it has its
// effect.
func (tx *Tx) endAction(id int64, failure *Error) {
	a, ok := tx.Actions.Get(id)
	if !ok || a.plan == nil {
		return
	}
	plan := a.plan
	for _, ref := range plan.Locks {
		tx.Actions.locks.Delete(lock{ref.key(), id})
	}
	if failure == nil {
		failure = plan.Outcome.failure()
	}
	if failure == nil {
		tx.ending = ActionOutcome{}
		if plan.Outcome != nil {
			tx.ending = *plan.Outcome
		}
		switch does := plan.Does.(type) {
		case interface{ end(*Tx) }:
			does.end(tx)
		case interface{ try(*Tx) error }:
			failure = tx.attempt(does.try)
		}
	}
	tx.finished = append(tx.finished, finishedAction{tx.project.id, id, tx.now})
	tx.Actions.finish(id, func(a *Action) {
		a.Finished, a.Status, a.plan = tx.now, ActionSuccess, nil
		if failure != nil {
			a.Status, a.ErrorCode, a.ErrorMessage = ActionFailed, failure.Code, failure.Message
		}
	})
	if does, ok := plan.Does.(interface{ failed(*Tx, *Error) }); ok && failure != nil {
		does.failed(tx, failure)
	}
	for _, ref := range plan.Locks {
		tx.touch(ref)
	}
	for _, next := range tx.Actions.takeFollowers(id) {
		if failure != nil {
			tx.endAction(next, &Error{Code: ActionFailedCode, Message: fmt.Sprintf("action %d, which must succeed first, failed", id)})
		} else if a, ok := tx.Actions.Get(next); ok {
			if d, ends := tx.beginAction(a); ends {
				tx.Actions.Update(next, func(a *Action) { a.waited, a.takes = tx.now.Sub(a.Created), d })
			}
		}
	}
}

// attempt runs the effect of an action. If the effect fails, all its changes are dropped.
func (tx *Tx) attempt(effect func(*Tx) error) *Error {
	inner, err := tx.nested(effect)
	if err == nil {
		tx.adopt(inner)
		return nil
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	return &Error{Code: ActionFailedCode, Message: err.Error()}
}

// RequireUnlocked returns an error when an action is running on any of the resources: conflict for the kinds with which the real API
// answers so, locked for others. Clients retry after a conflict. It is known of networks and Primary IPs (API document) and of load
// balancers (terraform-provider-hcloud issues 182 and 185).
func (tx *Tx) RequireUnlocked(refs ...Ref) error {
	for _, r := range refs {
		if !tx.Actions.Locked(r) {
			continue
		}
		switch r.Kind {
		case KindNetwork, KindPrimaryIP, KindLoadBalancer, KindFirewall:
			return ErrConflict(words(r.Kind) + " has changed during request")
		}
		return ErrLocked(r.Kind)
	}
	return nil
}

// free returns a resource that no action has locked. Errors: not_found, and locked or conflict.
func free[T store.Object[T]](tx *Tx, table func(*State) *store.Table[T], id int64) (T, error) {
	v, err := Find(table(tx.State), id)
	if err != nil {
		return v, err
	}
	return v, tx.RequireUnlocked(Ref{table(tx.State).Kind(), id})
}

// onFree is a write to a resource that no action has locked. Errors: those of free and of do.
func onFree[T store.Object[T]](p Project, table func(*State) *store.Table[T], id int64, do func(*Tx, T) error) (*State, error) {
	return p.update(func(tx *Tx) error {
		v, err := free(tx, table, id)
		if err != nil {
			return err
		}
		return do(tx, v)
	})
}

// act starts an action on a resource that no action has locked. plan makes the checks of the action and returns it. act adds the resource
// to those of the action, unless it is there. Errors: those of free and of plan.
func act[T store.Object[T]](p Project, table func(*State) *store.Table[T], id int64,
	plan func(*Tx, T) (ActionSpec, error)) (action int64, st *State, err error) {
	st, err = onFree(p, table, id, func(tx *Tx, v T) error {
		spec, err := plan(tx, v)
		if err != nil {
			return err
		}
		if ref := (Ref{table(tx.State).Kind(), id}); !slices.Contains(spec.Resources, ref) {
			spec.Resources = append(spec.Resources, ref)
		}
		action = tx.Start(spec).ID
		return nil
	})
	return action, st, err
}
