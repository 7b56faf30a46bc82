package api

import (
	"net/http"
	"slices"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/cloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/store"
)

type dnsPtrJSON struct {
	IP     string `json:"ip"`
	DNSPtr string `json:"dns_ptr"`
}

// appendServer appends a server's JSON. The items of the catalogue, two thirds of it, are not encoded with each version.
func appendServer(b []byte, r version[*cloud.Server]) []byte {
	a, d, st, s := r.api, r.date, r.st, r.v
	b = appendInt(b, `{"id":`, s.ID)
	b = appendText(b, `,"name":`, s.Name)
	b = appendText(b, `,"status":`, s.Status)
	b = appendTime(b, `,"created":`, s.Created)
	b = appendPublicNet(append(b, `,"public_net":`...), st, s)
	b = appendList(b, `,"private_net":`, s.PrivateNets, appendPrivateNet)
	if d.Before(DatacenterGone) {
		b = appendOther(b, `,"datacenter":`, encodeDatacenter(st.Catalogue, s.Location))
	}
	b = isos.appendItem(b, `,"iso":`, a, d, st, s.ISO)
	b = appendBool(b, `,"rescue_enabled":`, s.RescueEnabled)
	b = appendBool(b, `,"locked":`, st.Actions.Locked(s.Ref()))
	var window *string
	if s.Backups != nil {
		window = &s.Backups.Window
	}
	b = appendNullable(b, `,"backup_window":`, window)
	b = append(b, `,"outgoing_traffic":null,"ingoing_traffic":null`...)
	b = appendInt(b, `,"included_traffic":`, includedTraffic(s.Type.Prices, s.Location))
	b = appendBool(b, `,"protection":{"delete":`, s.DeleteProtection)
	b = appendBool(b, `,"rebuild":`, s.RebuildProtection)
	b = appendLabels(b, `},"labels":`, s.Labels)
	b = appendIDs(b, `,"volumes":`, s.Volumes)
	b = appendIDs(b, `,"load_balancers":`, s.LoadBalancers)
	b = appendInt(b, `,"primary_disk_size":`, s.PrimaryDisk)
	var group *placementGroupJSON
	if g, ok := st.PlacementGroups.Get(s.PlacementGroup); ok {
		group = new(encodePlacementGroup(g))
	}
	b = appendNullable(b, `,"placement_group":`, group)
	b = serverTypes.appendItem(b, `,"server_type":`, a, d, st, st.TypeOf(s))
	b = locations.appendItem(b, `,"location":`, a, d, st, s.Location)
	if i := s.Image; i != nil && (i.Type == cloud.ImageSnapshot || i.Type == cloud.ImageBackup) {
		b = appendOther(b, `,"image":`, encodeImage(d, i)) // the project's own, which change
	} else {
		b = systemImages.appendItem(b, `,"image":`, a, d, st, i)
	}
	return append(b, '}')
}

func appendPublicNet(b []byte, st *cloud.State, s *cloud.Server) []byte {
	b = append(b, `{"ipv4":`...)
	if ip, ok := st.PrimaryIPs.Get(s.PublicIPv4); ok {
		b = appendInt(b, `{"id":`, ip.ID)
		b = appendAddr(append(b, `,"ip":`...), ip.IP.Addr())
		b = appendBool(b, `,"blocked":`, ip.Blocked)
		b = append(appendText(b, `,"dns_ptr":`, ip.DNSPtr.Of(ip.IP.Addr())), '}')
	} else {
		b = append(b, "null"...)
	}
	b = append(b, `,"ipv6":`...)
	if ip, ok := st.PrimaryIPs.Get(s.PublicIPv6); ok {
		b = appendInt(b, `{"id":`, ip.ID)
		b = appendText(b, `,"ip":`, ip.IP.String())
		b = appendBool(b, `,"blocked":`, ip.Blocked)
		b = append(appendList(b, `,"dns_ptr":`, encodeDNSPtrs(ip.IP, ip.DNSPtr), func(b []byte, p dnsPtrJSON) []byte {
			return append(appendText(appendText(b, `{"ip":`, p.IP), `,"dns_ptr":`, p.DNSPtr), '}')
		}), '}')
	} else {
		b = append(b, "null"...)
	}
	b = appendIDs(b, `,"floating_ips":`, s.FloatingIPs)
	b = appendList(b, `,"firewalls":`, s.Firewalls, func(b []byte, f cloud.ServerFirewall) []byte {
		status := "applied"
		if f.Pending {
			status = "pending"
		}
		return append(appendText(appendInt(b, `{"id":`, f.ID), `,"status":`, status), '}')
	})
	return append(b, '}')
}

func appendPrivateNet(b []byte, n cloud.ServerPrivateNet) []byte {
	b = appendInt(b, `{"network":`, n.Network)
	b = appendAddr(append(b, `,"ip":`...), n.IP)
	b = appendList(b, `,"alias_ips":`, n.AliasIPs, appendAddr)
	return append(appendText(b, `,"mac_address":`, n.MAC), '}')
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
	return object(http.StatusOK, actionPart(st, action)), err
}
