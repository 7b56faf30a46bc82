package plane

import (
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strconv"

	"go.yaml.in/yaml/v3"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/cloud"
)

// MetadataPath is the prefix of the metadata service's paths.
const MetadataPath = "/hetzner/v1"

// Metadata returns the metadata service of a cloud. It prefers the servers of a network, given by name or id.
func Metadata(core *cloud.Cloud, network string) http.Handler {
	m := &metadata{core: core, network: network}
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+MetadataPath+"/metadata", m.serve(func(c serverContext) ([]byte, bool) {
		return toYAML(c.summary()), true
	}))
	mux.HandleFunc("GET "+MetadataPath+"/metadata/{key}", func(w http.ResponseWriter, r *http.Request) {
		m.serve(func(c serverContext) ([]byte, bool) { return c.value(r.PathValue("key")) })(w, r)
	})
	mux.HandleFunc("GET "+MetadataPath+"/userdata", m.serve(func(c serverContext) ([]byte, bool) {
		return []byte(c.server.UserData), true
	}))
	return mux
}

// metadata finds the server that sends a request.
type metadata struct {
	core    *cloud.Cloud
	network string
}

// serverContext is a server with all that its metadata shows.
type serverContext struct {
	state  *cloud.State
	server *cloud.Server
}

func (m *metadata) serve(answer func(serverContext) ([]byte, bool)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		from, err := netip.ParseAddrPort(r.RemoteAddr)
		if err != nil {
			http.Error(w, "not found: the source of the request is not an IP address", http.StatusNotFound)
			return
		}
		source := from.Addr().Unmap().WithZone("")
		found := m.find(source)
		if len(found) != 1 {
			http.Error(w, fmt.Sprintf("not found: %d servers have the address %s", len(found), source), http.StatusNotFound)
			return
		}
		body, ok := answer(found[0])
		if !ok {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		_, _ = w.Write(body)
	}
}

// find returns the servers that have an address.
func (m *metadata) find(a netip.Addr) []serverContext {
	var found []serverContext
	var networks []*cloud.Network
	add := func(st *cloud.State, r cloud.Ref) {
		if s, ok := st.Servers.Get(r.ID); ok && r.Kind == cloud.KindServer {
			found = append(found, serverContext{st, s})
		}
	}
	var views []*cloud.State
	for _, p := range m.core.Projects() {
		st := p.View()
		views = append(views, st)
		networks = slices.AppendSeq(networks, st.Networks.All())
		for ip := range st.PrimaryIPs.All() {
			if ip.IP.Contains(a) {
				add(st, ip.Assignee)
			}
		}
	}
	if len(found) > 0 {
		return found // public addresses are unique
	}
	preferred, _ := chooseNetwork(slices.Values(networks), m.network)
	for _, st := range views {
		for n := range st.Networks.All() {
			before := len(found)
			for _, member := range n.Members {
				if member.IP == a || slices.Contains(member.AliasIPs, a) {
					add(st, member.Ref)
				}
			}
			if n == preferred && len(found) > before {
				return found[before:]
			}
		}
	}
	return found
}

// metadataSummary is the document of all values, in the order of the API document's example.
type metadataSummary struct {
	AvailabilityZone string `yaml:"availability-zone"`
	Hostname         string `yaml:"hostname"`
	InstanceID       int64  `yaml:"instance-id"`
	PublicIPv4       string `yaml:"public-ipv4"`
	Region           string `yaml:"region"`
}

func (c serverContext) summary() metadataSummary {
	out := metadataSummary{
		// The data centers were removed in 2026, but the document still has their names here.
		AvailabilityZone: c.server.Location.Datacenter.Name,
		Hostname:         c.server.Name, InstanceID: c.server.ID, Region: c.server.Location.NetworkZone,
	}
	if ip, ok := c.state.PrimaryIPs.Get(c.server.PublicIPv4); ok {
		out.PublicIPv4 = ip.IP.Addr().String()
	}
	return out
}

// value returns one value without a line break at its end, and false if the key does not exist.
func (c serverContext) value(key string) ([]byte, bool) {
	s := c.summary()
	switch key {
	case "availability-zone":
		return []byte(s.AvailabilityZone), true
	case "hostname":
		return []byte(s.Hostname), true
	case "instance-id":
		return strconv.AppendInt(nil, s.InstanceID, 10), true
	case "public-ipv4":
		return []byte(s.PublicIPv4), true
	case "region":
		return []byte(s.Region), true
	case "private-networks":
		return toYAML(c.privateNetworks()), true
	}
	return nil, false
}

// metadataNetwork is an entry of private-networks.
type metadataNetwork struct {
	IP           string   `yaml:"ip"`
	AliasIPs     []string `yaml:"alias_ips,flow"`
	InterfaceNum int      `yaml:"interface_num"`
	MACAddress   string   `yaml:"mac_address"`
	NetworkID    int64    `yaml:"network_id"`
	NetworkName  string   `yaml:"network_name"`
	Network      string   `yaml:"network"`
	Subnet       string   `yaml:"subnet"`
	Gateway      string   `yaml:"gateway"`
}

// privateNetworks returns the server's interfaces, the first attached first.
func (c serverContext) privateNetworks() []metadataNetwork {
	out := []metadataNetwork{}
	for i, p := range c.server.PrivateNets {
		entry := metadataNetwork{
			IP: p.IP.String(), AliasIPs: []string{}, InterfaceNum: i + 1, MACAddress: p.MAC, NetworkID: p.Network,
		}
		for _, a := range p.AliasIPs {
			entry.AliasIPs = append(entry.AliasIPs, a.String())
		}
		if n, ok := c.state.Networks.Get(p.Network); ok {
			entry.NetworkName, entry.Network = n.Name, n.IPRange.String()
			for _, s := range n.Subnets {
				if s.IPRange.Contains(p.IP) {
					entry.Subnet, entry.Gateway = s.IPRange.String(), s.Gateway.String()
				}
			}
		}
		out = append(out, entry)
	}
	return out
}

func toYAML(v any) []byte {
	b, err := yaml.Marshal(v)
	if err != nil {
		panic("fakecloud: metadata: " + err.Error()) // strings and numbers can be encoded
	}
	return b
}
