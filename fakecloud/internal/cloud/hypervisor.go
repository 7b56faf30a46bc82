package cloud

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"sync"
	"time"
)

// HypervisorOptions say which servers a hypervisor gives machines.
type HypervisorOptions struct {
	// Name is what the hypervisor is known by: 1 to 63 of the characters a-z A-Z 0-9 . _ -. Whoever attaches under the name
	// of one that is attached takes its place and gets all its tasks.
	Name string `json:"name"`
	// Project is the id of the project whose servers it has, 0 for all.
	Project int64 `json:"project,omitempty"`
	// Selector is a label selector that servers have to match; "" is all. It is looked at whenever
	// an action starts, so that labels that change move a server from one hypervisor to another.
	Selector string `json:"selector,omitempty"`
	// TaskTimeout is how long a task may take before its action fails with the code timeout, in
	// the cloud's time. Default: DefaultTaskTimeout.
	TaskTimeout time.Duration `json:"-"`
	// Grace is how long a hypervisor that was lost may stay away before it is detached, in the
	// cloud's time. Default: DefaultGrace.
	Grace time.Duration `json:"-"`
}

// Defaults of HypervisorOptions.
const (
	DefaultTaskTimeout = 5 * time.Minute
	DefaultGrace       = 15 * time.Second
)

var hypervisorName = regexp.MustCompile(`^[a-zA-Z0-9._-]{1,63}$`)

// Errors of a Hypervisor's methods.
var (
	// ErrReplaced is the error of a hypervisor whose place another one of its name has taken.
	ErrReplaced = errors.New("another hypervisor has attached under this name")
	// ErrDetached is the error of a hypervisor that was detached.
	ErrDetached = errors.New("the hypervisor is detached")
	// ErrNoTask is the error of completing a task that nobody waits for: it was completed already,
	// its deadline has passed, or the cloud was reset.
	ErrNoTask = errors.New("no action waits for this task")
	// ErrNoMachine is the error of a report about a server that does not exist or is not the
	// hypervisor's.
	ErrNoMachine = errors.New("the hypervisor has no server with this id")
)

// MachineError is why a hypervisor could not do what it was told. Its code and message become those
// of the action.
type MachineError struct {
	Code    Code   `json:"code"`
	Message string `json:"message"`
}

func (e *MachineError) Error() string { return fmt.Sprintf("%s (%s)", e.Message, e.Code) }

// Hypervisor is a connection to the cloud of somebody who gives servers machines: containers,
// virtual machines, processes. Without one, servers are nothing but entries in a table and their
// actions end by the profile's time.
//
// While a hypervisor is attached, the actions in [MachineTask] of the servers that it has become
// tasks, which [Hypervisor.Next] returns, and each ends as [Hypervisor.Complete] says: until then
// it is running and the server locked, whatever the profile. Actions whose outcome a fault rule
// decides are not handed out. What machines do by themselves it tells with [Hypervisor.Report]: one
// that dies makes its server off, one that somebody starts by hand makes it running.
//
// When a hypervisor is detached, because it is closed or was lost for longer than its grace, nobody
// knows what has become of its unfinished tasks: their actions fail. A server that was shutting
// down is off when the profile says. From then on actions end by the profile's time again, also
// those of servers that had a machine. Actions that run while a hypervisor attaches stay as they
// are and it does not hear of them; [Hypervisor.Machines] has the servers.
//
// All methods may be called from several goroutines.
type Hypervisor struct {
	cloud    *Cloud
	record   *hypervisor
	machines []Machine

	// What follows is guarded by mu, which may be taken while Cloud.mu is held, not the other way round.
	mu     sync.Mutex
	queue  []queuedTask
	signal chan struct{}
	end    error // why Next returns nothing any more
}

// queuedTask is the id of an action whose task is to be handed out, or a machine to forget.
type queuedTask struct {
	action int64
	forget *Machine
}

