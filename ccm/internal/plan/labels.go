package plan

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// reservedLabels are the prefixes of labels that a user cannot set: those of ownership, and Hetzner's.
var reservedLabels = []string{"ccm-from-scratch", "hcloud-ccm", "hetzner.cloud"}

// parseLabels parses labels that are separated by commas: team=web,env=prod.
func parseLabels(v string) (map[string]string, error) {
	labels := map[string]string{}
	for text := range strings.SplitSeq(v, ",") {
		key, value, found := strings.Cut(strings.TrimSpace(text), "=")
		_, twice := labels[key]
		if !found || twice || isReserved(key) ||
			len(validation.IsQualifiedName(key)) > 0 || len(validation.IsValidLabelValue(value)) > 0 {
			return nil, errNotAllowed
		}
		labels[key] = value
	}
	return labels, nil
}

// isReserved reports whether a user cannot set the label.
func isReserved(key string) bool {
	prefix, _, hasPrefix := strings.Cut(key, "/")
	return hasPrefix && slices.Contains(reservedLabels, prefix)
}
