package cloud

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/catalogue"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/fault"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/store"
)

// Scenario is a set of changes in time that end without a trace.
type Scenario struct {
	ID          int64             `json:"id"`
	Name        string            `json:"name"`
	Description string            `json:"description,omitzero"`
	Parameters  map[string]string `json:"parameters,omitempty"` // only shown
	Changes     []Change          `json:"changes"`
	// Repeat begins the changes again after that time. 0 means never.
	Repeat  fault.Duration `json:"repeat,omitzero"`
	Started time.Time      `json:"started"`
	// Next is when the next change begins or ends; the zero value if there is none.
	Next time.Time `json:"next,omitzero"`
	// InForce are the changes that are in force, by their place in Changes. Taken is what they have changed, in that order.
	InForce []int    `json:"in_force,omitempty"`
	Taken   []*taken `json:"taken,omitempty"`
	Error   string   `json:"error,omitzero"` // of a later change

	ended   bool // its step in the queue is void
	version int  // counts its changes, except for its end
}

// Change is one change of a scenario. It is in force from At until Until after the start; if Until is 0, until the scenario ends. It
// has one of the fields after these two.
type Change struct {
	At     fault.Duration `json:"at,omitzero"`
	Until  fault.Duration `json:"until,omitzero"`
	Offer  *OfferChange   `json:"offer,omitempty"`
	Limit  *LimitChange   `json:"limit,omitempty"`
	Tokens *TokenChange   `json:"tokens,omitempty"`
	Fault  *fault.Rule    `json:"fault,omitempty"`
}

// OfferChange changes how a server type is offered in a location, or in all of its locations if Location is empty.
type OfferChange struct {
	ServerType   string   `json:"server_type"`
	Location     string   `json:"location,omitzero"`
	Available    *bool    `json:"available,omitempty"`
	Recommended  *bool    `json:"recommended,omitempty"`
	Retires      Moment   `json:"retires,omitzero"`
	PriceMonthly *float64 `json:"price_monthly,omitempty"`
}

// LimitChange changes how many resources of a kind a project may own: 0 means any number.
type LimitChange struct {
	Project int64      `json:"project"`
	Kind    store.Kind `json:"kind"`
	Most    int        `json:"most"`
}

// TokenChange changes all tokens of a project.
type TokenChange struct {
	Project int64 `json:"project"`
	// Revoked makes them invalid. AnotherProject makes them those of a project that owns nothing.
	Revoked        bool   `json:"revoked,omitzero"`
	AnotherProject bool   `json:"another_project,omitzero"`
	ReadOnly       bool   `json:"read_only,omitzero"`
	APIDate        Moment `json:"api_date,omitzero"`
}

// Moment is a day such as 2027-01-01, a time in RFC 3339, or a duration after the start of the scenario such as 720h.
type Moment string

func (m Moment) since(start time.Time) (time.Time, error) {
	for _, layout := range []string{time.DateOnly, time.RFC3339} {
		if t, err := time.Parse(layout, string(m)); err == nil {
			return t.UTC(), nil
		}
	}
	var d fault.Duration
	if err := d.UnmarshalText([]byte(m)); err != nil || d < 0 || time.Duration(d) > maxScenario {
		return time.Time{}, fmt.Errorf("%.64q: must be a day such as 2027-01-01, a time such as 2027-01-01T09:30:00Z, or a duration "+
			"after the start of 0 to %v such as 720h", string(m), maxScenario)
	}
	return start.Add(time.Duration(d)).Truncate(time.Second), nil
}

// FaultRules are the fault rules of the API, to which scenarios add theirs. A [faults.Set] implements it.
type FaultRules interface {
	Check(fault.Rule) error
	Add(context.Context, fault.Rule) (fault.Rule, error)
	Remove(ctx context.Context, name string) (bool, error)
}

// SetFaults sets the fault rules that scenarios change. fork returns a copy of them for a fork of the cloud.
func (c *Cloud) SetFaults(rules FaultRules, fork func() FaultRules) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.faults, c.forkFaults = rules, fork
}

// Faults returns the fault rules of SetFaults. Those of a fork are a copy, made at the same moment as the fork.
func (c *Cloud) Faults() FaultRules {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.faults
}

const (
	maxScenario  = 10 * 365 * 24 * time.Hour // of a scenario's durations
	maxScenarios = 1000                      // that run; our own, so that a loop that forgets to end them is noticed
	maxChanges   = 100                       // of a scenario
)

// Check returns an error if a change is wrong whatever the cloud has.
func (s *Scenario) Check() error {
	if s.Repeat != 0 && (time.Duration(s.Repeat) < time.Second || time.Duration(s.Repeat) > maxScenario) {
		return fmt.Errorf("repeat %v: must be 1s to %v, or missing", time.Duration(s.Repeat), maxScenario)
	}
	if len(s.Changes) == 0 || len(s.Changes) > maxChanges {
		return fmt.Errorf("changes: must be 1 to %d, but are %d", maxChanges, len(s.Changes))
	}
	for i := range s.Changes {
		if err := s.Changes[i].check(s); err != nil {
			return &ChangeError{i, err}
		}
	}
	return nil
}

