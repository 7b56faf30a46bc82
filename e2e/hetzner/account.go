package hetzner

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strconv"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/cloud"
)

// wait waits until the actions of a call have succeeded. It makes "not found" the error of package cloud.
func (a *account) wait(ctx context.Context, err error, actions ...*hcloud.Action) error {
	if hcloud.IsError(err, hcloud.ErrorCodeNotFound) {
		return fmt.Errorf("%w: %w", cloud.ErrNotFound, err)
	}
	if err != nil {
		return err
	}
	return a.Client.Action.WaitFor(ctx, slices.DeleteFunc(actions, func(a *hcloud.Action) bool { return a == nil })...)
}

// number returns an ID as a number, as in Hetzner's API. It returns 0 for text that is not an ID: no object has the ID 0.
func number(id string) int64 {
	n, err := strconv.ParseInt(id, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// idOf returns a number of Hetzner's API as package cloud has it.
func idOf(n int64) string { return strconv.FormatInt(n, 10) }

func serverCreateOpts(name string, network *hcloud.Network) hcloud.ServerCreateOpts {
	opts := hcloud.ServerCreateOpts{
		Name: name, ServerType: &hcloud.ServerType{Name: ServerType}, Image: &hcloud.Image{Name: "debian-13"},
		Location: &hcloud.Location{Name: Location}, Labels: tagged(nil),
	}
	if network != nil {
		opts.Networks = []*hcloud.Network{network}
	}
	return opts
}

// CreateServer implements cloud.Cloud.
func (a *account) CreateServer(ctx context.Context, name string) (cloud.Server, error) {
	result, _, err := a.Client.Server.Create(ctx, serverCreateOpts(name, a.Network))
	if err := a.wait(ctx, err, append(result.NextActions, result.Action)...); err != nil {
		return cloud.Server{}, err
	}
	s, _, err := a.Client.Server.GetByID(ctx, result.Server.ID)
	if err == nil && s == nil {
		err = cloud.ErrNotFound
	}
	if err != nil {
		return cloud.Server{}, err
	}
	return a.server(s), nil
}

// DeleteServer implements cloud.Cloud.
func (a *account) DeleteServer(ctx context.Context, id string) error {
	result, _, err := a.Client.Server.DeleteWithResult(ctx, &hcloud.Server{ID: number(id)})
	return a.wait(ctx, err, result.Action)
}

// StopServer implements cloud.Cloud.
func (a *account) StopServer(ctx context.Context, id string) error {
	action, _, err := a.Client.Server.Poweroff(ctx, &hcloud.Server{ID: number(id)})
	return a.wait(ctx, err, action)
}

// StartServer implements cloud.Cloud.
func (a *account) StartServer(ctx context.Context, id string) error {
	action, _, err := a.Client.Server.Poweron(ctx, &hcloud.Server{ID: number(id)})
	return a.wait(ctx, err, action)
}

// RenameServer implements cloud.Renamer.
func (a *account) RenameServer(ctx context.Context, id, name string) error {
	_, _, err := a.Client.Server.Update(ctx, &hcloud.Server{ID: number(id)}, hcloud.ServerUpdateOpts{Name: name})
	return a.wait(ctx, err)
}

// Servers implements cloud.Cloud.
func (a *account) Servers(ctx context.Context) ([]cloud.Server, error) {
	all, err := a.Client.Server.All(ctx)
	var servers []cloud.Server
	for _, s := range all {
		servers = append(servers, a.server(s))
	}
	return servers, err
}

// server returns a server in the terms of package cloud.
func (a *account) server(s *hcloud.Server) cloud.Server {
	c := cloud.Server{
		ID: idOf(s.ID), Name: s.Name, ProviderID: fmt.Sprintf("%s%d", a.ProviderPrefix, s.ID), Type: s.ServerType.Name,
		Running: s.Status == hcloud.ServerStatusRunning,
	}
	if !s.PublicNet.IPv4.IsUnspecified() {
		c.Addresses = append(c.Addresses, corev1.NodeAddress{Type: corev1.NodeExternalIP, Address: s.PublicNet.IPv4.IP.String()})
	}
	for _, n := range s.PrivateNet {
		if a.Network != nil && n.Network.ID == a.Network.ID {
			c.Addresses = append(c.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: n.IP.String()})
		}
	}
	if a.fake != nil {
		c.Local = a.local(s.ID, s.PublicNet.IPv4.IP.String())
	}
	return c
}

// LoadBalancers implements cloud.Cloud.
func (a *account) LoadBalancers(ctx context.Context) ([]cloud.LoadBalancer, error) {
	all, err := a.Client.LoadBalancer.All(ctx)
	var lbs []cloud.LoadBalancer
	for _, lb := range all {
		lbs = append(lbs, a.loadBalancer(lb))
	}
	return lbs, err
}

// loadBalancer returns a load balancer in the terms of package cloud. Each of Hetzner's services has all targets.
func (a *account) loadBalancer(lb *hcloud.LoadBalancer) cloud.LoadBalancer {
	c := cloud.LoadBalancer{
		ID: idOf(lb.ID), Name: lb.Name, Service: types.UID(lb.Labels[a.OwnerLabel]), Addresses: addressesOf(lb),
	}
	for _, s := range lb.Services {
		port := cloud.Port{Protocol: corev1.ProtocolTCP, Port: int32(s.ListenPort), NodePort: int32(s.DestinationPort)}
		for _, t := range lb.Targets {
			port.Targets = append(port.Targets, targets(t, s.ListenPort)...)
		}
		c.Ports = append(c.Ports, port)
	}
	return c
}

// targets translates a target of Hetzner's on a port: one server, the servers with a label, or an address.
func targets(t hcloud.LoadBalancerTarget, port int) (all []cloud.Target) {
	health := cloud.Unknown
	for _, h := range t.HealthStatus {
		if h.ListenPort == port {
			health = cloud.Health(h.Status)
		}
	}
	switch t.Type {
	case hcloud.LoadBalancerTargetTypeServer:
		return []cloud.Target{{Server: idOf(t.Server.Server.ID), Health: health}}
	case hcloud.LoadBalancerTargetTypeIP:
		return []cloud.Target{{Address: t.IP.IP, Health: health}}
	}
	for _, one := range t.Targets {
		all = append(all, targets(one, port)...)
	}
	return all
}

// DeleteLoadBalancer implements cloud.Cloud.
func (a *account) DeleteLoadBalancer(ctx context.Context, id string) error {
	result, _, err := a.Client.LoadBalancer.DeleteWithResult(ctx, &hcloud.LoadBalancer{ID: number(id)})
	return a.wait(ctx, err, result.Action)
}

// Tag implements cloud.Tagger. A load balancer that is being changed or deleted may refuse the label. It gets the label the next time, or
// never. Its Service is then found by the namespace, since that has the run's name.
func (a *account) Tag(ctx context.Context, id, run string) error {
	lb, _, err := a.Client.LoadBalancer.GetByID(ctx, number(id))
	if err != nil || lb == nil || lb.Labels[cloud.LabelRun] == run {
		return err
	}
	_, _, err = a.Client.LoadBalancer.Update(ctx, lb, hcloud.LoadBalancerUpdateOpts{Labels: tagged(lb.Labels)})
	return err
}

// Routes implements cloud.Router.
func (a *account) Routes(ctx context.Context) ([]cloud.Route, error) {
	network, _, err := a.Client.Network.GetByID(ctx, a.Network.ID)
	if err != nil {
		return nil, err
	}
	if network == nil {
		return nil, fmt.Errorf("the network %s: %w", a.Network.Name, cloud.ErrNotFound)
	}
	servers, err := a.Client.Server.All(ctx)
	if err != nil {
		return nil, err
	}
	var all []cloud.Route
	for _, r := range network.Routes {
		route := cloud.Route{Destination: netip.MustParsePrefix(r.Destination.String()), Address: r.Gateway.String()}
		for _, s := range servers {
			if slices.ContainsFunc(s.PrivateNet, func(n hcloud.ServerPrivateNet) bool {
				return n.Network.ID == network.ID && n.IP.Equal(r.Gateway)
			}) {
				route.Server = idOf(s.ID)
			}
		}
		all = append(all, route)
	}
	return all, nil
}

// route returns a route in the terms of Hetzner's API.
func (a *account) route(ctx context.Context, r cloud.Route) (hcloud.NetworkRoute, error) {
	if r.Server == "" {
		return route(r.Destination.String(), r.Address), nil
	}
	s, _, err := a.Client.Server.GetByID(ctx, number(r.Server))
	if err != nil {
		return hcloud.NetworkRoute{}, err
	}
	if s != nil {
		for _, n := range s.PrivateNet {
			if n.Network.ID == a.Network.ID {
				return route(r.Destination.String(), n.IP.String()), nil
			}
		}
	}
	return hcloud.NetworkRoute{}, fmt.Errorf("server %s in the network %s: %w", r.Server, a.Network.Name, cloud.ErrNotFound)
}

// AddRoute implements cloud.Router.
func (a *account) AddRoute(ctx context.Context, r cloud.Route) error {
	route, err := a.route(ctx, r)
	if err != nil {
		return err
	}
	action, _, err := a.Client.Network.AddRoute(ctx, a.Network, hcloud.NetworkAddRouteOpts{Route: route})
	return a.wait(ctx, err, action)
}

// DeleteRoute implements cloud.Router.
func (a *account) DeleteRoute(ctx context.Context, r cloud.Route) error {
	route, err := a.route(ctx, r)
	if err != nil {
		return err
	}
	action, _, err := a.Client.Network.DeleteRoute(ctx, a.Network, hcloud.NetworkDeleteRouteOpts{Route: route})
	return a.wait(ctx, err, action)
}
