package cloud

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/catalogue"
)

// OfferServerType changes how a server type, by name or id, is offered in a location, or in all its locations if location is
// empty. If o.Offered is set, these are all locations of the cloud. Errors: catalogue.ErrNotFound, and that a field is wrong.
func (c *Cloud) OfferServerType(serverType, location string, o catalogue.Offer) error {
	return c.changeCatalogue(func(next *Catalogue) error { return next.offer(serverType, location, o, c.Now()) })
}

// AddServerType adds a server type to the catalogue. Errors: catalogue.ErrNotFound if the type that it is a copy of does not exist,
// catalogue.ErrExists if the name is taken, and that a field is wrong.
func (c *Cloud) AddServerType(n catalogue.NewServerType) error {
	return c.changeCatalogue(func(next *Catalogue) error { return next.addServerType(n) })
}

// ResetCatalogue restores the catalogue that the cloud began with. Servers of types that are not in it keep them.
func (c *Cloud) ResetCatalogue() {
	_ = c.changeCatalogue(func(next *Catalogue) error { *next = *c.offered; return nil })
}

// Catalogue returns the catalogue of all projects.
func (c *Cloud) Catalogue() *Catalogue {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.catalogue
}

// changeCatalogue gives all projects a catalogue that change makes from a copy of the present one. Work that is due happens before,
// with the present one. If change returns an error, nothing changes.
func (c *Cloud) changeCatalogue(change func(*Catalogue) error) error {
	return c.betweenWrites(func() error {
		next := *c.catalogue
		if err := change(&next); err != nil {
			return err
		}
		c.setCatalogue(&next)
		c.saver.saveTypes()
		return nil
	})
}

// setCatalogue gives all projects a catalogue. The caller holds Cloud.mu.
func (c *Cloud) setCatalogue(next *Catalogue) {
	c.catalogue = next
	for d := range c.projects.Load().Scan {
		c.setState(d, func(st *State) { st.Catalogue = next })
	}
	c.publish()
}

