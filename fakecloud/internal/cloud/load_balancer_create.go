package cloud

import (
	"cmp"
	"fmt"
	"net/netip"
	"regexp"
)

// CreateLoadBalancer is the input of POST /load_balancers. Zero values mean absent.
type CreateLoadBalancer struct {
	Name      string
	Type      string // id or name
	Algorithm string // default round_robin
	// Either Location (an id or name) or NetworkZone (a name) is required.
	Location, NetworkZone string
	Labels                map[string]string
	Network               int64
	// PublicInterface enables the public interface; default true. Unlike disable_public_interface, false is allowed without a network: the
	// production CCM sends this since 2020, and attaches a network later (issue 7).
	PublicInterface *bool
	Services        []ServiceInput
	Targets         []TargetInput
	// IPv4 and IPv6 are ids of unassigned Primary IPs. With 0, the cloud picks an address.
	IPv4, IPv6 int64
}

// loadBalancerName is the pattern of the API document.
var loadBalancerName = regexp.MustCompile(`^\S(.*\S)?$`)

func checkLoadBalancerName(name string) error {
	if len([]rune(name)) > 128 || !loadBalancerName.MatchString(name) {
		return ErrField("name", "must be 1 to 128 characters that neither begin nor end with a space")
	}
	return nil
}

// CreateLoadBalancer creates a load balancer and starts create_load_balancer. The load balancer has its
// addresses, services and targets at once. Its addresses are shown from the end of the action
// (https://github.com/hetznercloud/hcloud-go/issues/153).
// If the action fails, the load balancer stays, without its network: the document does not cover this.
//
// Errors: invalid_input, uniqueness_error, resource_limit_exceeded, source_port_already_used (412),
// the errors of targets and of joining a network, primary_ip_assigned,
// primary_ip_datacenter_mismatch, primary_ip_version_mismatch (412).
func (p Project) CreateLoadBalancer(in CreateLoadBalancer) (lb *LoadBalancer, action int64, st *State, err error) {
	st, err = p.update(func(tx *Tx) error {
		if lb, err = tx.newLoadBalancer(in); err != nil {
			return err
		}
		if err := tx.takeLoadBalancerAddresses(lb, in); err != nil {
			return err
		}
		tx.resolveTargets(lb, 0)
		tx.settleHealth(lb, 0)
		tx.storeLoadBalancer(lb)
		if in.Network != 0 {
			err := tx.joinNetwork(Join{Member: lb.Ref(), Zone: lb.Location.NetworkZone, Network: in.Network})
			if err != nil {
				return err
			}
		}
		action = tx.Start(ActionSpec{
			Command: "create_load_balancer", Resources: []Ref{lb.Ref()}, Does: loadBalancerCreation{attaching{lb.Ref(), in.Network}},
		}).ID
		return nil
	})
	return lb, action, st, err
}

// loadBalancerCreation ends the creation of a load balancer, and its joining of a network, if that is not 0.
type loadBalancerCreation struct{ Into attaching }

func (e loadBalancerCreation) end(tx *Tx) {
	if e.Into.Network != 0 {
		e.Into.end(tx)
	}
	e.finish(tx)
}

func (e loadBalancerCreation) failed(tx *Tx, failure *Error) {
	if e.Into.Network != 0 {
		e.Into.failed(tx, failure)
	}
	e.finish(tx)
}

func (e loadBalancerCreation) finish(tx *Tx) {
	id := e.Into.Member.ID
	tx.LoadBalancers.Update(id, func(lb *LoadBalancer) { lb.Joining, lb.Creating = 0, false })
	tx.refreshLoadBalancer(id)
}

