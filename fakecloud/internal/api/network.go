package api

import (
	"cmp"
	"net/http"
	"net/netip"
	"slices"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/cloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/store"
)

type networkJSON struct {
	ID                    int64             `json:"id"`
	Name                  string            `json:"name"`
	IPRange               string            `json:"ip_range"`
	Subnets               []subnetJSON      `json:"subnets"`
	Routes                []routeJSON       `json:"routes"`
	Servers               []int64           `json:"servers"`
	LoadBalancers         []int64           `json:"load_balancers"`
	Protection            protectionJSON    `json:"protection"`
	Labels                map[string]string `json:"labels"`
	Created               timeJSON          `json:"created"`
	ExposeRoutesToVSwitch bool              `json:"expose_routes_to_vswitch"`
}

type subnetJSON struct {
	Type        string `json:"type"`
	IPRange     string `json:"ip_range"`
	NetworkZone string `json:"network_zone"`
	Gateway     string `json:"gateway"`
	VSwitchID   *int64 `json:"vswitch_id"`
}

type routeJSON struct {
	Destination string `json:"destination"`
	Gateway     string `json:"gateway"`
}

type memberJSON struct {
	Type     store.Kind         `json:"type"`
	ID       int64              `json:"id"`
	IP       netip.Addr         `json:"ip"`
	Status   cloud.MemberStatus `json:"status"`
	AliasIPs []netip.Addr       `json:"alias_ips"`
	Subnet   string             `json:"subnet"`
}

var networks = &resource[*cloud.Network]{
	singular: "network", plural: "networks", kind: cloud.KindNetwork,
	table:  func(st *cloud.State) *store.Table[*cloud.Network] { return &st.Networks },
	encode: encodeNetwork,
	sort:   orders[*cloud.Network]("id", "name", "created"),
}

// encodeNetwork shows members from the end of their attaching to the end of their detaching.
func encodeNetwork(_ Date, _ *cloud.State, n *cloud.Network) any {
	out := networkJSON{
		ID: n.ID, Name: n.Name, IPRange: n.IPRange.String(),
		Subnets: each(n.Subnets, func(s cloud.Subnet) subnetJSON {
			return subnetJSON{s.Type, s.IPRange.String(), s.NetworkZone, s.Gateway.String(), nullable(s.VSwitchID)}
		}),
		Routes:  each(n.Routes, func(r cloud.Route) routeJSON { return routeJSON{r.Destination.String(), r.Gateway.String()} }),
		Servers: []int64{}, LoadBalancers: []int64{},
		Protection: protectionJSON{n.DeleteProtection}, Labels: n.Labels, Created: timeJSON(n.Created),
		ExposeRoutesToVSwitch: n.ExposeRoutesToVSwitch,
	}
	for _, m := range n.Members {
		switch {
		case m.Status == cloud.MemberAttaching:
		case m.Kind == cloud.KindServer:
			out.Servers = append(out.Servers, m.ID)
		case m.Kind == cloud.KindLoadBalancer:
			out.LoadBalancers = append(out.LoadBalancers, m.ID)
		}
	}
	return out
}

func networkRoutes() []Route {
	const kind = cloud.KindNetwork
	return slices.Concat(networks.routes(
		withBody(createNetwork), withIDAndBody(kind, updateNetwork), networks.remove(cloud.Project.DeleteNetwork),
	), []Route{
		{http.MethodGet, "/networks/{id}/members", "list_network_members", withID(cloud.KindNetwork, listNetworkMembers)},
		networks.action("add_subnet", withIDAndBody(kind, addSubnet)),
		networks.action("delete_subnet", onRange(cloud.Project.DeleteSubnet)),
		networks.action("add_route", onRoute(cloud.Project.AddRoute)),
		networks.action("delete_route", onRoute(cloud.Project.DeleteRoute)),
		networks.action("change_ip_range", onRange(cloud.Project.ChangeIPRange)),
		networks.action("change_protection", changeProtection(kind, cloud.Project.ChangeNetworkProtection)),
	}, actionRoutesOf(networks))
}

type subnetRequest struct {
	Type        string        `json:"type" check:"required,oneof=cloud|server|vswitch"`
	IPRange     *netip.Prefix `json:"ip_range"`
	NetworkZone string        `json:"network_zone" check:"required"`
	VSwitchID   *int64        `json:"vswitch_id" check:"min=1"`
}

