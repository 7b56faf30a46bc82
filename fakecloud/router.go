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

// RouteTable is where a router has its routes, such as a netdev.Router.
type RouteTable interface {
	// Set makes the table exactly these routes and changes nothing that is right already. It sets as many as it can.
	Set([]dataplane.Route) error
}

// RouterOptions make this machine the router of one of the cloud's networks: it forwards what servers send to it by
// the routes that the network has in the cloud, and by no others. It follows the cloud's events, and starts with the
// routes that exist.
//
// Reproduced: a packet goes to the gateway of the most specific route, with its source address kept, and directly to
// a member of a subnet. A destination without a route, or whose gateway is no server of the network, is unreachable. A
// route counts once its action has succeeded.
//
// Not modelled: the interface stands for one network, so that one of several networks in the cloud is routed, and
// everything on the interface's network counts as a member. vSwitches connect nothing. The sender of a packet without
// a route gets ICMP; what the real router sends is not documented. A gateway that is powered off is unreachable because
// the program that runs the servers takes its address off the network; the router does not look at its status.
type RouterOptions struct {
	// Table has the routes of this machine. It is required. Close it after the cloud.
	Table RouteTable
	// Network is the name or id of the network. If empty, it is the only one, or the oldest of several. It need not
	// exist yet.
	Network string
	// Logger is told which network is routed, and of errors. nil is slog's default.
	Logger *slog.Logger
}

type router struct {
	table  RouteTable
	want   string
	log    *slog.Logger
	cancel context.CancelFunc
	done   sync.WaitGroup

	// What follows belongs to the goroutine that follows events.
	states  map[int64]*cloud.State // by project: what the latest event said
	current int64                  // ID of the network that is routed, 0 for none
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
			if e.Kind == cloud.KindNetwork {
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
		r.log.Error("cannot remove the routes of this machine", "error", err)
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

// reconcile makes the kernel's table what the cloud says. What cannot be done is tried again with the
// next change of a network.
func (r *router) reconcile() {
	n, others := chooseNetwork(r.networks, r.want)
	var id int64
	if n != nil {
		id = n.ID
	}
	if several := r.want == "" && others > 0; several != r.several {
		if r.several = several; several {
			r.log.Warn("there are several networks and the oldest is routed; name the one that this machine is to route", "others", others)
		}
	}
	if id != r.current {
		r.current = id
		r.announce(n)
	}
	if err := r.table.Set(routingTable(n)); err != nil {
		r.log.Error("cannot set the routes of this machine; they are set again with the next change of a network", "error", err)
	}
}

func (r *router) announce(n *cloud.Network) {
	switch {
	case n == nil && r.want != "":
		r.log.Warn("no network is routed: no network has that name or id", "network", r.want)
	case n == nil:
		r.log.Info("no network is routed: the cloud has none")
	default:
		r.log.Info("a network is routed", "network", n.Name, "id", n.ID, "ip_range", n.IPRange)
	}
}

// chooseNetwork returns the network that the interface's network stands for: of those whose name or id is wanted
// ("" is any) the oldest, nil if there is none, and how many others there are.
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

// routingTable returns what the router of a network knows; nothing for nil.
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

// hasServer reports whether an address, which may be an alias IP, is one of a server in the network.
func hasServer(n *cloud.Network, a netip.Addr) bool {
	return slices.ContainsFunc(n.Members, func(m cloud.NetworkMember) bool {
		return m.Kind == cloud.KindServer && m.Status != cloud.MemberAttaching && (m.IP == a || slices.Contains(m.AliasIPs, a))
	})
}
