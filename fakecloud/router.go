package fakecloud

import (
	"cmp"
	"context"
	"iter"
	"log/slog"
	"net/netip"
	"slices"
	"strconv"
	"sync"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/dataplane/netdev"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/cloud"
)

// RouterOptions make this machine the router of one of the cloud's networks. It takes Linux and
// CAP_NET_ADMIN; see package netdev.
type RouterOptions struct {
	// Interface is the name of the interface on whose network the servers are, as "eth0".
	Interface string
	// Network is the name or id of the network to route; "" is the only one there is, and the oldest if
	// there are several. It need not exist yet.
	Network string
	// Logger is told what is routed and what cannot be; nil is slog's default.
	Logger *slog.Logger
}

// Router is the gateway of a network: it forwards what servers send to it by the routes that the
// network has in the cloud, and knows no others. It follows the cloud's event stream; on start it makes
// the kernel's table what the cloud says.
//
// Reproduced: a packet goes to the gateway of the most specific route, with its source address kept;
// to a member of a subnet directly; a route whose gateway is no server of the network leads nowhere; so does
// a destination that no route has. A route counts once its action has succeeded.
//
// Left out: an interface has one network, so that of several networks in the cloud one is routed,
// and its members are not told from others who are on the interface's network. vSwitches connect nothing. What
// the sender learns of a packet that leads nowhere (ICMP here) is not documented for the real one. A
// gateway that is powered off is unreachable because whoever runs the servers takes its address off the
// network, not because the router looks at its status.
type Router struct {
	router *netdev.Router
	want   string
	log    *slog.Logger
	cancel context.CancelFunc
	done   sync.WaitGroup

	// What follows belongs to the goroutine that follows events.
	states  map[int64]*cloud.State // by project: what the latest event said
	current int64                  // ID of the network that is routed, 0 for none
	several bool                   // there are other networks, and no option chooses one
}

func startRouter(core *cloud.Cloud, o RouterOptions) (*Router, error) {
	kernel, err := netdev.NewRouter(netdev.RouterOptions{Interface: o.Interface})
	if err != nil {
		return nil, err
	}
	r := &Router{router: kernel, want: o.Network, log: o.Logger}
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

// Close removes all routes from this machine. Closing the cloud does it too.
func (r *Router) Close() {
	if r == nil {
		return
	}
	r.cancel()
	r.done.Wait()
	if err := r.router.Close(); err != nil {
		r.log.Error("the router leaves something behind", "error", err)
	}
}

// Routes returns what this machine's routing table has, by destination.
func (r *Router) Routes() ([]netdev.Route, error) { return r.router.Routes() }

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

// reconcile makes the kernel's table what the cloud says. What cannot be done is tried again with the
// next change of a network.
func (r *Router) reconcile() {
	n, others := chooseNetwork(r.networks, r.want)
	var id int64
	if n != nil {
		id = n.ID
	}
	if several := r.want == "" && others > 0; several != r.several {
		if r.several = several; several {
			r.log.Warn("there are several networks, of which the oldest is routed: name the one that this interface's network stands for", "others", others)
		}
	}
	if id != r.current {
		r.current = id
		r.announce(n)
	}
	if err := r.router.Set(routingTable(n)); err != nil {
		r.log.Error("the router's table is not what the cloud says", "error", err)
	}
}

func (r *Router) announce(n *cloud.Network) {
	switch {
	case n == nil && r.want != "":
		r.log.Warn("no network is routed: there is none of that name or id", "network", r.want)
	case n == nil:
		r.log.Info("no network is routed: there is none")
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
func routingTable(n *cloud.Network) []netdev.Route {
	if n == nil {
		return nil
	}
	var table []netdev.Route
	for _, s := range n.Subnets {
		if s.Type != cloud.SubnetVSwitch {
			table = append(table, netdev.Route{Destination: s.IPRange, Kind: netdev.OnLink})
		}
	}
	for _, route := range n.Routes {
		entry := netdev.Route{Destination: route.Destination, Kind: netdev.Unreachable}
		if hasServer(n, route.Gateway) {
			entry.Kind, entry.Gateway = netdev.Via, route.Gateway
		}
		table = append(table, entry)
	}
	return table
}

// hasServer tells whether an address, which may be an alias IP, is one of a server in the network.
func hasServer(n *cloud.Network, a netip.Addr) bool {
	return slices.ContainsFunc(n.Members, func(m cloud.NetworkMember) bool {
		return m.Kind == cloud.KindServer && m.Status != cloud.MemberAttaching && (m.IP == a || slices.Contains(m.AliasIPs, a))
	})
}