func (s subnetRequest) subnet() cloud.Subnet {
	return cloud.Subnet{
		Type: s.Type, NetworkZone: s.NetworkZone, IPRange: deref(s.IPRange, netip.Prefix{}), VSwitchID: deref(s.VSwitchID, 0),
	}
}

type routeRequest struct {
	Destination netip.Prefix `json:"destination" check:"required"`
	Gateway     netip.Addr   `json:"gateway" check:"required"`
}

func createNetwork(r *Request, body struct {
	Name                  string            `json:"name" check:"required,len=1:128"`
	IPRange               netip.Prefix      `json:"ip_range" check:"required"`
	Labels                map[string]string `json:"labels"`
	Subnets               []subnetRequest   `json:"subnets"`
	Routes                []routeRequest    `json:"routes"`
	ExposeRoutesToVSwitch bool              `json:"expose_routes_to_vswitch"`
}) (Response, error) {
	n, st, err := r.Project.CreateNetwork(cloud.CreateNetwork{
		Name: body.Name, IPRange: body.IPRange, Labels: body.Labels, ExposeRoutesToVSwitch: body.ExposeRoutesToVSwitch,
		Subnets: each(body.Subnets, subnetRequest.subnet),
		Routes:  each(body.Routes, func(route routeRequest) cloud.Route { return cloud.Route(route) }),
	})
	return networks.created(r, n, st, err)
}

func updateNetwork(r *Request, id int64, body struct {
	Name                  *string           `json:"name" check:"len=1:128"`
	Labels                map[string]string `json:"labels"`
	ExposeRoutesToVSwitch *bool             `json:"expose_routes_to_vswitch"`
}) (Response, error) {
	st, err := r.Project.UpdateNetwork(id, cloud.UpdateNetwork{
		UpdateResource:        cloud.UpdateResource{Name: body.Name, Labels: body.Labels},
		ExposeRoutesToVSwitch: body.ExposeRoutesToVSwitch,
	})
	return networks.updated(r, id, st, err)
}

func addSubnet(r *Request, id int64, body subnetRequest) (Response, error) {
	return started(r.Project.AddSubnet(id, body.subnet()))
}

// onRange answers an operation that takes an ip_range.
func onRange(do func(cloud.Project, int64, netip.Prefix) (int64, *cloud.State, error)) handler {
	return withIDAndBody(cloud.KindNetwork, func(r *Request, id int64, body struct {
		IPRange netip.Prefix `json:"ip_range" check:"required"`
	}) (Response, error) {
		return started(do(r.Project, id, body.IPRange))
	})
}

// onRoute answers an operation that takes a route.
func onRoute(do func(cloud.Project, int64, cloud.Route) (int64, *cloud.State, error)) handler {
	return withIDAndBody(cloud.KindNetwork, func(r *Request, id int64, body routeRequest) (Response, error) {
		return started(do(r.Project, id, cloud.Route(body)))
	})
}

var memberSort = map[string]func(a, b cloud.NetworkMember) int{
	"id":     func(a, b cloud.NetworkMember) int { return cmp.Compare(a.ID, b.ID) },
	"type":   func(a, b cloud.NetworkMember) int { return cmp.Compare(a.Kind, b.Kind) },
	"status": func(a, b cloud.NetworkMember) int { return cmp.Compare(a.Status, b.Status) },
	"ip":     func(a, b cloud.NetworkMember) int { return a.IP.Compare(b.IP) },
}

// listNetworkMembers answers GET /networks/{id}/members.
func listNetworkMembers(r *Request, id int64) (Response, error) {
	q := r.Query()
	p, keys, err := pageAndOrder(q, MaxPerPage, memberSort)
	if err != nil {
		return Response{}, err
	}
	if _, err := oneOf(q, "type", "server", "load_balancer"); err != nil {
		return Response{}, err
	}
	if _, err := oneOf(q, "status", "ok", "attaching", "detaching", "updating", "error"); err != nil {
		return Response{}, err
	}
	n, err := cloud.Find(&r.Project.View().Networks, id)
	if err != nil {
		return Response{}, err
	}
	members := n.FilterMembers(cloud.MemberFilter{Types: q["type"], Subnets: q["subnet"], Statuses: q["status"]})
	slices.SortStableFunc(members, func(a, b cloud.NetworkMember) int { return compareBy(a, b, keys, memberSort) })
	return listResponse(r, "members", p, len(members), func(i int) []byte {
		m := members[i]
		return r.value(memberJSON{m.Kind, m.ID, m.IP, m.Status, nonNil(m.AliasIPs), m.Subnet.String()})
	}), nil
}
