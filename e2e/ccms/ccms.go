// Package ccms holds descriptions of cloud-controller-managers.
package ccms

import _ "embed"

// Ours describes the CCM of this repository.
//
//go:embed ccm-from-scratch.yaml
var Ours []byte
