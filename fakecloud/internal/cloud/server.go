package cloud

import (
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/store"
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

// KindServer is the kind of servers.
const KindServer store.Kind = "server"

// Server is a virtual machine.
//
// Reproduced: the statuses and their order; one action at a time (locked); power, rescue, rebuild, change
// of type, backups, images, ISOs, reverse DNS, placement groups, protection; the release of all attached
// resources when a server is deleted.
//
// Left out: traffic counters (null, as for a server that has not sent anything); a console (nothing listens at its address);
// guests, unless a hypervisor runs them. Without a guest, a shutdown always succeeds.
type Server struct {
	store.Meta
	Status      ServerStatus `json:"status,omitzero"`
	Type        *ServerType  `json:"type,omitzero"`
	Location    *Location    `json:"location,omitzero"`
	Image       *Image       `json:"image,omitzero"` // nil after its image was deleted
	ISO         *ISO         `json:"iso,omitzero"`
	PrimaryDisk int          `json:"primary_disk,omitzero"` // GB; a change of type without an upgrade of the disk keeps it
	// PublicIPv4 and PublicIPv6 are ids of Primary IPs, 0 for none.
	PublicIPv4  int64   `json:"public_ipv4,omitzero"`
	PublicIPv6  int64   `json:"public_ipv6,omitzero"`
	FloatingIPs []int64 `json:"floating_ips,omitzero"` // by ascending id
	Volumes     []int64 `json:"volumes,omitzero"`      // by ascending id
	// Firewalls are those on the public interface, by ascending id. It is replaced as a whole.
	Firewalls      []ServerFirewall   `json:"firewalls,omitzero"`
	PrivateNets    []ServerPrivateNet `json:"private_nets,omitzero"`
	PlacementGroup int64              `json:"placement_group,omitzero"` // 0 for none
	// LoadBalancers are the ascending ids of the load balancers that have the server as a target. It is replaced as a whole,
	// never changed in place.
	LoadBalancers     []int64  `json:"load_balancers,omitzero"`
	RescueEnabled     bool     `json:"rescue_enabled,omitzero"`
	Backups           *Backups `json:"backups,omitzero"` // nil when they are disabled
	DeleteProtection  bool     `json:"delete_protection,omitzero"`
	RebuildProtection bool     `json:"rebuild_protection,omitzero"`
	SSHKeys           []int64  `json:"ssh_keys,omitzero"`
	UserData          string   `json:"user_data,omitzero"`
	PasswordHash      []byte   `json:"password_hash,omitzero"` // SHA-256 of root's password; nil for none. It is replaced as a whole
	// Started and Stopped are when the server was last powered on and off. Metrics cover the time between.
	Started time.Time `json:"started,omitzero"`
	Stopped time.Time `json:"stopped,omitzero"`
	// RescueSince is when rescue mode was enabled.
	RescueSince time.Time `json:"rescue_since,omitzero"`
	// RescueSSHKeys and RescueHash, of the password, are those of the rescue system. They are replaced as a whole.
	RescueSSHKeys []int64 `json:"rescue_ssh_keys,omitzero"`
	RescueHash    []byte  `json:"rescue_hash,omitzero"`
	// powered is when the server last started or stopped to run, zero for never. The health of load
	// balancers' targets follows it.
	powered time.Time
	// filtered is when other packets last began to pass the firewalls, zero for never. Health follows it, too.
	filtered time.Time
	// epoch counts the changes of Status, so that delayed work notices that it is outdated.
	epoch uint64
}

// ServerPrivateNet is a server's interface in a network.
type ServerPrivateNet struct {
	Network  int64        `json:"network,omitzero"`
	IP       netip.Addr   `json:"ip,omitzero"`
	AliasIPs []netip.Addr `json:"alias_ips,omitzero"`
	MAC      string       `json:"mac,omitzero"`
}

// Clone implements Object.
func (s *Server) Clone() *Server {
	c := *s
	c.PrivateNets = slices.Clone(s.PrivateNets)
	for i := range c.PrivateNets {
		c.PrivateNets[i].AliasIPs = slices.Clone(c.PrivateNets[i].AliasIPs)
	}
	c.FloatingIPs, c.Volumes = slices.Clone(s.FloatingIPs), slices.Clone(s.Volumes)
	c.SSHKeys = slices.Clone(s.SSHKeys)
	return &c
}

// Ref returns the reference to the server, as in an action's resources.
func (s *Server) Ref() Ref { return Ref{KindServer, s.ID} }

// PrivateNet returns the server's interface in a network.
func (s *Server) PrivateNet(network int64) (ServerPrivateNet, bool) {
	return find(s.PrivateNets, func(n ServerPrivateNet) bool { return n.Network == network })
}

// SameRun reports whether the server has neither begun to start nor to stop since it was before.
func (s *Server) SameRun(before *Server) bool { return s.epoch == before.epoch }

// setStatus changes the status and the fields that depend on it.
func (s *Server) setStatus(status ServerStatus, now time.Time) {
	switch {
	case status == ServerRunning && s.Status != ServerRunning:
		s.Started = now
	case status == ServerOff && s.Status != ServerOff:
		s.Stopped = now
	}
	if (status == ServerRunning) != (s.Status == ServerRunning) {
		s.powered = now
	}
	s.Status = status
	s.epoch++
}

// setServerStatus changes a server's status, and schedules the health of its targets.
func (tx *Tx) setServerStatus(id int64, status ServerStatus) {
	tx.Servers.Update(id, func(s *Server) { s.setStatus(status, tx.now) })
	tx.followReach(id)
}

// followServer updates load balancers and firewalls after a server was created, or after its labels or addresses
// changed.
func (tx *Tx) followServer(id int64) {
	tx.refreshTargets(id)
	tx.refreshFirewallsOf(id)
}

// hasInterface reports whether the server has a public or private interface. It cannot be powered on
// without one (API document, unassign a Primary IP).
func (s *Server) hasInterface() bool {
	return s.PublicIPv4 != 0 || s.PublicIPv6 != 0 || len(s.PrivateNets) > 0
}

// primaryIP returns the id of the server's Primary IP of a type, 0 for none.
func (s *Server) primaryIP(t IPType) int64 {
	if t == IPv4 {
		return s.PublicIPv4
	}
	return s.PublicIPv6
}

// UpdateServer changes name and labels. The targets of load balancers follow the labels.
// Errors: not_found, invalid_input, uniqueness_error.
func (p Project) UpdateServer(id int64, in UpdateResource) (*State, error) {
	return p.update(func(tx *Tx) error {
		if err := setMeta(&tx.Servers, id, in); err != nil {
			return err
		}
		tx.followServer(id)
		return nil
	})
}

func requireStopped(s *Server, message string) error {
	if s.Status != ServerOff {
		return ErrOperation("server_not_stopped", message)
	}
	return nil
}

func checkUserData(data string) error {
	if len(data) > MaxUserDataBytes {
		return ErrField("user_data", fmt.Sprintf("must be at most %d bytes", MaxUserDataBytes))
	}
	return nil
}

// passwordAlphabet leaves out characters that look alike.
const passwordAlphabet = "abcdefghijkmnpqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ23456789"

// newPassword returns a password that is not secret: it follows from the cloud's seed and the number of passwords before.
func (tx *Tx) newPassword() string {
	tx.cloud.passwords++
	r := rand.New(rand.NewPCG(tx.cloud.seed, tx.cloud.passwords))
	b := make([]byte, 20)
	for i := range b {
		b[i] = passwordAlphabet[r.IntN(len(passwordAlphabet))]
	}
	return string(b)
}

// hashOf returns the hash by which a guest knows a password.
func hashOf(password string) []byte {
	sum := sha256.Sum256([]byte(password))
	return sum[:]
}
