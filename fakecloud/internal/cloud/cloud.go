package cloud

import (
	"cmp"
	"context"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/hypervisor"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/simclock"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/store"
)

// Options configure a Cloud. The zero value works: real time, actions that end at once, no limits.
type Options struct {
	// Clock is where all time comes from. Default: the machine's.
	Clock clock.WithTicker
	// Profile says how long actions take. Default: ProfileInstant.
	Profile Profile
	// Catalogue is what can be ordered. Default: DefaultCatalogue.
	Catalogue *Catalogue
	// FirstID is less than all ids that the cloud gives out. Default and minimum: 1,000,000.
	FirstID int64
	// KeepActions is how long finished actions are kept at least, unless they are too many: see maxFinished. Default:
	// DefaultKeepActions.
	KeepActions time.Duration
	// Limits of each project. Default: none.
	Limits Limits
	// PublicIPv4 and PublicIPv6 are the pools that public addresses are taken from: single addresses, and networks of 64 bits. Defaults:
	// 198.18.0.0/15 (set aside for benchmarks by RFC 2544) and 2001:db8::/32 (for documentation by RFC 3849). Nobody on the internet has
	// these addresses.
	PublicIPv4 netip.Prefix
	PublicIPv6 netip.Prefix
	// LoadBalancerIPv4, if set, is the pool for load balancers' addresses, so that they can be on
	// a network that a data plane can listen on.
	LoadBalancerIPv4 netip.Prefix
	// Reserved are address ranges that are in use outside the cloud. The cloud gives none of their
	// addresses out as a public address. In a network, a member gets one only on request. In networks,
	// PublicIPv4 and LoadBalancerIPv4 are reserved, too, if set.
	Reserved []netip.Prefix
	// DedicatedServers are the public addresses of the owner's dedicated servers. Load balancers take
	// only these as ip targets. Nil allows any address that the cloud has not given out.
	DedicatedServers []netip.Prefix
	// TargetHealth says where the health of load balancers' targets comes from. Default: HealthFollowsReach.
	TargetHealth HealthRule
	// Seed makes generated values (passwords, MAC addresses) reproducible.
	Seed uint64
	// AutoProjects makes each unknown token the token of a new project: see Enter. ProjectTTL is how long such a project lives
	// without a request, in the machine's time. Default: DefaultProjectTTL.
	AutoProjects bool
	ProjectTTL   time.Duration
}

// Cloud is a simulated Hetzner Cloud: some projects with the resources that they own. All its methods
// may be called from several goroutines.
type Cloud struct {
	clock     clock.WithTicker
	offered   *Catalogue // of Options; projects may have a newer one
	limits    Limits     // of Options; a project may have others
	durations atomic.Pointer[Profile]
	lastID    atomic.Int64
	nextDue   atomic.Int64 // Unix nanoseconds of the earliest job; maxInt64 when there is none
	armed     atomic.Int64 // when the runner wakes up by itself, as nextDue
	tokens    tokenTable
	projects  atomic.Pointer[store.Ascending[*projectData]] // by id; replaced, never changed
	seed      uint64
	ca        *authority
	stepped   bool // whether a test may step the clock without a call of Settle
	// keepActions is how long finished actions are kept at least, unless there are more than maxFinished.
	keepActions time.Duration
	maxFinished int

	auto autoProjects

	mu        sync.Mutex // serializes all writes; guards the fields below
	catalogue *Catalogue // of all projects
	queue     jobQueue   // its first job is not void
	voidJobs  int        // at most; those that projects and scenarios have left in the queue
	jobSeq    uint64
	backlog   bool             // more work is due than a write runs
	finished  []finishedAction // not forgotten yet, in the order of their ends
	ips       *addressPool
	lbIPs     *addressPool       // the same as ips unless configured
	private   reservations       // in networks
	changed   chan struct{}      // closed by the next commit; nil if no call of Await waits for it
	spareLogs []*store.ChangeLog // empty, for the next transactions
	// lastLabels are those of the last resource that was made with labels.
	lastLabels map[string]string
	events     eventHub
	// passwords counts the passwords. It makes each one different, even without another change in between.
	passwords uint64
	// hypervisors are the attached ones, in the order of attachment.
	hypervisors []*attachment
	waiting     []*task // for a hypervisor: those of detached ones that were never handed out
	suspensions int     // of all hypervisors

	lastProject int64       // the id of the latest project
	empty       *State      // see emptyState
	onDrop      func(int64) // see OnDrop
	onImage     func(server, image int64)
	extra       []Extra     // see SaveAlso; set once
	onDiskError func(error) // set once
	saver       *diskSaver  // nil without a disk
	revoked     []string    // the latest revoked tokens, oldest first: see maxRevoked

	scenarios    []*Scenario          // that run
	lastScenario int64                // the id of the latest one
	takenSeq     uint64               // of the latest change of a scenario
	taken        map[setting][]*taken // by scenarios, in the order of Seq; nil until it is needed
	faults       FaultRules           // nil if there is no API
	forkFaults   func() FaultRules

	healthRule HealthRule

	dedicated []netip.Prefix

	loadBalancerStats statsHistory[LoadBalancerStats]
	serverUsage       statsHistory[hypervisor.Usage]
	serverTraffic     statsHistory[hypervisor.Usage] // what load balancers move; of the network only
	countsTraffic     atomic.Bool                    // whether serverTraffic has all traffic of all servers

	wake   chan struct{} // tells the runner that a job is due before it wakes up
	closed chan struct{}
	once   sync.Once
}