// newLoadBalancer checks the input and returns a load balancer without addresses. It does not store it.
func (tx *Tx) newLoadBalancer(in CreateLoadBalancer) (*LoadBalancer, error) {
	if err := cmp.Or(checkLoadBalancerName(in.Name), ValidateLabels(in.Labels)); err != nil {
		return nil, err
	}
	kind, ok := tx.Catalogue.LoadBalancerType(in.Type)
	if !ok {
		return nil, ErrField("load_balancer_type", fmt.Sprintf("load balancer type %q not found", in.Type))
	}
	if kind.Deprecation.Retired(tx.now) {
		return nil, ErrField("load_balancer_type", fmt.Sprintf("load balancer type %q is no longer available", kind.Name))
	}
	location, err := tx.loadBalancerLocation(in)
	if err != nil {
		return nil, err
	}
	if err := cmp.Or(tx.checkLimit(&tx.LoadBalancers), RequireUniqueName(&tx.LoadBalancers, in.Name, 0)); err != nil {
		return nil, err
	}
	lb := &LoadBalancer{
		Meta: tx.NewMeta(in.Name, in.Labels),
		LoadBalancerSettings: &LoadBalancerSettings{
			Type: kind, Location: location, Algorithm: cmp.Or(in.Algorithm, "round_robin"),
			PublicEnabled: in.PublicInterface == nil || *in.PublicInterface, Joining: in.Network, Creating: true,
		},
	}
	if _, ok := tx.Networks.Get(in.Network); in.Network != 0 && !ok {
		return nil, ErrField("network", fmt.Sprintf("network with ID '%d' not found", in.Network))
	}
	for i, s := range in.Services {
		if err := lb.addService(tx.State, s, fmt.Sprintf("services.%d.", i)); err != nil {
			return nil, err
		}
	}
	for i, t := range in.Targets {
		if err := lb.addTarget(tx.State, tx.cloud, t, fmt.Sprintf("targets.%d.", i)); err != nil {
			return nil, err
		}
	}
	return lb, nil
}

// loadBalancerLocation returns the location for a new load balancer. For a network zone, it is the
// location of a given Primary IP, or else the first of the zone.
func (tx *Tx) loadBalancerLocation(in CreateLoadBalancer) (*Location, error) {
	switch {
	case in.Location != "" && in.NetworkZone != "":
		return nil, ErrFields("location and network_zone are mutually exclusive", "network_zone", "location") // hetznercloud/cli issue 294
	case in.Location == "" && in.NetworkZone == "":
		return nil, ErrFields("either location or network_zone is required", "location", "network_zone")
	case in.Location != "":
		l, ok := tx.Catalogue.Location(in.Location)
		if !ok {
			return nil, ErrField("location", fmt.Sprintf("location %q not found", in.Location))
		}
		return l, nil
	}
	for _, id := range []int64{in.IPv4, in.IPv6} {
		if ip, ok := tx.PrimaryIPs.Get(id); ok && ip.Location != nil && ip.Location.NetworkZone == in.NetworkZone {
			return ip.Location, nil
		}
	}
	l, ok := find(tx.Catalogue.Locations, func(l *Location) bool { return l.NetworkZone == in.NetworkZone })
	if !ok {
		return nil, ErrField("network_zone", fmt.Sprintf("network zone %q not found", in.NetworkZone))
	}
	return l, nil
}

// takeLoadBalancerAddresses sets the public addresses of a load balancer. Its IPv6 address is the first
// host address of the network.
func (tx *Tx) takeLoadBalancerAddresses(lb *LoadBalancer, in CreateLoadBalancer) (err error) {
	if in.IPv4 != 0 {
		lb.IPv4, err = tx.claimPrimaryIP(lb, in.IPv4, IPv4)
	} else {
		lb.IPv4.Addr, err = tx.TakeLoadBalancerIPv4()
	}
	if err != nil {
		return err
	}
	if in.IPv6 != 0 {
		lb.IPv6, err = tx.claimPrimaryIP(lb, in.IPv6, IPv6)
		return err
	}
	n, err := tx.TakeIPv6()
	lb.IPv6.Addr = n.Addr().Next()
	return err
}

// claimPrimaryIP assigns an existing Primary IP to a load balancer, and returns the address that the load balancer has by it.
func (tx *Tx) claimPrimaryIP(lb *LoadBalancer, id int64, want IPType) (has LoadBalancerIP, err error) {
	field := "public_net." + string(want)
	ip, ok := tx.PrimaryIPs.Get(id)
	switch {
	case !ok:
		return has, ErrField(field, fmt.Sprintf("Primary IP with ID '%d' not found", id))
	case ip.Type != want:
		return has, ErrPrecondition("primary_ip_version_mismatch", fmt.Sprintf("Primary IP %d is not of type %s", id, want))
	case ip.Assigned():
		return has, ErrOperation("primary_ip_assigned", fmt.Sprintf("Primary IP %d is assigned already", id))
	case ip.Location != nil && ip.Location.Name != lb.Location.Name:
		return has, ErrOperation("primary_ip_datacenter_mismatch", fmt.Sprintf("Primary IP %d is in another location", id))
	}
	if err := tx.RequireUnlocked(ip.Ref()); err != nil {
		return has, err
	}
	tx.assignPrimaryIP(ip, lb.Ref())
	addr := ip.IP.Addr()
	if want == IPv6 {
		addr = addr.Next()
	}
	return LoadBalancerIP{Addr: addr, PrimaryIP: id, Blocked: ip.Blocked, DNSPtr: ip.DNSPtr[addr]}, nil
}

