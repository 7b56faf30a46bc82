package framework

import (
	"slices"

	. "github.com/onsi/ginkgo/v2"
)

// Feature is something that not every CCM can do. Specs say what they need with Needs.
type Feature string

// The features, by what specs demand beyond what every CCM must do: initialize nodes, remove those whose
// servers are gone, and make load balancers that serve.
const (
	// AddressFamily: HCLOUD_INSTANCES_ADDRESS_FAMILY chooses the addresses of nodes: ipv4, ipv6 or dualstack.
	AddressFamily Feature = "address-family"
	// AddressUpdates: addresses of nodes follow their servers when these are attached, detached or renamed.
	AddressUpdates Feature = "address-updates"
	// TypeUpdates: labels of nodes follow their servers' type.
	TypeUpdates Feature = "type-updates"
	// ForeignNodes: nodes with the provider ID of others are left alone, with a message in the log that says why.
	ForeignNodes Feature = "foreign-nodes"
	// ShutdownTaint: a node whose server is off is tainted and kept.
	ShutdownTaint Feature = "shutdown-taint"
	// CarefulDeletion: a node goes only if the API says of its very server that it does not exist.
	CarefulDeletion Feature = "careful-deletion"
	// NodeRoutes: each node has a route in the network, and its NetworkUnavailable condition says so.
	NodeRoutes Feature = "routes"
	// RouteComparison: HCLOUD_RESYNC_INTERVAL says how often routes are compared, each time with a GET of the network.
	RouteComparison Feature = "route-comparison"
	// Repair: HCLOUD_RESYNC_INTERVAL says how often load balancers are compared and put right, however they were changed.
	Repair Feature = "repair"
	// KeepForeign: listen ports, targets and labels of others stay on a Service's load balancer.
	KeepForeign Feature = "keep-foreign"
	// AdoptByName: a load balancer that has the name of the annotation, and no owner, becomes the Service's.
	AdoptByName Feature = "adopt-by-name"
	// AdoptByLabel: a load balancer that has the Service's UID in the owner label is the Service's.
	AdoptByLabel Feature = "adopt-by-label"
	// OneOwner: a load balancer that is another Service's is not taken, with an event that says so.
	OneOwner Feature = "one-owner"
	// Release: a load balancer that has lost the owner label outlives its Service.
	Release Feature = "release"
	// Events: what happens to load balancers is told in events with reasons as CloudLoadBalancerRepaired.
	Events Feature = "events"
	// SettingEvents: wrong or unknown annotations are named in events with the reasons InvalidSettings and
	// UnknownAnnotation, and nothing is changed while they are wrong.
	SettingEvents Feature = "setting-events"
	// CompleteCreation: a load balancer is created with all ports and targets, or not at all.
	CompleteCreation Feature = "complete-creation"
	// SmoothPorts: ports are changed one by one in an order in which all others keep serving.
	SmoothPorts Feature = "smooth-ports"
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
	// ProxyProtocol: the annotation uses-proxyprotocol, with the IP mode Proxy in the Service's status.
	ProxyProtocol Feature = "proxy-protocol"
	// PrivateNetwork: annotations make targets, or all of a load balancer, private.
	PrivateNetwork Feature = "private-network"
	// PrivateAddress: annotations choose the load balancer's private address or subnet.
	PrivateAddress Feature = "private-address"
	// HTTP: the annotations for HTTP: timeouts and sticky sessions.
	HTTP Feature = "http"
	// UploadedCertificates: certificates of the cloud are used by their names.
	UploadedCertificates Feature = "uploaded-certificates"
	// ManagedCertificates: certificates are ordered for the Service's domains, and go with it.
	ManagedCertificates Feature = "managed-certificates"
	// CallBudgets: API calls are as few as the specs count.
	CallBudgets Feature = "call-budgets"
	// FaultTolerance: all ends well, without a restart, in spite of errors of the API of each kind.
	FaultTolerance Feature = "fault-tolerance"
	// CrashSafety: what a process that died has left half done, its successor completes or removes.
	CrashSafety Feature = "crash-safety"
	// LeaderFence: a leader that has lost its lease writes no more, whatever it was doing.
	LeaderFence Feature = "leader-fence"
	// SettingsCheck: mistakes in the environment are all named at once, before the cloud is asked anything, and
	// what is missing in the cloud is waited for.
	SettingsCheck Feature = "settings-check"
	// TokenFile: HCLOUD_TOKEN_FILE is read anew when it changes.
	TokenFile Feature = "token-file"
	// LeastPrivilege: the manifest asks for no more rights than are needed, of the cluster and of the node.
	LeastPrivilege Feature = "least-privilege"
)

// Features returns all features.
func Features() []Feature {
	return []Feature{
		AddressFamily, AddressUpdates, TypeUpdates, ForeignNodes, ShutdownTaint, CarefulDeletion, NodeRoutes, RouteComparison,
		Repair, KeepForeign, AdoptByName, AdoptByLabel, OneOwner, Release, Events, SettingEvents, CompleteCreation, SmoothPorts,
		IngressChoice, ReverseDNS, HealthChecks, LocalPolicy, NodeSelector, ProxyProtocol, PrivateNetwork, PrivateAddress,
		HTTP, UploadedCertificates, ManagedCertificates, CallBudgets, FaultTolerance, CrashSafety, LeaderFence, SettingsCheck,
		TokenFile, LeastPrivilege,
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

// Has tells whether the CCM has a feature.
func (s CCMDescription) Has(f Feature) bool { return !slices.Contains(s.Lacks, f) }
