package cloud

import (
	"fmt"
	"net/netip"
	"reflect"
)

// unlockedLoadBalancer returns a load balancer on which an action may start.
// Errors: not_found, conflict.
func (tx *Tx) unlockedLoadBalancer(id int64) (*LoadBalancer, error) {
	lb, err := Find(&tx.LoadBalancers, id)
	if err != nil {
		return nil, err
	}
	return lb, tx.RequireNoConflict(lb.Ref())
}

// changeLoadBalancer starts an action that changes only the load balancer. It first tries the change on
// a copy and returns its error. At the end of the action it makes the change. If that fails, for example
// because a server has been deleted, the action fails with the same error.
func (p Project) changeLoadBalancer(id int64, command string, change func(*State, *LoadBalancer) error) (action int64, st *State,
	err error) {
	st, err = p.update(func(tx *Tx) error {
		lb, err := tx.unlockedLoadBalancer(id)
		if err != nil {
			return err
		}
		if err := change(tx.State, lb.Clone()); err != nil {
			return err
		}
		action = tx.Start(ActionSpec{
			Command: command, Resources: []Ref{lb.Ref()}, Locks: []Ref{lb.Ref()},
			Done: func(tx *Tx) error { return tx.applyToLoadBalancer(id, change) },
		}).ID
		return nil
	})
	return action, st, err
}

// applyToLoadBalancer makes a change. It visits only the targets that the change adds, at the end of the list, or all if the
// services change, because each target has a health for each of them.
func (tx *Tx) applyToLoadBalancer(id int64, change func(*State, *LoadBalancer) error) error {
	old, err := Find(&tx.LoadBalancers, id)
	if err != nil {
		return err
	}
	lb := old.Clone()
	if err := change(tx.State, lb); err != nil {
		return err
	}
	first := min(len(old.Targets), len(lb.Targets))
	tx.resolveTargets(lb, first)
	if !reflect.DeepEqual(old.Services, lb.Services) {
		first = 0
	}
	tx.settleHealth(lb, first)
	tx.storeLoadBalancer(lb)
	return nil
}

// AddLoadBalancerService starts add_service. Errors: not_found, conflict, invalid_input,
// source_port_already_used (412), resource_limit_exceeded.
func (p Project) AddLoadBalancerService(id int64, in ServiceInput) (action int64, st *State, err error) {
	return p.changeLoadBalancer(id, "add_service", func(st *State, lb *LoadBalancer) error {
		return lb.addService(st, in, "")
	})
}

// UpdateLoadBalancerService starts update_service, a patch of the service on in.ListenPort.
// Errors: not_found, conflict, invalid_input, resource_limit_exceeded.
func (p Project) UpdateLoadBalancerService(id int64, in ServiceInput) (action int64, st *State, err error) {
	return p.changeLoadBalancer(id, "update_service", func(st *State, lb *LoadBalancer) error {
		return lb.updateService(st, in)
	})
}

// DeleteLoadBalancerService starts delete_service. Errors: not_found, conflict.
func (p Project) DeleteLoadBalancerService(id int64, listenPort int) (action int64, st *State, err error) {
	return p.changeLoadBalancer(id, "delete_service", func(_ *State, lb *LoadBalancer) error {
		return lb.deleteService(listenPort)
	})
}

// AddLoadBalancerTarget starts add_target. Errors: not_found, conflict, invalid_input,
// resource_limit_exceeded, and those of the API document for add_target.
func (p Project) AddLoadBalancerTarget(id int64, in TargetInput) (action int64, st *State, err error) {
	return p.changeLoadBalancer(id, "add_target", func(st *State, lb *LoadBalancer) error {
		return lb.addTarget(st, p.cloud, in, "")
	})
}

// RemoveLoadBalancerTarget starts remove_target. Errors: not_found (the load balancer or the target),
// conflict.
func (p Project) RemoveLoadBalancerTarget(id int64, in TargetInput) (action int64, st *State, err error) {
	return p.changeLoadBalancer(id, "remove_target", func(_ *State, lb *LoadBalancer) error {
		return lb.removeTarget(in)
	})
}

