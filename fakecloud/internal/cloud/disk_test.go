package cloud

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	testclock "k8s.io/utils/clock/testing"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/catalogue"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/fault"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/hypervisor"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/longtest"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/simclock"
)

// memoryDisk is a disk that can fail.
type memoryDisk struct {
	mu     sync.Mutex
	data   map[string][]byte
	fails  error
	writes int
	before func() // each write
}

func (d *memoryDisk) Read(yield func(key, value []byte) error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, k := range slices.Sorted(maps.Keys(d.data)) {
		if err := yield([]byte(k), d.data[k]); err != nil {
			return err
		}
	}
	return nil
}

func (d *memoryDisk) Room() error { return nil }

func (d *memoryDisk) Write(_ bool, change func(put func(key, value []byte) error, deleteAll func([]byte) error) error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.before != nil {
		d.before()
	}
	before := maps.Clone(d.data)
	if d.data == nil {
		d.data = map[string][]byte{}
	}
	d.writes++
	put := func(key, value []byte) error {
		if d.data[string(key)] = bytes.Clone(value); value == nil {
			delete(d.data, string(key))
		}
		return nil
	}
	err := change(put, func(prefix []byte) error {
		maps.DeleteFunc(d.data, func(k string, _ []byte) bool { return strings.HasPrefix(k, string(prefix)) })
		return nil
	})
	if err = errors.Join(err, d.fails); err != nil {
		d.data = before
	}
	return err
}

func (d *memoryDisk) Close() error { return nil }

// setFailure makes writes fail, or not any more.
func (d *memoryDisk) setFailure(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fails = err
}

// onDisk lets a cloud continue from a disk and keep its changes there.
func onDisk(t testing.TB, c *Cloud, d Disk) {
	t.Helper()
	s, err := c.ReadDisk(d)
	check(t, err)
	c.Restore(s)
}

// sameOnDisk fails if the cloud that continues from the disk does not have what this one has.
func sameOnDisk(t *testing.T, c *Cloud, d Disk) {
	t.Helper()
	c.settle() // a step of a scenario that is due makes a project
	check(t, c.syncOthers())
	f, _ := serverCloud(t, Options{Seed: 1})
	s, err := f.cloud.ReadDisk(d)
	check(t, err)
	s.disk = nil                          // the copy has none
	s.cloud.lastID.Store(c.lastID.Load()) // this one is not closed, and the other one leaves ids out: see savedMachine
	s.cloud.lastProject = c.lastProject
	f.cloud.Restore(s)
	f.cloud.clock.(*testclock.FakeClock).SetTime(s.Time)
	sameLines(t, sortedText(t, c), sortedText(t, f.cloud))
	f.cloud.Close()
}

// sortedText is a snapshot whose lines are sorted: timers of several projects at the same time have no order.
func sortedText(t *testing.T, c *Cloud) string {
	t.Helper()
	return strings.Join(slices.Sorted(strings.Lines(saveText(t, c))), "")
}

