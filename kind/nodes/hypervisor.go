package nodes

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/hypervisor"
)

// Options configure a Hypervisor. Attach and Driver must be set.
type Options struct {
	// Attach connects to the cloud with the method AttachHypervisor: of a remote.Client, or of a cloud in this process. Run calls it again
	// after the end of a session.
	Attach func(context.Context) (hypervisor.Session, error)
	// Driver makes and switches the containers.
	Driver Driver
	// Logger logs events. If nil, it is slog.Default.
	Logger *slog.Logger
	// TaskTimeout bounds the work for one task, on the host's clock. Default: 3 minutes, less than the cloud's patience.
	TaskTimeout time.Duration
	// ReportUsage reports a server's usage to the cloud, every 10 seconds for each running container: the method ReportServerUsage of a
	// remote.Client, or of a cloud in this process. If nil, nothing is measured.
	ReportUsage func(ctx context.Context, server int64, u hypervisor.Usage) error
	// Clock is for the time between attempts to reach the cloud and Docker, and between measurements.
	// Default: the host's.
	Clock clock.Clock
}

const (
	defaultTaskTimeout = 3 * time.Minute
	// retryAfter is the time between two attempts to attach or to watch.
	retryAfter = time.Second
	// requestTimeout bounds a report.
	requestTimeout = 10 * time.Second
)

// Hypervisor keeps servers and containers in step.
type Hypervisor struct {
	o   Options
	log *slog.Logger

	mu         sync.Mutex
	session    hypervisor.Session // nil while there is none
	servers    map[int64]*server
	results    map[int64]result // that could not be reported, by action
	background sync.WaitGroup
}

// result is the outcome of a task.
type result struct {
	task hypervisor.Task
	err  error
}

// of reports whether it is the result of this task, and not of another cloud's task with the same ids.
func (r result) of(t hypervisor.Task) bool {
	return r.task.Command == t.Command && r.task.Guest.Server == t.Guest.Server && r.task.Guest.Name == t.Guest.Name
}

// New returns a hypervisor. It does nothing until [Hypervisor.Run].
func New(o Options) *Hypervisor {
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.TaskTimeout == 0 {
		o.TaskTimeout = defaultTaskTimeout
	}
	return &Hypervisor{o: o, log: o.Logger, servers: map[int64]*server{}, results: map[int64]result{}}
}

// Run works until the context is done. It then leaves the containers as they are, and unfinished work to its successor. It returns an error
// only if another hypervisor takes its place.
func (h *Hypervisor) Run(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer h.background.Wait()
	defer stop()
	h.background.Go(func() { h.watch(ctx) })
	if h.o.ReportUsage != nil {
		h.background.Go(func() { h.measure(ctx) })
	}
	for ctx.Err() == nil {
		err := h.attached(ctx)
		switch {
		case errors.Is(err, hypervisor.ErrReplaced):
			return err
		case ctx.Err() == nil:
			h.log.Warn("not attached to the cloud, trying again", "error", err)
			h.pause(ctx)
		}
	}
	return nil
}

// pause waits before something is tried again.
func (h *Hypervisor) pause(ctx context.Context) { h.wait(ctx, retryAfter) }

// wait waits for a time. It returns false if the context is done.
func (h *Hypervisor) wait(ctx context.Context, d time.Duration) bool {
	timer := h.o.Clock.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C():
		return true
	case <-ctx.Done():
		return false
	}
}

// attached attaches and works until the session ends.
func (h *Hypervisor) attached(ctx context.Context) error {
	// Containers first: without them the servers cannot be told from each other.
	containers, err := h.o.Driver.List(ctx)
	if err != nil {
		return err
	}
	session, err := h.o.Attach(ctx)
	if err != nil {
		return err
	}
	defer session.Suspend()
	defer func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.session = nil
	}()
	h.begin(ctx, session, containers)
	for {
		task, err := session.Next(ctx)
		if err != nil {
			return err
		}
		h.dispatch(ctx, task)
	}
}

