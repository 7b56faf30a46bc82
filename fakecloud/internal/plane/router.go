package plane

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

// RouteTable is fakecloud.RouteTable.
type RouteTable interface {
	Set([]dataplane.Route) error
}

// Router keeps the routes of a network, and those to Floating IPs, in a table of this machine.
type Router struct {
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

// StartRouter follows a cloud until Close. network is the name or id of the network, or empty for the oldest one. If log is nil,
// it is slog's default.
func StartRouter(core *cloud.Cloud, table RouteTable, network string, log *slog.Logger) (*Router, error) {
	if table == nil {
		return nil, errors.New("Router.Table is required; set it to a netdev.Router, for example")
	}
	r := &Router{table: table, want: network, log: cmp.Or(log, slog.Default())}
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel = cancel
	sub, states := core.Subscribe()
	r.states = states
	r.reconcile()
	r.done.Go(func() {
		defer sub.Close()
		limit := 0
		for {
			e, err := sub.Next(ctx)
			if err != nil {
				return
			}
			r.states[e.Project] = e.State
			limit = forgetDropped(core, r.states, limit)
			if e.Kind == cloud.KindNetwork || e.Kind == cloud.KindFloatingIP {
				r.reconcile()
			}
		}
	})
	return r, nil
}

// Close removes all routes.
func (r *Router) Close() {
	r.cancel()
	r.done.Wait()
	if err := r.table.Set(nil); err != nil {
		r.log.Error("cannot remove the routes of this machine; remove them by hand", "error", err)
	}
}

// networks yields the networks of all projects.
func (r *Router) networks(yield func(*cloud.Network) bool) {
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
func (r *Router) reconcile() {
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

func (r *Router) announce(n *cloud.Network) {
	switch {
	case n == nil && r.want != "":
		r.log.Warn("no network has the name or id of the option: routing is off", "network", r.want)
	case n == nil:
		r.log.Info("the cloud has no network: routing is off")
	default:
		r.log.Info("routing a network", "network", n.Name, "id", n.ID, "ip_range", n.IPRange)
	}
}

// chooseNetwork returns the oldest network with the name or id want ("" fits all), or nil. It also returns the number of all other
// networks.
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
func (r *Router) floatingRoutes() []dataplane.Route {
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
