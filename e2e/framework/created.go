package framework

import (
	"cmp"
	"maps"
	"os"
	"strings"
	"sync"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/clean"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/journal"
)

// EnvRun is the environment variable with the run's name, a label value of everything that the suite creates in an existing
// cluster and cloud. `make e2e-clean` finds by it what a crash left.
const EnvRun = "E2E_RUN"

// LabelRun is the label with the run's name, of namespaces and of the cloud's resources.
const LabelRun = clean.LabelRun

// runName returns the name of the run.
func runName() string { return cmp.Or(os.Getenv(EnvRun), "local") }

// tagged returns labels for something that a spec creates in the cloud, with the run's name.
func tagged(labels map[string]string) map[string]string {
	tagged := maps.Clone(labels)
	if tagged == nil {
		tagged = map[string]string{}
	}
	tagged[LabelRun] = runName()
	return tagged
}

// EnvKeep is the environment variable that asks to keep what failed specs have made, to look inside.
const EnvKeep = "E2E_KEEP"

// KeepFailed reports whether what failed specs have made is kept.
func KeepFailed() bool { return os.Getenv(EnvKeep) != "" && os.Getenv(EnvKeep) != "0" }

// created records what belongs to a spec in a cloud that it may share with others.
type created struct {
	mu sync.Mutex
	// services are the UIDs of all Services that the spec has created.
	services map[string]bool
	// loadBalancers and certificates are the ids of those that the spec has created, or that belong to its
	// Services.
	loadBalancers, certificates map[int64]bool
	servers                     []*hcloud.Server
}

func (c *created) addService(uid string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.services == nil {
		c.services = map[string]bool{}
	}
	c.services[uid] = true
}

func (c *created) addServer(s *hcloud.Server) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.servers = append(c.servers, s)
}

// takeServers returns the servers that the spec has created, and forgets them.
func (c *created) takeServers() []*hcloud.Server {
	c.mu.Lock()
	defer c.mu.Unlock()
	servers := c.servers
	c.servers = nil
	return servers
}

func (c *created) addLoadBalancer(id int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	remember(&c.loadBalancers, id)
}

func (c *created) addCertificate(id int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	remember(&c.certificates, id)
}

func remember(ids *map[int64]bool, id int64) {
	if *ids == nil {
		*ids = map[int64]bool{}
	}
	(*ids)[id] = true
}

// isLoadBalancer reports whether a load balancer belongs to the spec, by its id or by the Service in its owner label. It
// still belongs to the spec when the label is removed.
func (c *created) isLoadBalancer(id int64, owner string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.services[owner] {
		remember(&c.loadBalancers, id)
	}
	return c.loadBalancers[id]
}

func (c *created) isCertificate(id int64, owner string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.services[owner] {
		remember(&c.certificates, id)
	}
	return c.certificates[id]
}

// contains reports whether a request was about a load balancer or certificate of the spec, by its id.
func (c *created) contains(r journal.Entry) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case strings.HasPrefix(r.Route, "/load_balancers"):
		return c.loadBalancers[r.ResourceID]
	case strings.HasPrefix(r.Route, "/certificates"):
		return c.certificates[r.ResourceID]
	}
	return false
}