// ChangeLoadBalancerAlgorithm starts change_algorithm. Errors: not_found, conflict.
func (p Project) ChangeLoadBalancerAlgorithm(id int64, algorithm string) (action int64, st *State, err error) {
	return p.changeLoadBalancer(id, "change_algorithm", func(_ *State, lb *LoadBalancer) error {
		lb.Algorithm = algorithm
		return nil
	})
}

// ChangeLoadBalancerProtection starts change_protection; nil changes nothing.
// Errors: not_found, conflict.
func (p Project) ChangeLoadBalancerProtection(id int64, protect *bool) (action int64, st *State, err error) {
	return p.changeLoadBalancer(id, "change_protection", func(_ *State, lb *LoadBalancer) error {
		set(&lb.DeleteProtection, protect)
		return nil
	})
}

// ChangeLoadBalancerType starts change_load_balancer_type. kind is an id or a name.
// Errors: not_found, conflict, invalid_input, invalid_load_balancer_type.
func (p Project) ChangeLoadBalancerType(id int64, kind string) (action int64, st *State, err error) {
	now := p.cloud.Now()
	return p.changeLoadBalancer(id, "change_load_balancer_type", func(st *State, lb *LoadBalancer) error {
		t, ok := st.Catalogue.LoadBalancerType(kind)
		if !ok {
			return ErrField("load_balancer_type", fmt.Sprintf("load balancer type %q not found", kind))
		}
		for _, limit := range []struct {
			what      string
			have, max int
		}{
			{"services", len(lb.Services), t.MaxServices},
			{"targets", len(lb.Targets), t.MaxTargets},
			{"certificates", len(lb.certificates()), t.MaxAssignedCertificates},
		} {
			if limit.have > limit.max {
				return ErrOperation("invalid_load_balancer_type", fmt.Sprintf(
					"load balancer type %s allows %d %s, the load balancer has %d", t.Name, limit.max, limit.what, limit.have))
			}
		}
		if t.ID != lb.Type.ID && t.Deprecation.Retired(now) {
			return ErrOperation("invalid_load_balancer_type", fmt.Sprintf("load balancer type %s is no longer available", t.Name))
		}
		lb.Type = t
		return nil
	})
}

// ChangeLoadBalancerDNSPtr starts change_dns_ptr. If the address is a Primary IP, it changes that.
// Errors: not_found, conflict, invalid_input (also for an address of another resource).
func (p Project) ChangeLoadBalancerDNSPtr(id int64, in ChangeDNSPtr) (action int64, st *State, err error) {
	st, err = p.update(func(tx *Tx) error {
		lb, err := tx.unlockedLoadBalancer(id)
		if err != nil {
			return err
		}
		if err := in.check(); err != nil {
			return err
		}
		if in.IP != lb.IPv4.Addr && in.IP != lb.IPv6.Addr {
			return ErrField("ip", fmt.Sprintf("%s is not a public address of the load balancer", in.IP))
		}
		action = tx.Start(ActionSpec{
			Command: "change_dns_ptr", Resources: []Ref{lb.Ref()}, // no lock: both addresses may change at once
			Done: func(tx *Tx) error { tx.setLoadBalancerDNSPtr(id, in); return nil },
		}).ID
		return nil
	})
	return action, st, err
}

func (tx *Tx) setLoadBalancerDNSPtr(id int64, in ChangeDNSPtr) {
	lb, ok := tx.LoadBalancers.Get(id)
	if !ok {
		return
	}
	v4 := in.IP == lb.IPv4.Addr
	primary := lb.IPv6.PrimaryIP
	if v4 {
		primary = lb.IPv4.PrimaryIP
	}
	if primary != 0 {
		tx.setDNSPtr(primary, in)
		return
	}
	ptr := in.apply(nil)[in.IP]
	tx.LoadBalancers.Update(id, func(lb *LoadBalancer) {
		if v4 {
			lb.IPv4.DNSPtr = ptr
		} else {
			lb.IPv6.DNSPtr = ptr
		}
	})
}

