package framework

import (
	"cmp"
	"context"
	"os"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/cloud"
)

// EnvRun is the environment variable with the run's name, a label value of everything that the suite creates in an existing cluster and
// cloud. `make e2e-clean` finds the remains of a crash by it.
const EnvRun = "E2E_RUN"

// RunName returns the name of the run.
func RunName() string { return cmp.Or(os.Getenv(EnvRun), "local") }

// EnvKeep is the environment variable that keeps the objects of failed specs, so that a person can look at them.
const EnvKeep = "E2E_KEEP"

// KeepFailed reports whether the objects of failed specs are kept.
func KeepFailed() bool { return os.Getenv(EnvKeep) != "" && os.Getenv(EnvKeep) != "0" }

// created records the objects that belong to a spec in a cloud that it may share with others.
type created struct {
	mu sync.Mutex
	// services are the UIDs of all Services that the spec created.
	services map[types.UID]bool
	// resources are the IDs of cloud objects that the spec created, or that belong to its Services.
	resources map[string]bool
	// tagged are the IDs of those that have the run's name.
	tagged  map[string]bool
	servers []cloud.Server
	// removals remove more of it, after the Services are gone.
	removals []func(context.Context)
	// others return the IDs of objects other than load balancers that belong to the spec's Services.
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

// takeServers returns the servers that the spec created, and forgets them.
func (c *created) takeServers() []cloud.Server {
	c.mu.Lock()
	defer c.mu.Unlock()
	servers := c.servers
	c.servers = nil
	return servers
}

// CreatedServer notes a server that the spec created in the cloud by itself. It is deleted with the spec.
func (e *Env) CreatedServer(s cloud.Server) { e.created.addServer(s) }

// Created notes an object that the spec created for a Service, or instead of the CCM. It belongs to the spec.
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

// Owns reports whether an object in the cloud belongs to the spec. It does after Created, and if its Service is one of the spec's, even if
// the Service loses it later. On the embedded cluster, all objects belong to the spec, since the cloud does.
func (e *Env) Owns(id string, service types.UID) bool {
	c := &e.created
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.services[service] || e.suite.shared == nil {
		c.add(id)
	}
	return c.resources[id]
}

// AlsoOwns adds a function that returns the IDs of objects other than load balancers, such as certificates, that belong to the spec's
// Services. A CCM's changes of these objects count as work for Services.
func (e *Env) AlsoOwns(f func(context.Context) []string) {
	e.created.others = append(e.created.others, f)
}

// otherIDs returns the IDs of objects other than load balancers that belong to the spec's Services.
func (e *Env) otherIDs(ctx context.Context) (ids []string) {
	for _, f := range e.created.others {
		ids = append(ids, f(ctx)...)
	}
	return ids
}

// OnRemove adds a function that removes objects of the spec from a shared cloud. It runs after the spec's Services are gone.
func (e *Env) OnRemove(f func(context.Context)) { e.created.removals = append(e.created.removals, f) }
