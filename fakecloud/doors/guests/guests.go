// Package guests lets each running server of a simulated cloud answer SSH. Nothing is executed: files are in memory, and commands answer
// what rules say.
//
//	door, err := guests.Start(ctx, cloud, guests.Options{Rules: rules})
//	guest, err := door.Guest(ctx, server.ID)                     // guest.Address is such as 127.0.0.1:40123
//	entry, err := door.Await(ctx, server.ID, "^apt-get install") // a command that the server has answered
//
// Reproduced: the server's SSH keys in /root/.ssh/authorized_keys, root's password and its resets, rescue mode with its keys and
// password, a boot time; exec, shell, pty, environment, SFTP and scp; true, cat, uname, hostname, cloud-init status and a few more,
// scripts of such commands, and reboot, poweroff and shutdown, which do it to the server. A server that is made or rebuilt has the files
// of its image, if that is a snapshot or a backup, and no others. A guest listens while its server runs and has booted.
//
// Left out: the execution of anything, in containers too; users other than root; the language of shells, such as pipes and redirections;
// the change of password that the real cloud demands at the first login; user data, except as a file; IPv6; firewalls; a host key per
// system: that of a server is the same after a rebuild and in rescue mode, and changes with each run of the cloud. Files end with the run.
//
// The door is a hypervisor (package hypervisor) for all servers that no earlier one has: an action on a server ends when its guest has done
// it, and the profile of durations does not apply.
package guests

import (
	"context"
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/net/netutil"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/hypervisor"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/cloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/testhook"
)

// Options configure the guests. The zero value works.
type Options struct {
	// Rules say what commands answer, the first one that matches.
	Rules []Rule
	// BootTime is how long a server runs before it answers, on the cloud's clock.
	BootTime time.Duration
	// Public makes guests listen at the public addresses of their servers, too, if this machine has them. Without it, they listen on
	// loopback addresses only.
	Public bool
	// Logger logs where guests listen, and no commands. If nil, nothing is logged.
	Logger *slog.Logger
}

// Door runs the guests. Close it after use, and before the cloud.
type Door struct {
	o          Options
	cloud      *fakecloud.Cloud
	core       *cloud.Cloud
	hypervisor hypervisor.Session
	secret     [32]byte // host keys follow from it
	wg         sync.WaitGroup

	// work is held while a guest starts or stops: for tasks, and when guests do it to themselves.
	work    sync.Mutex
	closed  bool       // work guards it
	mu      sync.Mutex // guards the fields below, and those of guests
	guests  map[int64]*guest
	images  map[int64]*disk // of snapshots and backups, by their ids
	log     []Entry
	changed chan struct{} // closed by the next guest that answers, and by the next entry
}

// guest is a server's guest, whether it runs or not.
type guest struct {
	id      int64
	about   hypervisor.Guest
	rescued time.Time // when rescue mode was enabled
	disk    *disk     // imaged reads it with mu held
	run     *run      // nil while it does not run
	port    string    // of its last listener on 127.0.0.1
}

// run is a guest from a boot to its end.
type run struct {
	ctx                context.Context //nolint:containedctx // it is how a guest ends
	cancel             context.CancelFunc
	name, architecture string
	disk               *disk
	rescue             bool
	listener           net.Listener // nil while it boots. The door's mu guards it
	hash               []byte       // of root's password. The door's mu guards it
}

// rescueTime is how long rescue mode waits for a boot.
const rescueTime = time.Hour

// Start makes the servers of a cloud answer until the door is closed. It adds the page /doors/guests to the control API.
func Start(ctx context.Context, c *fakecloud.Cloud, o Options) (d *Door, err error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	o.Rules = slices.Clone(o.Rules)
	if err := compile(o.Rules); err != nil {
		return nil, err
	}
	if o.BootTime < 0 || o.BootTime > maxDelay {
		return nil, fmt.Errorf("boot time %v: must be 0 to %v", o.BootTime, maxDelay)
	}
	d = &Door{o: o, cloud: c, core: testhook.Core(c), changed: make(chan struct{})}
	_, _ = rand.Read(d.secret[:]) // it never fails
	if err := d.attach(ctx); err != nil {
		return nil, err
	}
	d.core.OnImage(d.imaged)
	c.ShowDoor("guests", d)
	d.wg.Go(d.follow)
	return d, nil
}

