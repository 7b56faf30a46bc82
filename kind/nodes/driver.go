package nodes

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/hypervisor"
)

// ContainerLabel is the label of a server for a container that exists already: its value is the container's name. A server that is created
// with it gets that container instead of a new one.
const ContainerLabel = "kind.ccm-from-scratch/container"

// NoNodeLabel is the label of a server that gets no node: attach with Selector, and its
// actions end by the profile's time, as without a hypervisor. Tests that need many servers and no
// nodes set it.
const NoNodeLabel = "kind.ccm-from-scratch/no-node"

// Selector selects the servers that get nodes, for the options with which the hypervisor
// attaches.
const Selector = "!" + NoNodeLabel

// Container is a container that is a node of the cluster, or can become one.
type Container struct {
	Name string
	// Server is the id of the server that it was made for, 0 for one that kind made.
	Server  int64
	Address netip.Addr
	Running bool
	// Started is when it was started last.
	Started time.Time
	// ControlPlane reports that the cluster's control plane is on it.
	ControlPlane bool
}

// Driver makes containers, and switches them on and off. All methods return when that is done, and may be called for
// different containers at the same time.
type Driver interface {
	// List returns all containers of the cluster, running or not.
	List(ctx context.Context) ([]Container, error)
	// Address returns the address that a server's container gets. It returns false if the server has none that a container
	// can have.
	Address(m hypervisor.Guest) (netip.Addr, bool)
	// Create makes a container for a server without starting it. An *hypervisor.Error says why it
	// cannot be.
	Create(ctx context.Context, m hypervisor.Guest) error
	// Move gives a container that is off another address. An *hypervisor.Error says why it cannot be.
	Move(ctx context.Context, name string, to netip.Addr) error
	// Start powers on. A running container keeps running.
	Start(ctx context.Context, name string) error
	// Kill cuts the power. A stopped container stays off.
	Kill(ctx context.Context, name string) error
	// Shutdown asks the node to shut down, and returns when it was asked.
	Shutdown(ctx context.Context, name string) error
	// Restart asks the node to shut down and starts it again.
	Restart(ctx context.Context, name string) error
	// Remove takes the container away with its contents. It succeeds if the container does not exist.
	Remove(ctx context.Context, name string) error
	// Boot boots a started container like a server: it waits until the node is up, and runs user data or joins the cluster if that was not
	// done yet. Notes name the parts of the user data that are not honoured.
	Boot(ctx context.Context, name string, m hypervisor.Guest) (notes []string, err error)
	// Counters reads the resource usage of a running container since its start.
	Counters(ctx context.Context, name string) (Counters, error)
	// Watch calls changed with the name of each container that was made, started, died or
	// was removed, and with "" when it begins to watch, as anything may have happened before. It returns when it can no
	// longer watch.
	Watch(ctx context.Context, changed func(name string)) error
}

// CodeUnavailable is the code of an action that fails because the server cannot get a container.
const CodeUnavailable = "resource_unavailable"

// unavailable is an error of Create with a reason that a client can understand.
func unavailable(message string) error {
	return &hypervisor.Error{Code: CodeUnavailable, Message: message}
}

// asError gives an error of a task the code server_error, unless it has one.
func asError(err error) error {
	if e := (*hypervisor.Error)(nil); err == nil || errors.As(err, &e) {
		return err
	}
	return &hypervisor.Error{Code: "server_error", Message: err.Error()}
}
