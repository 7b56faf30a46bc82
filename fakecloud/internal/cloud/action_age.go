package cloud

import "time"

// DefaultKeepActions is how long finished actions are kept at least, unless Options say otherwise. How long the real API keeps them
// is not known: neither its document nor its changelog says so.
const DefaultKeepActions = 30 * 24 * time.Hour

// maxFinished is how many finished actions all projects together keep at most. The time alone would not bound the memory: a
// thousand actions a second are 2.6 billion in 30 days.
const maxFinished = 100_000

// maxKeepActions is small enough that times do not overflow.
const maxKeepActions = 100 * 365 * 24 * time.Hour

// forgetBatch is how many actions one transaction forgets at most.
const forgetBatch = 250

// finishedAction is an action that is over but not yet forgotten.
type finishedAction struct {
	project int64
	id      int64
	at      time.Time
}

// forgetDue returns when the oldest finished action is to be forgotten, and reports whether there is one. It is a hundredth of
// keepActions later than needed, so that one transaction forgets many.
func (c *Cloud) forgetDue() (time.Time, bool) {
	f, keep := c.finished, c.keepActions
	switch {
	case len(f) == 0:
		return time.Time{}, false
	case len(f) >= c.maxFinished+forgetBatch:
		return f[0].at, true
	}
	return f[0].at.Add(keep + keep/100), true
}

// forgets reports whether actions are to be forgotten by now, before the next job.
func (c *Cloud) forgets(now time.Time) bool {
	at, ok := c.forgetDue()
	return ok && !at.After(now) && (len(c.queue) == 0 || !at.After(c.queue[0].due))
}

// forgetActions forgets the oldest finished actions of one project, and returns their number. Each is an event, because a
// subscriber may keep a copy of the state.
func (c *Cloud) forgetActions(now time.Time) (n int) {
	now = c.writeTime(now.UTC()) // times of events do not go back
	surplus := len(c.finished) - c.maxFinished
	id := c.finished[0].project
	p, ok := c.Project(id)
	if !ok { // it was dropped, and its actions with it
		c.finished = c.finished[1:]
		return 1
	}
	tx := c.begin(p.data, p.data.state.Load(), now, nil)
	for n < min(forgetBatch, len(c.finished)) {
		f := c.finished[n]
		if f.project != id || n >= surplus && now.Sub(f.at) < c.keepActions {
			break
		}
		tx.Actions.forget(f.id)
		n++
	}
	c.finished = c.finished[n:]
	c.commit(tx)
	return n
}