// ChangeError says which change of a scenario is wrong.
type ChangeError struct {
	Change int // from 0
	Err    error
}

func (e *ChangeError) Error() string { return fmt.Sprintf("changes[%d]: %v", e.Change, e.Err) }

// Unwrap returns the error of the change.
func (e *ChangeError) Unwrap() error { return e.Err }

func (ch *Change) check(s *Scenario) error {
	n := 0
	for _, is := range []bool{ch.Offer != nil, ch.Limit != nil, ch.Tokens != nil, ch.Fault != nil} {
		if is {
			n++
		}
	}
	latest := cmp.Or(s.Repeat, fault.Duration(maxScenario))
	switch {
	case n != 1:
		return errors.New("must have exactly one of offer, limit, tokens, fault")
	case ch.At < 0 || ch.At >= latest:
		return fmt.Errorf("at %v: must be at least 0s, and less than %v", time.Duration(ch.At), time.Duration(latest))
	case ch.Until != 0 && (ch.Until <= ch.At || ch.Until > latest):
		return fmt.Errorf("until %v: must be after at, and at most %v", time.Duration(ch.Until), time.Duration(latest))
	case ch.Limit != nil:
		return Limits{ch.Limit.Kind: ch.Limit.Most}.Check()
	case ch.Tokens != nil && *ch.Tokens == (TokenChange{Project: ch.Tokens.Project}):
		return errors.New("tokens: must have one of revoked, another_project, read_only, api_date")
	case ch.Tokens != nil && ch.Tokens.APIDate != "":
		_, err := ch.Tokens.APIDate.since(s.Started)
		return inField("tokens.api_date", err)
	case ch.Offer != nil:
		o, err := ch.Offer.offer(s.Started)
		if err == nil {
			_, err = checkOffer(o, s.Started)
		}
		return inField("offer", err)
	}
	return nil
}

func inField(name string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", name, err)
}

// offer returns the change in the form of package catalogue.
func (o *OfferChange) offer(start time.Time) (catalogue.Offer, error) {
	out := catalogue.Offer{Available: o.Available, Recommended: o.Recommended, PriceMonthly: o.PriceMonthly}
	if o.Retires == "" {
		return out, nil
	}
	at, err := o.Retires.since(start)
	out.Deprecation = &catalogue.Deprecation{UnavailableAfter: at}
	return out, inField("retires", err)
}

// StartScenario starts a scenario and returns it with its id. If one of its changes cannot be made, nothing changes.
func (c *Cloud) StartScenario(s Scenario) (Scenario, error) {
	err := c.betweenWrites(func() error {
		now := c.writeTime(c.Now())
		s.ID, s.Started, s.InForce, s.Taken, s.Error = c.lastScenario+1, now, nil, nil, ""
		if len(c.scenarios) >= maxScenarios {
			return fmt.Errorf("scenario %.64q: %d run, which is the most; end some", s.Name, maxScenarios)
		}
		if err := s.Check(); err != nil {
			return err
		}
		for i := range s.Changes {
			if err := c.rehearseChange(&s, i); err != nil {
				return &ChangeError{i, err}
			}
		}
		c.lastScenario++
		running := s
		c.scenarios = append(c.scenarios, &running)
		if c.advance(&running, now); running.Error != "" {
			c.endScenario(&running)
			return errors.New(running.Error)
		}
		s = *running.clone()
		c.saveScenarios()
		c.rearm()
		return nil
	})
	return s, err
}

// Scenarios returns what runs, in the order of the starts.
func (c *Cloud) Scenarios() (all []Scenario) {
	_ = c.betweenWrites(func() error {
		for _, s := range c.scenarios {
			all = append(all, *s.clone())
		}
		return nil
	})
	return all
}

// EndScenario ends a scenario and takes back its changes, except for settings that someone else changed meanwhile. It returns false
// if none of that id runs.
func (c *Cloud) EndScenario(id int64) (found bool) {
	_ = c.betweenWrites(func() error {
		if s := c.scenario(id); s != nil {
			found = true
			c.endScenario(s)
			c.saveScenarios()
			c.rearm()
		}
		return nil
	})
	return found
}

// EndScenarios ends all scenarios.
func (c *Cloud) EndScenarios() {
	for _, s := range slices.Backward(c.Scenarios()) {
		c.EndScenario(s.ID)
	}
}