// hypervisor is what the cloud keeps of a hypervisor, connected or lost. Cloud.mu guards it.
type hypervisor struct {
	HypervisorOptions
	selector Selector
	session  *Hypervisor // nil while it is lost
	losses   int         // how often it was lost
	tasks    map[int64]*machineTask
}

// AttachHypervisor attaches a hypervisor. It returns an error for options that are wrong, and ErrClosed for a
// cloud that is closed.
func (c *Cloud) AttachHypervisor(o HypervisorOptions) (*Hypervisor, error) {
	o.TaskTimeout, o.Grace = cmp.Or(o.TaskTimeout, DefaultTaskTimeout), cmp.Or(o.Grace, DefaultGrace)
	selector, err := o.check(c)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.events.closed {
		return nil, ErrClosed
	}
	c.settleLocked()
	h := c.hypervisorNamed(o.Name)
	if h == nil {
		h = &hypervisor{tasks: map[int64]*machineTask{}}
		c.hypervisors = append(c.hypervisors, h)
	}
	if h.session != nil {
		h.session.finish(ErrReplaced)
	}
	h.HypervisorOptions, h.selector = o, selector
	s := &Hypervisor{cloud: c, record: h, signal: make(chan struct{}, 1)}
	for _, id := range slices.Sorted(maps.Keys(h.tasks)) {
		s.queue = append(s.queue, queuedTask{action: id})
	}
	s.notify()
	for _, p := range c.Projects() {
		st := p.data.state.Load()
		for server := range st.Servers.All() {
			if c.hypervisorOf(p.data, server) == h {
				s.machines = append(s.machines, st.machine(p.data.id, server))
			}
		}
	}
	h.session = s
	return s, nil
}

func (o *HypervisorOptions) check(c *Cloud) (Selector, error) {
	switch {
	case !hypervisorName.MatchString(o.Name):
		return Selector{}, fmt.Errorf("name %.64q of a hypervisor: want 1 to 63 of the characters a-z A-Z 0-9 . _ -", o.Name)
	case o.TaskTimeout < 0 || o.Grace < 0:
		return Selector{}, errors.New("timeouts of a hypervisor: want 0 (the default) or more")
	}
	if o.Project != 0 {
		if _, ok := c.Project(o.Project); !ok {
			return Selector{}, fmt.Errorf("project %d does not exist", o.Project)
		}
	}
	selector, err := ParseSelector(o.Selector)
	if err != nil {
		return Selector{}, fmt.Errorf("selector: %w", err)
	}
	return selector, nil
}

// HypervisorStatus is what can be seen of a hypervisor.
type HypervisorStatus struct {
	HypervisorOptions
	// Connected is false while a lost hypervisor may still come back.
	Connected bool `json:"connected"`
	// Tasks are the ids of the actions that wait for it.
	Tasks []int64 `json:"tasks"`
}

// Hypervisors returns those that are attached, in the order in which they were.
func (c *Cloud) Hypervisors() []HypervisorStatus {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.settleLocked()
	out := []HypervisorStatus{}
	for _, h := range c.hypervisors {
		tasks := slices.AppendSeq([]int64{}, maps.Keys(h.tasks))
		slices.Sort(tasks)
		out = append(out, HypervisorStatus{h.HypervisorOptions, h.session != nil, tasks})
	}
	return out
}

// CompleteTask is [Hypervisor.Complete] for the hypervisor of this name, connected or lost.
// Errors: ErrDetached, ErrNoTask.
func (c *Cloud) CompleteTask(name string, action int64, failure error) error {
	return c.onHypervisor(name, func(h *hypervisor) error { return c.complete(h, action, failure) })
}

// ReportMachine is [Hypervisor.Report] for the hypervisor of this name, connected or lost.
// Errors: ErrDetached, ErrNoMachine.
func (c *Cloud) ReportMachine(name string, server int64, running bool) error {
	return c.onHypervisor(name, func(h *hypervisor) error { return c.report(h, server, running) })
}