// cloudOperations change what is not a resource of a project.
func (m *model) cloudOperations() []func() {
	c := m.cloud
	some := func() Project { all := c.Projects(); return all[m.rnd.IntN(len(all))] }
	return []func(){
		func() { c.AddProject(m.name()) },
		func() {
			if p := some(); p.ID() != 1 {
				c.DropProject(p.ID())
			}
		},
		func() {
			if p := some(); p.ID() != 1 || m.rnd.IntN(10) == 0 {
				p.Reset()
			}
		},
		func() {
			if m.rnd.IntN(20) == 0 {
				c.Reset()
			}
		},
		func() { _, _, _ = some().CreateServer(smallServer(m.name())) },
		func() { _, _, _ = some().CreateServer(smallServer(m.name())) },
		func() {
			c.AddToken(fmt.Sprint("token-", m.rnd.IntN(5)), Token{Project: some().ID(), ReadOnly: m.coin()})
		},
		func() { c.RevokeToken(fmt.Sprint("token-", m.rnd.IntN(5))) },
		func() { _ = some().SetLimits(Limits{KindServer: 100 + m.rnd.IntN(3)}) },
		func() { _ = c.OfferServerType("big", "fsn1", catalogue.Offer{Available: new(m.coin())}) },
		func() { _ = c.AddServerType(catalogue.NewServerType{Name: "huge", CopyOf: "big"}) },
		func() { c.ResetCatalogue() },
		func() {
			for s := range m.View().Servers.All() {
				_ = c.ReportServerUsage(s.ID, hypervisor.Usage{CPU: 5})
			}
		},
		func() { c.ResumeActions() },
		func() {
			_, _ = c.StartScenario(Scenario{Name: m.name(), Changes: []Change{
				{Until: fault.Duration(time.Second), Limit: &LimitChange{Project: 1, Kind: KindServer, Most: 90 + m.rnd.IntN(3)}},
				{At: fault.Duration(time.Second), Tokens: &TokenChange{Project: 1, ReadOnly: m.coin(), AnotherProject: true}},
				{Offer: &OfferChange{ServerType: "big", Available: new(m.coin())}},
			}})
		},
		func() {
			for _, s := range c.Scenarios() {
				if m.coin() {
					c.EndScenario(s.ID)
				}
			}
		},
	}
}

// TestTheDiskHasTheWholeCloud runs random histories and compares what is on the disk with the cloud.
func TestTheDiskHasTheWholeCloud(t *testing.T) {
	t.Parallel()
	for _, seed := range longtest.Share(t, 6, 1) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			p, clk := serverCloud(t, Options{Seed: 1})
			d := &memoryDisk{}
			onDisk(t, p.cloud, d)
			var sub *Subscription
			if seed%2 == 0 { // the jobs of a batch are saved one by one then
				sub, _ = p.cloud.Subscribe()
				defer sub.Close()
			}
			testNetwork(t, p, "one", "10.0.0.0/24")
			m := &model{Project: p, clk: clk, rnd: rand.New(rand.NewPCG(seed, 1))}
			for range 10 {
				run(m, m.rnd.Uint64(), 20, nil)
				targets := slices.Concat(m.operations(), (&firewallModel{m, 10}).operations(), []func(){m.reportHealth, m.reportHealth})
				for range 100 {
					targets[m.rnd.IntN(len(targets))]()
				}
				sameOnDisk(t, p.cloud, d)
				namesServers(t, sub)
				others := m.cloudOperations()
				for range 10 {
					others[m.rnd.IntN(len(others))]()
					_, _, _ = p.WithOutcome(&ActionOutcome{Hang: true}).RebootServer(m.server())
					clk.Step(time.Second / 2)
				}
				sameOnDisk(t, p.cloud, d)
				namesServers(t, sub)
			}
		})
	}
}

// reportHealth reports the targets of a load balancer as a data plane does.
func (m *model) reportHealth() {
	lb, ok := m.View().LoadBalancers.Get(m.lb())
	if !ok {
		return
	}
	for t := range lb.Backends() {
		for _, h := range t.Health {
			m.project().ReportTargetHealth(lb.ID, []HealthReport{{
				Server: t.Server, Addr: t.IP, ListenPort: h.ListenPort, Status: []string{HealthHealthy, HealthUnhealthy}[m.rnd.IntN(2)],
			}})
		}
	}
}

// namesServers fails if an event of a load balancer or firewall does not name a server whose targets changed.
func namesServers(t *testing.T, sub *Subscription) {
	t.Helper()
	if sub == nil {
		return
	}
	events, err := sub.NextAll(t.Context())
	check(t, err)
	for _, e := range events {
		for server := range e.State.Servers.All() {
			id := server.ID
			var was, is string
			switch now := e.New.(type) {
			case *LoadBalancer:
				before, _ := e.Old.(*LoadBalancer)
				was, is = selectedText(before, id), selectedText(now, id)
			case *Firewall:
				before, _ := e.Old.(*Firewall)
				was, is = firewallText(before, id), firewallText(now, id)
			}
			if was != is && e.Type == EventUpdated && !slices.Contains(e.Servers, id) {
				t.Errorf("the event of the %s %d names %v; server %d was %q and is %q", e.Kind, e.ID, e.Servers, id, was, is)
			}
		}
	}
}

