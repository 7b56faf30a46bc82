package cloud

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/store"
)

// Limits is the maximum number of resources of each kind in a project. A kind that is missing or 0 has
// no limit. All are configurable, for each project: real limits differ by account, and the API does not show them.
type Limits map[store.Kind]int

// Check returns an error if a limit is of a kind that does not exist, or is negative.
func (l Limits) Check() error {
	for kind, n := range l {
		if !slices.Contains(Kinds(), kind) {
			return fmt.Errorf("limit of %.64q: the kind must be one of %v", kind, Kinds())
		}
		if n < 0 {
			return fmt.Errorf("limit of %q: %d must be at least 1, or 0 for no limit", kind, n)
		}
	}
	return nil
}

// SetLimits replaces the limits of the project. The project keeps its resources, even if they exceed a limit. It returns an error if a
// limit is wrong: see [Limits.Check].
func (p Project) SetLimits(l Limits) error {
	if err := l.Check(); err != nil {
		return err
	}
	return p.cloud.betweenWrites(func() error {
		p.setLimits(maps.Clone(l))
		return nil
	})
}

// setLimits is SetLimits for a caller that holds Cloud.mu.
func (p Project) setLimits(l Limits) {
	p.cloud.setState(p.data, func(st *State) { st.Limits = l })
	if p.cloud.saver != nil {
		p.cloud.saver.put(p.cloud.projectEntry(p.data))
	}
}

// ResetLimits gives the project the limits of [Options].
func (p Project) ResetLimits() { _ = p.SetLimits(p.cloud.limits) } // they are right

// ResetLimits gives all projects the limits of [Options].
func (c *Cloud) ResetLimits() {
	for _, p := range c.Projects() {
		p.ResetLimits()
	}
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

// MinVSwitchID is the smallest id of a vSwitch that exists. vSwitches belong to Robot. That is not modelled: all larger ids exist, too.
// Smaller ids are for tests of the error.
const MinVSwitchID = 1000

// checkLimit returns resource_limit_exceeded if one more resource does not fit into the table. The
// limit's name is "<kind>_limit".
func (tx *Tx) checkLimit(t table) error {
	kind := t.Kind()
	if limit := tx.Limits[kind]; limit > 0 && t.Len() >= limit {
		message := words(kind) + " limit exceeded"
		if kind == KindServer {
			message = "server limit reached" // elizaOS/eliza pull request 8318
		}
		return ErrLimitExceeded(string(kind)+"_limit", message)
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
	// The tables are slow. Most runes are ASCII and do not need them.
	return unicode.IsControl(r) || r >= utf8.RuneSelf && unicode.In(r, unicode.Zl, unicode.Zp, unicode.Bidi_Control)
}
