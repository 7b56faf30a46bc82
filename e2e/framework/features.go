package framework

import (
	. "github.com/onsi/ginkgo/v2"
)

// Feature is something that not every CCM can do. Specs declare with Needs which features they need.
type Feature string

// The features beyond those of every CCM. Every CCM initializes nodes, removes the nodes of deleted servers, and makes load balancers that
// serve.
const (
	// AddressFamily: HCLOUD_INSTANCES_ADDRESS_FAMILY chooses the addresses of nodes: ipv4, ipv6 or dualstack.
	AddressFamily Feature = "address-family"
	// AddressUpdates: a node's addresses change when its server is attached, detached or renamed.
	AddressUpdates Feature = "address-updates"
	// TypeUpdates: a node's labels change with its server's type.
	TypeUpdates Feature = "type-updates"
	// ForeignNodes: nodes with a provider ID of another CCM are left alone, and the log says so.
	ForeignNodes Feature = "foreign-nodes"
	// ShutdownTaint: the node of a server that is off is tainted and kept.
	ShutdownTaint Feature = "shutdown-taint"
	// CarefulDeletion: a node is deleted only if the API says that its server does not exist.
	CarefulDeletion Feature = "careful-deletion"
	// NodeRoutes: each node has a route in the network, and its NetworkUnavailable condition reports that.
	NodeRoutes Feature = "routes"
	// Repair: load balancers that were changed in the cloud are corrected without a change in the cluster.
	Repair Feature = "repair"
	// KeepForeign: listen ports, targets and labels of other owners stay on a Service's load balancer.
	KeepForeign Feature = "keep-foreign"
	// AdoptByName: a load balancer that has the name of the annotation, and no owner, becomes the Service's.
	AdoptByName Feature = "adopt-by-name"
	// AdoptByLabel: a load balancer that has the Service's UID in the owner label is the Service's.
	AdoptByLabel Feature = "adopt-by-label"
	// TakeOver: nodes and load balancers of Hetzner's own CCM are used as they are, and it finds them again.
	TakeOver Feature = "take-over"
	// OneOwner: a load balancer of another Service is not taken, and an event says so.
	OneOwner Feature = "one-owner"
	// Release: a load balancer without the owner label outlives its Service.
	Release Feature = "release"
	// Events: events report changes and problems of load balancers, with reasons such as CloudLoadBalancerRepaired.
	Events Feature = "events"
	// SettingEvents: events with the reasons InvalidSettings and UnknownAnnotation name invalid or unknown annotations, and no load
	// balancer is created while an annotation is invalid. An existing one keeps its current setting.
	SettingEvents Feature = "setting-events"
	// TypeLimits: settings that exceed the limits of a load balancer's type are left out, and an event with the reason
	// LoadBalancerTypeLimit says so.
	TypeLimits Feature = "type-limits"
	// SmoothPorts: ports change one at a time, so that all others keep serving.
	SmoothPorts Feature = "smooth-ports"
	// SmoothTargets: targets that have to leave serve until others are healthy in their place.
	SmoothTargets Feature = "smooth-targets"
	// IngressChoice: annotations choose which addresses, or which hostname, the Service's status shows.
	IngressChoice Feature = "ingress-choice"
	// ReverseDNS: annotations set the names of the load balancer's addresses.
	ReverseDNS Feature = "reverse-dns"
	// HealthChecks: annotations set the health checks; their environment has defaults.
	HealthChecks Feature = "health-checks"
	// LocalPolicy: externalTrafficPolicy Local is checked on the Service's health check node port.
	LocalPolicy Feature = "local-policy"
	// NodeSelector: the annotation node-selector chooses the targets.
	NodeSelector Feature = "node-selector"
	// NodeLabelUpdates: the targets follow the labels of nodes.
	NodeLabelUpdates Feature = "node-label-updates"
	// SettingUpdates: annotations that change later change the load balancer, without a new one.
	SettingUpdates Feature = "setting-updates"
	// ProxyProtocol: the annotation uses-proxyprotocol.
	ProxyProtocol Feature = "proxy-protocol"
	// IPMode: the addresses in a Service's status have their IP mode (KEP-1860).
	IPMode Feature = "ip-mode"
	// PrivateNetwork: annotations make targets, or all of a load balancer, private.
	PrivateNetwork Feature = "private-network"
	// PrivateOnly: a load balancer without a public address has private targets without another annotation.
	PrivateOnly Feature = "private-only"
	// PrivateNodes: nodes without public addresses are private targets without an annotation.
	PrivateNodes Feature = "private-nodes"
	// PrivateAddress: annotations choose the load balancer's private address or subnet.
	PrivateAddress Feature = "private-address"
	// HTTP: the annotations for HTTP: timeouts and sticky sessions.
	HTTP Feature = "http"
	// UploadedCertificates: certificates of the cloud are used by their names.
	UploadedCertificates Feature = "uploaded-certificates"
	// ManagedCertificates: certificates are ordered for the Service's domains, and deleted with it.
	ManagedCertificates Feature = "managed-certificates"
	// CallBudgets: the number of API calls stays within the counts of the specs.
	CallBudgets Feature = "call-budgets"
	// FaultTolerance: the CCM recovers from every kind of API error without a restart.
	FaultTolerance Feature = "fault-tolerance"
	// CrashSafety: after a crash at any request, the next CCM completes or removes half-done work.
	CrashSafety Feature = "crash-safety"
	// LeaderFence: a leader without its lease sends no more writes.
	LeaderFence Feature = "leader-fence"
	// SettingsCheck: the CCM names all mistakes in its environment at once, before any request, and waits for objects that are missing in
	// the cloud.
	SettingsCheck Feature = "settings-check"
	// TokenFile: HCLOUD_TOKEN_FILE is read again when it changes.
	TokenFile Feature = "token-file"
	// MixedProtocols: the TCP ports of a Service serve although it has UDP ports (KEP-1435 allows a CCM to refuse it).
	MixedProtocols Feature = "mixed-protocols"
	// PortSettings: annotations with the number of a port, such as protocol.443, are for this port only.
	PortSettings Feature = "port-settings"
	// Retention: annotations keep a load balancer when its Service is deleted, protect it, and label it.
	Retention Feature = "retention"
	// Lending: annotations make a Service use load balancers or Primary IPs of a user, and give them back.
	Lending Feature = "lending"
	// Sharing: several Services share a load balancer; a port belongs to the Service that had it first.
	Sharing Feature = "sharing"
	// Conditions: a condition in a Service's status says why it is pending, and events name fields without an effect.
	Conditions Feature = "conditions"
	// Machines: the machine controller of this repository runs next to the CCM, and the CCM's nodes run on its servers.
	Machines Feature = "machines"
	// LeastPrivilege: the manifest asks for the rights that are needed in the cluster and on the node, and for no others.
	LeastPrivilege Feature = "least-privilege"
)