// attach begins a session, with new guests for all servers.
func (d *Door) attach(ctx context.Context) (err error) {
	d.work.Lock()
	defer d.work.Unlock()
	d.haltAll()
	if d.closed {
		return hypervisor.ErrClosed
	}
	if d.hypervisor, err = d.cloud.AttachHypervisor(ctx, hypervisor.Options{Name: "guests", Credentials: true}); err != nil {
		return err
	}
	for _, about := range d.hypervisor.Guests() {
		if g := d.create(about); about.Status == string(cloud.ServerRunning) {
			d.boot(g)
		}
	}
	return nil
}

// follow does the tasks of the cloud. A cloud that loads a snapshot ends the session; the next one has the guests of the snapshot.
func (d *Door) follow() {
	for {
		task, err := d.hypervisor.Next(context.Background())
		switch {
		case err == nil:
			d.do(task)
		case !errors.Is(err, hypervisor.ErrDetached) || d.attach(context.Background()) != nil:
			return
		}
	}
}

// Close ends all connections and waits for them. Actions on servers then end as if there were no guests.
func (d *Door) Close() error {
	d.work.Lock()
	d.closed = true
	d.hypervisor.Close()
	d.haltAll()
	d.work.Unlock()
	d.wg.Wait()
	return nil
}

func (d *Door) haltAll() {
	d.mu.Lock()
	all := d.guests
	d.guests, d.images = map[int64]*guest{}, map[int64]*disk{} // a snapshot of the cloud has others
	d.mu.Unlock()
	for _, g := range all {
		d.halt(g)
	}
}

// do does a task. An error of the session is its end.
func (d *Door) do(t hypervisor.Task) {
	d.work.Lock()
	defer d.work.Unlock()
	if d.closed {
		return
	}
	d.mu.Lock()
	g := d.guests[t.Guest.Server]
	if g != nil {
		g.about = t.Guest
	}
	d.mu.Unlock()
	if g == nil {
		g = d.create(t.Guest)
	}
	boots := t.Runs
	switch t.Command {
	case hypervisor.CommandStart, hypervisor.CommandChangeType:
	case hypervisor.CommandReboot, hypervisor.CommandReset, hypervisor.CommandStop, hypervisor.CommandShutdown:
		d.halt(g)
	case hypervisor.CommandRebuild:
		d.halt(g)
		d.install(g)
	case hypervisor.CommandDelete, hypervisor.CommandForget:
		d.halt(g)
		d.mu.Lock()
		delete(d.guests, g.id)
		d.mu.Unlock()
	default:
		boots = false
		if g.run != nil && !g.run.rescue {
			d.mu.Lock()
			g.run.hash = t.Guest.PasswordHash
			d.mu.Unlock()
		}
		if t.Command == hypervisor.CommandEnableRescue {
			g.rescued = d.core.Now()
		}
	}
	if boots && g.run == nil {
		d.boot(g)
	}
	ctx := context.Background()
	err := d.hypervisor.Complete(ctx, t.Action, nil)
	// After a shutdown, and if a guest has turned itself off before the task, the cloud does not know it yet.
	if err == nil && g.run == nil && (t.Runs || t.Command == hypervisor.CommandShutdown) {
		_ = d.hypervisor.Report(ctx, g.id, false)
	}
}

// create adds a guest with a new disk. It and the functions below are called with work held, or by Start.
func (d *Door) create(about hypervisor.Guest) *guest {
	g := &guest{id: about.Server, about: about, rescued: d.core.Now()}
	d.install(g)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.guests[g.id] = g
	return g
}

// imaged keeps the disk of a server for those that are made from its image.
func (d *Door) imaged(server, image int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if g := d.guests[server]; g != nil {
		d.images[image] = g.disk.copy(d.core.Now)
	}
	if len(d.images) > maxImages {
		delete(d.images, slices.Min(slices.Collect(maps.Keys(d.images))))
	}
}

