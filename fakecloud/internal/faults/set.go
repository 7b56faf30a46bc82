// Package faults applies the fault rules of a cloud to its requests.
package faults

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/fault"
)

// Set holds the rules of one cloud. It implements fault.Rules.
type Set struct {
	operations []Operation
	rules      atomic.Pointer[[]*active] // replaced, never changed

	mu      sync.Mutex
	seq     int
	lastKey int64
	unsaved map[*active]struct{} // see Changed
	changed chan struct{}        // closed, and replaced, when a rule is applied, added or removed
}

// active is a rule and its counters.
type active struct {
	rule fault.Rule
	key  int64 // orders the rules of a set
	gone bool  // guarded by Set.mu

	mu               sync.Mutex
	source           rand.PCG // of random
	random           *rand.Rand
	matched, applied uint64
}

func newActive(r fault.Rule, source rand.PCG) *active {
	a := &active{rule: r, source: source}
	a.random = rand.New(&a.source)
	return a
}

// Fork returns a copy of the set. The counters of its rules start at the same values, and then
// count separately.
func (s *Set) Fork() *Set {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := NewSet(s.operations)
	f.seq = s.seq
	var rules []*active
	for _, a := range *s.rules.Load() {
		a.mu.Lock()
		copied := newActive(a.rule, a.source)
		copied.matched, copied.applied = a.matched, a.applied
		a.mu.Unlock()
		rules = append(rules, copied)
	}
	f.rules.Store(&rules)
	return f
}

// Saved is a rule with its counters, as data.
type Saved struct {
	Rule    fault.Rule `json:"rule"`
	Matched uint64     `json:"matched"`
	Applied uint64     `json:"applied"`
	Random  []byte     `json:"random"` // what Probability continues with
}

// Save returns all rules.
func (s *Set) Save() []Saved {
	var all []Saved
	for _, a := range *s.rules.Load() {
		all = append(all, a.saved())
	}
	return all
}

func (a *active) saved() Saved {
	a.mu.Lock()
	defer a.mu.Unlock()
	random, _ := a.source.MarshalBinary() // returns no error
	return Saved{a.rule, a.matched, a.applied, random}
}

// Changed calls put for each rule that was added or selected a request since the last call, and with nil for each one that was removed. The
// keys have the order of the rules. The first call is about all rules.
func (s *Set) Changed(put func(key int64, saved any)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.unsaved == nil {
		s.unsaved = map[*active]struct{}{}
		s.touch(*s.rules.Load()...)
	}
	for a := range s.unsaved {
		if a.gone {
			put(a.key, nil)
		} else {
			put(a.key, a.saved())
		}
	}
	clear(s.unsaved)
}

// touch notes rules for Changed. The caller holds mu.
func (s *Set) touch(all ...*active) {
	if s.unsaved == nil {
		return // nobody asks
	}
	for _, a := range all {
		s.unsaved[a] = struct{}{}
	}
}

// remove notes that rules are gone. The caller holds mu.
func (s *Set) remove(all ...*active) {
	for _, a := range all {
		a.gone = true
	}
	s.touch(all...)
}

// add gives rules their place behind all others. The caller holds mu.
func (s *Set) add(all ...*active) {
	for _, a := range all {
		s.lastKey++
		a.key = s.lastKey
	}
	s.touch(all...)
}

// Load returns a set of saved rules for the same API. It returns an error if a rule is wrong.
func (s *Set) Load(saved []Saved) (*Set, error) {
	loaded := NewSet(s.operations)
	for _, r := range saved {
		if _, err := loaded.Add(context.Background(), r.Rule); err != nil {
			return nil, err
		}
	}
	for i, a := range *loaded.rules.Load() {
		a.matched, a.applied = saved[i].Matched, saved[i].Applied
		if err := a.source.UnmarshalBinary(saved[i].Random); err != nil {
			return nil, fmt.Errorf("fault rule %.128q: random: %w", a.rule.Name, err)
		}
	}
	return loaded, nil
}

// Take replaces all rules by those of another set. The other set must not be used any more.
func (s *Set) Take(other *Set) {
	s.mu.Lock()
	defer s.mu.Unlock()
	rules := *other.rules.Load()
	s.remove(*s.rules.Load()...)
	s.add(rules...)
	s.replace(rules)
}

// NewSet returns a set without rules, for an API with the given operations.
func NewSet(operations []Operation) *Set {
	s := &Set{operations: operations, changed: make(chan struct{})}
	s.rules.Store(&[]*active{})
	return s
}

var _ fault.Rules = (*Set)(nil)

// Check returns an error if Add would refuse the rule for another reason than its name.
func (s *Set) Check(r fault.Rule) error { return check(&r, s.operations) }

