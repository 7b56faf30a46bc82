package cloud

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/store"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/strictjson"
)

// codecs has a line for each kind of resources.
var codecs = map[store.Kind]codec{
	KindServer:         savedAs[*Server, savedServer]{saveServer, loadServer},
	KindNetwork:        savedAs[*Network, Network]{func(n *Network) Network { return *n }, loadNetwork},
	KindLoadBalancer:   savedAs[*LoadBalancer, savedLoadBalancer]{saveLoadBalancer, loadLoadBalancer},
	KindCertificate:    plain[Certificate](),
	KindPrimaryIP:      savedAs[*PrimaryIP, savedPrimaryIP]{savePrimaryIP, loadPrimaryIP},
	KindFloatingIP:     savedAs[*FloatingIP, savedFloatingIP]{saveFloatingIP, loadFloatingIP},
	KindVolume:         savedAs[*Volume, savedVolume]{saveVolume, loadVolume},
	KindFirewall:       savedAs[*Firewall, savedFirewall]{saveFirewall, loadFirewall},
	KindZone:           savedAs[*Zone, savedZone]{saveZone, loadZone},
	KindPlacementGroup: plain[PlacementGroup](),
	KindSSHKey:         plain[SSHKey](),
	KindImage:          plain[Image](),
	KindAction:         savedAs[*Action, savedAction]{saveAction, loadAction},
}

// savedServer and the following types are resources with their fields that lack a JSON form. Parts of the catalogue are saved by name, or
// by id if they have no name.
type savedServer struct {
	Server
	Type     string    `json:"type"`
	Location string    `json:"location"`
	Image    int64     `json:"image,omitzero"`
	ISO      int64     `json:"iso,omitzero"`
	Powered  time.Time `json:"powered,omitzero"`
	Filtered time.Time `json:"filtered,omitzero"`
	Epoch    uint64    `json:"epoch,omitzero"`
}

type savedLoadBalancer struct {
	LoadBalancer
	Type     string `json:"type"`
	Location string `json:"location"`
}

type savedVolume struct {
	Volume
	Location string `json:"location"`
}

type savedFloatingIP struct {
	FloatingIP
	HomeLocation string `json:"home_location"`
}

type savedPrimaryIP struct {
	PrimaryIP
	Location string `json:"location"`
}

type savedFirewall struct {
	Firewall
	InForce []FirewallRule        `json:"in_force,omitzero"` // if they are not those that the firewall shows
	Setting bool                  `json:"setting,omitzero"`
	Targets []savedFirewallTarget `json:"targets,omitzero"`
	Applied int                   `json:"applied,omitzero"`
}

type savedFirewallTarget struct {
	FirewallTarget
	Order    int     `json:"order"`
	Pending  bool    `json:"pending,omitzero"`
	Filters  bool    `json:"filters,omitzero"`
	Selected []int64 `json:"selected,omitempty"`
	Coming   []int64 `json:"coming,omitempty"`
}

type savedZone struct {
	Zone
	Publishing int   `json:"publishing,omitzero"`
	Failed     bool  `json:"failed,omitzero"`
	LastAge    int64 `json:"last_age,omitzero"`
}

// savedRRSet is a separate line: a zone may have thousands.
type savedRRSet struct {
	RRSet
	Zone    int64     `json:"zone"`
	Created time.Time `json:"created"`
	Age     int64     `json:"age"`
}

type savedAction struct {
	Action
	Waited  time.Duration  `json:"waited,omitzero"`
	Takes   time.Duration  `json:"takes,omitzero"`
	Does    *savedWork     `json:"does,omitzero"`
	Locks   []Ref          `json:"locks,omitzero"`
	Guest   *GuestWork     `json:"guest,omitzero"`
	After   int64          `json:"after,omitzero"`
	Outcome *ActionOutcome `json:"outcome,omitzero"`
}

func saveServer(s *Server) savedServer {
	saved := savedServer{
		Server: *s, Type: s.Type.Name, Location: s.Location.Name, Powered: s.powered, Filtered: s.filtered, Epoch: s.epoch,
	}
	if s.Image != nil {
		saved.Image = s.Image.ID
	}
	if s.ISO != nil {
		saved.ISO = s.ISO.ID
	}
	return saved
}

func saveLoadBalancer(lb *LoadBalancer) savedLoadBalancer {
	return savedLoadBalancer{*lb, lb.Type.Name, lb.Location.Name}
}

