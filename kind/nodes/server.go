package nodes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/hypervisor"
)

// server is one server and its container. Its tasks, and looks at its container, run one after the other in the order in
// which they were asked for, so that each report is true when it is sent.
type server struct {
	hypervisor *Hypervisor
	id         int64

	// hypervisor.mu guards the following fields.
	guest     hypervisor.Guest
	container string // "" while there is none
	own       bool   // the container was made for the server
	queue     []*hypervisor.Task
	look      bool // at the container, after the queue
	working   bool
	current   int64 // action of the task under way
	forgotten bool

	// Only the goroutine of work uses the following fields.
	waits   bool               // the server is on without its container, until it has an address
	boot    context.CancelFunc // of the boot under way, nil for none
	booting chan struct{}      // closed when that has ended
	booted  bool
	started time.Time // of the container, when it was looked at; zero after a task has changed it
}

// enqueueLocked queues a task or, with nil, a look at the container.
func (s *server) enqueueLocked(ctx context.Context, t *hypervisor.Task) {
	if t == nil {
		s.look = true
	} else {
		// The cloud may hand out a task again that is queued already.
		if t.Action != 0 && t.Action == s.current {
			return
		}
		for _, q := range s.queue {
			if q.Action == t.Action {
				return
			}
		}
		s.queue = append(s.queue, t)
	}
	if !s.working {
		s.working = true
		s.hypervisor.background.Go(func() { s.work(ctx) })
	}
}

// forgetLocked drops all that is queued for a server, for good.
func (s *server) forgetLocked() { s.queue, s.look, s.forgotten = nil, false, true }

// work carries out the queued tasks, and ends.
func (s *server) work(ctx context.Context) {
	h := s.hypervisor
	for {
		h.mu.Lock()
		var task *hypervisor.Task
		look := false
		switch {
		case ctx.Err() != nil || len(s.queue) == 0 && !s.look:
			s.working = false
			h.mu.Unlock()
			return
		case len(s.queue) > 0:
			task = s.queue[0]
			s.queue, s.current = s.queue[1:], task.Action
		default:
			look, s.look = true, false
		}
		h.mu.Unlock()
		if look {
			s.lookAtContainer(ctx)
			continue
		}
		s.do(ctx, *task)
	}
}

