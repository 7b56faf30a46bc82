package cloud

import (
	"reflect"
	"slices"
	"sync"
	"time"
)

// Due is something that the cloud does at a time.
type Due struct {
	Time    time.Time `json:"time"`
	Project int64     `json:"project,omitempty"` // 0 if it is about a hypervisor
	// What is the name of one of timers.
	What string `json:"what"`
	// Action is the action that it is about, 0 for none, and Command its command.
	Action  int64  `json:"action,omitempty"`
	Command string `json:"command,omitempty"`
	// Resources are what it is about.
	Resources []Ref `json:"resources"`
}

// Timeline returns the future work, the earliest first. It leaves out actions that wait for another action, for a hypervisor or for
// [Cloud.ResumeActions].
func (c *Cloud) Timeline() []Due {
	c.mu.Lock()
	c.catchUp()
	c.sweep()
	queue := slices.Clone(c.queue)
	c.mu.Unlock()
	all := make([]Due, 0, len(queue))
	for _, j := range queue.sorted() {
		due, about := Due{Time: j.due.UTC(), What: timerNames()[reflect.TypeOf(j.timer)], Resources: []Ref{}}, j.timer.about()
		if j.project != nil {
			due.Project = j.project.id
			due.Resources = []Ref{about}
			if a, ok := j.project.state.Load().Actions.Get(about.ID); ok && about.Kind == KindAction {
				due.Action, due.Command, due.Resources = a.ID, a.Command, a.Resources
			}
		}
		all = append(all, due)
	}
	return all
}

// DueCount returns the length of the timeline.
func (c *Cloud) DueCount() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sweep()
	return len(c.queue)
}

// timerNames are the names of timers, by type.
var timerNames = sync.OnceValue(func() map[reflect.Type]string {
	names := map[reflect.Type]string{}
	for name, t := range timers {
		names[reflect.TypeOf(t)] = name
	}
	return names
})
