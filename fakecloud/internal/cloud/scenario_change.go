package cloud

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/store"
)

// taken is a setting that a change in force has changed: its value before, and the one that the change gave it.
type taken struct {
	Change int    `json:"change"`
	Seq    uint64 `json:"seq"` // orders the changes of all scenarios
	setting
	Old json.RawMessage `json:"old"`
	Now json.RawMessage `json:"now"`

	of *Scenario
}

// setting names something that scenarios change. Each kind has the fields of one line.
type setting struct {
	ServerType int64      `json:"server_type,omitzero"`
	Location   string     `json:"location,omitzero"`
	Field      offerField `json:"field,omitzero"`
	Project    int64      `json:"project,omitzero"`
	Kind       store.Kind `json:"kind,omitzero"` // of a limit of Project
	Token      string     `json:"token,omitzero"`
	Rule       string     `json:"rule,omitzero"` // the name of a fault rule
	Made       int64      `json:"made,omitzero"` // the id of a project that the change has made
}

// offerField is a field of the offer of a server type in a location.
type offerField string

const (
	offerAvailable   offerField = "available"
	offerRecommended offerField = "recommended"
	offerDeprecation offerField = "deprecation"
	offerPrice       offerField = "price"
)

// value returns the stored form of a setting's value.
func value(v any) json.RawMessage {
	out, err := json.Marshal(v)
	if err != nil { // their fields are numbers and texts
		panic("cloud: " + err.Error())
	}
	return out
}

// The caller of the functions below holds Cloud.mu.

// rehearseChange returns an error if a change, which may be made later, cannot be made now.
func (c *Cloud) rehearseChange(s *Scenario, i int) error {
	switch ch := &s.Changes[i]; {
	case ch.Offer != nil:
		_, err := c.withOffer(s, ch.Offer)
		return inField("offer", err)
	case ch.Limit != nil:
		return inField("limit", c.requireProject(ch.Limit.Project))
	case ch.Tokens != nil:
		return inField("tokens", c.requireProject(ch.Tokens.Project))
	case c.faults != nil:
		return inField("fault", c.faults.Check(*ch.Fault))
	}
	return nil
}

func (c *Cloud) requireProject(id int64) error {
	if _, ok := c.Project(id); !ok {
		return fmt.Errorf("project %d does not exist; GET /projects lists them", id)
	}
	return nil
}

// change makes a change of a scenario. An error means that nothing changed.
func (c *Cloud) change(s *Scenario, i int) error {
	if err := c.rehearseChange(s, i); err != nil {
		return err
	}
	c.indexTaken()
	set := func(k setting, v any) {
		c.takenSeq++
		t := &taken{Change: i, Seq: c.takenSeq, setting: k, Old: c.get(k), Now: value(v), of: s}
		if k.Rule != "" || k.Made != 0 {
			t.Old = value(false) // the change has made it
		}
		s.Taken = append(s.Taken, t)
		c.taken[k] = append(c.taken[k], t)
		c.set(k, t.Now)
	}
	s.InForce = append(s.InForce, i)
	switch ch := &s.Changes[i]; {
	case ch.Offer != nil:
		c.changeOffer(s, ch.Offer, set)
	case ch.Limit != nil:
		set(setting{Project: ch.Limit.Project, Kind: ch.Limit.Kind}, ch.Limit.Most)
	case ch.Tokens != nil:
		c.changeTokens(s, ch.Tokens, set)
	case c.faults != nil:
		rule := *ch.Fault
		rule.Name = fmt.Sprintf("%s-%d.%d", s.Name, s.ID, i+1)
		if rule.Probability > 0 && rule.Seed == 0 {
			rule.Seed = c.seed<<32 + uint64(s.ID)<<8 + uint64(i) + 1
		}
		if _, err := c.faults.Add(context.Background(), rule); err != nil {
			c.takeBack(s, func(change int) bool { return change == i })
			return inField("fault", err)
		}
		set(setting{Rule: rule.Name}, true)
	}
	return nil
}