// do carries out one task, reports the result and checks the state of the container.
func (s *server) do(ctx context.Context, t hypervisor.Task) {
	h := s.hypervisor
	begin := h.o.Clock.Now()
	limited, cancel := context.WithTimeout(ctx, h.o.TaskTimeout)
	err := asError(s.carryOut(limited, t))
	cancel()
	if t.Command != hypervisor.CommandShutdown {
		s.started = time.Time{}
	}
	log := h.log.With("server", t.Guest.Name, "id", s.id, "command", t.Command, "action", t.Action, "took", h.o.Clock.Since(begin))
	switch {
	case ctx.Err() != nil:
		return // half done, perhaps: the successor gets the task again
	case err != nil:
		log.Warn("task failed", "error", err)
	default:
		log.Info("task done")
	}
	if t.Action != 0 {
		h.complete(ctx, t, err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	s.current = 0
	gone := err == nil && (t.Command == hypervisor.CommandDelete || t.Command == hypervisor.CommandForget)
	if gone && h.servers[s.id] == s && len(s.queue) == 0 {
		s.forgetLocked()
		delete(h.servers, s.id)
		return
	}
	s.look = !s.forgotten
}

// carryOut carries out a task. Doing it twice does no harm.
func (s *server) carryOut(ctx context.Context, t hypervisor.Task) error {
	driver := s.hypervisor.o.Driver
	name, own := s.bound()
	s.waits = s.waits && t.Runs
	switch t.Command {
	case hypervisor.CommandCreate:
		return s.adopt(ctx, t.Guest)
	case hypervisor.CommandStart, hypervisor.CommandChangeType:
		if !t.Runs {
			return nil
		}
		return s.start(ctx, t.Guest)
	case hypervisor.CommandAttach:
		return s.attach(ctx, t.Guest)
	case hypervisor.CommandStop:
		s.stopBooting()
		return s.ifRunning(ctx, driver.Kill)
	case hypervisor.CommandShutdown:
		return s.ifRunning(ctx, driver.Shutdown)
	case hypervisor.CommandReboot:
		s.stopBooting()
		return s.ifRunning(ctx, driver.Restart)
	case hypervisor.CommandReset:
		s.stopBooting()
		if err := s.ifRunning(ctx, driver.Kill); err != nil {
			return err
		}
		return s.start(ctx, t.Guest)
	case hypervisor.CommandRebuild:
		if name != "" && !own {
			return fmt.Errorf("the container %s was not made for this server: it cannot be rebuilt", name)
		}
		if err := s.remove(ctx); err != nil {
			return err
		}
		if !t.Runs {
			return nil
		}
		return s.start(ctx, t.Guest)
	case hypervisor.CommandDelete:
		return s.remove(ctx)
	case hypervisor.CommandForget:
		if own {
			return s.remove(ctx)
		}
		s.stopBooting()
		return nil
	}
	return fmt.Errorf("the hypervisor does not know the command %s", t.Command)
}

// bound returns the server's container, "" for none, and whether it was made for it.
func (s *server) bound() (name string, own bool) {
	s.hypervisor.mu.Lock()
	defer s.hypervisor.mu.Unlock()
	return s.container, s.own
}

func (s *server) bind(name string, own bool) {
	s.hypervisor.mu.Lock()
	defer s.hypervisor.mu.Unlock()
	s.container, s.own = name, own
}

// adopt gives the server the container that is there for it, if there is one.
func (s *server) adopt(ctx context.Context, m hypervisor.Guest) error {
	h := s.hypervisor
	containers, err := h.o.Driver.List(ctx)
	if err != nil {
		return err
	}
	name, own := findContainer(m, containers)
	if name != "" && !own {
		if err := checkAddress(m, name, containers); err != nil {
			return err
		}
		h.mu.Lock()
		for _, other := range h.servers {
			if other != s && other.container == name {
				err = unavailable(fmt.Sprintf("the container %s belongs to server %d", name, other.id))
			}
		}
		h.mu.Unlock()
		if err != nil {
			return err
		}
	}
	if wanted := m.Labels[ContainerLabel]; name == "" && wanted != "" {
		return unavailable(fmt.Sprintf("there is no container %q, which the label %s names", wanted, ContainerLabel))
	}
	s.bind(name, own)
	return nil
}

// checkAddress refuses a container that has another address than its server, as soon as that has one.
func checkAddress(m hypervisor.Guest, name string, containers []Container) error {
	if len(m.Networks) == 0 {
		return nil
	}
	i := slices.IndexFunc(containers, func(c Container) bool { return c.Name == name })
	at := containers[i].Address
	if slices.ContainsFunc(m.Networks, func(n hypervisor.Network) bool { return n.IP == at }) {
		return nil
	}
	return unavailable(fmt.Sprintf("the container %s has the address %s, the server has another", name, at))
}

// start powers the server on. It makes a missing container, with the server's current address. A server without an address is on without
// its container.
func (s *server) start(ctx context.Context, m hypervisor.Guest) error {
	driver := s.hypervisor.o.Driver
	if name, _ := s.bound(); name == "" {
		if err := s.adopt(ctx, m); err != nil {
			return err
		}
	}
	name, own := s.bound()
	if name == "" || own {
		c, there, err := s.hypervisor.find(ctx, name)
		if err != nil {
			return err
		}
		address, ok := driver.Address(m)
		switch {
		case c.Running:
		case !ok:
			s.waits = true
			s.hypervisor.log.Warn("a server is on without a container, because it has no address in the cluster's network: attach it to "+
				"that network",
				"server", m.Name, "id", s.id)
			return nil
		case !there:
			name, err = m.Name, driver.Create(ctx, m)
		case c.Address != address:
			err = driver.Move(ctx, name, address)
		}
		if err != nil {
			return err
		}
		s.bind(name, true)
	}
	return driver.Start(ctx, name)
}

// attach starts a server that is on without its container. The address of a container that runs cannot change.
func (s *server) attach(ctx context.Context, m hypervisor.Guest) error {
	name, _ := s.bound()
	c, _, err := s.hypervisor.find(ctx, name)
	if err != nil {
		return err
	}
	if !c.Running {
		return s.start(ctx, m)
	}
	if address, ok := s.hypervisor.o.Driver.Address(m); ok && address != c.Address {
		return unavailable(fmt.Sprintf("the container %s keeps the address %s while it runs: power the server off, attach it with the "+
			"address %s, and power it on",
			name, c.Address, address))
	}
	return nil
}

// ifRunning does something to a container that runs.
func (s *server) ifRunning(ctx context.Context, work func(context.Context, string) error) error {
	name, _ := s.bound()
	if name == "" {
		return nil
	}
	c, ok, err := s.hypervisor.find(ctx, name)
	if err != nil || !ok || !c.Running {
		return err
	}
	return work(ctx, name)
}

// remove takes the container away, if there is one.
func (s *server) remove(ctx context.Context) error {
	s.stopBooting()
	name, _ := s.bound()
	if name == "" {
		return nil
	}
	if err := s.hypervisor.o.Driver.Remove(ctx, name); err != nil {
		return err
	}
	s.booted = false
	s.bind("", false)
	return nil
}

// lookAtContainer tells the cloud whether the container runs, and boots one that has started.
func (s *server) lookAtContainer(ctx context.Context) {
	h := s.hypervisor
	name, own := s.bound()
	var c Container
	if name != "" {
		var ok bool
		var err error
		if c, ok, err = h.find(ctx, name); err != nil {
			if ctx.Err() == nil {
				h.log.Warn("cannot inspect a container, trying again", "container", name, "error", err)
				s.lookLater(ctx)
			}
			return
		}
		if !ok {
			// It was removed by hand. A server that is started again gets another one.
			s.bind("", false)
			s.booted = false
		}
	}
	h.mu.Lock()
	session, m := h.session, s.guest
	h.mu.Unlock()
	restarted := c.Running && !s.started.IsZero() && !s.started.Equal(c.Started)
	s.started, s.waits = c.Started, s.waits && !c.Running
	if restarted {
		s.stopBooting()
	}
	if session != nil {
		if restarted { // it was off, too quickly to be seen
			h.report(ctx, session, s.id, false)
		}
		h.report(ctx, session, s.id, c.Running || s.waits)
	}
	switch {
	case !c.Running:
		s.stopBooting()
	case own && !s.booted && s.boot == nil:
		s.startBooting(ctx, name, m)
	}
}

// lookLater has the container looked at again after a pause: if it never changes again, nothing else looks at it.
func (s *server) lookLater(ctx context.Context) {
	h := s.hypervisor
	h.background.Go(func() {
		h.pause(ctx)
		h.mu.Lock()
		defer h.mu.Unlock()
		if ctx.Err() == nil && !s.forgotten {
			s.enqueueLocked(ctx, nil)
		}
	})
}

func (h *Hypervisor) report(ctx context.Context, session hypervisor.Session, server int64, running bool) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	err := session.Report(ctx, server, running)
	// A server that is gone, or belongs to another hypervisor, needs no report, and a new session begins with a look at all
	// containers.
	if err != nil && !errors.Is(err, hypervisor.ErrNoGuest) && ctx.Err() == nil {
		h.log.Debug("cannot tell the cloud the state of a server, which it learns with the next session", "server", server, "running",
			running, "error", err)
	}
}

// startBooting boots the node while other things happen to it.
func (s *server) startBooting(ctx context.Context, name string, m hypervisor.Guest) {
	h := s.hypervisor
	ctx, s.boot = context.WithCancel(ctx)
	done := make(chan struct{})
	s.booting = done
	s.booted = true // it is not tried again before the next start
	h.background.Go(func() {
		defer close(done)
		begin := h.o.Clock.Now()
		notes, err := h.o.Driver.Boot(ctx, name, m)
		log := h.log.With("server", m.Name, "id", m.Server, "took", h.o.Clock.Since(begin))
		for _, note := range notes {
			log.Warn("user data: " + note)
		}
		switch {
		case ctx.Err() != nil:
		case err != nil:
			log.Warn("booting failed", "error", err)
		default:
			log.Info("booted")
		}
	})
}

// stopBooting ends the boot under way; a start begins another one.
func (s *server) stopBooting() {
	if s.boot != nil {
		s.boot()
		<-s.booting
		s.boot = nil
	}
	s.booted = false
}
