package cloud

import (
	"maps"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/store"
)

// projectData is the data of one project.
type projectData struct {
	id    int64
	name  string
	auto  bool // it was made for an unknown token: see autoProjects
	state atomic.Pointer[State]
	held  atomic.Pointer[State] // what readers see instead, as long as state is not saved; else nil
	// lastUse is when the last request of an automatic project came, see Cloud.uptime; dropped for a project that was dropped.
	lastUse atomic.Int64

	// Cloud.mu guards these.
	tokens map[string]struct{} // the valid ones
	jobs   int                 // in the queue, without void ones
	epoch  uint32              // how often the project was emptied
}

// dropped is the lastUse of a project that was dropped. Requests under way may still have it.
const dropped = -1

// Project is a handle on one project of a cloud.
type Project struct {
	cloud   *Cloud
	data    *projectData
	outcome *ActionOutcome
}

// FirstProject is the id of the project that every cloud begins with.
const FirstProject int64 = 1

func newProjects() store.Ascending[*projectData] {
	return store.NewAscending(func(a, b *projectData) bool { return a.id < b.id })
}

// AddProject creates a project and returns it.
func (c *Cloud) AddProject(name string) Project {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.addProject(&projectData{name: name})
}

// addProject adds a project and sets its id. It never uses an id again. The caller holds Cloud.mu.
func (c *Cloud) addProject(d *projectData) Project {
	c.lastProject++
	d.id, d.tokens = c.lastProject, map[string]struct{}{}
	d.state.Store(c.emptyState(c.limits))
	c.changeProjects(func(all *store.Ascending[*projectData]) { all.Set(d) })
	if c.saver != nil {
		c.saver.put(c.projectEntry(d))
	}
	return Project{cloud: c, data: d}
}

func (c *Cloud) changeProjects(change func(*store.Ascending[*projectData])) {
	next := *c.projects.Load()
	next.Share()
	change(&next)
	c.projects.Store(&next)
}

// emptyState returns the state of a project that owns nothing. All such projects with the limits of Options share it, so that they need
// little memory.
func (c *Cloud) emptyState(l Limits) *State {
	if !maps.Equal(l, c.limits) {
		return newState(c.catalogue, l)
	}
	if c.empty == nil || c.empty.Catalogue != c.catalogue {
		c.empty = newState(c.catalogue, c.limits)
	}
	return c.empty
}

// Project returns the project with this id.
func (c *Cloud) Project(id int64) (Project, bool) {
	d, ok := c.projects.Load().Get(&projectData{id: id})
	return Project{cloud: c, data: d}, ok
}

// Projects returns all projects by ascending id.
func (c *Cloud) Projects() []Project {
	all := c.projects.Load()
	out := make([]Project, 0, all.Len())
	for d := range all.Scan {
		out = append(out, Project{cloud: c, data: d})
	}
	return out
}

// Reset removes all resources and actions of all projects, and all scheduled work. Projects, tokens, limits and
// the catalogue stay, ids are not used again.
func (c *Cloud) Reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.queue, c.finished, c.backlog = nil, nil, false
	c.nextDue.Store(noJob)
	for d := range c.projects.Load().Scan {
		c.emptyProject(d, c.Now())
	}
	c.voidJobs = 0
	c.rescheduleDetaches()
	c.rescheduleScenarios()
	c.ips.reset()
	c.lbIPs.reset()
	c.loadBalancerStats.reset()
	c.serverUsage.reset()
	c.serverTraffic.reset()
	c.publish()
}

// Reset removes the project's resources and actions, and its scheduled work. Its tokens stay, ids are not used again. Its cost
// depends on what the project owns, not on other projects.
func (p Project) Reset() {
	c := p.cloud
	c.mu.Lock()
	defer c.mu.Unlock()
	c.clear(p.data, c.catchUp())
}

// DropProject removes a project, its tokens and all that it owns. Other requests of its tokens that are under way find nothing, and
// cannot write. It returns false if the project does not exist.
func (c *Cloud) DropProject(id int64) bool {
	p, ok := c.Project(id)
	return ok && c.drop(p.data, func() bool { return p.data.lastUse.Swap(dropped) != dropped })
}

// drop removes a project if condemn returns true. condemn then sets the project's lastUse.
func (c *Cloud) drop(d *projectData, condemn func() bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.catchUp()
	if !condemn() {
		return false
	}
	c.remove(d, now)
	return true
}

