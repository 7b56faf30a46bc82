package ccm

import "github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/event"

// Reasons of the provider's events on Services, in addition to those of the service controller. They
// say why a Service is pending or what the provider did to its load balancer.
const (
	// EventInvalidSettings: an annotation or the Service itself has an invalid setting. No load balancer
	// was created, or the existing one keeps what it has for this setting.
	EventInvalidSettings = event.InvalidSettings
	// EventUnknownAnnotation: an unknown annotation with our prefix was ignored.
	EventUnknownAnnotation = event.UnknownAnnotation
	// EventIgnoredSetting: Hetzner load balancers do not support a field of the Service.
	EventIgnoredSetting = event.IgnoredSetting
	// EventCreating and EventCreated mark the start and the end of a load balancer's creation.
	EventCreating = event.Creating
	EventCreated  = event.Created
	// EventAdopted: the Service uses an existing load balancer with the wanted name.
	EventAdopted = event.Adopted
	// EventJoined: the Service shares the load balancer of another one.
	EventJoined = event.Joined
	// EventPortTaken: a port of a shared load balancer belongs to another Service.
	EventPortTaken = event.PortTaken
	// EventUpdated: the load balancer was changed to its desired state.
	EventUpdated = event.Updated
	// EventPending: an action of the cloud is running, or a resource is locked by one.
	EventPending = event.Pending
	// EventNotAdoptable: the load balancer with the wanted name belongs to another Service.
	EventNotAdoptable = event.NotAdoptable
	// EventNotOwned: the load balancer with the wanted name does not belong to the Service.
	EventNotOwned = event.NotOwned
	// EventImmutable: the location and network zone of a load balancer cannot change.
	EventImmutable = event.Immutable
	// EventAddressImmutable: the public addresses of a load balancer cannot change.
	EventAddressImmutable = event.AddressImmutable
	// EventSkippedNodes: some nodes cannot be targets.
	EventSkippedNodes = event.SkippedNodes
	// EventSkippedPorts: some ports cannot be forwarded.
	EventSkippedPorts = event.SkippedPorts
	// EventTypeLimit: the type of the load balancer has no room for all targets, ports or certificates.
	EventTypeLimit = event.TypeLimit
	// EventProtected: the load balancer is protected against deletion.
	EventProtected = event.Protected
	// EventKept: the Service is gone, and its load balancer was kept.
	EventKept = event.Kept
	// EventCertificate: a managed certificate is being issued, or its issuance failed.
	EventCertificate = event.Certificate
	// EventSeveral: several load balancers have the Service's ownership label.
	EventSeveral = event.Several
	// EventRepaired: a load balancer was changed outside of the CCM and has been repaired.
	EventRepaired = event.Repaired
)

// EventDoubted is the reason of an event on a Node or a Service: the provider does not believe that a
// server or load balancer is gone. See evidence.
const EventDoubted = event.Doubted

// Reasons of the provider's events on Nodes.
const (
	// EventForeignProviderID: the Node belongs to another provider, so nothing is done with it.
	EventForeignProviderID = event.ForeignProviderID
	// EventServerNotFound: the Node has no server.
	EventServerNotFound = event.ServerNotFound
	// EventNotAttached: the Node's server is not attached to the network of HCLOUD_NETWORK.
	EventNotAttached = event.NotAttached
)
