package cloud

import (
	"net/netip"
	"slices"
	"time"
)

// ServerStatus is the status of a server.
type ServerStatus string

// The statuses of a server.
const (
	ServerInitializing ServerStatus = "initializing"
	ServerStarting     ServerStatus = "starting"
	ServerRunning      ServerStatus = "running"
	ServerStopping     ServerStatus = "stopping"
	ServerOff          ServerStatus = "off"
	ServerDeleting     ServerStatus = "deleting"
	ServerMigrating    ServerStatus = "migrating"
	ServerRebuilding   ServerStatus = "rebuilding"
	ServerUnknown      ServerStatus = "unknown"
)

// Server is a virtual machine.
type Server struct {
	Meta
	Status      ServerStatus
	Type        *ServerType
	Location    *Location
	Image       *Image // nil when its image was deleted
	ISO         *ISO
	PrimaryDisk int // GB; stays when a bigger type is chosen without upgrading the disk
	// PublicIPv4 and PublicIPv6 are ids of Primary IPs, 0 for none. The addresses are theirs.
	PublicIPv4, PublicIPv6 int64
	PrivateNets            []ServerPrivateNet
	PlacementGroup         int64 // 0 for none
	// LoadBalancers are the ids of the load balancers that have the server as a target, by
	// ascending id.
	LoadBalancers     []int64
	RescueEnabled     bool
	BackupWindow      string // "" when backups are disabled
	DeleteProtection  bool
	RebuildProtection bool
	SSHKeys           []int64
	UserData          string
	// Started is when the server was last powered on; metrics count from there.
	Started time.Time
}

// ServerPrivateNet is a server's interface in a network.
type ServerPrivateNet struct {
	Network  int64
	IP       netip.Addr
	AliasIPs []netip.Addr
	MAC      string
}

// Clone implements Object.
func (s *Server) Clone() *Server {
	c := *s
	c.PrivateNets = slices.Clone(s.PrivateNets)
	for i := range c.PrivateNets {
		c.PrivateNets[i].AliasIPs = slices.Clone(c.PrivateNets[i].AliasIPs)
	}
	c.LoadBalancers = slices.Clone(s.LoadBalancers)
	c.SSHKeys = slices.Clone(s.SSHKeys)
	return &c
}

// Ref returns the reference to the server, as in an action's resources.
func (s *Server) Ref() Ref { return Ref{KindServer, s.ID} }

// PrivateNet returns the server's interface in a network.
func (s *Server) PrivateNet(network int64) (ServerPrivateNet, bool) {
	i := slices.IndexFunc(s.PrivateNets, func(n ServerPrivateNet) bool { return n.Network == network })
	if i < 0 {
		return ServerPrivateNet{}, false
	}
	return s.PrivateNets[i], true
}