// Features returns all features.
func Features() []Feature {
	return []Feature{
		AddressFamily, AddressUpdates, TypeUpdates, ForeignNodes, ShutdownTaint, CarefulDeletion, NodeRoutes, Repair,
		KeepForeign, AdoptByName, AdoptByLabel, TakeOver, OneOwner, Release, Events, SettingEvents, TypeLimits, SmoothPorts, SmoothTargets,
		IngressChoice, ReverseDNS, HealthChecks, LocalPolicy, NodeSelector, NodeLabelUpdates, SettingUpdates, ProxyProtocol, IPMode,
		PrivateNetwork, PrivateOnly, PrivateNodes, PrivateAddress,
		HTTP, UploadedCertificates, ManagedCertificates, CallBudgets, FaultTolerance, CrashSafety, LeaderFence, SettingsCheck,
		TokenFile, MixedProtocols, PortSettings, Retention, Lending, Sharing, Conditions, Machines, LeastPrivilege,
	}
}

// needsPrefix begins the labels that Needs makes.
const needsPrefix = "needs-"

// Needs labels a spec with the features that the CCM must have.
func Needs(features ...Feature) Labels {
	var labels Labels
	for _, f := range features {
		labels = append(labels, needsPrefix+string(f))
	}
	return labels
}

// Has reports whether the CCM has a feature. The machine controller is a program of this repository, and no merit of another's CCM.
func (s CCMDescription) Has(f Feature) bool {
	_, lacks := s.Lacks[f]
	return !lacks && (f != Machines || s.Name == OurCCM)
}
