// Package cloud is the conformance specs' view of a cloud, in the terms of Kubernetes. A [Driver] connects the specs with a cloud.
//
// A driver implements [Cloud], and those optional interfaces ([Router], [Renamer], [Faulty], …) that its cloud can support. A spec that
// needs another one is reported as unsupported, with the reason.
//
// Clouds differ more than their APIs' names suggest, so the interface asks for no more than Kubernetes promises: an ID is any text, an
// address may come minutes after its load balancer, the health of a target may be unknown, a target may be a bare address.
package cloud

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"reflect"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// ErrNotFound is the error, perhaps wrapped, of a method that is given a server, load balancer or route that does not exist.
var ErrNotFound = errors.New("not found")

// LabelRun is the label with the run's name on the objects that a run creates in a cluster, and in a cloud that has labels.
const LabelRun = "ccm-from-scratch-e2e/run"

// Driver makes clouds for specs.
type Driver interface {
	// Start makes a cloud for one spec of the embedded cluster. The spec closes it.
	Start(context.Context, Options) (Cloud, error)
	// Open connects to the cloud of a cluster that exists, for all specs. Its settings are environment variables of the driver's own.
	Open(context.Context, Options) (Cloud, error)
}

// Options describe the run to a driver.
type Options struct {
	// ProviderPrefix is how the provider IDs of the CCM under test begin, such as hcloud://.
	ProviderPrefix string
	// OwnerLabel is the label of a load balancer that has the UID of its Service, if the CCM under test sets one.
	OwnerLabel string
	// UserAgent is a part of the User-Agent of the CCM's requests, if it sends one.
	UserAgent string
	// Servers and LoadBalancers are loopback addresses of this host that no other cloud of the run uses. Start gives each server one of
	// the first, where its node ports are open, and each load balancer one of the second.
	Servers, LoadBalancers netip.Prefix
	// Log gets lines that help to explain a failed spec.
	Log io.Writer
	// Settings are those of a spec that is written for one cloud. Other drivers ignore them.
	Settings any
}

// Cloud is a cloud that has a cluster's nodes as its servers. A method returns when the change is complete: a created server runs, a
// deleted one is gone. All methods may be called at the same time.
type Cloud interface {
	// CreateServer creates a server in the cluster's network. Names are unique.
	CreateServer(ctx context.Context, name string) (Server, error)
	// DeleteServer deletes a server, whether it runs or not.
	DeleteServer(ctx context.Context, id string) error
	// StopServer turns a server off, StartServer on.
	StopServer(ctx context.Context, id string) error
	StartServer(ctx context.Context, id string) error
	// Servers returns all servers of the cluster.
	Servers(context.Context) ([]Server, error)
	// LoadBalancers returns all load balancers.
	LoadBalancers(context.Context) ([]LoadBalancer, error)
	// DeleteLoadBalancer deletes a load balancer, as a person would who does not know of the cluster.
	DeleteLoadBalancer(ctx context.Context, id string) error
	// CCM is the configuration of a CCM of this cloud.
	CCM() CCM
	// Close removes everything that Start created.
	Close() error
}

// CCM is the configuration with which a CCM of a cloud starts, in addition to its description.
type CCM struct {
	// Env are environment variables, such as the API's endpoint and a token.
	Env map[string]string `json:"env,omitempty"`
	// Args are arguments, such as --cloud-config=….
	Args []string `json:"args,omitempty"`
	// Values replace their names in braces in the description of a CCM, such as {location}.
	Values map[string]string `json:"values,omitempty"`
}

// Server is a server of a cloud.
type Server struct {
	// ID is the cloud's ID of the server. The cloud never uses it again for another server.
	ID   string `json:"id"`
	Name string `json:"name"`
	// ProviderID is the wanted spec.providerID of its node.
	ProviderID string `json:"providerID"`
	// Addresses are those of the types InternalIP and ExternalIP that its node must have.
	Addresses []corev1.NodeAddress `json:"addresses"`
	// Type, Region and Zone are the values of its node's well-known labels. Specs do not look at a label that is empty here.
	Type   string `json:"type,omitempty"`
	Region string `json:"region,omitempty"`
	Zone   string `json:"zone,omitempty"`
	// Running is false while it is off.
	Running bool `json:"running"`
	// Local is the server's address on this host, from Options.Servers: the cloud's load balancers send the server's connections there. It
	// is not valid if the cloud forwards nothing to this host.
	Local netip.Addr `json:"local,omitzero"`
}

