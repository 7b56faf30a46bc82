package fakecloud

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"log/slog"
	"net/netip"
	"slices"
	"strconv"
	"sync"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/dataplane"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/cloud"
)

// RouteTable holds the routes of a router, such as a netdev.Router.
type RouteTable interface {
	// Set replaces the table's routes with these and leaves those that are in both alone. It sets as many as it can.
	Set([]dataplane.Route) error
}

// RouterOptions make this machine the router of one of the cloud's networks: it forwards the packets of servers by the
// network's routes only. It follows the cloud's events, and starts with the existing routes.
//
// Reproduced: a packet goes to the gateway of the most specific route and keeps its source address. A packet to a member
// of a subnet goes there directly. A destination is unreachable if it has no route, or if the gateway is not a server of
// the network. A route counts once its action has succeeded. A packet to a Floating IP goes to the server that has it,
// whose machine must have configured the address. It is unreachable while no server has it. For that, machines must send
// packets for PublicIPv4 to the router: the range must lie outside of the interface's network.
//
// Not modelled: the interface stands for one network. The other networks of the cloud are not routed, and all machines
// on the interface's network count as members. A Floating IP goes by this network, too: it is unreachable if its server
// is in no network or in another one. The server's firewalls do not filter its packets. IPv6 is not routed. vSwitches
// connect nothing. The sender of a packet without a route gets ICMP; the document does not say what the real router sends.
// The router does not look at the status of a gateway: one that is powered off is unreachable because its machine does not
// answer.
type RouterOptions struct {
	// Table holds the routes of this machine. It is required. Close it after the cloud.
	Table RouteTable
	// Network is the name or id of the network. If empty, it is the oldest network. It need not exist yet.
	Network string
	// Logger gets the name of the routed network, and errors. If nil, it is slog's default.
	Logger *slog.Logger
}

type router struct {
	table  RouteTable
	want   string
	log    *slog.Logger
	cancel context.CancelFunc
	done   sync.WaitGroup

	// Only the goroutine that follows events uses these fields.
	states  map[int64]*cloud.State // by project: the state of the latest event
	current int64                  // ID of the routed network, 0 for none
	several bool                   // there are other networks, and no option chooses one
}

func startRouter(core *cloud.Cloud, o RouterOptions) (*router, error) {
	if o.Table == nil {
		return nil, errors.New("Router.Table is required; set it to a netdev.Router, for example")
	}
	r := &router{table: o.Table, want: o.Network, log: o.Logger}
	if r.log == nil {
		r.log = slog.Default()
	}
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel = cancel
	sub, states := core.Subscribe()
	r.states = states
	r.reconcile()
	r.done.Go(func() {
		defer sub.Close()
		for {
			e, err := sub.Next(ctx)
			if err != nil {
				return
			}
			r.states[e.Project] = e.State
			if e.Kind == cloud.KindNetwork || e.Kind == cloud.KindFloatingIP {
				r.reconcile()
			}
		}
	})
	return r, nil
}

// close removes all routes.
func (r *router) close() {
	if r == nil {
		return
	}
	r.cancel()
	r.done.Wait()
	if err := r.table.Set(nil); err != nil {
		r.log.Error("cannot remove the routes of this machine; remove them by hand", "error", err)
	}
}

// networks yields the networks of all projects.
func (r *router) networks(yield func(*cloud.Network) bool) {
	for _, st := range r.states {
		for n := range st.Networks.All() {
			if !yield(n) {
				return
			}
		}
	}
}

// reconcile sets the routes of the network and of Floating IPs in the table. After an error, the next change of one of them
// tries again.
func (r *router) reconcile() {
	n, others := chooseNetwork(r.networks, r.want)
	var id int64
	if n != nil {
		id = n.ID
	}
	if several := r.want == "" && others > 0; several != r.several {
		if r.several = several; several {
			r.log.Warn("routing the oldest of several networks; name the one to route", "others", others)
		}
	}
	if id != r.current {
		r.current = id
		r.announce(n)
	}
	if err := r.table.Set(append(routingTable(n), r.floatingRoutes()...)); err != nil {
		r.log.Error("cannot set the routes of this machine; will retry at the next change of a network or a Floating IP", "error", err)
	}
}

func (r *router) announce(n *cloud.Network) {
	switch {
	case n == nil && r.want != "":
		r.log.Warn("routing no network: none has that name or id", "network", r.want)
	case n == nil:
		r.log.Info("routing no network: the cloud has none")
	default:
		r.log.Info("routing a network", "network", n.Name, "id", n.ID, "ip_range", n.IPRange)
	}
}

// chooseNetwork returns the oldest network whose name or id is want ("" fits all), or nil. It also returns the number
// of all other networks.
func chooseNetwork(all iter.Seq[*cloud.Network], want string) (n *cloud.Network, others int) {
	var matching []*cloud.Network
	for c := range all {
		if want == "" || c.Name == want || strconv.FormatInt(c.ID, 10) == want {
			matching = append(matching, c)
		} else {
			others++
		}
	}
	if len(matching) == 0 {
		return nil, others
	}
	oldest := slices.MinFunc(matching, func(a, b *cloud.Network) int { return cmp.Compare(a.ID, b.ID) })
	return oldest, others + len(matching) - 1
}

// routingTable returns the routes of a network's router. It returns none for nil.
func routingTable(n *cloud.Network) []dataplane.Route {
	if n == nil {
		return nil
	}
	var table []dataplane.Route
	for _, s := range n.Subnets {
		if s.Type != cloud.SubnetVSwitch {
			table = append(table, dataplane.Route{Destination: s.IPRange, Kind: dataplane.OnLink})
		}
	}
	for _, route := range n.Routes {
		entry := dataplane.Route{Destination: route.Destination, Kind: dataplane.Unreachable}
		if hasServer(n, route.Gateway) {
			entry.Kind, entry.Gateway = dataplane.Via, route.Gateway
		}
		table = append(table, entry)
	}
	return table
}

// floatingRoutes returns the routes to the Floating IPs of all projects. Each has one, because the network's own routes, such
// as a default route, are not for Floating IPs.
func (r *router) floatingRoutes() []dataplane.Route {
	var table []dataplane.Route
	for _, st := range r.states {
		for f := range st.FloatingIPs.All() {
			if !f.IP.Addr().Is4() {
				continue
			}
			route := dataplane.Route{Destination: f.IP, Kind: dataplane.Unreachable}
			if s, ok := st.Servers.Get(f.Server); ok {
				if in, ok := s.PrivateNet(r.current); ok {
					route.Kind, route.Gateway = dataplane.Via, in.IP
				}
			}
			table = append(table, route)
		}
	}
	return table
}

// hasServer reports whether a server in the network has the address, also as an alias IP.
func hasServer(n *cloud.Network, a netip.Addr) bool {
	return slices.ContainsFunc(n.Members, func(m cloud.NetworkMember) bool {
		return m.Kind == cloud.KindServer && m.Status != cloud.MemberAttaching && (m.IP == a || slices.Contains(m.AliasIPs, a))
	})
}