func selectedText(lb *LoadBalancer, server int64) (text string) {
	if lb != nil {
		for selector, t := range lb.SelectedAs(server) {
			text += fmt.Sprintln(selector, t.IP, t.Health)
		}
	}
	return text
}

func firewallText(f *Firewall, server int64) (text string) {
	if f != nil {
		for _, t := range f.TargetsOf(server) {
			text += fmt.Sprintln(t.Server, t.Selector, t.selects(server))
		}
	}
	return text
}

// TestASnapshotReplacesWhatIsOnTheDisk shows that nothing of before is left.
func TestASnapshotReplacesWhatIsOnTheDisk(t *testing.T) {
	text := saveText(t, busyCloud(t))
	p, clk := serverCloud(t, Options{Seed: 1})
	d := &memoryDisk{}
	onDisk(t, p.cloud, d)
	mustCreate(t, p, smallServer("gone"))
	s, err := p.cloud.ReadSnapshot(strings.NewReader(text))
	check(t, err)
	p.cloud.Restore(s)
	clk.SetTime(s.Time)
	sameOnDisk(t, p.cloud, d)
	sameLines(t, text, saveText(t, p.cloud))
}

// TestAWriteIsOnTheDiskWhenItIsAnswered looks at the disk after each write, without waiting for anything.
func TestAWriteIsOnTheDiskWhenItIsAnswered(t *testing.T) {
	p, _ := serverCloud(t, Options{Seed: 1})
	d := &memoryDisk{}
	onDisk(t, p.cloud, d)
	for i := range 20 {
		s := mustCreate(t, p, smallServer(fmt.Sprint("s", i))).Server
		key := entryKey{kind: string(KindServer), project: 1, id: s.ID}
		if _, ok := d.data[string(key.bytes())]; !ok {
			t.Fatalf("server %d is not on the disk", i)
		}
	}
}

// TestNobodySeesWhatIsNotSaved compares readers and a subscriber with the disk, before each write of it.
func TestNobodySeesWhatIsNotSaved(t *testing.T) {
	t.Parallel()
	p, clk := serverCloud(t, Options{Seed: 1})
	d := &memoryDisk{}
	onDisk(t, p.cloud, d)
	sub, _ := p.cloud.Subscribe()
	defer sub.Close()
	seen, told := 0, map[entryKey]bool{}
	d.before = func() {
		for _, p := range p.cloud.Projects() {
			p.View().entries(p.ID(), func(e entry) {
				if seen++; !bytes.Equal(d.data[string(e.bytes())], e.encode()) {
					t.Errorf("%v is seen, and not saved", e.entryKey)
				}
			})
		}
		for events, _, _ := sub.poll(100); len(events) > 0; events, _, _ = sub.poll(100) {
			for _, e := range events {
				told[entryKey{kind: string(e.Kind), project: e.Project, id: e.ID}] = e.New != nil
			}
		}
		for key, exists := range told {
			if _, ok := d.data[string(key.bytes())]; ok != exists {
				t.Errorf("an event was about %v, and its change is not saved", key)
			}
		}
	}
	testNetwork(t, p, "one", "10.0.0.0/24")
	m := &model{Project: p, clk: clk, rnd: rand.New(rand.NewPCG(1, 1))}
	others := m.cloudOperations()
	for range 20 {
		run(m, m.rnd.Uint64(), 10, nil)
		others[m.rnd.IntN(len(others))]()
		clk.Step(time.Second / 2)
	}
	check(t, p.cloud.Sync())
	d.mu.Lock()
	d.before = nil // the subscription ends before the cloud does
	d.mu.Unlock()
	if seen == 0 || len(told) == 0 {
		t.Errorf("%d entries were seen, and %d events: the test shows nothing", seen, len(told))
	}
}

