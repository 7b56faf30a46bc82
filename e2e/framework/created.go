package framework

import (
	"cmp"
	"context"
	"os"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/cloud"
)

// EnvRun is the environment variable with the run's name, a label value of everything that the suite creates in an existing
// cluster and cloud. `make e2e-clean` finds by it what a crash left.
const EnvRun = "E2E_RUN"

// RunName returns the name of the run.
func RunName() string { return cmp.Or(os.Getenv(EnvRun), "local") }

// EnvKeep is the environment variable that asks to keep what failed specs have made, to look inside.
const EnvKeep = "E2E_KEEP"

// KeepFailed reports whether what failed specs have made is kept.
func KeepFailed() bool { return os.Getenv(EnvKeep) != "" && os.Getenv(EnvKeep) != "0" }

// created records what belongs to a spec in a cloud that it may share with others.
type created struct {
	mu sync.Mutex
	// services are the UIDs of all Services that the spec has created.
	services map[types.UID]bool
	// resources are the IDs of what the spec has created in the cloud, or what belongs to its Services.
	resources map[string]bool
	// tagged are the IDs of those that have the run's name.
	tagged  map[string]bool
	servers []cloud.Server
	// removals remove more of it, after the Services are gone.
	removals []func(context.Context)
	// others return the IDs of what belongs to the spec's Services besides load balancers.
	others []func(context.Context) []string
}

func (c *created) addService(uid types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.services == nil {
		c.services = map[types.UID]bool{}
	}
	c.services[uid] = true
}

func (c *created) addServer(s cloud.Server) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.servers = append(c.servers, s)
}

// takeServers returns the servers that the spec has created, and forgets them.
func (c *created) takeServers() []cloud.Server {
	c.mu.Lock()
	defer c.mu.Unlock()
	servers := c.servers
	c.servers = nil
	return servers
}

// CreatedServer notes that the spec has created a server by itself. It is deleted with the spec.
func (e *Env) CreatedServer(s cloud.Server) { e.created.addServer(s) }

// Created notes that the spec has created something by itself for a Service, or instead of the CCM. It belongs to the spec.
func (e *Env) Created(id string) {
	c := &e.created
	c.mu.Lock()
	defer c.mu.Unlock()
	c.add(id)
}

func (c *created) add(id string) {
	if c.resources == nil {
		c.resources = map[string]bool{}
	}
	c.resources[id] = true
}

// tag marks something once, as soon as that succeeds.
func (c *created) tag(id string, mark func() error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.tagged == nil {
		c.tagged = map[string]bool{}
	}
	if !c.tagged[id] {
		c.tagged[id] = mark() == nil
	}
}

// Owns reports whether something of Services in the cloud belongs to the spec, by its ID or by the Service that it is for. It still
// belongs to the spec when it is no longer for that Service. All of a cloud of the spec's own belongs to it.
func (e *Env) Owns(id string, service types.UID) bool {
	c := &e.created
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.services[service] || e.suite.shared == nil {
		c.add(id)
	}
	return c.resources[id]
}

// AlsoOwns has a function tell what belongs to the spec's Services besides load balancers, by ID, such as certificates. What a CCM does
// with it counts as done for Services.
func (e *Env) AlsoOwns(f func(context.Context) []string) {
	e.created.others = append(e.created.others, f)
}

// otherIDs returns the IDs of what belongs to the spec's Services besides load balancers.
func (e *Env) otherIDs(ctx context.Context) (ids []string) {
	for _, f := range e.created.others {
		ids = append(ids, f(ctx)...)
	}
	return ids
}

// OnRemove has a function remove more of what belongs to the spec in a shared cloud, after its Services are gone.
func (e *Env) OnRemove(f func(context.Context)) { e.created.removals = append(e.created.removals, f) }
