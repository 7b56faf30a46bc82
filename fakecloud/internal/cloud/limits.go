package cloud

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
)

// Limits is how many resources of each kind a project may own. A kind that is missing, or 0, has no
// limit. The real limits belong to an account and are raised by request (GET /limits does not
// exist), so that they are all configurable here.
type Limits map[Kind]int

// Check returns an error if a limit is of a kind that does not exist.
func (l Limits) Check() error {
	for kind := range l {
		if !slices.Contains(Kinds(), kind) {
			return fmt.Errorf("limit of %q: the kind must be one of %v", kind, Kinds())
		}
	}
	return nil
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

// MinVSwitchID is the smallest id of a vSwitch that exists. Robot, to which vSwitches belong, is not
// modelled: all with a larger id exist, and those with a smaller one are for tests of the error.
const MinVSwitchID = 1000

// checkLimit returns resource_limit_exceeded if one more resource does not fit into the table. The
// limit's name is "<kind>_limit".
func (tx *Tx) checkLimit(t table) error {
	kind := t.Kind()
	if limit := tx.cloud.limits[kind]; limit > 0 && t.Len() >= limit {
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
		if t.kind == KindNetwork { // the real API's message: scripts match it
			return ErrUniqueness("name", "name is already used")
		}
		return ErrUniqueness("name", fmt.Sprintf("%s name is already used", t.kind))
	}
	return nil
}
