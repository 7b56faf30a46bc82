package cloud

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/hypervisor"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/store"
)

var hypervisorName = regexp.MustCompile(`^[a-zA-Z0-9._-]{1,63}$`)

// HypervisorSession is the connection of a hypervisor. It implements hypervisor.Session.
//
// While a hypervisor is attached, the actions of its servers become tasks if package hypervisor declares their
// command. Such an action runs, and locks its server, until the hypervisor completes the task. The profile does not
// apply. An action does not become a task if a fault rule decides how it ends.
//
// A hypervisor is detached when it is closed, or when it was suspended for longer than its grace. The result of its
// unfinished tasks is then unknown, so their actions fail. Exception: after the grace, a task that was never handed out
// waits until its deadline for a hypervisor that has the server. A server that was shutting down is off when the profile
// says. Later actions follow the profile, also those of servers that had a guest. Actions that run while a
// hypervisor attaches do not become tasks; Guests returns the servers.
type HypervisorSession struct {
	cloud    *Cloud
	attached *attachment
	guests   []hypervisor.Guest

	// mu guards the fields below. It may be taken while Cloud.mu is held, not the other way round.
	mu sync.Mutex
	// queue has the tasks to hand out. A task of an action has only the action's id: it is described when it is
	// handed out.
	queue  []hypervisor.Task
	signal chan struct{}
	end    error // why Next returns no more tasks
}

var _ hypervisor.Session = (*HypervisorSession)(nil)

// attachment is a hypervisor that is connected or suspended. Cloud.mu guards it.
type attachment struct {
	hypervisor.Options
	selector   store.Selector
	session    *HypervisorSession // nil while suspended
	suspension int                // which of Cloud.suspensions was its last
	tasks      map[int64]*task    // by action id
}

// AttachHypervisor attaches a hypervisor. Errors: wrong options, hypervisor.ErrClosed.
func (c *Cloud) AttachHypervisor(o hypervisor.Options) (*HypervisorSession, error) {
	o.TaskTimeout, o.Grace = cmp.Or(o.TaskTimeout, hypervisor.DefaultTaskTimeout), cmp.Or(o.Grace, hypervisor.DefaultGrace)
	selector, err := c.checkHypervisor(&o)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.events.closed {
		return nil, hypervisor.ErrClosed
	}
	c.catchUp()
	h := c.hypervisorNamed(o.Name)
	if h == nil {
		h = &attachment{tasks: map[int64]*task{}}
		c.hypervisors = append(c.hypervisors, h)
	}
	if h.session != nil {
		h.session.finish(hypervisor.ErrReplaced)
		h.session = nil
	}
	h.Options, h.selector = o, selector
	c.assignWaiting()
	s := &HypervisorSession{cloud: c, attached: h, signal: make(chan struct{}, 1)}
	for _, id := range slices.Sorted(maps.Keys(h.tasks)) {
		s.queue = append(s.queue, hypervisor.Task{Action: id})
	}
	s.notify()
	for _, p := range c.Projects() {
		st := p.data.state.Load()
		for server := range st.Servers.All() {
			if c.hypervisorOf(p.data, server) == h {
				s.guests = append(s.guests, h.see(st.guest(p.data.id, server)))
			}
		}
	}
	h.session = s
	return s, nil
}

// maxSelector bounds the cost of finding a server's hypervisor.
const maxSelector = 4 << 10

func (c *Cloud) checkHypervisor(o *hypervisor.Options) (store.Selector, error) {
	switch {
	case !hypervisorName.MatchString(o.Name):
		return store.Selector{}, fmt.Errorf("hypervisor name %.64q: must be 1 to 63 of the characters a-z A-Z 0-9 . _ -", o.Name)
	case o.TaskTimeout < 0 || o.Grace < 0:
		return store.Selector{}, errors.New("hypervisor timeouts: must not be negative")
	}
	if o.Project != 0 {
		if _, ok := c.Project(o.Project); !ok {
			return store.Selector{}, fmt.Errorf("project %d does not exist", o.Project)
		}
	}
	if len(o.Selector) > maxSelector {
		return store.Selector{}, fmt.Errorf("selector: must have at most %d characters", maxSelector)
	}
	selector, err := store.ParseSelector(o.Selector)
	if err != nil {
		return store.Selector{}, fmt.Errorf("selector: %w", err)
	}
	return selector, nil
}