func saveVolume(v *Volume) savedVolume { return savedVolume{*v, v.Location.Name} }

func saveFloatingIP(f *FloatingIP) savedFloatingIP { return savedFloatingIP{*f, f.HomeLocation.Name} }

func savePrimaryIP(p *PrimaryIP) savedPrimaryIP { return savedPrimaryIP{*p, p.Location.Name} }

func saveZone(z *Zone) savedZone { return savedZone{*z, z.publishing, z.failed, z.sets.lastAge} }

func saveFirewall(f *Firewall) savedFirewall {
	saved := savedFirewall{Firewall: *f, Setting: f.setting, Applied: f.applied}
	if f.setting {
		saved.InForce = f.inForce
	}
	for t := range f.selectors() {
		saved.Targets = append(saved.Targets, saveFirewallTarget(t))
	}
	return saved
}

// saveFirewallTarget saves a target without the servers that a selector selects: see savedTargetServer.
func saveFirewallTarget(t FirewallTarget) savedFirewallTarget {
	return savedFirewallTarget{FirewallTarget: t, Order: t.order, Pending: t.pending, Filters: t.filters}
}

func saveAction(a *Action) savedAction {
	saved := savedAction{Action: *a, Waited: a.waited, Takes: a.takes}
	if p := a.plan; p != nil {
		saved.Does, saved.Locks, saved.Guest, saved.After, saved.Outcome = saveWork(p.Does), p.Locks, p.Guest, p.After, p.Outcome
	}
	return saved
}

// part finds a part of the catalogue.
func part[T any](kind store.Kind, name string, find func(string) (T, bool), to *T) error {
	v, ok := find(name)
	if !ok {
		return fmt.Errorf("%s %.64q: must be in the catalogue", kind, name)
	}
	*to = v
	return nil
}

func loadServer(l *loader, saved *savedServer) (*Server, error) {
	s := &saved.Server
	s.powered, s.filtered, s.epoch = saved.Powered.UTC(), saved.Filtered.UTC(), saved.Epoch
	err := cmp.Or(l.meta(&s.Meta), part("server type", saved.Type, l.findType, &s.Type),
		part("location", saved.Location, l.tx.Catalogue.Location, &s.Location))
	for i, n := range s.PrivateNets {
		if !n.IP.Is4() {
			err = cmp.Or(err, fmt.Errorf("private_nets.%d.ip: must be an IPv4 address", i))
		}
	}
	if err == nil && saved.ISO != 0 {
		err = part("ISO", fmt.Sprint(saved.ISO), l.tx.Catalogue.ISO, &s.ISO)
	}
	tx := l.tx
	if err == nil && saved.Image != 0 {
		l.links = append(l.links, func() error {
			image, ok := tx.Image(saved.Image)
			if !ok {
				return fmt.Errorf("server %d: image %d must exist", s.ID, saved.Image)
			}
			s.Image = image // no reader has the server yet
			return nil
		})
	}
	return s, err
}

func loadVolume(l *loader, saved *savedVolume) (*Volume, error) {
	v := &saved.Volume
	return v, cmp.Or(l.meta(&v.Meta), part("location", saved.Location, l.tx.Catalogue.Location, &v.Location))
}

func loadFloatingIP(l *loader, saved *savedFloatingIP) (*FloatingIP, error) {
	f := &saved.FloatingIP
	return f, cmp.Or(l.meta(&f.Meta), part("location", saved.HomeLocation, l.tx.Catalogue.Location, &f.HomeLocation), l.take(f.Type, f.IP))
}

func loadPrimaryIP(l *loader, saved *savedPrimaryIP) (*PrimaryIP, error) {
	p := &saved.PrimaryIP
	return p, cmp.Or(l.meta(&p.Meta), part("location", saved.Location, l.tx.Catalogue.Location, &p.Location), l.take(p.Type, p.IP))
}

