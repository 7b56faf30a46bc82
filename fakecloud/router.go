package fakecloud

import (
	"log/slog"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/dataplane"
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
// whose guest must have configured the address. It is unreachable while no server has it. For that, guests must send
// packets for PublicIPv4 to the router: the range must lie outside of the interface's network.
//
// Not modelled: the interface stands for one network. The other networks of the cloud are not routed, and all machines
// on the interface's network count as members. A Floating IP goes by this network, too: it is unreachable if its server
// is in no network or in another one. The server's firewalls do not filter its packets. IPv6 is not routed. vSwitches
// connect nothing. The sender of a packet without a route gets ICMP; the document does not say what the real router sends.
// The router does not look at the status of a gateway: one that is powered off is unreachable because its guest does not
// answer.
type RouterOptions struct {
	// Table holds the routes of this machine. It is required. Close it after the cloud.
	Table RouteTable
	// Network is the name or id of the network. If empty, it is the oldest network. It need not exist yet.
	Network string
	// Logger gets the name of the routed network, and errors. If nil, it is slog's default.
	Logger *slog.Logger
}
