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
	sort:   orders[*cloud.LoadBalancer]("id", "name", "created"),
}

func loadBalancerRoutes() []Route {
	const kind = cloud.KindLoadBalancer
	return slices.Concat(loadBalancers.routes(
		withBody(createLoadBalancer), loadBalancers.update(cloud.Project.UpdateLoadBalancer), withID(kind, deleteLoadBalancer),
	), []Route{
		{http.MethodGet, "/load_balancers/{id}/metrics", "get_load_balancer_metrics", withID(kind, getMetrics(
			cloud.Project.LoadBalancerMetrics, "open_connections", "connections_per_second", "requests_per_second", "bandwidth"))},
		loadBalancers.action("add_service", onService(cloud.Project.AddLoadBalancerService)),
		loadBalancers.action("update_service", onService(cloud.Project.UpdateLoadBalancerService)),
		loadBalancers.action("delete_service", withIDAndBody(kind, deleteLoadBalancerService)),
		loadBalancers.action("add_target", onTarget(cloud.Project.AddLoadBalancerTarget)),
		loadBalancers.action("remove_target", onTarget(cloud.Project.RemoveLoadBalancerTarget)),
		loadBalancers.action("attach_to_network", withIDAndBody(kind, attachLoadBalancer)),
		loadBalancers.action("detach_from_network", detachFromNetwork(kind, cloud.Project.DetachLoadBalancerFromNetwork)),
		loadBalancers.action("enable_public_interface", startedOn(kind, cloud.Project.EnableLoadBalancerPublicInterface)),
		loadBalancers.action("disable_public_interface", startedOn(kind, cloud.Project.DisableLoadBalancerPublicInterface)),
		loadBalancers.action("change_algorithm", withIDAndBody(kind, changeLoadBalancerAlgorithm)),
		loadBalancers.action("change_type", withIDAndBody(kind, changeLoadBalancerType)),
		loadBalancers.action("change_protection", changeProtection(kind, cloud.Project.ChangeLoadBalancerProtection)),
		loadBalancers.action("change_dns_ptr", changeDNSPtr(kind, cloud.Project.ChangeLoadBalancerDNSPtr)),
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
		Labels: body.Labels, Network: deref(body.Network, 0), PublicInterface: body.PublicInterface,
		IPv4: deref(body.PublicNet.IPv4, 0), IPv6: deref(body.PublicNet.IPv6, 0),
		Services: each(body.Services, serviceRequest.input), Targets: each(body.Targets, targetRequest.input),
	}
	if body.Algorithm != nil {
		in.Algorithm = body.Algorithm.Type
	}
	lb, action, st, err := r.Project.CreateLoadBalancer(in)
	return loadBalancers.created(r, lb, st, err, actionPart(st, action))
}

// deleteLoadBalancer answers with an action from LoadBalancerDeleteAction on, and with 204 before.
func deleteLoadBalancer(r *Request, id int64) (Response, error) {
	atOnce := r.date.Before(LoadBalancerDeleteAction)
	action, st, err := r.Project.DeleteLoadBalancer(id, atOnce)
	if atOnce {
		return noContent(err)
	}
	return started(action, st, err)
}
