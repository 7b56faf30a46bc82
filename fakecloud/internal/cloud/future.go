package cloud

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"
)

// Due is something that the cloud does at a time.
type Due struct {
	Time    time.Time
	Project int64 // 0 if it is about a hypervisor
	// What is one of timers.
	What string
	// Action is the action that it is about, 0 for none, and Command its command.
	Action  int64
	Command string
	// Resources are what it is about.
	Resources []Ref
}

// Timeline returns what is due later, in the order in which it happens. Actions that wait for another action, for a hypervisor
// or for [Cloud.ResumeActions] are not in it.
func (c *Cloud) Timeline() []Due {
	c.mu.Lock()
	c.catchUp()
	queue := slices.Clone(c.queue)
	c.mu.Unlock()
	slices.SortFunc(queue, func(a, b job) int {
		if a.before(&b) {
			return -1
		}
		return 1
	})
	all := make([]Due, 0, len(queue))
	for _, j := range queue {
		due, about := Due{Time: j.due.UTC(), What: workName(j.timer)}, j.timer.about()
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

// savedWork is a value of one of the types of effects and timers, in a form that can be stored.
type savedWork struct {
	Type string          `json:"type"`
	Args json.RawMessage `json:"args"`
}

// workTypes are all types of effects and timers, by name.
var workTypes = sync.OnceValue(func() map[string]reflect.Type {
	types := map[string]reflect.Type{}
	for name, t := range timers {
		types[name] = reflect.TypeOf(t)
	}
	for _, c := range commands {
		for _, e := range c.effects {
			types[workName(e)] = reflect.TypeOf(e)
		}
	}
	return types
})

// timerNames are the names of timers, by type.
var timerNames = sync.OnceValue(func() map[reflect.Type]string {
	names := map[reflect.Type]string{}
	for name, t := range timers {
		names[reflect.TypeOf(t)] = name
	}
	return names
})

// workName is the name of the type of an effect or timer. The type of an effect of a load balancer's action has that of the change.
func workName(work any) string {
	if name, ok := timerNames()[reflect.TypeOf(work)]; ok {
		return name
	}
	name := strings.TrimSuffix(reflect.TypeOf(work).Name(), "]")
	return name[strings.LastIndexByte(name, '.')+1:]
}

// saveWork returns an effect or a timer as data; nil for a nil effect.
func saveWork(work any) (*savedWork, error) {
	if work == nil {
		return nil, nil
	}
	name := workName(work)
	if workTypes()[name] != reflect.TypeOf(work) {
		return nil, fmt.Errorf("%T: the type is in none of the tables commands and timers", work)
	}
	args, err := json.Marshal(work)
	return &savedWork{name, args}, err
}

// loadWork is the opposite of saveWork.
func (s *savedWork) load() (any, error) {
	if s == nil {
		return nil, nil
	}
	t, ok := workTypes()[s.Type]
	if !ok {
		return nil, fmt.Errorf("work of the unknown type %q", s.Type)
	}
	v := reflect.New(t)
	if err := json.Unmarshal(s.Args, v.Interface()); err != nil {
		return nil, fmt.Errorf("work of type %s: %w", s.Type, err)
	}
	return v.Elem().Interface(), nil
}