// LoadBalancer is a load balancer of a cloud.
type LoadBalancer struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	// Service is the UID of the Service that it belongs to, empty if the cloud does not say: specs find it by the Service's status then.
	Service types.UID `json:"service,omitempty"`
	// Addresses are the IP addresses and host names of the load balancer, as clients use them.
	Addresses []string `json:"addresses"`
	Ports     []Port   `json:"ports"`
}

// Port is one port of a load balancer.
type Port struct {
	Protocol corev1.Protocol `json:"protocol"`
	Port     int32           `json:"port"`
	// NodePort is the port of the targets. It is 0 for a port without targets if the cloud learns the number from its targets.
	NodePort int32    `json:"nodePort"`
	Targets  []Target `json:"targets"`
}

// Target is where a port of a load balancer forwards to.
type Target struct {
	// Server is the ID of a server, empty if the cloud knows the target by its address only.
	Server string `json:"server,omitempty"`
	// Address is that of a target that is a bare address.
	Address string `json:"address,omitempty"`
	Health  Health `json:"health"`
}

// Is reports whether the target is a server, by its ID or by one of its addresses.
func (t Target) Is(s Server) bool {
	if t.Server != "" {
		return t.Server == s.ID
	}
	return s.Local.IsValid() && s.Local.String() == t.Address ||
		slices.ContainsFunc(s.Addresses, func(a corev1.NodeAddress) bool { return a.Address == t.Address })
}

// Health is a target's health, as the cloud reports it.
type Health string

// The health of targets.
const (
	Healthy   Health = "healthy"
	Unhealthy Health = "unhealthy"
	// Unknown also stands for a cloud that does not tell.
	Unknown Health = "unknown"
)

// Renamer is a cloud that can rename servers.
type Renamer interface {
	RenameServer(ctx context.Context, id, name string) error
}

// Router is a cloud with a network that routes to the pods of nodes.
type Router interface {
	Routes(context.Context) ([]Route, error)
	AddRoute(context.Context, Route) error
	// DeleteRoute deletes a route. The error is ErrNotFound if the destination's route leads elsewhere.
	DeleteRoute(context.Context, Route) error
}

// Route is a route of the cluster's network. Specs ignore its name: each cloud and CCM names routes in another way.
type Route struct {
	Destination netip.Prefix `json:"destination"`
	// Server is the ID of the server that the route leads to. It is empty if the route leads to an address without a server.
	Server  string `json:"server,omitempty"`
	Address string `json:"address,omitempty"`
}

// Dialer is a cloud with load balancers that this host cannot reach by an ordinary dial.
type Dialer interface {
	// Dial connects to "address:port" from outside of the cluster.
	Dial(ctx context.Context, address string) (net.Conn, error)
}

// Mute is a cloud with load balancers that forward nothing, such as an emulator without a data plane. Specs check the configuration of load
// balancers instead of sending requests through them.
type Mute interface {
	// ForwardsNothing does nothing.
	ForwardsNothing()
}

// Subject is the kind of object that a call of the cloud's API is about.
type Subject string

// The subjects of calls. A part of a load balancer, such as its certificate, counts as a load balancer. Everything else, such as actions,
// is Other.
const (
	AboutServers       Subject = "server"
	AboutLoadBalancers Subject = "load-balancer"
	AboutRoutes        Subject = "route"
	Other              Subject = "other"
)

// Request is a call of the cloud's API by the CCM.
type Request struct {
	// Seq numbers the requests in the order of their answers.
	Seq uint64 `json:"seq"`
	// Time is when it arrived.
	Time  time.Time `json:"time"`
	Write bool      `json:"write"`
	About Subject   `json:"about"`
	// ID is that of the server or load balancer, empty if it is about none, or if it creates one.
	ID string `json:"id,omitempty"`
	// Text is the request in reports, such as "GET /servers → 200".
	Text string `json:"text"`
	// Kind is equal for requests of one kind, such as "GET /servers". A CCM that sends another kind for the first time still begins.
	Kind string `json:"kind"`
}