// clone returns a copy that shares what does not change.
func (s *Scenario) clone() *Scenario {
	copied := *s
	copied.InForce, copied.Taken = slices.Clone(s.InForce), slices.Clone(s.Taken)
	for i, t := range copied.Taken {
		copied.Taken[i] = new(*t)
	}
	return &copied
}

// The caller of the functions below holds Cloud.mu.

func (c *Cloud) scenario(id int64) *Scenario {
	s, _ := find(c.scenarios, func(s *Scenario) bool { return s.ID == id })
	return s
}

// advance makes the changes of a scenario that are due at a time, and takes back those that are over. If nothing more happens, it ends
// the scenario.
func (c *Cloud) advance(s *Scenario, now time.Time) {
	phase, round := now.Sub(s.Started), s.Started
	if s.Repeat > 0 {
		phase %= time.Duration(s.Repeat)
		round = now.Add(-phase)
	}
	wanted := func(ch *Change) bool {
		return phase >= time.Duration(ch.At) && (ch.Until == 0 || phase < time.Duration(ch.Until))
	}
	s.version++
	c.takeBack(s, func(change int) bool { return !wanted(&s.Changes[change]) })
	for i := range s.Changes {
		if wanted(&s.Changes[i]) && !slices.Contains(s.InForce, i) {
			if err := c.change(s, i); err != nil {
				s.Error = (&ChangeError{i, err}).Error()
			}
		}
	}
	next := time.Duration(s.Repeat)
	for i := range s.Changes {
		for _, d := range []time.Duration{time.Duration(s.Changes[i].At), time.Duration(s.Changes[i].Until)} {
			if d > phase && (next == 0 || d < next) {
				next = d
			}
		}
	}
	s.Next = time.Time{}
	switch {
	case next > 0:
		s.Next = round.Add(next)
		c.scheduleScenario(s)
	case len(s.InForce) == 0 && s.Error == "": // else a user wants to read the error
		c.endScenario(s)
	}
}

func (c *Cloud) scheduleScenario(s *Scenario) {
	c.jobSeq++
	c.push(job{due: s.Next, seq: c.jobSeq, timer: scenarioStep{s}})
}

// endScenario takes back all changes of a scenario and forgets it.
func (c *Cloud) endScenario(s *Scenario) {
	c.takeBack(s, func(int) bool { return true })
	c.scenarios = slices.DeleteFunc(slices.Clone(c.scenarios), func(o *Scenario) bool { return o == s })
	if s.ended = true; !s.Next.IsZero() {
		c.voidJobs++
		c.skipVoid()
	}
}

// scenarioStep is due when changes of a scenario begin or end.
type scenarioStep struct{ of *Scenario }

func (scenarioStep) due(*Tx)    {}
func (scenarioStep) about() Ref { return Ref{} }

func (e scenarioStep) run(c *Cloud, now time.Time) {
	c.advance(e.of, now)
	c.saveScenarios()
}

func (s *Scenario) entry() entry { return entry{entryKey{kind: lineScenario, id: s.ID}, s.clone()} }

// rescheduleScenarios schedules the next changes of all scenarios. A reset calls it because it drops all scheduled work.
func (c *Cloud) rescheduleScenarios() {
	for _, s := range c.scenarios {
		if !s.Next.IsZero() {
			c.scheduleScenario(s)
		}
	}
}

// copyScenarios copies the scenarios to a fork, without their steps.
func (c *Cloud) copyScenarios(f *Cloud) {
	f.lastScenario, f.takenSeq = c.lastScenario, c.takenSeq
	for _, s := range c.scenarios {
		f.scenarios = append(f.scenarios, s.clone())
	}
	if c.forkFaults != nil {
		f.faults = c.forkFaults()
	}
}

// scenario reads a line of a snapshot.
func (l *loader) scenario(s *Scenario) error {
	if s.ID <= l.cloud.lastScenario || s.Started.IsZero() || s.Started.After(l.snapshot.Time) {
		return fmt.Errorf("scenario %d, started %v: must have an id that is larger than those before, and must have started", s.ID,
			s.Started)
	}
	if err := s.Check(); err != nil {
		return err
	}
	for _, t := range s.Taken {
		if t == nil || !json.Valid(t.Old) || !json.Valid(t.Now) {
			return errors.New("taken: each must have old and now")
		}
		l.cloud.takenSeq = max(l.cloud.takenSeq, t.Seq)
	}
	if !s.Next.IsZero() && (s.Next.Before(l.snapshot.Time.Add(-time.Hour)) || s.Next.After(l.snapshot.Time.Add(maxScenario))) {
		return fmt.Errorf("next %v: must be after the time of the first line, and at most %v later", s.Next, maxScenario)
	}
	l.cloud.lastScenario = s.ID
	l.cloud.scenarios = append(l.cloud.scenarios, s)
	if !s.Next.IsZero() {
		l.cloud.scheduleScenario(s)
	}
	return nil
}