// DetachHypervisor is [Hypervisor.Close] for the hypervisor of this name. Error: ErrDetached.
func (c *Cloud) DetachHypervisor(name string) error {
	return c.onHypervisor(name, func(h *hypervisor) error { c.detach(h); return nil })
}

func (c *Cloud) onHypervisor(name string, do func(*hypervisor) error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.settleLocked()
	defer c.settleLocked()
	h := c.hypervisorNamed(name)
	if h == nil {
		return fmt.Errorf("%.64q: %w", name, ErrDetached)
	}
	return do(h)
}

// Machines returns the servers that the hypervisor had when it attached, by project and id.
func (h *Hypervisor) Machines() []Machine { return h.machines }

// Next returns the next task, waiting for it if need be. Tasks of one server come in the order of
// their actions. Errors: ErrReplaced, ErrDetached, ErrClosed after the cloud was closed, and the
// context's.
func (h *Hypervisor) Next(ctx context.Context) (MachineTask, error) {
	for {
		// What is due may be a task, or the end of one that is queued.
		h.cloud.Settle()
		t, ok, err := h.take()
		if ok || err != nil {
			return t, err
		}
		select {
		case <-h.signal:
		case <-ctx.Done():
			return MachineTask{}, context.Cause(ctx)
		}
	}
}

func (h *Hypervisor) take() (MachineTask, bool, error) {
	h.cloud.mu.Lock()
	defer h.cloud.mu.Unlock()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.end != nil {
		h.notify() // whoever else waits
		return MachineTask{}, false, h.end
	}
	for len(h.queue) > 0 {
		next := h.queue[0]
		h.queue = slices.Delete(h.queue, 0, 1)
		if len(h.queue) > 0 {
			h.notify() // whoever else waits
		}
		if next.forget != nil {
			return MachineTask{Command: CommandForget, Machine: *next.forget}, true, nil
		}
		if t, ok := h.record.tasks[next.action]; ok {
			if out, ok := t.describe(); ok {
				return out, true, nil
			}
		}
	}
	return MachineTask{}, false, nil
}

// Complete ends the action of a task: in success, or, with an error, as failed. A *MachineError
// gives the action's code and message; any other error's text is the message of an action_failed.
// Errors: ErrNoTask, ErrReplaced, ErrDetached.
func (h *Hypervisor) Complete(action int64, failure error) error {
	return h.do(func() error { return h.cloud.complete(h.record, action, failure) })
}

// Report tells that a machine runs or does not run, for whatever reason. A server that an action
// changes at this moment is not touched: the action's end says what has become of it. A server that was
// shut down is stopping until its machine does not run; one that runs again right after that is
// reported as both, one after the other.
// Errors: ErrNoMachine, ErrReplaced, ErrDetached.
func (h *Hypervisor) Report(server int64, running bool) error {
	return h.do(func() error { return h.cloud.report(h.record, server, running) })
}

// Suspend tells that the hypervisor was lost. It is detached when nobody has attached under its
// name until its grace has passed; its tasks wait until then.
func (h *Hypervisor) Suspend() {
	_ = h.do(func() error {
		h.finish(ErrDetached)
		r := h.record
		r.session = nil
		r.losses++
		h.cloud.scheduleDetach(r)
		return nil
	})
}

// Close detaches the hypervisor.
func (h *Hypervisor) Close() {
	_ = h.do(func() error { h.cloud.detach(h.record); return nil })
}

// do runs fn with Cloud.mu held, unless the hypervisor is no longer attached.
func (h *Hypervisor) do(fn func() error) error {
	h.cloud.mu.Lock()
	defer h.cloud.mu.Unlock()
	h.cloud.settleLocked()
	defer h.cloud.settleLocked()
	h.mu.Lock()
	end := h.end
	h.mu.Unlock()
	if end != nil {
		return end
	}
	return fn()
}

// finish makes Next return an error from now on.
func (h *Hypervisor) finish(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.end == nil {
		h.end = err
	}
	h.notify()
}

func (h *Hypervisor) enqueue(t queuedTask) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.queue = append(h.queue, t)
	h.notify()
}

