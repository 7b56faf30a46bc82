package ccm

import (
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/loadbalancer"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/node"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/nodeinfo"
)

// ProviderName is the name of the provider and the scheme of its provider IDs.
const ProviderName = nodeinfo.ProviderName

// Convention selects the provider ID prefix and the topology labels of Nodes by the name of a provider.
type Convention = nodeinfo.Convention

// The conventions: values of HCLOUD_INSTANCES_PROVIDER_ID_PREFIX and HCLOUD_INSTANCES_TOPOLOGY_LABELS.
const (
	ConventionOwn = nodeinfo.ConventionOwn
	// ConventionHcloud is the one of the production CCM. Autoscalers, Cluster API providers and CSI
	// drivers know it too.
	ConventionHcloud = nodeinfo.ConventionHcloud
)

// AddressFamily selects the public addresses of a server that become ExternalIP addresses of its Node.
type AddressFamily = node.AddressFamily

// The address families: values of HCLOUD_INSTANCES_ADDRESS_FAMILY.
const (
	AddressFamilyIPv4      = node.AddressFamilyIPv4
	AddressFamilyIPv6      = node.AddressFamilyIPv6
	AddressFamilyDualStack = node.AddressFamilyDualStack
)

// LabelPattern selects labels of servers by their key: "pool", or "example.org/*" for all keys that start so.
type LabelPattern = node.LabelPattern

// TaintPattern makes labels of servers taints of their Nodes.
type TaintPattern = node.TaintPattern

// ConditionReady is the type of the condition in a Service's status that says whether its load balancer has
// all that the Service asks for, and if not, why.
const ConditionReady = loadbalancer.ConditionReady