// Recorder is a cloud that remembers the requests of the CCM under test.
type Recorder interface {
	// Requests returns those with a higher number, in their order.
	Requests(ctx context.Context, after uint64) ([]Request, error)
}

// Faulty is a cloud that can be made to misbehave towards the CCM under test, and towards no other client.
type Faulty interface {
	// AddFault begins a fault and returns its name.
	AddFault(context.Context, Fault) (name string, err error)
	// Met returns the number of calls that met a fault. The error is ErrNotFound after the fault's end.
	Met(ctx context.Context, name string) (int, error)
	// RemoveFault ends a fault. The error is ErrNotFound if it is over already.
	RemoveFault(ctx context.Context, name string) error
}

// Fault is how a class of calls fails.
type Fault struct {
	// Calls selects reads or writes. Empty: all calls.
	Calls Calls `json:"calls,omitempty"`
	// About selects calls about something. Empty: all calls.
	About Subject `json:"about,omitempty"`
	// Pass is how many of the selected calls do not fail before the first that does.
	Pass int `json:"pass,omitempty"`
	// First is how many calls fail. 0: all until it is removed.
	First  int    `json:"first,omitempty"`
	Effect Effect `json:"effect"`
}

// Calls are a class of calls.
type Calls string

// The classes of calls: those that change nothing, and those that change something.
const (
	Reads  Calls = "read"
	Writes Calls = "write"
)

// Effect is how a call fails. A driver that cannot produce an effect returns errors.ErrUnsupported.
type Effect string

// The effects.
const (
	// Unavailable: 503, or the cloud's usual answer when it is down.
	Unavailable Effect = "unavailable"
	// Internal: an error of the server, such as 500.
	Internal Effect = "internal"
	// Unauthorized: the credentials are refused.
	Unauthorized Effect = "unauthorized"
	// Forbidden: they may not do this.
	Forbidden Effect = "forbidden"
	// RateLimited: too many requests.
	RateLimited Effect = "rate-limited"
	// Conflict: someone else changes the same thing now.
	Conflict Effect = "conflict"
	// NothingFound: an object that a call asks for by ID does not exist, as with an endpoint that has a wrong path. Lists may fail, too.
	NothingFound Effect = "nothing-found"
	// EmptyLists: every list is empty, as of an old cache or of another project.
	EmptyLists Effect = "empty-lists"
	// Garbage: an answer that is not the API's, such as a page of HTML with 200.
	Garbage Effect = "garbage"
	// Hang: no answer until the fault is removed, and nothing is done.
	Hang Effect = "hang"
	// HangAfter: it is done, but the answer never comes.
	HangAfter Effect = "hang-after"
	// Drop: the connection is closed without an answer, and nothing is done.
	Drop Effect = "drop"
	// LoseAnswer: it is done, and the connection is closed without an answer.
	LoseAnswer Effect = "lose-answer"
)

// Tagger is a cloud that a run shares with other runs and people. It can mark load balancers of the run with LabelRun.
type Tagger interface {
	// Tag marks a load balancer. One that cannot be marked now is an error, and is tried again.
	Tag(ctx context.Context, loadBalancer, run string) error
}

// Dumper is a cloud that can show its state in the report of a failed spec.
type Dumper interface {
	Dump(context.Context) string
}

// Limiter is a cloud with a quota.
type Limiter interface {
	// LimitLoadBalancers refuses further load balancers beyond a number. A negative number ends the limit.
	LimitLoadBalancers(ctx context.Context, most int) error
}

// As returns a cloud as one of the optional interfaces; ok is false if it does not implement it.
func As[T any](c Cloud) (optional T, ok bool) {
	if p, partial := c.(Partial); partial && !p.Implements(reflect.TypeFor[T]().Name()) {
		return optional, false
	}
	optional, ok = c.(T)
	return optional, ok
}

// Partial is a cloud that has the methods of all optional interfaces and implements some, such as one behind another program.
type Partial interface {
	// Implements reports whether it implements an optional interface, such as "Router".
	Implements(optional string) bool
}