// HypervisorStatus shows a hypervisor.
type HypervisorStatus struct {
	hypervisor.Options
	// Connected is false while the hypervisor is suspended.
	Connected bool `json:"connected"`
	// Tasks are the ids of the actions that wait for the hypervisor.
	Tasks []int64 `json:"tasks"`
}

// Hypervisors returns the attached hypervisors in the order of attachment.
func (c *Cloud) Hypervisors() []HypervisorStatus {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.catchUp()
	out := []HypervisorStatus{}
	for _, h := range c.hypervisors {
		tasks := slices.AppendSeq([]int64{}, maps.Keys(h.tasks))
		slices.Sort(tasks)
		out = append(out, HypervisorStatus{h.Options, h.session != nil, tasks})
	}
	return out
}

// CompleteTask is [HypervisorSession.Complete] for the hypervisor of this name, connected or suspended.
// Errors: ErrDetached, ErrNoTask.
func (c *Cloud) CompleteTask(name string, action int64, failure error) error {
	return c.onHypervisor(name, func(h *attachment) error { return c.complete(h, action, failure) })
}

// ReportGuest is [HypervisorSession.Report] for the hypervisor of this name, connected or suspended.
// Errors: ErrDetached, ErrNoGuest.
func (c *Cloud) ReportGuest(name string, server int64, running bool) error {
	return c.onHypervisor(name, func(h *attachment) error { return c.report(h, server, running) })
}

// DetachHypervisor is [HypervisorSession.Close] for the hypervisor of this name. Error: ErrDetached.
func (c *Cloud) DetachHypervisor(name string) error {
	return c.onHypervisor(name, func(h *attachment) error { c.detach(h, false); return nil })
}

func (c *Cloud) onHypervisor(name string, do func(*attachment) error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.catchUp()
	h := c.hypervisorNamed(name)
	if h == nil {
		return fmt.Errorf("%.64q: %w", name, hypervisor.ErrDetached)
	}
	return do(h)
}

// Guests implements hypervisor.Session.
func (h *HypervisorSession) Guests() []hypervisor.Guest { return h.guests }

// Next implements hypervisor.Session.
func (h *HypervisorSession) Next(ctx context.Context) (hypervisor.Task, error) {
	for {
		// Due work may queue a task, or end a queued one.
		h.cloud.settle()
		t, ok, err := h.take()
		if ok || err != nil {
			return t, err
		}
		select {
		case <-h.signal:
		case <-ctx.Done():
			return hypervisor.Task{}, context.Cause(ctx)
		}
	}
}

func (h *HypervisorSession) take() (hypervisor.Task, bool, error) {
	h.cloud.mu.Lock()
	defer h.cloud.mu.Unlock()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.end != nil {
		h.notify() // wakes another caller
		return hypervisor.Task{}, false, h.end
	}
	for len(h.queue) > 0 {
		next := h.queue[0]
		h.queue = slices.Delete(h.queue, 0, 1)
		if len(h.queue) > 0 {
			h.notify() // wakes another caller
		}
		if next.Command == hypervisor.CommandForget {
			return next, true, nil
		}
		if t, ok := h.attached.tasks[next.Action]; ok {
			if out, ok := t.describe(); ok {
				t.begun = true
				return out, true, nil
			}
		}
	}
	return hypervisor.Task{}, false, nil
}

// Complete implements hypervisor.Session.
func (h *HypervisorSession) Complete(_ context.Context, action int64, failure error) error {
	return h.do(func() error { return h.cloud.complete(h.attached, action, failure) })
}

// Report implements hypervisor.Session.
func (h *HypervisorSession) Report(_ context.Context, server int64, running bool) error {
	return h.do(func() error { return h.cloud.report(h.attached, server, running) })
}