// begin binds the existing servers to containers, and tells the cloud which of them run.
func (h *Hypervisor) begin(ctx context.Context, session hypervisor.Session, containers []Container) {
	guests := session.Guests()
	h.mu.Lock()
	h.session = session
	exists := map[int64]hypervisor.Guest{}
	for _, m := range guests {
		exists[m.Server] = m
	}
	for id, s := range h.servers {
		// A server of another name under this id is perhaps another cloud's.
		if m, ok := exists[id]; !ok || m.Name != s.guest.Name {
			s.forgetLocked()
			delete(h.servers, id)
		}
	}
	bound := 0
	for _, m := range guests {
		_, known := h.servers[m.Server]
		s := h.serverLocked(m)
		if s.container == "" {
			s.container, s.own = findContainer(m, containers)
		}
		if !known { // its predecessor may have left it so
			_, addressed := h.o.Driver.Address(m)
			runs := slices.ContainsFunc(containers, func(c Container) bool { return c.Name == s.container && c.Running })
			s.waits = m.Status == "running" && !addressed && !runs
		}
		if s.container != "" {
			bound++
		}
	}
	for _, c := range containers {
		if m := exists[c.Server]; c.Server != 0 && m.Name != c.Name {
			h.log.Warn("a container belongs to a server that does not exist: remove it with docker rm -fv", "container", c.Name, "server",
				c.Server)
		}
	}
	h.mu.Unlock()
	h.log.Info("attached to the cloud", "servers", len(guests), "with_container", bound)
	h.checkAll(ctx)
}

// findContainer returns the container of a server, and whether it was made for it. The one that the
// server's label names, if it has that; else the one of its name that was made for it, or for no
// server.
func findContainer(m hypervisor.Guest, containers []Container) (name string, own bool) {
	label := m.Labels[ContainerLabel]
	wanted := cmp.Or(label, m.Name)
	for _, c := range containers {
		if c.Name == wanted && (label != "" || c.Server == 0 || c.Server == m.Server) {
			return c.Name, c.Server == m.Server
		}
	}
	return "", false
}

// serverLocked returns the record of a server. It makes one if necessary.
func (h *Hypervisor) serverLocked(m hypervisor.Guest) *server {
	s, ok := h.servers[m.Server]
	if !ok {
		s = &server{hypervisor: h, id: m.Server}
		h.servers[m.Server] = s
	}
	s.guest = m
	return s
}

func (h *Hypervisor) dispatch(ctx context.Context, t hypervisor.Task) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if r, done := h.results[t.Action]; done && r.of(t) {
		// It was done, but could not be reported to the cloud.
		session := h.session
		h.background.Go(func() { h.tell(ctx, session, t, r.err) })
		return
	}
	h.serverLocked(t.Guest).enqueueLocked(ctx, &t)
}

// complete reports the result of a task to the cloud. A result that it cannot report is kept until the cloud asks again.
func (h *Hypervisor) complete(ctx context.Context, t hypervisor.Task, failure error) {
	h.mu.Lock()
	session := h.session
	h.results[t.Action] = result{t, failure}
	h.mu.Unlock()
	if session != nil {
		h.tell(ctx, session, t, failure)
	}
}

func (h *Hypervisor) tell(ctx context.Context, session hypervisor.Session, t hypervisor.Task, failure error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	err := session.Complete(ctx, t.Action, failure)
	if err != nil && !errors.Is(err, hypervisor.ErrNoTask) {
		h.log.Warn("cannot report the result of a task, trying again when the cloud asks", "action", t.Action, "command", t.Command,
			"server", t.Guest.Name, "error", err)
		return
	}
	if err != nil {
		h.log.Warn("a task was done too late", "action", t.Action, "command", t.Command, "server", t.Guest.Name)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.results, t.Action)
}

// watch looks at containers when something happens to them.
func (h *Hypervisor) watch(ctx context.Context) {
	for ctx.Err() == nil {
		err := h.o.Driver.Watch(ctx, func(name string) {
			if name == "" {
				h.checkAll(ctx)
				return
			}
			h.check(ctx, name)
		})
		if ctx.Err() == nil {
			h.log.Warn("cannot watch containers, trying again", "error", err)
			h.pause(ctx)
		}
	}
}

// check has the server of a container look at it.
func (h *Hypervisor) check(ctx context.Context, container string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range h.servers {
		if s.container == container {
			s.enqueueLocked(ctx, nil)
		}
	}
}

func (h *Hypervisor) checkAll(ctx context.Context) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range h.servers {
		s.enqueueLocked(ctx, nil)
	}
}

// find returns a container by its name.
func (h *Hypervisor) find(ctx context.Context, name string) (Container, bool, error) {
	all, err := h.o.Driver.List(ctx)
	if err != nil {
		return Container{}, false, err
	}
	for _, c := range all {
		if c.Name == name {
			return c, true, nil
		}
	}
	return Container{}, false, nil
}