// take takes an address or network out of its pool, if one has it: the ranges may be others now.
func (l *loader) take(kind IPType, n netip.Prefix) error {
	bits, pools := 64, []*prefixPool{l.cloud.ips.v6}
	if kind == IPv4 {
		bits, pools = 32, []*prefixPool{l.cloud.ips.v4, l.cloud.lbIPs.v4}
	}
	if !n.IsValid() || n.Bits() != bits || n.Addr().Is4() != (kind == IPv4) || n != n.Masked() || kind != IPv4 && kind != IPv6 {
		return fmt.Errorf("address %v: must be of its type %.16q, with /32 for ipv4 and /64 for ipv6", n, kind)
	}
	for _, p := range pools {
		i, ok := p.number(n.Addr())
		if _, used := p.inUse(n.Addr()); used {
			return fmt.Errorf("address %v: must be that of one resource only", n)
		}
		if ok && p.at(i) == n {
			p.used.Set(i)
			p.fresh = max(p.fresh, i+1)
			break
		}
	}
	return nil
}

func loadLoadBalancer(l *loader, saved *savedLoadBalancer) (*LoadBalancer, error) {
	lb := &saved.LoadBalancer
	if lb.LoadBalancerSettings == nil {
		lb.LoadBalancerSettings = &LoadBalancerSettings{}
	}
	err := cmp.Or(l.meta(&lb.Meta), part("load balancer type", saved.Type, l.tx.Catalogue.LoadBalancerType, &lb.Type),
		part("location", saved.Location, l.tx.Catalogue.Location, &lb.Location), lb.checkSaved())
	if err != nil {
		return nil, err
	}
	for _, a := range lb.ownAddresses() {
		kind, bits := IPv4, 32
		if !a.Is4() {
			kind, bits = IPv6, 64
		}
		if err := l.take(kind, netip.PrefixFrom(a, bits)); err != nil {
			return nil, err
		}
	}
	for i := range lb.Targets {
		if t := &lb.Targets[i]; t.Type == "label_selector" {
			l.snapshot.earlier = l.snapshot.earlier || t.Targets.Len() > 0
			selector, err := store.ParseSelector(t.Selector)
			if err != nil {
				return nil, fmt.Errorf("targets.%d.selector: %w", i, err)
			}
			t.selector = &selector
		}
	}
	for t := range lb.Backends() {
		if err := l.health(lb, t); err != nil {
			return nil, err
		}
	}
	l.tx.relinkSelectors(lb.ID, nil, lb.selectorTerms())
	return lb, nil
}

// checkSaved checks what other code relies on.
func (lb *LoadBalancer) checkSaved() error {
	if !lb.IPv4.Addr.Is4() || !lb.IPv6.Addr.Is6() || len(lb.PrivateNets) > 0 && !lb.PrivateNets[0].IP.Is4() {
		return errors.New("ipv4, ipv6 and private_nets: must have addresses of their families")
	}
	for i, s := range lb.Services {
		if (s.Protocol != "tcp") != (s.HTTP != nil) || (s.HealthCheck.Protocol != "tcp") != (s.HealthCheck.HTTP != nil) {
			return fmt.Errorf("services.%d: must have the part http if its protocol, or that of its health check, is not tcp", i)
		}
		if s.HealthCheck.Interval <= 0 {
			return fmt.Errorf("services.%d.health_check.interval: must be more than 0", i)
		}
	}
	return nil
}

// IsZero leaves the servers out of the line of a load balancer: see savedTargetServer.
func (s Selected) IsZero() bool { return true }

// UnmarshalJSON reads the servers of an earlier version, in whose snapshots the load balancer's line had them.
func (s *Selected) UnmarshalJSON(data []byte) error {
	var all []*LoadBalancerTarget
	if err := strictjson.Decode(data, &all); err != nil {
		return err
	}
	*s = Selected{}
	for _, t := range all {
		if t == nil {
			return errors.New("targets: must not be null")
		}
		s.add(t)
	}
	return nil
}

func loadFirewall(l *loader, saved *savedFirewall) (*Firewall, error) {
	f := &saved.Firewall
	if err := l.meta(&f.Meta); err != nil {
		return nil, err
	}
	f.inForce, f.setting, f.targets, f.applied = f.Rules, saved.Setting, store.NewAscending(lessTarget), saved.Applied
	if f.setting {
		f.inForce = saved.InForce
	}
	for _, t := range saved.Targets {
		l.snapshot.earlier = l.snapshot.earlier || t.Server != 0 || len(t.Selected)+len(t.Coming) > 0
	}
	return f, l.firewallTargets(f, saved.Targets)
}