// Suspend implements hypervisor.Session.
func (h *HypervisorSession) Suspend() {
	_ = h.do(func() error {
		h.finish(hypervisor.ErrDetached)
		r := h.attached
		r.session = nil
		h.cloud.suspensions++
		r.suspension = h.cloud.suspensions
		h.cloud.scheduleDetach(r)
		return nil
	})
}

// Close implements hypervisor.Session.
func (h *HypervisorSession) Close() {
	_ = h.do(func() error { h.cloud.detach(h.attached, false); return nil })
}

// do runs fn with Cloud.mu held. It returns an error after the hypervisor's detachment.
func (h *HypervisorSession) do(fn func() error) error {
	h.cloud.mu.Lock()
	defer h.cloud.mu.Unlock()
	h.cloud.catchUp()
	h.mu.Lock()
	end := h.end
	h.mu.Unlock()
	if end != nil {
		return end
	}
	return fn()
}

// finish makes Next return an error from now on.
func (h *HypervisorSession) finish(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.end == nil {
		h.end = err
	}
	h.notify()
}

func (h *HypervisorSession) enqueue(t hypervisor.Task) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.queue = append(h.queue, t)
	h.notify()
}

func (h *HypervisorSession) notify() {
	select {
	case h.signal <- struct{}{}:
	default:
	}
}

// The caller of the functions below holds Cloud.mu.

func (c *Cloud) hypervisorNamed(name string) *attachment {
	h, _ := find(c.hypervisors, func(h *attachment) bool { return h.Name == name })
	return h
}

// has reports whether the options select a server.
func (h *attachment) has(project int64, s *Server) bool {
	return (h.Project == 0 || h.Project == project) && h.selector.Matches(s.Labels)
}

func (h *attachment) add(t *task) {
	h.tasks[t.action] = t
	if h.session != nil {
		h.session.enqueue(hypervisor.Task{Action: t.action})
	}
}

func (c *Cloud) complete(h *attachment, action int64, failure error) error {
	t, ok := h.tasks[action]
	if !ok || !t.take() {
		return fmt.Errorf("action %d: %w", action, hypervisor.ErrNoTask)
	}
	return c.write(t.project, c.writeTime(c.Now()), nil, func(tx *Tx) error {
		switch e := (*hypervisor.Error)(nil); {
		case failure == nil:
			tx.endAction(action, nil)
		case errors.As(failure, &e):
			tx.endAction(action, &Error{Code: cmp.Or(Code(cut(e.Code)), ActionFailedCode), Message: cut(e.Message)})
		default:
			tx.endAction(action, &Error{Code: ActionFailedCode, Message: cut(failure.Error())})
		}
		return nil
	})
}

// maxFailure is how many bytes of a hypervisor's error an action keeps. The error may be the output of a program.
const maxFailure = 1 << 10

func cut(text string) string {
	if len(text) <= maxFailure {
		return text
	}
	return strings.ToValidUTF8(text[:maxFailure], "") + "…"
}

func (c *Cloud) report(h *attachment, server int64, running bool) error {
	for _, p := range c.Projects() {
		s, ok := p.data.state.Load().Servers.Get(server)
		if !ok || c.hypervisorOf(p.data, s) != h {
			continue
		}
		for _, t := range h.tasks {
			if t.server == server {
				return nil
			}
		}
		return c.write(p.data, c.writeTime(c.Now()), nil, func(tx *Tx) error { tx.reportGuest(s, running); return nil })
	}
	return fmt.Errorf("server %d: %w", server, hypervisor.ErrNoGuest)
}

// scheduleDetach detaches a hypervisor when its grace has passed, if it is suspended until then.
func (c *Cloud) scheduleDetach(h *attachment) {
	c.jobSeq++
	c.push(job{due: c.clock.Now().Add(h.Grace), seq: c.jobSeq, timer: graceEnds{h.suspension}})
	c.rearm()
}

// graceEnds is due when the grace of a suspended hypervisor has passed. It needs several transactions.
type graceEnds struct{ Suspension int }

func (graceEnds) due(*Tx)    {}
func (graceEnds) about() Ref { return Ref{} }

