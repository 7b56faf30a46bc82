package ccm

import (
	"fmt"
	"strconv"
	"strings"
)

const providerIDPrefix = ProviderName + "://"

// providerID returns the provider ID of a server.
func providerID(serverID int64) string {
	return providerIDPrefix + strconv.FormatInt(serverID, 10)
}

// foreignProviderIDError reports that a Node belongs to another provider.
type foreignProviderIDError struct{ providerID string }

func (e *foreignProviderIDError) Error() string {
	return fmt.Sprintf("provider ID %q does not start with %q: the node belongs to another provider", e.providerID, providerIDPrefix)
}

// parseProviderID returns the server's ID. It returns a *foreignProviderIDError for the ID of another
// provider, and another error for a malformed ID of this provider.
func parseProviderID(id string) (int64, error) {
	number, ours := strings.CutPrefix(id, providerIDPrefix)
	if !ours {
		return 0, &foreignProviderIDError{id}
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n <= 0 {
		return 0, fmt.Errorf("provider ID %q is malformed: must be %s<server ID>, with a positive number", id, providerIDPrefix)
	}
	return n, nil
}