// PublicDNSPtr returns the reverse DNS entry of a public address, or "" for none. A Primary IP has the entry
// itself. An IPv4 address without an entry has the default one.
func (st *State) PublicDNSPtr(a LoadBalancerIP) string {
	if ip, ok := st.PrimaryIPs.Get(a.PrimaryIP); ok {
		return ip.DNSPtr.Of(a.Addr)
	}
	return cmp.Or(a.DNSPtr, DefaultDNSPtr(a.Addr))
}

// UpdateLoadBalancer changes name and labels. Errors: not_found, invalid_input, uniqueness_error.
//
// Not modelled: the conflict error of the real API if the load balancer changes during the request. Here,
// requests change it one after the other.
func (p Project) UpdateLoadBalancer(id int64, in UpdateResource) (*State, error) {
	return p.update(func(tx *Tx) error {
		if in.Name != nil {
			if err := checkLoadBalancerName(*in.Name); err != nil {
				return err
			}
		}
		return setMeta(&tx.LoadBalancers, id, in)
	})
}

// DeleteLoadBalancer starts delete_load_balancer. With atOnce, it deletes without an action, as the API did
// before 2026-10-05, and action is 0. Errors: not_found, protected, conflict.
func (p Project) DeleteLoadBalancer(id int64, atOnce bool) (action int64, st *State, err error) {
	st, err = p.update(func(tx *Tx) error {
		lb, err := Find(&tx.LoadBalancers, id)
		if err != nil {
			return err
		}
		if lb.DeleteProtection {
			return ErrProtected("load balancer deletion is protected")
		}
		if err := tx.RequireUnlocked(lb.Ref()); err != nil {
			return err
		}
		if atOnce {
			tx.removeLoadBalancer(id)
			return nil
		}
		tx.LoadBalancers.Update(id, func(lb *LoadBalancer) { lb.Deleting = true })
		action = tx.Start(ActionSpec{Command: "delete_load_balancer", Resources: []Ref{lb.Ref()}, Does: loadBalancerRemoval{id}}).ID
		return nil
	})
	return action, st, err
}

type loadBalancerRemoval struct{ LoadBalancer int64 }

func (e loadBalancerRemoval) end(tx *Tx) { tx.removeLoadBalancer(e.LoadBalancer) }

func (e loadBalancerRemoval) failed(tx *Tx, _ *Error) {
	tx.LoadBalancers.Update(e.LoadBalancer, func(lb *LoadBalancer) { lb.Deleting = false })
}

// removeLoadBalancer deletes a load balancer and all references to it.
func (tx *Tx) removeLoadBalancer(id int64) {
	tx.leaveAllNetworks(Ref{KindLoadBalancer, id})
	lb, ok := tx.LoadBalancers.Get(id)
	if !ok {
		return
	}
	tx.relinkServers(lb.withTargets(nil), lb.Targets)
	tx.relinkCertificates(lb.Ref(), lb.certificates(), nil)
	tx.relinkSelectors(id, lb.selectorTerms(), nil)
	for _, a := range lb.ownAddresses() {
		tx.GiveBack(a)
	}
	tx.releasePrimaryIPs(lb.Ref())
	tx.LoadBalancers.Delete(id)
	tx.cloud.loadBalancerStats.forget(id)
}

// ownAddresses returns the addresses that the load balancer itself has out of the pools, and not a Primary IP: the first one of an
// IPv6 network.
func (lb *LoadBalancer) ownAddresses() (all []netip.Addr) {
	if lb.IPv4.PrimaryIP == 0 {
		all = append(all, lb.IPv4.Addr)
	}
	if lb.IPv6.PrimaryIP == 0 {
		all = append(all, netip.PrefixFrom(lb.IPv6.Addr, 64).Masked().Addr())
	}
	return all
}
