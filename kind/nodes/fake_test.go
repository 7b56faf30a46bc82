package nodes_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/hypervisor"
	"github.com/ccm-from-scratch/ccm-from-scratch/kind/nodes"
)

// fakeDriver are containers that are nothing but entries in a map.
type fakeDriver struct {
	mu         sync.Mutex
	changed    chan struct{} // closed, and replaced, by every change
	containers map[string]*nodes.Container
	calls      []string
	fail       map[string]error // by call
	hang       map[string]chan struct{}
	watchers   map[int]chan string
	watched    int // how often Watch was called
	starts     int
	boots      map[string]string // user data of finished boots
	counters   nodes.Counters    // of all containers
	subnet     netip.Prefix      // of the containers' addresses; zero for any address
}

func newFakeDriver(containers ...nodes.Container) *fakeDriver {
	f := &fakeDriver{
		changed: make(chan struct{}), containers: map[string]*nodes.Container{}, fail: map[string]error{}, hang: map[string]chan struct{}{},
		watchers: map[int]chan string{}, boots: map[string]string{},
	}
	for _, c := range containers {
		f.containers[c.Name] = &c
	}
	return f
}

// call records a call and returns its error. A call that is to hang ends with its context, or when
// the channel is closed.
func (f *fakeDriver) call(ctx context.Context, verb, name string) error {
	f.mu.Lock()
	f.calls = append(f.calls, verb+" "+name)
	err, hang := f.fail[verb], f.hang[verb]
	f.touchLocked()
	f.mu.Unlock()
	if hang != nil {
		select {
		case <-hang:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return err
}

func (f *fakeDriver) touchLocked() {
	close(f.changed)
	f.changed = make(chan struct{})
}

// set changes a container, or with nil removes it, and tells those that watch.
func (f *fakeDriver) set(name string, c *nodes.Container) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.setLocked(name, c)
}

func (f *fakeDriver) setLocked(name string, c *nodes.Container) {
	if c == nil {
		delete(f.containers, name)
	} else {
		f.containers[name] = c
	}
	for _, w := range f.watchers {
		w <- name
	}
	f.touchLocked()
}

// power starts or stops a container. It returns an error for a missing one.
func (f *fakeDriver) power(name string, on bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	c, ok := f.containers[name]
	if !ok {
		return fmt.Errorf("no such container: %s", name)
	}
	changed := *c
	changed.Running = on
	if on && !c.Running {
		f.starts++
		changed.Started = time.Unix(int64(f.starts), 0)
	}
	f.setLocked(name, &changed)
	return nil
}

func (f *fakeDriver) List(context.Context) ([]nodes.Container, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.fail["list"]; err != nil {
		f.calls = append(f.calls, "list failed")
		f.touchLocked()
		return nil, err
	}
	var out []nodes.Container
	for _, name := range slices.Sorted(maps.Keys(f.containers)) {
		out = append(out, *f.containers[name])
	}
	return out, nil
}

func (f *fakeDriver) Create(ctx context.Context, m hypervisor.Guest) error {
	if err := f.call(ctx, "create", m.Name); err != nil {
		return err
	}
	address, ok := f.Address(m)
	if !ok {
		return &hypervisor.Error{Code: nodes.CodeUnavailable, Message: "the server has no address"}
	}
	f.set(m.Name, &nodes.Container{Name: m.Name, Server: m.Server, Address: address})
	return nil
}

func (f *fakeDriver) Address(m hypervisor.Guest) (netip.Addr, bool) {
	for _, n := range m.Networks {
		if f.subnet == (netip.Prefix{}) || f.subnet.Contains(n.IP) {
			return n.IP, true
		}
	}
	return m.PublicIPv4, m.PublicIPv4.IsValid() && f.subnet == (netip.Prefix{})
}

func (f *fakeDriver) Move(ctx context.Context, name string, to netip.Addr) error {
	if err := f.call(ctx, "move", name); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	c := *f.containers[name]
	c.Address = to
	f.setLocked(name, &c)
	return nil
}

func (f *fakeDriver) Start(ctx context.Context, name string) error {
	if err := f.call(ctx, "start", name); err != nil {
		return err
	}
	return f.power(name, true)
}

func (f *fakeDriver) Kill(ctx context.Context, name string) error {
	if err := f.call(ctx, "kill", name); err != nil {
		return err
	}
	return f.power(name, false)
}

func (f *fakeDriver) Shutdown(ctx context.Context, name string) error {
	return f.call(ctx, "shutdown", name)
}

func (f *fakeDriver) Restart(ctx context.Context, name string) error {
	if err := f.call(ctx, "restart", name); err != nil {
		return err
	}
	return errors.Join(f.power(name, false), f.power(name, true))
}

func (f *fakeDriver) Remove(ctx context.Context, name string) error {
	if err := f.call(ctx, "remove", name); err != nil {
		return err
	}
	f.set(name, nil)
	return nil
}

func (f *fakeDriver) Boot(ctx context.Context, name string, m hypervisor.Guest) ([]string, error) {
	err := f.call(ctx, "boot", name)
	f.mu.Lock()
	defer f.mu.Unlock()
	if ctx.Err() != nil {
		f.calls = append(f.calls, "boot-cancelled "+name)
	} else if err == nil {
		f.boots[name] = m.UserData
	}
	f.touchLocked()
	return []string{"a note"}, err
}

func (f *fakeDriver) Counters(ctx context.Context, name string) (nodes.Counters, error) {
	err := f.call(ctx, "counters", name)
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.counters, err
}

func (f *fakeDriver) Watch(ctx context.Context, changed func(string)) error {
	f.mu.Lock()
	f.watched++
	id, events := f.watched, make(chan string, 1000)
	f.watchers[id] = events
	f.touchLocked()
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.watchers, id)
	}()
	changed("")
	for {
		select {
		case name, ok := <-events:
			if !ok {
				return errors.New("the daemon is gone")
			}
			changed(name)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// await waits until cond is true. It calls cond with mu held.
func (f *fakeDriver) await(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for {
		f.mu.Lock()
		ok, changed := cond(), f.changed
		f.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-changed:
		case <-t.Context().Done():
			t.Fatalf("waiting until %s: %v", what, t.Context().Err())
		}
	}
}

func (f *fakeDriver) awaitCall(t *testing.T, call string) {
	t.Helper()
	f.await(t, call, func() bool { return slices.Contains(f.calls, call) })
}

// called returns the calls so far, and forgets them.
func (f *fakeDriver) called() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := f.calls
	f.calls = nil
	return out
}

