// Package nodeinfo reads what a Node and its server say about themselves: the provider ID, addresses, and whether a route is missing.
package nodeinfo

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// ProviderName is the name of the provider and the scheme of its provider IDs.
const ProviderName = "ccm-from-scratch"

// IsForeign reports whether the Node belongs to another provider.
func IsForeign(node *corev1.Node) bool {
	if node.Spec.ProviderID == "" {
		return false
	}
	_, err := ParseProviderID(node.Spec.ProviderID)
	_, foreign := errors.AsType[*foreignError](err)
	return foreign
}

// Convention selects the provider ID prefix and the topology labels of Nodes by the name of a provider.
type Convention string

// The conventions: values of HCLOUD_INSTANCES_PROVIDER_ID_PREFIX and HCLOUD_INSTANCES_TOPOLOGY_LABELS.
const (
	ConventionOwn Convention = ProviderName
	// ConventionHcloud is the one of the production CCM. Autoscalers, Cluster API providers and CSI
	// drivers know it too.
	ConventionHcloud Convention = "hcloud"
)

// Conventions lists all of them.
var Conventions = []Convention{ConventionOwn, ConventionHcloud}

// Prefix returns the beginning of provider IDs. An empty convention is ConventionOwn.
func (c Convention) Prefix() string { return string(cmp.Or(c, ConventionOwn)) + "://" }

// ProviderID returns the provider ID of a server.
func (c Convention) ProviderID(serverID int64) string {
	return c.Prefix() + strconv.FormatInt(serverID, 10)
}

// foreignError reports that a Node belongs to another provider.
type foreignError struct{ providerID string }

func (e *foreignError) Error() string {
	return fmt.Sprintf("provider ID %q starts neither with %q nor with %q: the node belongs to another provider",
		e.providerID, ConventionOwn.Prefix(), ConventionHcloud.Prefix())
}

// ParseProviderID returns the server's ID, whichever convention the provider ID follows: Kubernetes does not
// allow to change the provider ID of a Node, so one cluster may have both. It returns a
// *foreignError for the ID of another provider, and another error for a malformed ID.
func ParseProviderID(id string) (int64, error) {
	for _, c := range Conventions {
		number, ours := strings.CutPrefix(id, c.Prefix())
		if !ours {
			continue
		}
		n, err := strconv.ParseInt(number, 10, 64)
		if err != nil || n <= 0 {
			return 0, fmt.Errorf("provider ID %q is malformed: must be %s<server ID>, with a positive number", id, c.Prefix())
		}
		return n, nil
	}
	return 0, &foreignError{id}
}