// TestNothingIsGivenOutTwice continues from what a failure of the machine may have left of a disk, and from the end of the process.
func TestNothingIsGivenOutTwice(t *testing.T) {
	t.Parallel()
	start := time.Now().UTC()
	open := func(data map[string][]byte) (*Cloud, *memoryDisk) {
		d := &memoryDisk{data: maps.Clone(data)}
		c := New(Options{Clock: simclock.NewAt(start, 1000), Catalogue: serverCatalogue()})
		t.Cleanup(c.Close)
		onDisk(t, c, d)
		check(t, c.Sync())
		return c, d
	}
	saved := func(d *memoryDisk) map[string][]byte {
		d.mu.Lock()
		defer d.mu.Unlock()
		return maps.Clone(d.data)
	}
	c, d := open(nil)
	old := saved(d)
	p, _ := c.Project(1)
	last, project := mustCreate(t, p, smallServer("one")).Server.ID, c.AddProject("two").ID()
	step := 1000 * time.Hour
	check(t, c.AllowTime(c.Now().Add(step+TimeAhead(1000)))) // as the control API does
	killed := saved(d)
	check(t, c.clock.(*simclock.Clock).Step(step))
	now := c.Now()
	for _, data := range []map[string][]byte{old, killed} {
		f, _ := open(data)
		p, _ := f.Project(1)
		if id := mustCreate(t, p, smallServer("other")).Server.ID; id <= last {
			t.Errorf("id %d is given out after %d", id, last)
		}
		if id := f.AddProject("other").ID(); id <= project {
			t.Errorf("project %d is made after %d", id, project)
		}
	}
	if f, _ := open(killed); f.Now().Before(now) {
		t.Errorf("the time goes back from %v to %v", now, f.Now())
	}
	c.Close()
	if f, _ := open(saved(d)); f.lastID.Load() > last+idsAhead/2 {
		t.Errorf("id %d was given out, and the cloud continues with %d although it was closed", last, f.lastID.Load())
	}
}

// TestWritesShareATransactionOfTheDisk shows that clients which write at the same time do not wait for one after the other.
func TestWritesShareATransactionOfTheDisk(t *testing.T) {
	p, _ := serverCloud(t, Options{Seed: 1})
	d := &memoryDisk{}
	onDisk(t, p.cloud, d)
	check(t, p.cloud.Sync())
	d.mu.Lock() // the first write of the disk waits here, and the others come together meanwhile
	before := d.writes
	const clients = 50
	var all sync.WaitGroup
	for i := range clients {
		all.Go(func() { mustCreate(t, p, smallServer(fmt.Sprint("s", i))) })
	}
	for p.data.state.Load().Servers.Len() < clients {
		time.Sleep(time.Millisecond)
	}
	d.mu.Unlock()
	all.Wait()
	if n := d.writes - before; n > 3 {
		t.Errorf("%d writes of %d clients took %d transactions, want at most 3", clients, clients, n)
	}
}

// TestADiskThatFails shows that writes are refused as long as they cannot be saved, and that nothing is lost afterwards.
func TestADiskThatFails(t *testing.T) {
	p, _ := serverCloud(t, Options{Seed: 1})
	d := &memoryDisk{}
	told := make(chan error, 10)
	p.cloud.OnDiskError(func(err error) { told <- err })
	onDisk(t, p.cloud, d)
	mustCreate(t, p, smallServer("before"))
	d.setFailure(errors.New("no space left on device"))
	for i := range 3 {
		_, _, err := p.CreateServer(smallServer(fmt.Sprint("during-", i)))
		const says = "no space left on device; make room"
		if e, ok := errors.AsType[*Error](err); !ok || e.Status != 500 || !strings.Contains(e.Message, says) {
			t.Errorf("got %v, want an error that says what to do", err)
		}
	}
	if n := p.View().Servers.Len(); n > 2 {
		t.Errorf("%d servers: writes began although the one before was not saved", n)
	}
	if err := <-told; err == nil {
		t.Error("OnDiskError was told that all is well")
	}
	d.setFailure(nil)
	if err := <-told; err != nil {
		t.Errorf("OnDiskError was told %v, want nil", err)
	}
	mustCreate(t, p, smallServer("after"))
	sameOnDisk(t, p.cloud, d)
}