func (g graceEnds) run(c *Cloud, _ time.Time) {
	for _, h := range c.hypervisors {
		if h.session == nil && h.suspension == g.Suspension {
			c.detach(h, true)
			return
		}
	}
}

// detach removes a hypervisor and fails the actions that wait for it. With keep, tasks that were never handed out wait
// for another hypervisor.
func (c *Cloud) detach(h *attachment, keep bool) {
	i := slices.Index(c.hypervisors, h)
	if i < 0 {
		return
	}
	if h.session != nil {
		h.session.finish(hypervisor.ErrDetached)
		h.session = nil
	}
	var stopping []*Server
	for _, p := range c.Projects() {
		stopping = stopping[:0]
		st := p.data.state.Load()
		for s := range st.Servers.All() {
			if s.Status == ServerStopping && !st.Actions.Locked(s.Ref()) && c.hypervisorOf(p.data, s) == h {
				stopping = append(stopping, s)
			}
		}
		_ = c.write(p.data, c.writeTime(c.Now()), nil, func(tx *Tx) error { // the function returns no error
			for _, s := range stopping {
				tx.guestShutsDown(s.ID, 0)
			}
			return nil
		})
	}
	// Remove the hypervisor before its actions fail: it must not get the actions that follow them.
	c.hypervisors = slices.Delete(slices.Clone(c.hypervisors), i, i+1)
	for _, id := range slices.Sorted(maps.Keys(h.tasks)) {
		t := h.tasks[id]
		if keep && !t.begun {
			c.waiting = append(c.waiting, t)
			continue
		}
		if !t.take() {
			continue
		}
		_ = c.write(t.project, c.writeTime(c.Now()), nil, func(tx *Tx) error {
			tx.endAction(id, &Error{Code: ActionFailedCode, Message: "the hypervisor " + h.Name + " is gone"})
			return nil
		})
	}
	c.assignWaiting()
}

// assignWaiting gives the waiting tasks to the hypervisors that have their servers now. One that its hypervisor may not see is done, as
// without a hypervisor.
func (c *Cloud) assignWaiting() {
	var ended []*task
	c.waiting = slices.DeleteFunc(c.waiting, func(t *task) bool {
		s, ok := t.project.state.Load().Servers.Get(t.server)
		if !ok {
			return true
		}
		h := c.hypervisorOf(t.project, s)
		if h == nil {
			return false
		}
		if !t.take() { // its deadline has passed
			return true
		}
		if a, ok := t.project.state.Load().Actions.Get(t.action); ok && a.plan != nil && a.plan.Guest.hiddenFrom(h) {
			ended = append(ended, t)
			return true
		}
		t.hypervisor = h
		h.add(t)
		return true
	})
	for _, t := range ended {
		_ = c.write(t.project, c.writeTime(c.Now()), nil, func(tx *Tx) error { // the function returns no error
			tx.endAction(t.action, nil)
			return nil
		})
	}
}

// forgetGuests drops the tasks of a project that is reset, and tells hypervisors to forget its servers.
func (c *Cloud) forgetGuests(p *projectData, st *State) {
	for _, h := range c.hypervisors {
		for a := range st.Actions.OfKind(KindServer, true) {
			delete(h.tasks, a.Value.ID)
		}
		if h.session == nil {
			continue
		}
		for s := range st.Servers.All() {
			if c.hypervisorOf(p, s) == h {
				h.session.enqueue(hypervisor.Task{Command: hypervisor.CommandForget, Guest: h.see(st.guest(p.id, s))})
			}
		}
	}
}

// rescheduleDetaches restarts the grace of suspended hypervisors. A reset calls it because it drops all
// scheduled work.
func (c *Cloud) rescheduleDetaches() {
	for _, h := range c.hypervisors {
		if h.session == nil {
			c.scheduleDetach(h)
		}
	}
}

func (c *Cloud) closeHypervisors() {
	for _, h := range c.hypervisors {
		if h.session != nil {
			h.session.finish(hypervisor.ErrClosed)
		}
	}
}