// betweenWrites runs fn after the due work. fn may change the settings under Cloud.mu.
func (c *Cloud) betweenWrites(fn func() error) error {
	if c.stepped {
		c.settle()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.catchUp()
	return fn()
}

// setState replaces a project's state by one without changes of resources. The caller holds Cloud.mu.
func (c *Cloud) setState(d *projectData, change func(*State)) {
	next := *d.state.Load()
	change(&next)
	c.store(d, &next)
}

// TypeOf returns the server's type from the current catalogue. The type may differ from the one that the server was created with.
func (st *State) TypeOf(s *Server) *ServerType {
	if t, ok := find(st.Catalogue.ServerTypes, func(t *ServerType) bool { return t.ID == s.Type.ID }); ok {
		return t
	}
	return s.Type
}

// At returns the catalogue as it is at a time: a server type is not available where it is retired. It is the catalogue itself if that
// makes no difference. until is when that changes; the zero time means never.
func (c *Catalogue) At(now time.Time) (at *Catalogue, until time.Time) {
	at = c
	for i, t := range c.ServerTypes {
		for j, in := range t.Locations {
			switch d := in.Deprecation; {
			case !in.Available || d == nil:
			case !d.Retired(now):
				if until.IsZero() || d.UnavailableAfter.Before(until) {
					until = d.UnavailableAfter
				}
			default:
				if at == c {
					copied := *c
					copied.ServerTypes = slices.Clone(c.ServerTypes)
					at = &copied
				}
				if at.ServerTypes[i] == t {
					copied := *t
					copied.Locations = slices.Clone(t.Locations)
					at.ServerTypes[i] = &copied
				}
				at.ServerTypes[i].Locations[j].Available = false
			}
		}
	}
	return at, until
}

// offer changes how a server type is offered in a location, or in all its locations if location is empty.
func (c *Catalogue) offer(serverType, location string, o catalogue.Offer, now time.Time) error {
	old, ok := c.ServerType(serverType)
	if !ok {
		return fmt.Errorf("server type %.64q %w; GET /catalogue lists them", serverType, catalogue.ErrNotFound)
	}
	locations := c.Locations
	if location != "" {
		l, ok := c.Location(location)
		if !ok {
			return fmt.Errorf("location %.64q %w; it must be one of %s", location, catalogue.ErrNotFound, c.locationNames())
		}
		locations = []*Location{l}
	}
	d, err := checkOffer(o, now)
	if err != nil {
		return err
	}
	t := *old
	t.Locations, t.Prices = slices.Clone(t.Locations), slices.Clone(t.Prices)
	for _, l := range locations {
		_, in := t.In(l.Name)
		switch {
		case o.Offered != nil && !*o.Offered:
			t.remove(l)
			continue
		case !in && o.Offered != nil:
			t.add(l)
		case !in && location != "":
			return fmt.Errorf(`server type %s is not offered in %s; add {"offered": true} to offer it there`, t.Name, l.Name)
		case !in:
			continue
		}
		t.change(l, o, d)
		if o.PriceMonthly != nil {
			t.setPrice(l, *o.PriceMonthly, c.vatPercent())
		}
	}
	if len(t.Locations) == 0 {
		return fmt.Errorf(`offered: server type %s must stay in one location at least; send {"available": false} to sell it out`, t.Name)
	}
	t.Deprecation = t.deprecationOfAll()
	c.ServerTypes = slices.Clone(c.ServerTypes)
	c.ServerTypes[slices.Index(c.ServerTypes, old)] = &t
	return nil
}

// checkOffer returns the deprecation of an offer with all its times; nil if the offer changes none.
func checkOffer(o catalogue.Offer, now time.Time) (*Deprecation, error) {
	if o == (catalogue.Offer{}) {
		return nil, errors.New(`offer: must change something, such as {"available": false}`)
	}
	if p := o.PriceMonthly; p != nil && (!(*p >= 0) || *p > catalogue.MaxPrice) {
		return nil, fmt.Errorf("price_monthly: %v must be an amount of 0 to %d EUR", *p, catalogue.MaxPrice)
	}
	if o.Deprecation == nil {
		return nil, nil
	}
	d := Deprecation{Announced: o.Deprecation.Announced.UTC(), UnavailableAfter: o.Deprecation.UnavailableAfter.UTC()}
	switch {
	case d == Deprecation{}:
		return &d, nil
	case d.UnavailableAfter.Year() < 1970 || d.UnavailableAfter.Year() > 9999:
		return nil, errors.New(`deprecation.unavailable_after: must be a time of the years 1970 to 9999, such as "2027-01-01T00:00:00Z"`)
	case d.Announced.IsZero():
		d.Announced = d.UnavailableAfter.AddDate(0, 0, -90)
		if d.Announced.After(now) {
			d.Announced = now.Truncate(time.Second)
		}
	case d.Announced.Year() < 1970 || d.Announced.After(now) || !d.Announced.Before(d.UnavailableAfter):
		return nil, errors.New("deprecation.announced: must be before unavailable_after, and not later than now on the cloud's clock")
	}
	return &d, nil
}

func (c *Catalogue) locationNames() string {
	var names []string
	for _, l := range c.Locations {
		names = append(names, l.Name)
	}
	return strings.Join(names, ", ")
}

func (c *Catalogue) vatPercent() int64 {
	rate, _ := strconv.ParseFloat(c.Pricing.VATRate, 64) // a test's catalogue may have none
	return int64(rate)
}

// add offers the type in a location, at the price of its first one.
func (t *ServerType) add(l *Location) {
	t.Locations = append(t.Locations, ServerTypeLocation{Location: l, Available: true})
	if len(t.Prices) > 0 {
		price := t.Prices[0]
		price.Location = l.Name
		t.Prices = append(t.Prices, price)
	}
}

// remove ends the offer of the type in a location.
func (t *ServerType) remove(l *Location) {
	t.Locations = slices.DeleteFunc(t.Locations, func(in ServerTypeLocation) bool { return in.Location.ID == l.ID })
	t.Prices = slices.DeleteFunc(t.Prices, func(p LocationPrice) bool { return p.Location == l.Name })
}

// change changes the offer in a location that has the type already. d is its deprecation; nil if it stays.
func (t *ServerType) change(l *Location, o catalogue.Offer, d *Deprecation) {
	in := &t.Locations[slices.IndexFunc(t.Locations, func(in ServerTypeLocation) bool { return in.Location.ID == l.ID })]
	set(&in.Available, o.Available)
	set(&in.Recommended, o.Recommended)
	switch {
	case d == nil:
	case *d == Deprecation{}:
		in.Deprecation = nil
	default:
		in.Deprecation = d
	}
}

func (t *ServerType) setPrice(l *Location, monthly float64, vatPercent int64) {
	for i := range t.Prices {
		if p := &t.Prices[i]; p.Location == l.Name {
			p.Monthly, p.Hourly = newPrice(monthly, vatPercent), newPrice(hourly(monthly), vatPercent)
		}
	}
}

// deprecationOfAll returns the deprecation of the type as a whole: the one that ends last, or nil if it is not deprecated in
// a location.
func (t *ServerType) deprecationOfAll() *Deprecation {
	var last *Deprecation
	for _, in := range t.Locations {
		if in.Deprecation == nil {
			return nil
		}
		if last == nil || in.Deprecation.UnavailableAfter.After(last.UnavailableAfter) {
			last = in.Deprecation
		}
	}
	return last
}

// maxServerTypes bounds what a search for a server type costs.
const maxServerTypes = 1000

var serverTypeName = regexp.MustCompile(`^[a-z][a-z0-9-]{0,62}$`)

// addServerType adds a server type.
func (c *Catalogue) addServerType(n catalogue.NewServerType) error {
	if err := checkServerType(n); err != nil {
		return err
	}
	if _, ok := c.ServerType(n.Name); ok {
		return fmt.Errorf("server type %s %w; choose another name", n.Name, catalogue.ErrExists)
	}
	from, ok := c.ServerType(n.CopyOf)
	if !ok {
		return fmt.Errorf("copy_of: server type %.64q %w; GET /catalogue lists them", n.CopyOf, catalogue.ErrNotFound)
	}
	if len(c.ServerTypes) >= maxServerTypes {
		return fmt.Errorf("server type %s: the catalogue has no room for more than %d; DELETE /catalogue removes the new ones",
			n.Name, maxServerTypes)
	}
	t := *from
	t.ID = 1 + slices.MaxFunc(c.ServerTypes, func(a, b *ServerType) int { return cmp.Compare(a.ID, b.ID) }).ID
	t.Name, t.Description = n.Name, cmp.Or(n.Description, strings.ToUpper(n.Name))
	t.Category = cmp.Or(n.Category, t.Category)
	t.Cores, t.Memory, t.Disk = cmp.Or(n.Cores, t.Cores), cmp.Or(n.Memory, t.Memory), cmp.Or(n.Disk, t.Disk)
	t.CPUType, t.Architecture = cmp.Or(n.CPUType, t.CPUType), cmp.Or(n.Architecture, t.Architecture)
	c.ServerTypes = append(slices.Clone(c.ServerTypes), &t)
	return nil
}

// checkServerType returns an error if a field of a new server type is wrong.
func checkServerType(n catalogue.NewServerType) error {
	const most = 1_000_000 // of cores and GB; bounds nothing but mistakes
	oneOf := func(v string, all ...string) bool { return v == "" || slices.Contains(all, v) }
	switch {
	case !serverTypeName.MatchString(n.Name):
		return fmt.Errorf("name: %.64q must have 1 to 63 lower-case letters, digits and dashes, and begin with a letter", n.Name)
	case len(n.Description) > 64 || len(n.Category) > 64 || strings.ContainsFunc(n.Description+n.Category, isControl):
		return errors.New("description and category: each must have at most 64 characters, and none that control the output")
	case n.Cores < 0 || n.Cores > most || n.Disk < 0 || n.Disk > most || !(n.Memory >= 0) || n.Memory > most:
		return fmt.Errorf("cores, memory and disk: each must be 1 to %d", most)
	case !oneOf(n.CPUType, "shared", "dedicated"):
		return fmt.Errorf("cpu_type: %.64q must be one of shared, dedicated", n.CPUType)
	case !oneOf(n.Architecture, "x86", "arm"):
		return fmt.Errorf("architecture: %.64q must be one of x86, arm", n.Architecture)
	}
	return nil
}
