package cloud

import (
	"cmp"
	"fmt"
	"time"
)

// DefaultProjectTTL is how long an automatic project lives without a request, unless Options say otherwise.
const DefaultProjectTTL = time.Hour

// maxAutoProjects is how many automatic projects there are at a time. The limit is our own: a client that sends random tokens does
// not fill the memory.
const maxAutoProjects = 100_000

// autoProjects are the projects that are made for unknown tokens, and dropped when they are not used.
type autoProjects struct {
	on      bool
	ttl     time.Duration
	started time.Time
	max     int
	count   int // guarded by Cloud.mu
}

func (a *autoProjects) begin(o Options) {
	*a = autoProjects{on: o.AutoProjects, ttl: cmp.Or(o.ProjectTTL, DefaultProjectTTL), started: time.Now(), max: maxAutoProjects}
}

// uptime is the time since the start of the cloud, in nanoseconds of the machine's time: how long a project is kept is a matter of
// memory, not of the cloud's behaviour. Steps of the machine's clock do not change it.
func (a *autoProjects) uptime() int64 { return int64(time.Since(a.started)) }

// use notes that a request uses a project. It returns false if the project was dropped.
func (c *Cloud) use(d *projectData) bool {
	if !d.auto {
		return d.lastUse.Load() != dropped
	}
	now := c.auto.uptime()
	for {
		last := d.lastUse.Load()
		if last == dropped {
			return false
		}
		if last >= now || d.lastUse.CompareAndSwap(last, now) {
			return true
		}
	}
}

// enterUnknown is Enter for a token that was not valid before the caller had Cloud.mu.
func (c *Cloud) enterUnknown(text string) (*validToken, error) {
	if !c.auto.on || CheckToken(text) != nil {
		return nil, errInvalidToken()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if t := c.token(text); t != nil {
		if t.project == nil || !c.use(t.project) {
			return nil, errInvalidToken()
		}
		return t, nil
	}
	if c.auto.count >= c.auto.max {
		return nil, ErrLimitExceeded("project_limit", fmt.Sprintf(
			"%d projects were made for unknown tokens; drop some with the control API, or use fewer tokens", c.auto.count))
	}
	c.auto.count++
	d := &projectData{name: fmt.Sprintf("auto-%d", c.lastProject+1), auto: true}
	d.lastUse.Store(c.auto.uptime())
	c.addProject(d)
	return c.addToken(text, Token{Project: d.id}, d), nil
}

// reap drops the automatic projects that had no request for too long. It drops each in a separate write, so that others do not wait for all
// of them. A project that gets a request meanwhile stays.
func (c *Cloud) reap() {
	for d := range c.projects.Load().Scan {
		last := d.lastUse.Load()
		if d.auto && c.auto.uptime()-last >= int64(c.auto.ttl) {
			c.drop(d, func() bool { return last != dropped && d.lastUse.CompareAndSwap(last, dropped) })
		}
	}
}

// reapTimes tells the runner when to call reap. It is silent without automatic projects.
func (a *autoProjects) reapTimes() (times <-chan time.Time, stop func()) {
	if !a.on {
		return nil, func() {}
	}
	t := time.NewTicker(max(a.ttl/10, time.Millisecond))
	return t.C, t.Stop
}