// Add implements fault.Rules.
func (s *Set) Add(_ context.Context, r fault.Rule) (fault.Rule, error) {
	if err := check(&r, s.operations); err != nil {
		if r.Name == "" {
			return fault.Rule{}, fmt.Errorf("add fault rule: %w", err)
		}
		return fault.Rule{}, fmt.Errorf("add fault rule %.128q: %w", r.Name, err)
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
		return fault.Rule{}, fmt.Errorf("add fault rule %.128q: %w; remove it first or choose another name", r.Name, fault.ErrExists)
	}
	added := newActive(r, *rand.NewPCG(r.Seed, ^r.Seed))
	s.add(added)
	s.replace(append(next, added))
	return r, nil
}

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

// Remove implements fault.Rules.
func (s *Set) Remove(_ context.Context, name string) (bool, error) {
	return s.removeAll(func(r *fault.Rule) bool { return r.Name == name }), nil
}

// Clear implements fault.Rules.
func (s *Set) Clear(context.Context) error {
	s.removeAll(func(*fault.Rule) bool { return true })
	return nil
}

// Forget removes the rules that select a project by its id.
func (s *Set) Forget(project int64) {
	s.removeAll(func(r *fault.Rule) bool { return r.Project == project })
}

// removeAll removes the rules that match. It reports whether there were some.
func (s *Set) removeAll(match func(*fault.Rule) bool) (found bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var stay []*active
	for _, a := range *s.rules.Load() {
		if match(&a.rule) {
			s.remove(a)
			found = true
		} else {
			stay = append(stay, a)
		}
	}
	s.replace(stay)
	return found
}

// List implements fault.Rules.
func (s *Set) List(context.Context) ([]fault.Status, error) {
	rules := *s.rules.Load()
	out := make([]fault.Status, len(rules))
	for i, a := range rules {
		out[i] = a.status()
	}
	return out, nil
}

// Get implements fault.Rules.
func (s *Set) Get(_ context.Context, name string) (fault.Status, bool, error) {
	rules := *s.rules.Load()
	i := find(rules, name)
	if i < 0 {
		return fault.Status{}, false, nil
	}
	return rules[i].status(), true, nil
}

// Await implements fault.Rules.
func (s *Set) Await(ctx context.Context, name string, n uint64) (fault.Status, error) {
	for {
		s.mu.Lock()
		changed := s.changed
		s.mu.Unlock()
		st, ok, _ := s.Get(ctx, name)
		switch {
		case !ok:
			return st, fmt.Errorf("await fault rule %.128q: %w", name, fault.ErrNotFound)
		case st.Applied >= n:
			return st, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return st, fmt.Errorf("await fault rule %q: applied %d of %d times: %w", name, st.Applied, n, context.Cause(ctx))
		}
	}
}

func (a *active) status() fault.Status {
	a.mu.Lock()
	defer a.mu.Unlock()
	return fault.Status{Rule: a.rule, Matched: a.matched, Applied: a.applied}
}

// take counts a request that the rule selects and reports whether the rule takes it.
func (a *active) take() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.matched++
	r := &a.rule
	if r.Max > 0 && a.applied >= uint64(r.Max) || !takes(r, a.matched) {
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
	// Names are the names of the rules that took the request, separated by commas.
	Names string
	// Taker is the name of the rule that has the Effect.
	Taker string
	// Before and After are how long to wait before and after the request is carried out.
	Before, After time.Duration
	// Effect is the effect other than delays. Its Kind is "" for delays only.
	Effect fault.Effect
	// Selected reports whether a rule selects the request, so that its counters have changed, even if none takes it.
	Selected bool
}

// Empty reports whether the set has no rules.
func (s *Set) Empty() bool { return len(*s.rules.Load()) == 0 }

// Decide returns what the rules do to a request. ok is false if none takes it.
func (s *Set) Decide(c *Call) (d Decision, ok bool) {
	var names []string
	var selected []*active
	for _, a := range *s.rules.Load() {
		if !matches(&a.rule, c) {
			continue
		}
		selected = append(selected, a)
		if !a.take() {
			continue
		}
		names = append(names, a.rule.Name)
		e := a.rule.Effect
		if e.After {
			d.After += time.Duration(e.Latency)
		} else {
			d.Before += time.Duration(e.Latency)
		}
		if e.Kind != fault.KindLatency {
			d.Effect, d.Taker = e, a.rule.Name
			break
		}
	}
	if d.Selected = len(selected) > 0; !d.Selected {
		return d, false
	}
	d.Names = strings.Join(names, ",")
	s.mu.Lock()
	defer s.mu.Unlock()
	s.touch(selected...)
	if d.Names != "" {
		s.broadcastLocked()
	}
	return d, d.Names != ""
}
