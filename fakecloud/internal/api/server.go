package api

import (
	"net/http"
	"net/netip"
	"net/url"
	"slices"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/cloud"
)

type serverJSON struct {
	ID              int64                `json:"id"`
	Name            string               `json:"name"`
	Status          cloud.ServerStatus   `json:"status"`
	Created         timeJSON             `json:"created"`
	PublicNet       publicNetJSON        `json:"public_net"`
	PrivateNet      []privateNetJSON     `json:"private_net"`
	ServerType      serverTypeJSON       `json:"server_type"`
	Datacenter      *datacenterJSON      `json:"datacenter,omitempty"` // until 2026-07-01
	Location        locationJSON         `json:"location"`
	Image           *imageJSON           `json:"image"`
	ISO             *isoJSON             `json:"iso"`
	RescueEnabled   bool                 `json:"rescue_enabled"`
	Locked          bool                 `json:"locked"`
	BackupWindow    *string              `json:"backup_window"`
	OutgoingTraffic *int64               `json:"outgoing_traffic"`
	IngoingTraffic  *int64               `json:"ingoing_traffic"`
	IncludedTraffic int64                `json:"included_traffic"`
	Protection      serverProtectionJSON `json:"protection"`
	Labels          map[string]string    `json:"labels"`
	Volumes         []int64              `json:"volumes"`
	LoadBalancers   []int64              `json:"load_balancers"`
	PrimaryDiskSize int                  `json:"primary_disk_size"`
	PlacementGroup  *placementGroupJSON  `json:"placement_group"`
}

type publicNetJSON struct {
	IPv4        *publicIPv4JSON `json:"ipv4"`
	IPv6        *publicIPv6JSON `json:"ipv6"`
	FloatingIPs []int64         `json:"floating_ips"`
	Firewalls   []struct{}      `json:"firewalls"` // not modelled: always empty
}

type publicIPv4JSON struct {
	ID      int64  `json:"id"`
	IP      string `json:"ip"`
	Blocked bool   `json:"blocked"`
	DNSPtr  string `json:"dns_ptr"`
}

type publicIPv6JSON struct {
	ID      int64        `json:"id"`
	IP      string       `json:"ip"`
	Blocked bool         `json:"blocked"`
	DNSPtr  []dnsPtrJSON `json:"dns_ptr"`
}

type dnsPtrJSON struct {
	IP     string `json:"ip"`
	DNSPtr string `json:"dns_ptr"`
}

type privateNetJSON struct {
	Network    int64        `json:"network"`
	IP         netip.Addr   `json:"ip"`
	AliasIPs   []netip.Addr `json:"alias_ips"`
	MACAddress string       `json:"mac_address"`
}

type serverProtectionJSON struct {
	Delete  bool `json:"delete"`
	Rebuild bool `json:"rebuild"`
}

func encodeServer(st *cloud.State, s *cloud.Server) serverJSON {
	out := serverJSON{
		ID: s.ID, Name: s.Name, Status: s.Status, Created: timeJSON(s.Created),
		PublicNet:  encodePublicNet(st, s),
		PrivateNet: make([]privateNetJSON, len(s.PrivateNets)),
		ServerType: encodeServerType(s.Type), Location: encodeLocation(s.Location),
		RescueEnabled: s.RescueEnabled, Locked: st.Actions.Locked(s.Ref()), BackupWindow: nullable(s.BackupWindow),
		Protection: serverProtectionJSON{s.DeleteProtection, s.RebuildProtection},
		Labels:     s.Labels, Volumes: []int64{}, LoadBalancers: nonNil(s.LoadBalancers), PrimaryDiskSize: s.PrimaryDisk,
	}
	for i, n := range s.PrivateNets {
		out.PrivateNet[i] = privateNetJSON{n.Network, n.IP, nonNil(n.AliasIPs), n.MAC}
	}
	for _, p := range s.Type.Prices {
		if p.Location == s.Location.Name {
			out.IncludedTraffic = p.IncludedTraffic
		}
	}
	if s.Image != nil {
		image := encodeImage(s.Image)
		out.Image = &image
	}
	if s.ISO != nil {
		iso := encodeISO(s.ISO)
		out.ISO = &iso
	}
	if g, ok := st.PlacementGroups.Get(s.PlacementGroup); ok {
		group := encodePlacementGroup(g)
		out.PlacementGroup = &group
	}
	return out
}

