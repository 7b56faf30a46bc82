package cloud

import (
	"fmt"
	"net/netip"
	"reflect"
	"time"
)

// A loadBalancerChange changes only the load balancer.
type loadBalancerChange interface {
	apply(*Tx, *LoadBalancer) error
}

// changeLoadBalancer starts an action that changes only the load balancer. It first tries the change on
// a copy and returns its error. At the end of the action it makes the change. If that fails, for example
// because a server has been deleted, the action fails with the same error.
func changeLoadBalancer[C loadBalancerChange](p Project, id int64, command string, change C) (action int64, st *State, err error) {
	return act(p, inLoadBalancers, id, func(tx *Tx, lb *LoadBalancer) (ActionSpec, error) {
		return ActionSpec{Command: command, Does: ofLoadBalancer[C]{id, change}}, change.apply(tx, lb.Clone())
	})
}

type ofLoadBalancer[C loadBalancerChange] struct {
	LoadBalancer int64
	Change       C
}

func (e ofLoadBalancer[C]) try(tx *Tx) error { return tx.applyToLoadBalancer(e.LoadBalancer, e.Change) }

// applyToLoadBalancer makes a change. It visits only the targets that the change adds, at the end of the list, or all if the
// services change, because each target has a health for each of them.
func (tx *Tx) applyToLoadBalancer(id int64, change loadBalancerChange) error {
	old, err := Find(&tx.LoadBalancers, id)
	if err != nil {
		return err
	}
	lb := old.Clone()
	if err := change.apply(tx, lb); err != nil {
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
	return changeLoadBalancer(p, id, "add_service", serviceAddition(in))
}

type serviceAddition ServiceInput

func (c serviceAddition) apply(tx *Tx, lb *LoadBalancer) error {
	return lb.addService(tx.State, ServiceInput(c), "")
}

// UpdateLoadBalancerService starts update_service, a patch of the service on in.ListenPort.
// Errors: not_found, conflict, invalid_input, resource_limit_exceeded.
func (p Project) UpdateLoadBalancerService(id int64, in ServiceInput) (action int64, st *State, err error) {
	return changeLoadBalancer(p, id, "update_service", servicePatch(in))
}

type servicePatch ServiceInput

func (c servicePatch) apply(tx *Tx, lb *LoadBalancer) error {
	return lb.updateService(tx.State, ServiceInput(c))
}

// DeleteLoadBalancerService starts delete_service. Errors: not_found, conflict.
func (p Project) DeleteLoadBalancerService(id int64, listenPort int) (action int64, st *State, err error) {
	return changeLoadBalancer(p, id, "delete_service", serviceRemoval{listenPort})
}

type serviceRemoval struct{ ListenPort int }

func (c serviceRemoval) apply(_ *Tx, lb *LoadBalancer) error { return lb.deleteService(c.ListenPort) }

// AddLoadBalancerTarget starts add_target. Errors: not_found, conflict, invalid_input,
// resource_limit_exceeded, and those of the API document for add_target.
func (p Project) AddLoadBalancerTarget(id int64, in TargetInput) (action int64, st *State, err error) {
	return changeLoadBalancer(p, id, "add_target", targetAddition(in))
}

type targetAddition TargetInput

func (c targetAddition) apply(tx *Tx, lb *LoadBalancer) error {
	return lb.addTarget(tx.State, tx.cloud, TargetInput(c), "")
}

// RemoveLoadBalancerTarget starts remove_target. Errors: not_found (the load balancer or the target),
// conflict.
func (p Project) RemoveLoadBalancerTarget(id int64, in TargetInput) (action int64, st *State, err error) {
	return changeLoadBalancer(p, id, "remove_target", targetRemoval(in))
}

type targetRemoval TargetInput

func (c targetRemoval) apply(_ *Tx, lb *LoadBalancer) error { return lb.removeTarget(TargetInput(c)) }

// ChangeLoadBalancerAlgorithm starts change_algorithm. Errors: not_found, conflict.
func (p Project) ChangeLoadBalancerAlgorithm(id int64, algorithm string) (action int64, st *State, err error) {
	return changeLoadBalancer(p, id, "change_algorithm", algorithmChange{algorithm})
}

type algorithmChange struct{ Algorithm string }

func (c algorithmChange) apply(_ *Tx, lb *LoadBalancer) error { //nolint:unparam // as the other changes
	lb.Algorithm = c.Algorithm
	return nil
}

// ChangeLoadBalancerProtection starts change_protection; nil changes nothing.
// Errors: not_found, conflict.
func (p Project) ChangeLoadBalancerProtection(id int64, protect *bool) (action int64, st *State, err error) {
	return act(p, inLoadBalancers, id, func(_ *Tx, lb *LoadBalancer) (ActionSpec, error) {
		return ActionSpec{Command: "change_protection", Does: protectionOf(lb.Ref(), protect)}, nil
	})
}

// ChangeLoadBalancerType starts change_load_balancer_type. kind is an id or a name.
// Errors: not_found, conflict, invalid_input, invalid_load_balancer_type.
func (p Project) ChangeLoadBalancerType(id int64, kind string) (action int64, st *State, err error) {
	return changeLoadBalancer(p, id, "change_load_balancer_type", loadBalancerTypeChange{kind, p.cloud.Now()})
}

type loadBalancerTypeChange struct {
	Type  string
	Asked time.Time
}

func (c loadBalancerTypeChange) apply(tx *Tx, lb *LoadBalancer) error {
	t, ok := tx.Catalogue.LoadBalancerType(c.Type)
	if !ok {
		return ErrField("load_balancer_type", fmt.Sprintf("load balancer type %q not found", c.Type))
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
	if t.ID != lb.Type.ID && t.Deprecation.Retired(c.Asked) {
		return ErrOperation("invalid_load_balancer_type", fmt.Sprintf("load balancer type %s is no longer available", t.Name))
	}
	lb.Type = t
	return nil
}

// ChangeLoadBalancerDNSPtr starts change_dns_ptr. If the address is a Primary IP, it changes that.
// Errors: not_found, conflict, invalid_input (including an address of another resource).
func (p Project) ChangeLoadBalancerDNSPtr(id int64, in ChangeDNSPtr) (action int64, st *State, err error) {
	return act(p, inLoadBalancers, id, func(_ *Tx, lb *LoadBalancer) (ActionSpec, error) {
		err := in.check()
		if err == nil && in.IP != lb.IPv4.Addr && in.IP != lb.IPv6.Addr {
			err = ErrField("ip", fmt.Sprintf("%s is not a public address of the load balancer", in.IP))
		}
		return ActionSpec{Command: "change_dns_ptr", Does: dnsPtrChange{lb.Ref(), in}}, err
	})
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
	return changeLoadBalancer(p, id, "enable_public_interface", publicInterface{true})
}

// DisableLoadBalancerPublicInterface starts disable_public_interface. The addresses stay allocated.
// Errors: not_found, conflict, load_balancer_not_attached_to_network, targets_without_use_private_ip.
func (p Project) DisableLoadBalancerPublicInterface(id int64) (action int64, st *State, err error) {
	return changeLoadBalancer(p, id, "disable_public_interface", publicInterface{false})
}

type publicInterface struct{ Enabled bool }

func (c publicInterface) apply(_ *Tx, lb *LoadBalancer) error {
	if !c.Enabled && lb.network() == 0 {
		return errNotAttached()
	}
	for _, t := range lb.Targets {
		private := t.UsePrivateIP || t.Type == "ip" && t.IP.IsPrivate()
		if !c.Enabled && !private {
			return ErrOperation("targets_without_use_private_ip",
				"the load balancer has targets that use the public IP instead of the private IP")
		}
	}
	lb.PublicEnabled = c.Enabled
	return nil
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
	return act(p, inLoadBalancers, id, func(tx *Tx, lb *LoadBalancer) (ActionSpec, error) {
		if lb.network() != 0 {
			return ActionSpec{}, ErrOperation("load_balancer_already_attached", "load balancer is already attached to a network")
		}
		return attachToNetwork(lb.Ref(), in.Network), tx.joinNetwork(Join{
			Member: lb.Ref(), Zone: lb.Location.NetworkZone, Network: in.Network, IP: in.IP, Subnet: in.IPRange,
		})
	})
}

// DetachLoadBalancerFromNetwork starts detach_from_network. The action removes private targets. A label
// selector for private addresses stays, but selects nothing.
// Errors: not_found, conflict, invalid_input (it is not attached).
func (p Project) DetachLoadBalancerFromNetwork(id, network int64) (action int64, st *State, err error) {
	return act(p, inLoadBalancers, id, func(tx *Tx, lb *LoadBalancer) (ActionSpec, error) {
		if lb.network() != network {
			return ActionSpec{}, ErrField("network", fmt.Sprintf("the load balancer is not attached to network %d", network))
		}
		return tx.detachFromNetwork(lb.Ref(), network), nil
	})
}