const firstID = 1_000_000 // the catalogue's ids are less

// New returns an empty cloud with one project, "default", with the id 1. Close it to stop its goroutine.
func New(o Options) *Cloud {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.Catalogue == nil {
		o.Catalogue = DefaultCatalogue()
	}
	if o.Profile == nil {
		o.Profile = ProfileInstant
	}
	c := &Cloud{
		events: eventHub{last: newEventBatch()},
		clock:  o.Clock, offered: o.Catalogue, catalogue: o.Catalogue, limits: o.Limits, seed: o.Seed,
		wake: make(chan struct{}, 1), closed: make(chan struct{}),
		ca: &authority{seed: o.Seed}, lastLabels: noLabels,
		keepActions: min(cmp.Or(o.KeepActions, DefaultKeepActions), maxKeepActions), maxFinished: maxFinished,
		healthRule: o.TargetHealth, dedicated: slices.Clone(o.DedicatedServers),
	}
	c.stepped = stepped(o.Clock)
	c.ips, c.lbIPs, c.private = newPools(o)
	c.durations.Store(&o.Profile)
	c.auto.begin(o)
	c.projects.Store(new(newProjects()))
	c.lastID.Store(max(o.FirstID, firstID))
	c.nextDue.Store(noJob)
	c.addProject(&projectData{name: "default"})
	go c.runner()
	return c
}

// stepped reports whether a test may step a clock without a call of Settle.
func stepped(c clock.Clock) bool {
	switch c.(type) {
	case clock.RealClock, *simclock.Clock:
		return false
	}
	return true
}

// Close saves the last changes if there is a disk, stops the cloud's goroutines and ends all event subscriptions. The state stays readable.
func (c *Cloud) Close() {
	c.once.Do(func() {
		_ = c.syncOthers() // see OnDiskError
		c.mu.Lock()
		saver := c.saver // which the cloud loses soon after it is closed
		close(c.closed)
		c.events.close()
		c.closeHypervisors()
		c.mu.Unlock()
		saver.close()
	})
}

// Clock returns the cloud's clock.
func (c *Cloud) Clock() clock.WithTicker { return c.clock }

// Now returns the cloud's time in UTC.
func (c *Cloud) Now() time.Time { return c.clock.Now().UTC() }

// SetProfile changes how long the actions take that start from now on.
func (c *Cloud) SetProfile(p Profile) { c.durations.Store(&p) }

func (c *Cloud) profile() Profile { return *c.durations.Load() }

func (c *Cloud) newID() int64 { return c.lastID.Add(1) }

// View returns the project's current state, for reading only; with a disk, the latest that is saved. It does not wait for a write. It does
// not wait for due work either: the cloud's goroutine runs that. Exception: if the clock is neither the machine's nor simclock's, a test
// may have stepped it, so View runs the due work first.
func (p Project) View() *State {
	if p.cloud.stepped {
		p.cloud.settle()
	}
	st := p.data.state.Load()
	if held := p.data.held.Load(); held != nil {
		return held
	}
	return st
}