// withOffer returns the catalogue with a change of an offer.
func (c *Cloud) withOffer(s *Scenario, change *OfferChange) (*Catalogue, error) {
	next := *c.catalogue
	o, err := change.offer(s.Started)
	if err == nil {
		err = next.offer(change.ServerType, change.Location, o, s.Started)
	}
	return &next, err
}

// changeOffer sets each field that a change has, in each location.
func (c *Cloud) changeOffer(s *Scenario, o *OfferChange, set func(setting, any)) {
	next, _ := c.withOffer(s, o) // the rehearsal had no error
	t, _ := next.ServerType(o.ServerType)
	for _, in := range t.Locations {
		if l, _ := next.Location(o.Location); o.Location != "" && l != in.Location {
			continue
		}
		for _, f := range []struct {
			field offerField
			given bool
		}{
			{offerAvailable, o.Available != nil}, {offerRecommended, o.Recommended != nil}, {offerDeprecation, o.Retires != ""},
			{offerPrice, o.PriceMonthly != nil},
		} {
			if f.given {
				set(setting{ServerType: t.ID, Location: in.Location.Name, Field: f.field}, t.field(in.Location.Name, f.field))
			}
		}
	}
}

// changeTokens changes all tokens that a project has now.
func (c *Cloud) changeTokens(s *Scenario, change *TokenChange, set func(setting, any)) {
	p, _ := c.Project(change.Project) // the rehearsal had no error
	tokens := slices.Sorted(maps.Keys(p.data.tokens))
	other := int64(0)
	if change.AnotherProject {
		other = c.anotherProject(fmt.Sprintf("scenario-%d", s.ID), set)
	}
	for _, text := range tokens {
		if change.Revoked {
			set(setting{Token: text}, nil)
			continue
		}
		t := c.token(text).Token
		t.ReadOnly = t.ReadOnly || change.ReadOnly
		if other != 0 {
			t.Project = other
		}
		if change.APIDate != "" {
			t.APIDate, _ = change.APIDate.since(s.Started) // it was checked
		}
		set(setting{Token: text}, t)
	}
}

// anotherProject returns the id of the project with a name. It makes the project if there is none.
func (c *Cloud) anotherProject(name string, set func(setting, any)) int64 {
	for _, p := range c.Projects() {
		if p.Name() == name {
			return p.ID()
		}
	}
	made := c.addProject(&projectData{name: name}).ID()
	set(setting{Made: made}, true)
	return made
}

// takeBack takes back those changes of a scenario that are over: each setting gets its old value, unless someone else has changed it
// meanwhile. If a change that was made later has the setting, too, that one gets the old value to restore.
func (c *Cloud) takeBack(s *Scenario, over func(change int) bool) {
	c.indexTaken()
	for _, t := range slices.Backward(s.Taken) {
		if !over(t.Change) {
			continue
		}
		all := c.taken[t.setting]
		i := slices.Index(all, t)
		if i+1 < len(all) {
			all[i+1].Old = t.Old
			all[i+1].of.version++
		} else if bytes.Equal(c.get(t.setting), t.Now) {
			c.set(t.setting, t.Old)
		}
		if c.taken[t.setting] = slices.Delete(all, i, i+1); len(all) == 1 {
			delete(c.taken, t.setting)
		}
	}
	s.Taken = slices.DeleteFunc(s.Taken, func(t *taken) bool { return over(t.Change) })
	s.InForce = slices.DeleteFunc(s.InForce, over)
}

// indexTaken makes Cloud.taken after the cloud got other scenarios.
func (c *Cloud) indexTaken() {
	if c.taken != nil {
		return
	}
	c.taken = map[setting][]*taken{}
	for _, s := range c.scenarios {
		for _, t := range s.Taken {
			t.of = s
			c.taken[t.setting] = append(c.taken[t.setting], t)
		}
	}
	for _, all := range c.taken {
		slices.SortFunc(all, func(a, b *taken) int { return cmp.Compare(a.Seq, b.Seq) })
	}
}

// get returns the value of a setting; null if it has none.
func (c *Cloud) get(k setting) json.RawMessage {
	switch {
	case k.ServerType != 0:
		if i := c.typeAt(k.ServerType); i >= 0 {
			return value(c.catalogue.ServerTypes[i].field(k.Location, k.Field))
		}
	case k.Kind != "":
		if p, ok := c.Project(k.Project); ok {
			return value(p.data.state.Load().Limits[k.Kind])
		}
	case k.Token != "":
		if t, ok := c.Token(k.Token); ok {
			return value(t)
		}
	case k.Rule != "", k.Made != 0:
		return value(true)
	}
	return value(nil)
}