func (h *Hypervisor) notify() {
	select {
	case h.signal <- struct{}{}:
	default:
	}
}

// What follows needs Cloud.mu.

func (c *Cloud) hypervisorNamed(name string) *hypervisor {
	i := slices.IndexFunc(c.hypervisors, func(h *hypervisor) bool { return h.Name == name })
	if i < 0 {
		return nil
	}
	return c.hypervisors[i]
}

// has tells whether the options select a server.
func (h *hypervisor) has(project int64, s *Server) bool {
	return (h.Project == 0 || h.Project == project) && h.selector.Matches(s.Labels)
}

func (h *hypervisor) add(t *machineTask) {
	h.tasks[t.run.id] = t
	if h.session != nil {
		h.session.enqueue(queuedTask{action: t.run.id})
	}
}

func (c *Cloud) complete(h *hypervisor, action int64, failure error) error {
	t, ok := h.tasks[action]
	if !ok || !t.take() {
		return fmt.Errorf("action %d: %w", action, ErrNoTask)
	}
	return c.transact(t.project, c.Now(), nil, func(tx *Tx) error {
		switch e := (*MachineError)(nil); {
		case failure == nil:
			t.run.end(tx)
		case errors.As(failure, &e):
			t.fail(tx, e.Code, e.Message)
		default:
			t.fail(tx, ActionFailedCode, failure.Error())
		}
		return nil
	})
}

func (c *Cloud) report(h *hypervisor, server int64, running bool) error {
	for _, p := range c.Projects() {
		s, ok := p.data.state.Load().Servers.Get(server)
		if !ok || c.hypervisorOf(p.data, s) != h {
			continue
		}
		for _, t := range h.tasks {
			if t.run.Machine.Server == server {
				return nil
			}
		}
		return c.transact(p.data, c.Now(), nil, func(tx *Tx) error { tx.reportMachine(s, running); return nil })
	}
	return fmt.Errorf("server %d: %w", server, ErrNoMachine)
}

// scheduleDetach detaches a hypervisor that was lost when its grace has passed.
func (c *Cloud) scheduleDetach(h *hypervisor) {
	loss := h.losses
	c.scheduleLocked(h.Grace, func() {
		if h.session == nil && h.losses == loss {
			c.detach(h)
		}
	})
}

// detach ends a hypervisor and everything that waits for it.
func (c *Cloud) detach(h *hypervisor) {
	i := slices.Index(c.hypervisors, h)
	if i < 0 {
		return
	}
	if h.session != nil {
		h.session.finish(ErrDetached)
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
		_ = c.transact(p.data, c.Now(), nil, func(tx *Tx) error { // the function returns no error
			for _, s := range stopping {
				tx.guestShutsDown(s.ID)
			}
			return nil
		})
	}
	// Taken away first, so that an action which follows a failed one is not handed to it again.
	c.hypervisors = slices.Delete(slices.Clone(c.hypervisors), i, i+1)
	for _, id := range slices.Sorted(maps.Keys(h.tasks)) {
		t := h.tasks[id]
		if !t.take() {
			continue
		}
		_ = c.transact(t.project, c.Now(), nil, func(tx *Tx) error {
			t.fail(tx, ActionFailedCode, "the hypervisor "+h.Name+" is gone")
			return nil
		})
	}
}

// forgetMachines tells hypervisors of the servers that a reset takes away.
func (c *Cloud) forgetMachines(p *projectData, st *State) {
	for _, h := range c.hypervisors {
		for id, t := range h.tasks {
			if t.project == p {
				delete(h.tasks, id)
			}
		}
		if h.session == nil {
			continue
		}
		for s := range st.Servers.All() {
			if c.hypervisorOf(p, s) == h {
				m := st.machine(p.id, s)
				h.session.enqueue(queuedTask{forget: &m})
			}
		}
	}
}

// rescheduleDetaches begins the grace of those that are lost anew, after a reset has dropped what was
// scheduled.
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
			h.session.finish(ErrClosed)
		}
	}
}
