package api

import (
	"net/http"
	"net/netip"
	"slices"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/cloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/store"
)

// serverJSON has all fields of a server but the items of the catalogue: see appendServer.
type serverJSON struct {
	ID              int64                `json:"id"`
	Name            string               `json:"name"`
	Status          cloud.ServerStatus   `json:"status"`
	Created         timeJSON             `json:"created"`
	PublicNet       publicNetJSON        `json:"public_net"`
	PrivateNet      []privateNetJSON     `json:"private_net"`
	Datacenter      *datacenterJSON      `json:"datacenter,omitempty"` // until DatacenterGone
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

func (s serverJSON) appendJSON(b []byte) []byte {
	b = appendInt(b, `{"id":`, s.ID)
	b = appendText(b, `,"name":`, s.Name)
	b = appendText(b, `,"status":`, s.Status)
	b = appendTime(b, `,"created":`, s.Created)
	b = s.PublicNet.appendJSON(append(b, `,"public_net":`...))
	b = appendList(b, `,"private_net":`, s.PrivateNet, appendPrivateNet)
	if s.Datacenter != nil {
		b = appendOther(b, `,"datacenter":`, s.Datacenter)
	}
	b = appendNullable(b, `,"iso":`, s.ISO)
	b = appendBool(b, `,"rescue_enabled":`, s.RescueEnabled)
	b = appendBool(b, `,"locked":`, s.Locked)
	b = appendNullable(b, `,"backup_window":`, s.BackupWindow)
	b = appendNullable(b, `,"outgoing_traffic":`, s.OutgoingTraffic)
	b = appendNullable(b, `,"ingoing_traffic":`, s.IngoingTraffic)
	b = appendInt(b, `,"included_traffic":`, s.IncludedTraffic)
	b = appendBool(b, `,"protection":{"delete":`, s.Protection.Delete)
	b = appendBool(b, `,"rebuild":`, s.Protection.Rebuild)
	b = appendLabels(b, `},"labels":`, s.Labels)
	b = appendIDs(b, `,"volumes":`, s.Volumes)
	b = appendIDs(b, `,"load_balancers":`, s.LoadBalancers)
	b = appendInt(b, `,"primary_disk_size":`, s.PrimaryDiskSize)
	return append(appendNullable(b, `,"placement_group":`, s.PlacementGroup), '}')
}

type serverFirewallJSON struct {
	ID     int64  `json:"id"`
	Status string `json:"status"`
}

type publicNetJSON struct {
	IPv4        *publicIPv4JSON      `json:"ipv4"`
	IPv6        *publicIPv6JSON      `json:"ipv6"`
	FloatingIPs []int64              `json:"floating_ips"`
	Firewalls   []serverFirewallJSON `json:"firewalls"`
}

func (n publicNetJSON) appendJSON(b []byte) []byte {
	b = append(b, `{"ipv4":`...)
	if n.IPv4 == nil {
		b = append(b, "null"...)
	} else {
		b = appendInt(b, `{"id":`, n.IPv4.ID)
		b = appendText(b, `,"ip":`, n.IPv4.IP)
		b = appendBool(b, `,"blocked":`, n.IPv4.Blocked)
		b = append(appendText(b, `,"dns_ptr":`, n.IPv4.DNSPtr), '}')
	}
	b = append(b, `,"ipv6":`...)
	if n.IPv6 == nil {
		b = append(b, "null"...)
	} else {
		b = appendInt(b, `{"id":`, n.IPv6.ID)
		b = appendText(b, `,"ip":`, n.IPv6.IP)
		b = appendBool(b, `,"blocked":`, n.IPv6.Blocked)
		b = append(appendList(b, `,"dns_ptr":`, n.IPv6.DNSPtr, func(b []byte, p dnsPtrJSON) []byte {
			return append(appendText(appendText(b, `{"ip":`, p.IP), `,"dns_ptr":`, p.DNSPtr), '}')
		}), '}')
	}
	b = appendIDs(b, `,"floating_ips":`, n.FloatingIPs)
	b = appendList(b, `,"firewalls":`, n.Firewalls, func(b []byte, f serverFirewallJSON) []byte {
		return append(appendText(appendInt(b, `{"id":`, f.ID), `,"status":`, f.Status), '}')
	})
	return append(b, '}')
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

func appendPrivateNet(b []byte, n privateNetJSON) []byte {
	b = appendInt(b, `{"network":`, n.Network)
	b = appendAddr(append(b, `,"ip":`...), n.IP)
	b = appendList(b, `,"alias_ips":`, n.AliasIPs, appendAddr)
	return append(appendText(b, `,"mac_address":`, n.MACAddress), '}')
}

type serverProtectionJSON struct {
	Delete  bool `json:"delete"`
	Rebuild bool `json:"rebuild"`
}

func encodeServer(d Date, st *cloud.State, s *cloud.Server) serverJSON {
	out := serverJSON{
		ID: s.ID, Name: s.Name, Status: s.Status, Created: timeJSON(s.Created),
		PublicNet:     encodePublicNet(st, s),
		PrivateNet:    make([]privateNetJSON, len(s.PrivateNets)),
		RescueEnabled: s.RescueEnabled, Locked: st.Actions.Locked(s.Ref()),
		Protection: serverProtectionJSON{s.DeleteProtection, s.RebuildProtection},
		Labels:     s.Labels, Volumes: nonNil(s.Volumes), LoadBalancers: nonNil(s.LoadBalancers), PrimaryDiskSize: s.PrimaryDisk,
	}
	if s.Backups != nil {
		out.BackupWindow = &s.Backups.Window
	}
	for i, n := range s.PrivateNets {
		out.PrivateNet[i] = privateNetJSON{n.Network, n.IP, nonNil(n.AliasIPs), n.MAC}
	}
	for _, p := range s.Type.Prices {
		if p.Location == s.Location.Name {
			out.IncludedTraffic = p.IncludedTraffic
		}
	}
	if s.ISO != nil {
		out.ISO = new(encodeISO(s.ISO))
	}
	if g, ok := st.PlacementGroups.Get(s.PlacementGroup); ok {
		out.PlacementGroup = new(encodePlacementGroup(g))
	}
	if d.Before(DatacenterGone) {
		out.Datacenter = new(encodeDatacenter(st.Catalogue, s.Location))
	}
	return out
}

// appendServer appends a server's JSON. The items of the catalogue, two thirds of it, are not encoded with each version.
func appendServer(b []byte, a *API, d Date, st *cloud.State, s *cloud.Server) []byte {
	b = encodeServer(d, st, s).appendJSON(b)
	image := []byte("null")
	switch i := s.Image; {
	case i == nil:
	case i.Type == cloud.ImageSnapshot, i.Type == cloud.ImageBackup:
		image = marshal(encodeImage(d, i)) // the project's own, which change
	default:
		image = systemImages.json(a, d, st.Catalogue, i)
	}
	b = append(append(b[:len(b)-1], `,"server_type":`...), serverTypes.json(a, d, st.Catalogue, st.TypeOf(s))...)
	b = append(append(b, `,"location":`...), locations.json(a, d, st.Catalogue, s.Location)...)
	b = append(append(b, `,"image":`...), image...)
	return append(b, '}')
}

func encodePublicNet(st *cloud.State, s *cloud.Server) publicNetJSON {
	out := publicNetJSON{FloatingIPs: nonNil(s.FloatingIPs), Firewalls: []serverFirewallJSON{}}
	for _, f := range s.Firewalls {
		status := "applied"
		if f.Pending {
			status = "pending"
		}
		out.Firewalls = append(out.Firewalls, serverFirewallJSON{f.ID, status})
	}
	if ip, ok := st.PrimaryIPs.Get(s.PublicIPv4); ok {
		out.IPv4 = &publicIPv4JSON{ip.ID, ip.IP.Addr().String(), ip.Blocked, ip.DNSPtr.Of(ip.IP.Addr())}
	}
	if ip, ok := st.PrimaryIPs.Get(s.PublicIPv6); ok {
		out.IPv6 = &publicIPv6JSON{ip.ID, ip.IP.String(), ip.Blocked, encodeDNSPtrs(ip.IP, ip.DNSPtr)}
	}
	return out
}

var servers = &resource[*cloud.Server]{
	singular: "server", plural: "servers", kind: cloud.KindServer,
	table:  func(st *cloud.State) *store.Table[*cloud.Server] { return &st.Servers },
	append: appendServer,
	sort:   orders[*cloud.Server]("id", "name", "created"),
	filter: filterBy("status", func(s *cloud.Server) string { return string(s.Status) }, serverStatuses...),
}

var serverStatuses = []string{
	"running", "initializing", "starting", "stopping", "off", "deleting", "migrating", "rebuilding", "unknown",
}

func serverRoutes() []Route {
	const kind = cloud.KindServer
	return slices.Concat(servers.routes(
		withBody(createServer), withIDAndBody(kind, updateServer), withID(kind, deleteServer),
	), []Route{
		{http.MethodGet, "/servers/{id}/metrics", "get_server_metrics",
			withID(kind, getMetrics(cloud.Project.ServerMetrics, "cpu", "disk", "network"))},
	}, actionRoutesOf(servers), serverActionRoutes())
}

func updateServer(r *Request, id int64, body struct {
	Name   *string           `json:"name" check:"hostname"`
	Labels map[string]string `json:"labels"`
}) (Response, error) {
	st, err := r.Project.UpdateServer(id, cloud.UpdateResource{Name: body.Name, Labels: body.Labels})
	return servers.updated(r, id, st, err)
}

// deleteServer answers 200 with an action. Other deletions answer 204 or 201.
func deleteServer(r *Request, id int64) (Response, error) {
	action, st, err := r.Project.DeleteServer(id)
	if err != nil {
		return Response{}, err
	}
	return object(http.StatusOK, actionPart(st, action)), nil
}
