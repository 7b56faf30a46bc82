package cloud

import (
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/store"
)

// Limits is the maximum number of resources of each kind in a project. A kind that is missing or 0 has
// no limit. All are configurable: real limits differ by account, and the API does not show them.
type Limits map[store.Kind]int

// Check returns an error if a limit is of a kind that does not exist.
func (l Limits) Check() error {
	for kind := range l {
		if !slices.Contains(Kinds(), kind) {
			return fmt.Errorf("limit of %q: the kind must be one of %v", kind, Kinds())
		}
	}
	return nil
}

// Limits that the product documentation states for all accounts.
const (
	MaxSubnetsPerNetwork        = 50
	MaxRoutesPerNetwork         = 100
	MaxMembersPerNetwork        = 100
	MaxNetworksPerServer        = 3
	MaxAliasIPs                 = 5
	MaxServersPerPlacementGroup = 10
	MaxUserDataBytes            = 32 << 10
)

// Limits of zones that no document states. They are far above what zones have.
const (
	MaxPrimaryNameservers = 16
	MaxTSIGKeyBytes       = 512 // in base64. A longer key of HMAC is not stronger
)

// MinVSwitchID is the smallest id of a vSwitch that exists. vSwitches belong to Robot, which is not
// modelled: all larger ids exist, too. Smaller ids are for tests of the error.
const MinVSwitchID = 1000

// checkLimit returns resource_limit_exceeded if one more resource does not fit into the table. The
// limit's name is "<kind>_limit".
func (tx *Tx) checkLimit(t table) error {
	kind := t.Kind()
	if limit := tx.cloud.limits[kind]; limit > 0 && t.Len() >= limit {
		return ErrLimitExceeded(string(kind)+"_limit", words(kind)+" limit exceeded")
	}
	return nil
}

// RequireUniqueName checks the name of a new or renamed resource. self is the id of the renamed
// resource, 0 for a new one. Errors: invalid_input if the name has characters that change how the text around it is
// shown, uniqueness_error if another resource of the table has it.
func RequireUniqueName[T store.Object[T]](t *store.Table[T], name string, self int64) error {
	if strings.ContainsFunc(name, isControl) {
		return ErrField("name", "must not contain control characters, such as line breaks and changes of the writing direction")
	}
	if v, ok := t.ByName(name); ok && v.Header().ID != self {
		// The real API's messages: scripts match them. That of placement groups is in terraform-hcloud-kube-hetzner issue 388.
		if t.Kind() == KindNetwork || t.Kind() == KindPlacementGroup {
			return ErrUniqueness("name", "name is already used")
		}
		return ErrUniqueness("name", words(t.Kind())+" name is already used")
	}
	return nil
}

// isControl reports whether a character is not shown itself, and changes how a terminal or a page shows its neighbours: control
// characters, line and paragraph separators, and marks of the writing direction such as U+202E. Joiners are allowed: scripts and
// emoji need them.
func isControl(r rune) bool {
	return unicode.IsControl(r) || unicode.In(r, unicode.Zl, unicode.Zp, unicode.Bidi_Control)
}