// EnableLoadBalancerPublicInterface starts enable_public_interface. Errors: not_found, conflict.
func (p Project) EnableLoadBalancerPublicInterface(id int64) (action int64, st *State, err error) {
	return p.changeLoadBalancer(id, "enable_public_interface", func(_ *State, lb *LoadBalancer) error {
		lb.PublicEnabled = true
		return nil
	})
}

// DisableLoadBalancerPublicInterface starts disable_public_interface. The addresses stay allocated.
// Errors: not_found, conflict, load_balancer_not_attached_to_network, targets_without_use_private_ip.
func (p Project) DisableLoadBalancerPublicInterface(id int64) (action int64, st *State, err error) {
	return p.changeLoadBalancer(id, "disable_public_interface", func(_ *State, lb *LoadBalancer) error {
		if lb.network() == 0 {
			return errNotAttached()
		}
		for _, t := range lb.Targets {
			private := t.UsePrivateIP || t.Type == "ip" && t.IP.IsPrivate()
			if !private {
				return ErrOperation("targets_without_use_private_ip",
					"the load balancer has targets that use the public IP instead of the private IP")
			}
		}
		lb.PublicEnabled = false
		return nil
	})
}

// AttachLoadBalancer is the input of attach_to_network. IP and IPRange (a subnet) are optional.
type AttachLoadBalancer struct {
	Network int64
	IP      netip.Addr
	IPRange netip.Prefix
}

// AttachLoadBalancerToNetwork starts attach_to_network. The address is reserved at once, and shown when
// the action has succeeded. A load balancer can be in one network.
// Errors: not_found, conflict, invalid_input, load_balancer_already_attached, ip_not_available,
// no_subnet_available.
func (p Project) AttachLoadBalancerToNetwork(id int64, in AttachLoadBalancer) (action int64, st *State, err error) {
	st, err = p.update(func(tx *Tx) error {
		lb, err := tx.unlockedLoadBalancer(id)
		if err != nil {
			return err
		}
		if lb.network() != 0 {
			return ErrOperation("load_balancer_already_attached", "load balancer is already attached to a network")
		}
		network := Ref{KindNetwork, in.Network}
		if err := tx.joinNetwork(Join{
			Member: lb.Ref(), Zone: lb.Location.NetworkZone, Network: in.Network, IP: in.IP, Subnet: in.IPRange,
		}); err != nil {
			return err
		}
		action = tx.Start(ActionSpec{
			Command: "attach_to_network", Resources: []Ref{lb.Ref(), network}, Locks: []Ref{lb.Ref()},
			Done: func(tx *Tx) error {
				tx.joined(lb.Ref(), in.Network)
				return nil
			},
			Failed: func(tx *Tx) { tx.leaveNetwork(lb.Ref(), in.Network) },
		}).ID
		return nil
	})
	return action, st, err
}

// DetachLoadBalancerFromNetwork starts detach_from_network. The action removes private targets. A label
// selector for private addresses stays, but selects nothing.
// Errors: not_found, conflict, invalid_input (it is not attached).
func (p Project) DetachLoadBalancerFromNetwork(id, network int64) (action int64, st *State, err error) {
	st, err = p.update(func(tx *Tx) error {
		lb, err := tx.unlockedLoadBalancer(id)
		if err != nil {
			return err
		}
		if lb.network() != network {
			return ErrField("network", fmt.Sprintf("the load balancer is not attached to network %d", network))
		}
		n := Ref{KindNetwork, network}
		tx.updateMember(lb.Ref(), network, func(m *NetworkMember) { m.Status = MemberDetaching })
		action = tx.Start(ActionSpec{
			Command: "detach_from_network", Resources: []Ref{lb.Ref(), n}, Locks: []Ref{lb.Ref()},
			Done: func(tx *Tx) error {
				tx.leaveNetwork(lb.Ref(), network)
				return nil
			},
			Failed: func(tx *Tx) {
				tx.updateMember(lb.Ref(), network, func(m *NetworkMember) { m.Status = MemberOK })
			},
		}).ID
		return nil
	})
	return action, st, err
}