func encodePublicNet(st *cloud.State, s *cloud.Server) publicNetJSON {
	out := publicNetJSON{FloatingIPs: nonNil(s.FloatingIPs), Firewalls: []struct{}{}}
	if ip, ok := st.PrimaryIPs.Get(s.PublicIPv4); ok {
		out.IPv4 = &publicIPv4JSON{ip.ID, ip.IP.Addr().String(), ip.Blocked, ip.DNSPtr[ip.IP.Addr()]}
	}
	if ip, ok := st.PrimaryIPs.Get(s.PublicIPv6); ok {
		out.IPv6 = &publicIPv6JSON{ip.ID, ip.IP.String(), ip.Blocked, encodeDNSPtrs(ip.DNSPtr)}
	}
	return out
}

// newServers returns the resource of servers. datacenter adds the field of that name, which was removed on 2026-07-01.
func newServers(datacenter bool) *resource[*cloud.Server] {
	return &resource[*cloud.Server]{
		singular: "server", plural: "servers", kind: cloud.KindServer,
		table: func(st *cloud.State) *cloud.Table[*cloud.Server] { return &st.Servers },
		encode: func(st *cloud.State, s *cloud.Server) any {
			out := encodeServer(st, s)
			if datacenter {
				d := encodeDatacenter(st.Catalogue, s.Location)
				out.Datacenter = &d
			}
			return out
		},
		sort: map[string]func(a, b *cloud.Server) int{
			"id": compareID[*cloud.Server], "name": compareName[*cloud.Server], "created": compareCreated[*cloud.Server],
		},
		filter: func(q url.Values) (func(*cloud.State, *cloud.Server) bool, error) {
			status, err := oneOf(q, "status", serverStatuses...)
			if err != nil || len(q["status"]) == 0 {
				return nil, err
			}
			return func(_ *cloud.State, s *cloud.Server) bool { return status(string(s.Status)) }, nil
		},
	}
}

var serverStatuses = []string{
	"running", "initializing", "starting", "stopping", "off", "deleting", "migrating", "rebuilding", "unknown",
}

var serversNow, serversWithDatacenter = newServers(false), newServers(true)

// servers returns the resource of servers on a date.
func servers(d Date) *resource[*cloud.Server] {
	if d.Before(DatacenterGone) {
		return serversWithDatacenter
	}
	return serversNow
}

// dated returns a handler that uses the resource of the API's date.
func dated[T cloud.Object[T]](of func(Date) *resource[T], handle func(*resource[T], *Request) (Response, error)) func(*Request) (Response, error) {
	return func(r *Request) (Response, error) { return handle(of(r.api.date), r) }
}

func serverRoutes() []Route {
	return slices.Concat([]Route{
		{http.MethodGet, "/servers", "list_servers", dated(servers, (*resource[*cloud.Server]).list)},
		{http.MethodPost, "/servers", "create_server", createServer},
		{http.MethodGet, "/servers/{id}", "get_server", dated(servers, (*resource[*cloud.Server]).get)},
		{http.MethodPut, "/servers/{id}", "update_server", updateServer},
		{http.MethodDelete, "/servers/{id}", "delete_server", deleteServer},
		{http.MethodGet, "/servers/{id}/metrics", "get_server_metrics", getServerMetrics},
	}, actionRoutesOf(serversNow), serverActionRoutes(), serverNetworkRoutes())
}

func updateServer(r *Request) (Response, error) {
	id, err := r.ID(cloud.KindServer)
	if err != nil {
		return Response{}, err
	}
	var body struct {
		Name   *string           `json:"name" check:"hostname"`
		Labels map[string]string `json:"labels"`
	}
	if err := r.Bind(&body); err != nil {
		return Response{}, err
	}
	st, err := r.Project.UpdateServer(id, cloud.UpdateResource{Name: body.Name, Labels: body.Labels})
	if err != nil {
		return Response{}, err
	}
	return object(http.StatusOK, servers(r.api.date).part(st, id, nil)), nil
}

// deleteServer answers 200 with an action. Other deletions answer 204 or 201.
func deleteServer(r *Request) (Response, error) {
	id, err := r.ID(cloud.KindServer)
	if err != nil {
		return Response{}, err
	}
	action, st, err := r.Project.DeleteServer(id)
	if err != nil {
		return Response{}, err
	}
	return object(http.StatusOK, actionPart(st, action)), nil
}