// set gives a setting a value. If there is no such setting any more, or the value is of another kind, it does nothing.
func (c *Cloud) set(k setting, v json.RawMessage) {
	switch {
	case k.ServerType != 0:
		c.setOffer(k, v)
	case k.Kind != "":
		var most int
		if p, ok := c.Project(k.Project); ok && json.Unmarshal(v, &most) == nil {
			p.setLimits(p.data.state.Load().Limits.with(k.Kind, most))
		}
	case k.Token != "":
		var t Token
		if string(v) != "null" && json.Unmarshal(v, &t) == nil {
			if p, ok := c.Project(t.Project); ok {
				c.addToken(k.Token, t, p.data)
				return
			}
		}
		c.revokeToken(k.Token)
	case string(v) != "true" && k.Rule != "" && c.faults != nil:
		_, _ = c.faults.Remove(context.Background(), k.Rule) // returns no error
		c.resumeOf(k.Rule)
	case string(v) != "true" && k.Made != 0:
		c.dropUnused(k.Made)
	}
}

// dropUnused drops a project that owns nothing.
func (c *Cloud) dropUnused(id int64) {
	p, ok := c.Project(id)
	if !ok || id == FirstProject {
		return
	}
	for _, t := range p.data.state.Load().tables() {
		if t.Len() > 0 {
			return
		}
	}
	p.data.lastUse.Store(dropped)
	c.remove(p.data, c.Now())
}

// with returns the limits with another one of a kind.
func (l Limits) with(kind store.Kind, most int) Limits {
	next := maps.Clone(l)
	if next == nil {
		next = Limits{}
	}
	if delete(next, kind); most > 0 {
		next[kind] = most
	}
	return next
}

// typeAt returns the place of a server type in the catalogue; -1 if it is not there.
func (c *Cloud) typeAt(id int64) int {
	return slices.IndexFunc(c.catalogue.ServerTypes, func(t *ServerType) bool { return t.ID == id })
}

// field returns a pointer to a field of the offer in a location, or nil.
func (t *ServerType) field(location string, f offerField) any {
	i := slices.IndexFunc(t.Locations, func(in ServerTypeLocation) bool { return in.Location.Name == location })
	price := slices.IndexFunc(t.Prices, func(p LocationPrice) bool { return p.Location == location })
	switch {
	case i >= 0 && f == offerAvailable:
		return &t.Locations[i].Available
	case i >= 0 && f == offerRecommended:
		return &t.Locations[i].Recommended
	case i >= 0 && f == offerDeprecation:
		return &t.Locations[i].Deprecation
	case price >= 0 && f == offerPrice:
		return &t.Prices[price]
	}
	return nil
}

// setOffer sets a field of an offer. A server type, and a catalogue, that is as in Options again becomes that one.
func (c *Cloud) setOffer(k setting, v json.RawMessage) {
	i := c.typeAt(k.ServerType)
	if i < 0 {
		return
	}
	t := *c.catalogue.ServerTypes[i]
	t.Locations, t.Prices = slices.Clone(t.Locations), slices.Clone(t.Prices)
	field := t.field(k.Location, k.Field)
	if d, ok := field.(**Deprecation); ok {
		*d = nil // else the old one would be changed
	}
	if field == nil || json.Unmarshal(v, field) != nil {
		return
	}
	t.Deprecation = t.deprecationOfAll()
	next := *c.catalogue
	next.ServerTypes = slices.Clone(next.ServerTypes)
	next.ServerTypes[i] = &t
	for _, first := range c.offered.ServerTypes {
		if first.ID == t.ID && reflect.DeepEqual(*first, t) {
			next.ServerTypes[i] = first
		}
	}
	if slices.Equal(next.ServerTypes, c.offered.ServerTypes) {
		c.setCatalogue(c.offered)
		return
	}
	c.setCatalogue(&next)
}
