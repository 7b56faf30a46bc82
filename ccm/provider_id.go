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

// foreignProviderIDError says that a Node belongs to another provider.
type foreignProviderIDError struct{ providerID string }

func (e *foreignProviderIDError) Error() string {
	return fmt.Sprintf("provider ID %q does not start with %q: the node belongs to another provider", e.providerID, providerIDPrefix)
}

// parseProviderID returns the server's ID. It returns a *foreignProviderIDError for another
// provider's ID, and another error for one of ours that is malformed.
func parseProviderID(id string) (int64, error) {
	number, ours := strings.CutPrefix(id, providerIDPrefix)
	if !ours {
		return 0, &foreignProviderIDError{id}
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n <= 0 {
		return 0, fmt.Errorf("provider ID %q is malformed: expected %s<server ID>, a positive number", id, providerIDPrefix)
	}
	return n, nil
}
