package ccm

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
)

// Convention is the name of a provider whose conventions for Nodes are followed.
type Convention string

// The conventions: values of HCLOUD_INSTANCES_PROVIDER_ID_PREFIX and HCLOUD_INSTANCES_TOPOLOGY_LABELS.
const (
	ConventionOwn Convention = ProviderName
	// ConventionHcloud is the one of the production CCM, which autoscalers, Cluster API providers and CSI
	// drivers know too.
	ConventionHcloud Convention = "hcloud"
)

// conventions lists all of them.
var conventions = []Convention{ConventionOwn, ConventionHcloud}

// prefix returns the beginning of provider IDs. An empty convention is ConventionOwn.
func (c Convention) prefix() string { return string(cmp.Or(c, ConventionOwn)) + "://" }

// providerID returns the provider ID of a server.
func (c Convention) providerID(serverID int64) string {
	return c.prefix() + strconv.FormatInt(serverID, 10)
}

// foreignProviderIDError reports that a Node belongs to another provider.
type foreignProviderIDError struct{ providerID string }

func (e *foreignProviderIDError) Error() string {
	return fmt.Sprintf("provider ID %q starts neither with %q nor with %q: the node belongs to another provider",
		e.providerID, ConventionOwn.prefix(), ConventionHcloud.prefix())
}

// parseProviderID returns the server's ID, whichever convention the provider ID follows: Kubernetes does not
// allow to change the provider ID of a Node, so one cluster may have both. It returns a
// *foreignProviderIDError for the ID of another provider, and another error for a malformed ID.
func parseProviderID(id string) (int64, error) {
	for _, c := range conventions {
		number, ours := strings.CutPrefix(id, c.prefix())
		if !ours {
			continue
		}
		n, err := strconv.ParseInt(number, 10, 64)
		if err != nil || n <= 0 {
			return 0, fmt.Errorf("provider ID %q is malformed: must be %s<server ID>, with a positive number", id, c.prefix())
		}
		return n, nil
	}
	return 0, &foreignProviderIDError{id}
}