// firewallTargets adds targets of a firewall, and servers to those that it has.
func (l *loader) firewallTargets(f *Firewall, saved []savedFirewallTarget) error {
	for i, s := range saved {
		t, known := f.targets.Get(s.FirewallTarget)
		if !known {
			t = s.FirewallTarget
			t.order, t.pending, t.filters = s.Order, s.Pending, s.Filters
		}
		switch {
		case (t.Server == 0) != (t.Selector != ""):
			return fmt.Errorf("targets.%d: must have either a server or a selector", i)
		case t.Server == 0 && !known:
			selector, err := store.ParseSelector(t.Selector)
			if err != nil {
				return fmt.Errorf("targets.%d.selector: %w", i, err)
			}
			t.selector = &selector
			l.tx.indexTarget(f.ID, t, true)
		}
		for _, id := range s.Selected {
			t.selected = t.selected.With(id, true)
		}
		for _, id := range s.Coming {
			t.coming = t.coming.With(id, true)
		}
		f.targets.Set(t)
	}
	return nil
}

func loadZone(l *loader, saved *savedZone) (*Zone, error) {
	z := &saved.Zone
	z.publishing, z.failed, z.sets.lastAge = saved.Publishing, saved.Failed, saved.LastAge
	return z, l.meta(&z.Meta)
}

// rrset adds a record set to its zone. Readers do not have the zone yet.
func (l *loader) rrset(saved *savedRRSet) error {
	z, ok := l.tx.Zones.Get(saved.Zone)
	if !ok {
		return fmt.Errorf("zone %d: must have a line before", saved.Zone)
	}
	s := &saved.RRSet
	s.created, s.age, s.Labels = saved.Created.UTC(), saved.Age, labelsOrNone(s.Labels)
	if _, exists := z.RRSet(s.Name, s.Type); exists || s.age <= 0 || s.age > z.sets.lastAge {
		return fmt.Errorf("record set %.64q: must be the only one of its name and type, with an age of 1 to %d", s.ID(), z.sets.lastAge)
	}
	data := s.data()
	field, problem := data.Check(z.Name)
	if problem == "" {
		field, problem = data.CheckRecords()
	}
	if problem != "" {
		return fmt.Errorf("record set %.64q: %s %s", s.ID(), field, problem)
	}
	z.sets.add(s, nil)
	return ValidateLabels(s.Labels)
}

func validNetwork(n *Network) error {
	if !n.IPRange.IsValid() || !n.IPRange.Addr().Is4() {
		return fmt.Errorf("ip_range %v: must be an IPv4 range", n.IPRange)
	}
	for i, s := range n.Subnets {
		if !s.IPRange.IsValid() || !s.IPRange.Addr().Is4() {
			return fmt.Errorf("subnets.%d.ip_range %v: must be an IPv4 range", i, s.IPRange)
		}
	}
	for i, m := range n.Members {
		if !m.IP.Is4() {
			return fmt.Errorf("members.%d.ip: must be an IPv4 address", i)
		}
	}
	return nil
}

func loadNetwork(l *loader, n *Network) (*Network, error) {
	if err := cmp.Or(l.meta(&n.Meta), validNetwork(n)); err != nil {
		return nil, err
	}
	for _, m := range n.Members {
		l.tx.memberships.Set(membership{m.Ref, n.ID})
	}
	return n, nil
}

func loadAction(l *loader, saved *savedAction) (*Action, error) {
	a := &saved.Action
	a.waited, a.takes = saved.Waited, saved.Takes
	if err := l.meta(&a.Meta); err != nil {
		return nil, err
	}
	if len(a.Resources) == 0 {
		return nil, errors.New("resources: must name at least one")
	}
	for _, r := range slices.Concat(a.Resources, saved.Locks) {
		if place(r.Kind) < 0 {
			return nil, fmt.Errorf("resources: type %.64q must be one of %v", r.Kind, Kinds())
		}
	}
	if a.Status == ActionRunning {
		a.plan = &actionPlan{Locks: saved.Locks, Guest: saved.Guest, After: saved.After, Outcome: saved.Outcome}
		if saved.Does != nil {
			does, err := saved.Does.load()
			if err != nil {
				return nil, err
			}
			a.plan.Does = does
		}
	} else {
		l.cloud.finished = append(l.cloud.finished, finishedAction{l.tx.project.id, a.ID, a.Finished})
	}
	l.tx.Actions.index(a)
	for _, r := range saved.Locks {
		l.tx.Actions.locks.Set(lock{r.key(), a.ID})
	}
	return a, nil
}
