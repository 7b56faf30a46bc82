package cloud

import (
	"fmt"
	"strings"
	"unicode"
)

// Limits is how many resources a project may own; 0 means any number. The real limits belong to an
// account and are raised by request (GET /limits does not exist), so that they are all
// configurable here.
type Limits struct {
	Servers, Networks, LoadBalancers, Certificates, PrimaryIPs, PlacementGroups, SSHKeys, Images int
}

// Limits that the product documentation states for everybody.
const (
	MaxSubnetsPerNetwork        = 50
	MaxRoutesPerNetwork         = 100
	MaxMembersPerNetwork        = 100
	MaxNetworksPerServer        = 3
	MaxAliasIPs                 = 5
	MaxServersPerPlacementGroup = 10
	MaxUserDataBytes            = 32 << 10
)

// checkLimit returns resource_limit_exceeded if one more does not fit. The limit's name is
// "<kind>_limit".
func checkLimit(kind Kind, have, limit int) error {
	if limit > 0 && have >= limit {
		return ErrLimitExceeded(string(kind)+"_limit", fmt.Sprintf("%s limit exceeded", kind))
	}
	return nil
}

// RequireUniqueName checks the name of a resource that is created or renamed: invalid_input if it has
// control characters, uniqueness_error if another resource of the table has it. self is the id of the
// resource that may have it, or 0.
func RequireUniqueName[T Object[T]](t *Table[T], name string, self int64) error {
	if strings.ContainsFunc(name, unicode.IsControl) {
		return ErrField("name", "must not contain control characters")
	}
	if v, ok := t.ByName(name); ok && v.Header().ID != self {
		return ErrUniqueness("name", fmt.Sprintf("%s name is already used", t.kind))
	}
	return nil
}