// Await returns nil as soon as cond holds for the project's state, or the context's error.
func (p Project) Await(ctx context.Context, cond func(*State) bool) error {
	for {
		p.cloud.mu.Lock()
		if p.cloud.changed == nil {
			p.cloud.changed = make(chan struct{})
		}
		changed := p.cloud.changed
		p.cloud.mu.Unlock()
		if cond(p.View()) {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// update runs one write and returns the new state. It reads the clock once. Work that is due at that time runs before fn, up to a batch and
// except for the most recent work: see beforeWrite. Work that fn makes due at once runs after it. Work that becomes due later waits, so
// that the returned state contains fn's changes. If fn returns an error, update drops fn's changes and returns the error. If the cloud has
// a disk, the changes are on it when update returns, and those of others before; if they cannot be saved, an error says so, and no further
// write begins until they are.
func (p Project) update(fn func(*Tx) error) (*State, error) {
	if p.cloud.stepped {
		p.cloud.settle()
	}
	st, round, err := p.updateAndSave(fn)
	return st, cmp.Or(round.wait(), err) // an error, too, may tell what is not saved
}

// updateAndSave is update without waiting for the disk.
func (p Project) updateAndSave(fn func(*Tx) error) (*State, *saveRound, error) {
	c := p.cloud
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.saver.refuse(); err != nil {
		return p.data.state.Load(), nil, err
	}
	err := c.write(p.data, c.beforeWrite(), p.outcome, fn)
	return p.data.state.Load(), c.saver.next(), err
}

// write runs fn in a transaction, and then what it makes due at once. The caller holds Cloud.mu. If the project was dropped, the
// error is unauthorized, as for its tokens from then on.
func (c *Cloud) write(d *projectData, now time.Time, o *ActionOutcome, fn func(*Tx) error) error {
	if d.lastUse.Load() == dropped {
		return errInvalidToken()
	}
	tx := c.begin(d, d.state.Load(), now, o)
	tx.own = true
	if err := fn(tx); err != nil {
		tx.rollback()
		return err
	}
	tx.outcome = nil // it is only for the actions of fn
	c.commitWithDue(tx, now)
	c.settleOwn()
	c.rearm()
	return nil
}

func (c *Cloud) begin(d *projectData, from *State, now time.Time, o *ActionOutcome) *Tx {
	next := *from
	tx := &Tx{State: &next, cloud: c, project: d, now: now, log: c.newLog(), outcome: o}
	for _, t := range tx.tables() {
		t.Begin(tx.log)
	}
	return tx
}

// newLog returns an empty log, if possible one of an earlier transaction: a new one has to grow.
func (c *Cloud) newLog() *store.ChangeLog {
	n := len(c.spareLogs)
	if n == 0 {
		return &store.ChangeLog{}
	}
	log := c.spareLogs[n-1]
	c.spareLogs = c.spareLogs[:n-1]
	return log
}

// commit ends a transaction: it publishes the state and the events.
func (c *Cloud) commit(tx *Tx) {
	for _, t := range tx.tables() {
		t.Publish()
	}
	for _, t := range tx.tasks {
		t.hypervisor.add(t)
	}
	c.finished = append(c.finished, tx.finished...)
	c.enqueue(tx)
	c.record(tx, false)
	c.spareLogs = append(c.spareLogs, tx.log)
	if !tx.changed {
		return
	}
	c.store(tx.project, tx.State)
	c.publish()
}

// record passes on the changes of a transaction since the last call: to the disk, and to subscribers as events. continues reports whether
// the transaction makes more changes.
func (c *Cloud) record(tx *Tx, continues bool) {
	tx.changed = tx.changed || len(tx.log.Changes) > 0
	c.events.add(tx, continues)
	c.saver.saveCommitted(tx)
	tx.rrsets, tx.targets = tx.rrsets[:0], tx.targets[:0]
	tx.log.Clear()
}

func (c *Cloud) wakeWaiters() {
	if c.changed != nil {
		close(c.changed)
		c.changed = nil
	}
}