// TestACloudThatIsClosedSavesNothing shows that a caller does not wait forever if the cloud was closed before it waits for the disk.
func TestACloudThatIsClosedSavesNothing(t *testing.T) {
	p, _ := serverCloud(t, Options{Seed: 1})
	onDisk(t, p.cloud, &memoryDisk{})
	p.cloud.Close()
	if err := errors.Join(p.cloud.syncOthers(), p.cloud.Sync()); err != nil {
		t.Error(err)
	}
}

// TestTheTimeGoesOnWithoutTheProgram shows the time of a cloud that was off for an hour, and when its work is due.
func TestTheTimeGoesOnWithoutTheProgram(t *testing.T) {
	start := time.Now().Add(-24 * time.Hour).UTC().Round(time.Second)
	for name, test := range map[string]struct {
		speed float64
		want  time.Duration
	}{"it runs": {1, time.Hour}, "it stands still": {0, 0}} {
		t.Run(name, func(t *testing.T) {
			d := &memoryDisk{}
			c := New(Options{Clock: simclock.NewAt(start, test.speed), Profile: ProfileFixed(2 * time.Hour), Catalogue: serverCatalogue()})
			onDisk(t, c, d)
			p, _ := c.Project(1)
			action := mustCreate(t, p, smallServer("one")).Action
			c.Close()
			key := entryKey{kind: lineMachine}
			machine := entry{key, savedMachine{Time: time.Now().Add(-time.Hour), Stopped: test.speed == 0}}
			d.data[string(key.bytes())] = machine.encode()
			c = New(Options{Clock: simclock.NewAt(start, test.speed), Catalogue: serverCatalogue()})
			defer c.Close()
			onDisk(t, c, d)
			if off := c.Now().Sub(start).Round(time.Minute); off != test.want {
				t.Errorf("%v have passed, want %v", off, test.want)
			}
			p, _ = c.Project(1)
			check(t, c.clock.(*simclock.Clock).Step(2*time.Hour-test.want-time.Minute))
			c.Settle()
			if got, _ := p.View().Actions.Get(action); got.Status != ActionRunning {
				t.Errorf("the action ended too early: %+v", got)
			}
			check(t, c.clock.(*simclock.Clock).Step(2*time.Minute))
			c.Settle()
			if got, _ := p.View().Actions.Get(action); got.Status != ActionSuccess {
				t.Errorf("the action has not ended: %+v", got)
			}
		})
	}
}

// TestADiskOfTheVersionBefore puts the servers of a firewall into its line, as that version did, and ends the process after one changed.
func TestADiskOfTheVersionBefore(t *testing.T) {
	t.Parallel()
	p, _ := serverCloud(t, Options{Profile: ProfileInstant})
	d := &memoryDisk{}
	onDisk(t, p.cloud, d)
	ids := labelledServers(t, p, 3, "role", "web")
	f, _, _, err := p.CreateFirewall(CreateFirewall{Name: "f", ApplyTo: []FirewallTarget{{Selector: "role=web"}}})
	check(t, err)
	p.cloud.Close()
	firewall, target := entryKey{kind: string(KindFirewall), project: 1, id: f.ID}, entryKey{kind: lineTarget, project: 1, id: f.ID}
	maps.DeleteFunc(d.data, func(k string, _ []byte) bool { return strings.HasPrefix(k, string(target.bytes())) })
	f, _ = p.View().Firewalls.Get(f.ID)
	saved := saveFirewall(f)
	saved.Targets[0].Selected = ids
	d.data[string(firewall.bytes())] = (&entry{entryKey{}, saved}).encode()
	p, _ = serverCloud(t, Options{Profile: ProfileInstant})
	onDisk(t, p.cloud, d)
	_, err = p.UpdateServer(ids[0], UpdateResource{Labels: map[string]string{}})
	check(t, err)
	sameOnDisk(t, p.cloud, d)
}
