package cloud

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"k8s.io/utils/clock"
)

// Fork returns a copy of the cloud with the clock clk. That clock should show the same time. The copy has all projects with their
// resources, tokens and limits, the catalogue, scenarios, the running actions, all other future work, and the reports about traffic and
// usage. Changes of one of the two clouds do not affect the other. The cost depends on the number of projects and the amount of future
// work, not on the number of resources.
//
// Not copied: subscriptions and hypervisors. An action that waits for a hypervisor waits for one of the copy until its deadline.
func (c *Cloud) Fork(clk clock.WithTicker) *Cloud {
	f := c.copy(clk)
	f.rearm()
	go f.runner()
	return f
}

// copy is Fork without the goroutine: the copy does nothing by itself.
func (c *Cloud) copy(clk clock.WithTicker) *Cloud {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.copyLocked(clk)
}

// copyLocked is copy for a caller that holds Cloud.mu.
func (c *Cloud) copyLocked(clk clock.WithTicker) *Cloud {
	f := c.sibling(clk)
	f.catalogue, f.jobSeq, f.backlog, f.lastLabels, f.passwords = c.catalogue, c.jobSeq, c.backlog, c.lastLabels, c.passwords
	f.lastID.Store(c.lastID.Load())
	f.countsTraffic.Store(c.countsTraffic.Load())
	c.loadBalancerStats.copyTo(&f.loadBalancerStats)
	c.serverUsage.copyTo(&f.serverUsage)
	c.serverTraffic.copyTo(&f.serverTraffic)

	projects := c.forkProjects(f)
	c.sweep()
	for _, j := range c.queue {
		if j.project != nil { // else it is about a hypervisor or a scenario
			j.project = projects[j.project.id]
			f.push(j)
		}
	}
	c.copyScenarios(f)
	f.rescheduleScenarios()
	f.finished = slices.Clip(c.finished) // each appends to an array of its own
	f.findTasks()
	return f
}

// findTasks makes the tasks of the original cloud's hypervisors again, from their deadlines. The tasks are lost until a hypervisor attaches
// and gets them.
func (c *Cloud) findTasks() {
	lost := &attachment{tasks: map[int64]*task{}}
	for _, j := range c.queue {
		d, ok := j.timer.(taskDeadline)
		if !ok {
			continue
		}
		if a, ok := j.project.state.Load().Actions.Get(d.Action); ok && a.plan != nil && a.plan.Guest != nil {
			t := &task{hypervisor: lost, project: j.project, action: a.ID, server: a.plan.Guest.Server, deadline: j.due}
			lost.tasks[t.action] = t
			c.waiting = append(c.waiting, t)
		}
	}
	slices.SortFunc(c.waiting, func(a, b *task) int { return cmp.Compare(a.action, b.action) })
}

// sibling returns a cloud of the same options that has no projects yet, but the same addresses in use. It does nothing by itself. The
// caller holds Cloud.mu.
func (c *Cloud) sibling(clk clock.WithTicker) *Cloud {
	f := &Cloud{
		clock: clk, stepped: stepped(clk), offered: c.offered, catalogue: c.offered, limits: c.limits, seed: c.seed, ca: c.ca,
		keepActions: c.keepActions, maxFinished: c.maxFinished, healthRule: c.healthRule, dedicated: c.dedicated,
		private: c.private, lastLabels: noLabels, auto: c.auto,
		events: eventHub{last: newEventBatch()}, wake: make(chan struct{}, 1), closed: make(chan struct{}),
	}
	f.auto.started, f.auto.count = time.Now(), 0
	f.durations.Store(c.durations.Load())
	f.projects.Store(new(newProjects()))
	f.nextDue.Store(noJob)
	f.ips, f.lbIPs = forkPools(c.ips, c.lbIPs)
	return f
}

// forkProjects copies the projects and their tokens to a fork, and returns the copies. They count as used right now.
func (c *Cloud) forkProjects(f *Cloud) map[int64]*projectData {
	f.auto.count, f.lastProject = c.auto.count, c.lastProject
	f.revoked = slices.Clip(c.revoked) // each appends to an array of its own
	copies, all := map[int64]*projectData{}, newProjects()
	for d := range c.projects.Load().Scan {
		copied := &projectData{id: d.id, name: d.name, auto: d.auto, tokens: maps.Clone(d.tokens)}
		copied.state.Store(d.state.Load())
		copies[d.id] = copied
		all.Set(copied)
	}
	f.projects.Store(&all)
	c.tokens.Range(func(text, t any) bool {
		valid := *t.(*validToken)
		if valid.project != nil {
			valid.project = copies[valid.Project]
		}
		f.tokens.Store(text.(string), &valid)
		return true
	})
	return copies
}

// forkPools copies the pools of public addresses. The two may share a part or be the same.
func forkPools(servers, balancers *addressPool) (*addressPool, *addressPool) {
	s := &addressPool{servers.v4.fork(), servers.v6.fork()}
	if balancers == servers {
		return s, s
	}
	return s, &addressPool{balancers.v4.fork(), s.v6}
}