// world is a cloud, containers, and a hypervisor that keeps them the same.
type world struct {
	*testing.T
	cloud  *fakecloud.Cloud
	client *hcloud.Client
	driver *fakeDriver
	stop   func() error // ends the hypervisor that was run last and returns Run's error
	ended  func() error // waits until it has ended by itself
}

func newWorld(t *testing.T, containers ...nodes.Container) *world {
	t.Helper()
	w := &world{T: t, cloud: fakecloud.New(fakecloud.Options{}), driver: newFakeDriver(containers...)}
	t.Cleanup(w.cloud.Close)
	w.client = w.cloud.Client(hcloud.WithPollOpts(hcloud.PollOpts{BackoffFunc: hcloud.ConstantBackoff(0)}))
	return w
}

// options attach in this process.
func (w *world) options() nodes.Options {
	return nodes.Options{
		Driver: w.driver,
		Attach: func(ctx context.Context) (hypervisor.Session, error) {
			return w.cloud.AttachHypervisor(ctx, hypervisor.Options{Name: "kind", Selector: nodes.Selector})
		},
	}
}

// run starts the hypervisor and returns when it is attached.
func (w *world) run(o nodes.Options) {
	w.Helper()
	attached, attach := make(chan struct{}, 100), o.Attach
	o.Attach = func(ctx context.Context) (hypervisor.Session, error) {
		s, err := attach(ctx)
		if err == nil {
			attached <- struct{}{}
		}
		return s, err
	}
	w.start(o)
	select {
	case <-attached:
	case <-w.Context().Done():
		w.Fatal(w.Context().Err())
	}
}

// start starts the hypervisor.
func (w *world) start(o nodes.Options) {
	w.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.Context()))
	ended, err := make(chan struct{}), error(nil)
	go func() { err = nodes.New(o).Run(ctx); close(ended) }()
	w.ended = func() error { <-ended; return err }
	w.stop = func() error { cancel(); <-ended; return err }
	w.Cleanup(func() { _ = w.stop() })
}

func (w *world) createOpts(name string) hcloud.ServerCreateOpts {
	return hcloud.ServerCreateOpts{
		Name: name, ServerType: &hcloud.ServerType{Name: "cpx22"}, Image: &hcloud.Image{Name: "debian-12"},
		Location: &hcloud.Location{Name: "fsn1"},
	}
}

// create creates a server and waits until it runs.
func (w *world) create(o hcloud.ServerCreateOpts) *hcloud.Server {
	w.Helper()
	res, _, err := w.client.Server.Create(w.Context(), o)
	if err != nil {
		w.Fatal(err)
	}
	w.wait(append(res.NextActions, res.Action)...)
	return res.Server
}

func (w *world) wait(actions ...*hcloud.Action) {
	w.Helper()
	if err := w.client.Action.WaitFor(w.Context(), actions...); err != nil {
		w.Fatal(err)
	}
}

// act waits for the end of an action that was just started.
func (w *world) act(a *hcloud.Action, _ *hcloud.Response, err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
	w.wait(a)
}

// awaitStatus waits for a status of a server; "" is its end.
func (w *world) awaitStatus(s *hcloud.Server, want hcloud.ServerStatus) {
	w.Helper()
	sub := w.cloud.Subscribe()
	defer sub.Close()
	for {
		got, _, err := w.client.Server.GetByID(w.Context(), s.ID)
		if err != nil {
			w.Fatal(err)
		}
		if got == nil && want == "" || got != nil && got.Status == want {
			return
		}
		if _, err := sub.Next(w.Context()); err != nil {
			w.Fatalf("waiting for %s: %v", want, err)
		}
	}
}
