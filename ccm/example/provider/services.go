package provider

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/cloud-provider/api"
	"k8s.io/klog/v2"
)

// region is where load balancers are created.
const region = "north"

// addressWait is the time until the service controller asks again for an address that is not there yet.
const addressWait = 500 * time.Millisecond

// loadBalancers serves the service controller. It wants a load balancer for each Service of type LoadBalancer. Each method begins
// with a look at the cloud, so that it can end the work of another process, and writes nothing if nothing differs.
type loadBalancers struct{ *Cloud }

// GetLoadBalancerName implements cloudprovider.LoadBalancer. The name is made of the UID of the Service. The cloud has no labels, and the
// name is written in the request that creates the load balancer: so its owner is known at every moment.
func (c loadBalancers) GetLoadBalancerName(_ context.Context, _ string, service *corev1.Service) string {
	return cloudprovider.DefaultLoadBalancerName(service)
}

// find returns the load balancer of a Service, or nil if it is proven that it has none.
func (c loadBalancers) find(ctx context.Context, service *corev1.Service) (name string, b *LoadBalancer, err error) {
	name = c.GetLoadBalancerName(ctx, "", service)
	if b, err = c.client.LoadBalancer(ctx, name); err != nil {
		return name, nil, fmt.Errorf("cannot look for the load balancer: %w", err)
	}
	return name, b, nil
}

// GetLoadBalancer implements cloudprovider.LoadBalancer. If it says false, the Service may go: so it must be proven.
func (c loadBalancers) GetLoadBalancer(ctx context.Context, _ string, service *corev1.Service) (*corev1.LoadBalancerStatus, bool, error) {
	_, b, err := c.find(ctx, service)
	if err != nil || b == nil {
		return nil, false, err
	}
	return status(b), true, nil
}

// EnsureLoadBalancer implements cloudprovider.LoadBalancer.
func (c loadBalancers) EnsureLoadBalancer(ctx context.Context, _ string, service *corev1.Service, nodes []*corev1.Node) (
	*corev1.LoadBalancerStatus, error) {
	want, err := c.plan(ctx, service, nodes)
	if err != nil {
		return nil, err
	}
	name, b, err := c.find(ctx, service)
	if err != nil {
		return nil, err
	}
	if b == nil {
		if b, err = c.client.CreateLoadBalancer(ctx, name, region); err != nil {
			return nil, fmt.Errorf("cannot create the load balancer: %w", err)
		}
	}
	if err := c.apply(ctx, name, want); err != nil {
		return nil, err
	}
	if b.Address == "" {
		return nil, api.NewRetryError("the load balancer "+name+" has no address yet", addressWait)
	}
	return status(b), nil
}

// UpdateLoadBalancer implements cloudprovider.LoadBalancer. It is called after a change of the nodes.
func (c loadBalancers) UpdateLoadBalancer(ctx context.Context, _ string, service *corev1.Service, nodes []*corev1.Node) error {
	want, err := c.plan(ctx, service, nodes)
	if err != nil {
		return err
	}
	return c.apply(ctx, c.GetLoadBalancerName(ctx, "", service), want)
}

// EnsureLoadBalancerDeleted implements cloudprovider.LoadBalancer. "Not found" in answer to a deletion is an error here: the next call
// proves whether it is true.
func (c loadBalancers) EnsureLoadBalancerDeleted(ctx context.Context, _ string, service *corev1.Service) error {
	name, b, err := c.find(ctx, service)
	if err != nil || b == nil {
		return err
	}
	if err := c.apply(ctx, name, nil); err != nil {
		return err
	}
	if err := c.client.DeleteLoadBalancer(ctx, name); err != nil {
		return fmt.Errorf("cannot delete the load balancer: %w", err)
	}
	return nil
}

// plan returns the backends that each port of the Service should have.
func (c loadBalancers) plan(ctx context.Context, service *corev1.Service, nodes []*corev1.Node) (map[int32][]string, error) {
	var addresses []string
	for _, node := range nodes {
		address, err := c.address(ctx, node)
		if err != nil {
			return nil, err
		}
		if address != "" {
			addresses = append(addresses, address)
		}
	}
	slices.Sort(addresses)
	want := map[int32][]string{}
	for _, port := range service.Spec.Ports {
		if port.Protocol != corev1.ProtocolTCP {
			return nil, fmt.Errorf("the port %d is %s, and load balancers of this cloud forward TCP: use TCP", port.Port, port.Protocol)
		}
		if port.NodePort == 0 {
			return nil, fmt.Errorf("the port %d has no node port: set allocateLoadBalancerNodePorts to true", port.Port)
		}
		want[port.Port] = []string{}
		for _, a := range addresses {
			want[port.Port] = append(want[port.Port], net.JoinHostPort(a, strconv.Itoa(int(port.NodePort))))
		}
	}
	return want, nil
}

// address returns the private address of a Node, or "" if the Node is not of this cloud, or not initialised: the service controller calls
// again when it gets its provider ID. Its addresses come a moment after that, without a call, so that the cloud is asked meanwhile.
func (c loadBalancers) address(ctx context.Context, node *corev1.Node) (string, error) {
	if _, err := ParseProviderID(node); err != nil {
		klog.InfoS("The node cannot be a backend", "reason", err)
		return "", nil
	}
	for _, a := range node.Status.Addresses {
		if a.Type == corev1.NodeInternalIP {
			return a.Address, nil
		}
	}
	i, err := instances(c).find(ctx, node)
	if errors.Is(err, cloudprovider.InstanceNotFound) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	return i.PrivateIP, nil
}

// apply makes the listeners of a load balancer those of the plan. It adds before it removes, and removes nothing if an addition has
// failed.
func (c loadBalancers) apply(ctx context.Context, name string, want map[int32][]string) error {
	have, err := c.client.Listeners(ctx, name)
	if err != nil {
		return fmt.Errorf("cannot list the listeners of the load balancer: %w", err)
	}
	byPort := map[int32]Listener{}
	for _, l := range have {
		byPort[l.Port] = l
	}
	var errs []error
	for port, backends := range want {
		l, exists := byPort[port]
		slices.Sort(l.Backends)
		switch {
		case !exists:
			err = c.client.CreateListener(ctx, name, port, backends)
		case !slices.Equal(l.Backends, backends):
			err = c.client.SetBackends(ctx, l.ID, backends)
		default:
			continue
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("cannot forward port %d: %w", port, err))
		}
	}
	for port, l := range byPort {
		if _, wanted := want[port]; wanted || len(errs) > 0 {
			continue
		}
		if err := c.client.DeleteListener(ctx, l.ID); err != nil {
			errs = append(errs, fmt.Errorf("cannot close port %d: %w", port, err))
		}
	}
	return errors.Join(errs...)
}

// status returns what the Service shows of its load balancer.
func status(b *LoadBalancer) *corev1.LoadBalancerStatus {
	if b.Address == "" {
		return &corev1.LoadBalancerStatus{}
	}
	return &corev1.LoadBalancerStatus{Ingress: []corev1.LoadBalancerIngress{{IP: b.Address}}}
}
