package fault

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Status is a rule and what it has done.
type Status struct {
	Rule
	// Matched counts the requests that the rule selects, Applied those that it took.
	Matched uint64 `json:"matched"`
	Applied uint64 `json:"applied"`
}

// Set is the rules of one cloud. All its methods may be called from several goroutines.
type Set struct {
	operations []Operation
	rules      atomic.Pointer[[]*active] // replaced, never changed

	mu      sync.Mutex
	seq     int
	changed chan struct{} // closed, and replaced, when a rule is applied, added or removed
}

// active is a rule at work.
type active struct {
	rule Rule

	mu               sync.Mutex
	random           *rand.Rand
	matched, applied uint64
}

// NewSet returns a set without rules, for an API with the given operations.
func NewSet(operations []Operation) *Set {
	s := &Set{operations: operations, changed: make(chan struct{})}
	s.rules.Store(&[]*active{})
	return s
}

// Add adds a rule behind those that exist and returns it as it is used, with a name. The error says
// everything that is wrong with the rule, and what it could have named.
func (s *Set) Add(r Rule) (Rule, error) {
	if err := r.check(s.operations); err != nil {
		return Rule{}, fmt.Errorf("fault rule %.128q: %w", r.Name, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	next := slices.Clone(*s.rules.Load())
	for r.Name == "" {
		s.seq++
		if name := fmt.Sprintf("fault-%d", s.seq); find(next, name) < 0 {
			r.Name = name
		}
	}
	if find(next, r.Name) >= 0 {
		return Rule{}, fmt.Errorf("fault rule %q: %w", r.Name, ErrExists)
	}
	s.replace(append(next, &active{rule: r, random: rand.New(rand.NewPCG(r.Seed, ^r.Seed))}))
	return r, nil
}

var (
	// ErrExists is the error of Add when there is a rule of the same name.
	ErrExists = errors.New("there is one of that name already")
	// ErrNone is the error of Await when there is no rule of that name, or no longer.
	ErrNone = errors.New("there is no fault rule")
)

func find(rules []*active, name string) int {
	return slices.IndexFunc(rules, func(a *active) bool { return a.rule.Name == name })
}

func (s *Set) replace(rules []*active) {
	s.rules.Store(&rules)
	s.broadcastLocked()
}

func (s *Set) broadcastLocked() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// Remove removes a rule and tells whether there was one.
func (s *Set) Remove(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	rules := *s.rules.Load()
	i := find(rules, name)
	if i < 0 {
		return false
	}
	s.replace(slices.Delete(slices.Clone(rules), i, i+1))
	return true
}

// Clear removes all rules.
func (s *Set) Clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.replace([]*active{})
}

// List returns all rules in the order in which they are asked.
func (s *Set) List() []Status {
	rules := *s.rules.Load()
	out := make([]Status, len(rules))
	for i, a := range rules {
		out[i] = a.status()
	}
	return out
}

// Get returns one rule.
func (s *Set) Get(name string) (Status, bool) {
	rules := *s.rules.Load()
	i := find(rules, name)
	if i < 0 {
		return Status{}, false
	}
	return rules[i].status(), true
}

// Await returns as soon as a rule has been applied n times, with its state then. It is an error if there
// is no rule of that name, or when the context is done first.
func (s *Set) Await(ctx context.Context, name string, n uint64) (Status, error) {
	for {
		s.mu.Lock()
		changed := s.changed
		s.mu.Unlock()
		st, ok := s.Get(name)
		switch {
		case !ok:
			return st, fmt.Errorf("%w %q", ErrNone, name)
		case st.Applied >= n:
			return st, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return st, fmt.Errorf("fault rule %q: applied %d times, not %d: %w", name, st.Applied, n, context.Cause(ctx))
		}
	}
}

func (a *active) status() Status {
	a.mu.Lock()
	defer a.mu.Unlock()
	return Status{a.rule, a.matched, a.applied}
}

// take counts a request that the rule selects and tells whether the rule takes it.
func (a *active) take() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.matched++
	r := &a.rule
	if r.Max > 0 && a.applied >= uint64(r.Max) || !r.takes(a.matched) {
		return false
	}
	if r.Probability > 0 && a.random.Float64() >= r.Probability {
		return false
	}
	a.applied++
	return true
}

// Decision is what the rules do to a request.
type Decision struct {
	// Names of the rules that took it, separated by commas.
	Names string
	// Before and After are how long to wait before and after it is carried out.
	Before, After time.Duration
	// Effect is what else happens to it; its Kind is "" if nothing does.
	Effect Effect
}

// Empty tells whether there is no rule at all.
func (s *Set) Empty() bool { return len(*s.rules.Load()) == 0 }

// Decide asks the rules about a request. ok is false if none takes it.
func (s *Set) Decide(c *Call) (d Decision, ok bool) {
	var names []string
	for _, a := range *s.rules.Load() {
		if !a.rule.matches(c) || !a.take() {
			continue
		}
		names = append(names, a.rule.Name)
		e := a.rule.Effect
		if e.After {
			d.After += time.Duration(e.Latency)
		} else {
			d.Before += time.Duration(e.Latency)
		}
		if e.Kind != KindLatency {
			d.Effect = e
			break
		}
	}
	if len(names) == 0 {
		return d, false
	}
	d.Names = strings.Join(names, ",")
	s.mu.Lock()
	s.broadcastLocked()
	s.mu.Unlock()
	return d, true
}
