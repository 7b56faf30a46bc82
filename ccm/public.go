package ccm

import (
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/nodeinfo"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/plan"
)

// ProviderName is the name of the provider and the scheme of its provider IDs.
const ProviderName = nodeinfo.ProviderName

// Convention is the name of a provider whose conventions for Nodes are followed.
type Convention = nodeinfo.Convention

// The conventions: values of HCLOUD_INSTANCES_PROVIDER_ID_PREFIX and HCLOUD_INSTANCES_TOPOLOGY_LABELS.
const (
	ConventionOwn = nodeinfo.ConventionOwn
	// ConventionHcloud is the one of the production CCM, which autoscalers, Cluster API providers and CSI
	// drivers know too.
	ConventionHcloud = nodeinfo.ConventionHcloud
)

// AnnotationsMarkdown returns the reference of all Service annotations as a Markdown document.
func AnnotationsMarkdown() string { return plan.AnnotationsMarkdown() }