// remove removes a project that counts as dropped already. The caller holds Cloud.mu.
func (c *Cloud) remove(d *projectData, now time.Time) {
	if d.auto {
		c.auto.count--
	}
	for text := range d.tokens {
		c.tokens.Delete(text)
	}
	c.changeProjects(func(all *store.Ascending[*projectData]) { all.Delete(d) })
	c.clear(d, now)
	c.saver.removeAll(prefix(lineToken, d.id))
	c.saver.remove(entryKey{kind: lineProject, id: d.id})
	if c.onDrop != nil {
		c.onDrop(d.id)
	}
}

// OnDrop sets a function that is called for each project that is dropped. It must not call the cloud.
func (c *Cloud) OnDrop(f func(project int64)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.onDrop = f
}

// clear empties one project. The caller holds Cloud.mu.
func (c *Cloud) clear(d *projectData, now time.Time) {
	st := d.state.Load()
	c.emptyProject(d, now)
	c.release(st)
	c.skipVoid()
	c.rearm()
	c.publish()
}

// emptyProject removes all resources of a project. It leaves the public addresses to release. Its jobs in the queue are void from then on.
func (c *Cloud) emptyProject(d *projectData, now time.Time) {
	before := d.state.Load()
	c.forgetGuests(d, before)
	c.voidJobs += d.jobs
	d.jobs = 0
	d.epoch++
	c.store(d, c.emptyState(before.Limits))
	c.saver.saveEmptied(d)
	c.publishAll(d, before, d.state.Load(), now, false)
}

// publishAll publishes the creation, or the deletion, of all resources of a state. The events show the state after it.
func (c *Cloud) publishAll(d *projectData, of, after *State, now time.Time, created bool) {
	if c.events.subscribers == 0 { // to visit all resources takes seconds if there are many
		return
	}
	tx := &Tx{State: after, project: d, now: now, log: &store.ChangeLog{}}
	for _, t := range of.tables() {
		t.RecordAll(tx.log, created)
	}
	c.events.add(tx, false)
	c.publish()
}

// release gives the public addresses of a state back to their pools, and forgets the reports about its resources.
func (c *Cloud) release(st *State) {
	for ip := range st.PrimaryIPs.All() {
		c.giveBack(ip.IP.Addr())
	}
	for f := range st.FloatingIPs.All() {
		c.giveBack(f.IP.Addr())
	}
	for lb := range st.LoadBalancers.All() {
		for _, a := range lb.ownAddresses() {
			c.giveBack(a)
		}
		c.loadBalancerStats.forget(lb.ID)
	}
	for s := range st.Servers.All() {
		c.serverUsage.forget(s.ID)
		c.serverTraffic.forget(s.ID)
	}
}

// ID returns the project's id.
func (p Project) ID() int64 { return p.data.id }

// Name returns the project's name.
func (p Project) Name() string { return p.data.name }

// Auto reports whether the project was made for an unknown token: see [Cloud.Enter].
func (p Project) Auto() bool { return p.data.auto }

// Cloud returns the cloud that the project is in.
func (p Project) Cloud() *Cloud { return p.cloud }

// Empty returns a handle, for reading only, on a project of the same id that owns nothing. Fault rules use it.
func (p Project) Empty() Project {
	now := p.View()
	p.data = &projectData{id: p.data.id, name: p.data.name, auto: p.data.auto}
	p.data.state.Store(newState(now.Catalogue, now.Limits))
	p.data.lastUse.Store(dropped)
	return p
}

// WithoutServer returns a handle, for reading only, on a project that lacks a server, by name or id. Other resources show it. Fault
// rules use it.
func (p Project) WithoutServer(idOrName string) Project {
	st := *p.View()
	s, ok := st.Servers.ByName(idOrName)
	if id, err := strconv.ParseInt(idOrName, 10, 64); !ok && err == nil {
		s, ok = st.Servers.Get(id)
	}
	if !ok {
		return p
	}
	st.Servers.Begin(&store.ChangeLog{})
	st.Servers.Delete(s.ID)
	st.Servers.Publish()
	p.data = &projectData{id: p.data.id, name: p.data.name, auto: p.data.auto}
	p.data.state.Store(&st)
	p.data.lastUse.Store(dropped)
	return p
}

// WithOutcome returns a handle on the same project. The actions that it starts end as o says.
func (p Project) WithOutcome(o *ActionOutcome) Project {
	p.outcome = o
	return p
}
