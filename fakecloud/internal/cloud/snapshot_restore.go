package cloud

import (
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/hypervisor"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/simclock"
)

// Restore replaces the contents of the cloud by those of a snapshot from [Cloud.ReadSnapshot]. A snapshot can be restored once. Projects,
// tokens, resources and actions that are not in the snapshot are gone. Subscribers get an event for each resource that goes and each that
// comes. Hypervisors are detached: they attach again and get the new guests. The clock shows the time of the snapshot, unless it is one of
// the options. If the snapshot was read from a disk, all later changes are saved to this disk.
func (c *Cloud) Restore(s *Snapshot) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.cloud != nil {
		c.replace(s)
	}
	switch {
	case s.disk == nil:
		c.saver.replaceAll()
	case s.cloud == nil, s.earlier:
		c.saveTo(s.disk)
		c.saver.replaceAll()
	default:
		c.saveTo(s.disk)
		c.saver.saveQueue(c.queue)
		c.saver.removeAll(kindPrefix(LineFault)) // they have other ids now
	}
}

// replace is Restore without the disk.
func (c *Cloud) replace(s *Snapshot) {
	f := s.cloud
	for _, h := range c.hypervisors {
		if h.session != nil {
			h.session.finish(hypervisor.ErrDetached)
		}
	}
	c.hypervisors = nil
	if clk, ok := c.clock.(*simclock.Clock); ok {
		clk.Set(s.Time)
	}
	c.catalogue, c.ca, c.passwords, c.lastLabels, c.ips, c.lbIPs = f.catalogue, f.ca, f.passwords, f.lastLabels, f.ips, f.lbIPs
	c.jobSeq, c.queue, c.finished, c.waiting, c.backlog, c.voidJobs = f.jobSeq, f.queue, f.finished, f.waiting, false, 0
	c.auto.count = f.auto.count
	c.scenarios, c.lastScenario, c.takenSeq, c.taken = f.scenarios, max(c.lastScenario, f.lastScenario), f.takenSeq, nil
	c.lastProject = max(c.lastProject, f.lastProject) // no id is given out twice
	c.lastID.Store(max(c.lastID.Load(), f.lastID.Load()))
	c.countsTraffic.Store(f.countsTraffic.Load())
	f.loadBalancerStats.copyTo(&c.loadBalancerStats)
	f.serverUsage.copyTo(&c.serverUsage)
	f.serverTraffic.copyTo(&c.serverTraffic)
	c.restoreProjects(f)
	c.publish()
	c.rearm()
	select {
	case c.wake <- struct{}{}: // the clock has changed
	default:
	}
}

// restoreProjects takes over the projects of a cloud that does not run, and their tokens. A project that both have stays the same one,
// for the sake of requests that are under way.
func (c *Cloud) restoreProjects(f *Cloud) {
	all, same := newProjects(), map[*projectData]*projectData{}
	gone := map[*projectData]*State{}
	for d := range c.projects.Load().Scan {
		gone[d] = d.state.Load()
	}
	before := c.projects.Load()
	for d := range f.projects.Load().Scan {
		same[d] = d
		if old, ok := c.Project(d.id); ok && old.data.name == d.name && old.data.auto == d.auto {
			same[d] = old.data
			c.store(old.data, d.state.Load())
			old.data.tokens, old.data.jobs, old.data.epoch = d.tokens, d.jobs, d.epoch
			old.data.lastUse.Store(d.lastUse.Load())
		}
		c.saver.hold(same[d], c.emptyState(c.limits)) // unless it was there
		all.Set(same[d])
	}
	for i := range c.queue {
		c.queue[i].project = same[c.queue[i].project]
	}
	for _, t := range c.waiting {
		t.project = same[t.project]
	}
	c.projects.Store(&all)
	f.tokens.Range(func(text, t any) bool { // before the others go, so that a token that both have is always valid
		valid := t.(*validToken)
		c.tokens.Store(text.(string), &validToken{valid.Token, same[valid.project]})
		return true
	})
	c.tokens.Range(func(text, _ any) bool {
		if f.token(text.(string)) == nil {
			c.tokens.Delete(text.(string))
		}
		return true
	})
	for d := range before.Scan {
		c.publishAll(d, gone[d], newState(c.catalogue, gone[d].Limits), c.Now(), false)
		if stays, _ := all.Get(d); stays != d {
			d.lastUse.Store(dropped)
		}
	}
	for d := range all.Scan {
		c.publishAll(d, d.state.Load(), d.state.Load(), c.Now(), true)
	}
}
