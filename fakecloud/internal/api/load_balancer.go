package api

import (
	"net/http"
	"slices"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/bind"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/cloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/store"
)

var loadBalancers = &resource[*cloud.LoadBalancer]{
	singular: "load_balancer", plural: "load_balancers", kind: cloud.KindLoadBalancer,
	table:  func(st *cloud.State) *store.Table[*cloud.LoadBalancer] { return &st.LoadBalancers },
	encode: encodeLoadBalancer,
	sort: map[string]func(a, b *cloud.LoadBalancer) int{
		"id": compareID[*cloud.LoadBalancer], "name": compareName[*cloud.LoadBalancer],
		"created": compareCreated[*cloud.LoadBalancer],
	},
}

func loadBalancerRoutes() []Route {
	const action = "/load_balancers/{id}/actions/"
	return slices.Concat([]Route{
		{http.MethodGet, "/load_balancers", "list_load_balancers", loadBalancers.list},
		{http.MethodPost, "/load_balancers", "create_load_balancer", withBody(createLoadBalancer)},
		{http.MethodGet, "/load_balancers/{id}", "get_load_balancer", loadBalancers.get},
		{http.MethodPut, "/load_balancers/{id}", "update_load_balancer", loadBalancers.update(cloud.Project.UpdateLoadBalancer)},
		{http.MethodDelete, "/load_balancers/{id}", "delete_load_balancer", withID(cloud.KindLoadBalancer, deleteLoadBalancer)},
		{http.MethodGet, "/load_balancers/{id}/metrics", "get_load_balancer_metrics",
			withID(cloud.KindLoadBalancer, getLoadBalancerMetrics)},
		{http.MethodPost, action + "add_service", "add_load_balancer_service",
			withIDAndBody(cloud.KindLoadBalancer, addLoadBalancerService)},
		{http.MethodPost, action + "update_service", "update_load_balancer_service",
			withIDAndBody(cloud.KindLoadBalancer, updateLoadBalancerService)},
		{http.MethodPost, action + "delete_service", "delete_load_balancer_service",
			withIDAndBody(cloud.KindLoadBalancer, deleteLoadBalancerService)},
		{http.MethodPost, action + "add_target", "add_load_balancer_target", withIDAndBody(cloud.KindLoadBalancer, addLoadBalancerTarget)},
		{http.MethodPost, action + "remove_target", "remove_load_balancer_target",
			withIDAndBody(cloud.KindLoadBalancer, removeLoadBalancerTarget)},
		{http.MethodPost, action + "attach_to_network", "attach_load_balancer_to_network",
			withIDAndBody(cloud.KindLoadBalancer, attachLoadBalancer)},
		{http.MethodPost, action + "detach_from_network", "detach_load_balancer_from_network",
			withIDAndBody(cloud.KindLoadBalancer, detachLoadBalancer)},
		{http.MethodPost, action + "enable_public_interface", "enable_load_balancer_public_interface",
			startedOn(cloud.KindLoadBalancer, cloud.Project.EnableLoadBalancerPublicInterface)},
		{http.MethodPost, action + "disable_public_interface", "disable_load_balancer_public_interface",
			startedOn(cloud.KindLoadBalancer, cloud.Project.DisableLoadBalancerPublicInterface)},
		{http.MethodPost, action + "change_algorithm", "change_load_balancer_algorithm",
			withIDAndBody(cloud.KindLoadBalancer, changeLoadBalancerAlgorithm)},
		{http.MethodPost, action + "change_type", "change_load_balancer_type",
			withIDAndBody(cloud.KindLoadBalancer, changeLoadBalancerType)},
		{http.MethodPost, action + "change_protection", "change_load_balancer_protection",
			changeProtection(cloud.KindLoadBalancer, cloud.Project.ChangeLoadBalancerProtection)},
		{http.MethodPost, action + "change_dns_ptr", "change_load_balancer_dns_ptr",
			withIDAndBody(cloud.KindLoadBalancer, changeLoadBalancerDNSPtr)},
	}, actionRoutesOf(loadBalancers))
}

func createLoadBalancer(r *Request, body struct {
	Name            string            `json:"name" check:"required,len=1:128"`
	Type            bind.IDOrName     `json:"load_balancer_type" check:"required"`
	Algorithm       *algorithmJSON    `json:"algorithm"`
	Location        bind.IDOrName     `json:"location"`
	NetworkZone     string            `json:"network_zone"`
	Labels          map[string]string `json:"labels"`
	Network         *int64            `json:"network" check:"min=1"`
	PublicInterface *bool             `json:"public_interface"`
	Services        []serviceRequest  `json:"services"`
	Targets         []targetRequest   `json:"targets"`
	PublicNet       struct {
		IPv4 *int64 `json:"ipv4" check:"min=1"`
		IPv6 *int64 `json:"ipv6" check:"min=1"`
	} `json:"public_net" since:"2026-10-05"`
}) (Response, error) {
	in := cloud.CreateLoadBalancer{
		Name: body.Name, Type: string(body.Type), Location: string(body.Location), NetworkZone: body.NetworkZone,
		Labels: body.Labels, Network: value(body.Network), PublicInterface: body.PublicInterface,
		IPv4: value(body.PublicNet.IPv4), IPv6: value(body.PublicNet.IPv6),
	}
	if body.Algorithm != nil {
		in.Algorithm = body.Algorithm.Type
	}
	for _, s := range body.Services {
		in.Services = append(in.Services, s.input())
	}
	for _, t := range body.Targets {
		in.Targets = append(in.Targets, t.input())
	}
	lb, action, st, err := r.Project.CreateLoadBalancer(in)
	if err != nil {
		return Response{}, err
	}
	return created(lb.ID, loadBalancers.part(r, st, lb.ID, lb), actionPart(st, action)), nil
}

func value[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}

// deleteLoadBalancer answers with an action from LoadBalancerDeleteAction on, and with 204 before.
func deleteLoadBalancer(r *Request, id int64) (Response, error) {
	atOnce := r.date.Before(LoadBalancerDeleteAction)
	action, st, err := r.Project.DeleteLoadBalancer(id, atOnce)
	if err == nil && atOnce {
		return noContent(), nil
	}
	return started(action, st, err)
}