// install gives a guest the disk of its image.
func (d *Door) install(g *guest) {
	d.mu.Lock()
	defer d.mu.Unlock()
	g.disk = newSystem(d.core.Now, d.images[g.about.ImageID], g.about, g.about.SSHKeys)
}

// boot starts a guest that does not run.
func (d *Door) boot(g *guest) {
	r := &run{name: g.about.Name, architecture: g.about.Architecture, disk: g.disk, hash: g.about.PasswordHash}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	if rescue := g.about.Rescue; rescue != nil && d.core.Now().Before(g.rescued.Add(rescueTime)) {
		about := hypervisor.Guest{Name: "rescue", OSFlavor: "debian", OSVersion: "12"}
		r.rescue, r.hash, r.disk = true, rescue.PasswordHash, newSystem(d.core.Now, nil, about, rescue.SSHKeys)
	}
	d.mu.Lock()
	g.about.Rescue, g.run = nil, r
	d.mu.Unlock()
	if d.o.BootTime == 0 {
		d.listen(g, r)
		return
	}
	timer := d.core.Clock().NewTimer(d.o.BootTime)
	d.wg.Go(func() {
		defer timer.Stop()
		select {
		case <-timer.C():
			d.listen(g, r)
		case <-r.ctx.Done():
		}
	})
}

// halt ends the run of a guest: nothing listens any more, and all connections are gone.
func (d *Door) halt(g *guest) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if g.run == nil {
		return
	}
	g.run.cancel()
	if g.run.listener != nil {
		_ = g.run.listener.Close()
	}
	g.run = nil
}

// power turns a server off or boots it again, unless its guest has ended meanwhile. It takes work.
func (d *Door) power(g *guest, r *run, what string) {
	d.work.Lock()
	defer d.work.Unlock()
	if what == "" || g.run != r {
		return
	}
	ctx := context.Background()
	d.halt(g)
	_ = d.hypervisor.Report(ctx, g.id, false) // an error is the end of the session or of the server
	if what == "reboot" {
		d.boot(g)
		_ = d.hypervisor.Report(ctx, g.id, true)
	}
}

// loopback is where guests listen that cannot listen at their servers' addresses.
const loopback = "127.0.0.1"

// listen makes a guest answer. It needs no work held.
func (d *Door) listen(g *guest, r *run) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if r.ctx.Err() != nil {
		return
	}
	l, err := d.socket(g.about.PublicIPv4, g.port)
	if err != nil {
		d.o.Logger.Warn("a guest cannot answer: no port is free; close programs, and reboot the server", "server", r.name, "error", err)
		return
	}
	l = netutil.LimitListener(l, maxConnections)
	r.listener = l
	if host, port, _ := net.SplitHostPort(l.Addr().String()); host == loopback {
		g.port = port
	}
	d.o.Logger.Info("a guest answers SSH", "server", r.name, "address", l.Addr().String())
	d.wake()
	d.wg.Go(func() { d.accept(g, r, l) })
}

// socket listens at port 22 of the server's address if that is allowed and possible, else at the last port of the guest or a free one.
func (d *Door) socket(address netip.Addr, last string) (l net.Listener, err error) {
	tries := []string{net.JoinHostPort(loopback, last), net.JoinHostPort(loopback, "0")}
	if address.IsValid() && (address.IsLoopback() || d.o.Public) {
		tries = append([]string{net.JoinHostPort(address.String(), "22")}, tries...)
	}
	for _, at := range tries {
		if l, err = new(net.ListenConfig).Listen(context.Background(), "tcp", at); err == nil {
			return l, nil
		}
	}
	return nil, err
}

// hostKey returns the key of a server.
func (d *Door) hostKey(server int64) ssh.Signer {
	mac := hmac.New(sha256.New, d.secret[:])
	fmt.Fprint(mac, server)
	key, err := ssh.NewSignerFromSigner(ed25519.NewKeyFromSeed(mac.Sum(nil)))
	if err != nil {
		panic(err) // it takes every such key
	}
	return key
}
