package plan

import (
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// labelUserLabels lists the labels that the annotation labels has set, so that a label that is removed from
// the annotation is also removed from the load balancer. It holds hashes of their keys: the value of a label
// cannot hold the key of another one.
const labelUserLabels = labelPrefix + "labels"

// reservedLabels are the prefixes of labels that a user cannot set: those of ownership, and Hetzner's.
var reservedLabels = []string{"ccm-from-scratch", "hcloud-ccm", "hetzner.cloud"}

// parseLabels parses labels that are separated by commas: team=web,env=prod.
func parseLabels(v string) (map[string]string, error) {
	labels := map[string]string{}
	for text := range strings.SplitSeq(v, ",") {
		key, value, found := strings.Cut(strings.TrimSpace(text), "=")
		prefix, _, hasPrefix := strings.Cut(key, "/")
		_, twice := labels[key]
		if !found || twice || hasPrefix && slices.Contains(reservedLabels, prefix) ||
			len(validation.IsQualifiedName(key)) > 0 || len(validation.IsValidLabelValue(value)) > 0 {
			return nil, errNotAllowed
		}
		labels[key] = value
	}
	return labels, nil
}

// withUserLabels returns a copy of labels with the wanted ones, and without those that the annotation has set
// earlier.
func withUserLabels(labels, want map[string]string) map[string]string {
	recorded := decodeList(labels, labelUserLabels)
	result := map[string]string{}
	for k, v := range labels {
		if !isListLabel(k, labelUserLabels) && !slices.Contains(recorded, hashOf(k)) {
			result[k] = v
		}
	}
	var hashes []string
	for k, v := range want {
		result[k] = v
		hashes = append(hashes, hashOf(k))
	}
	slices.Sort(hashes)
	maps.Copy(result, encodeList(labelUserLabels, hashes))
	return result
}

func hashOf(text string) string {
	h := fnv.New32a()
	_, _ = h.Write([]byte(text)) // returns no error
	return fmt.Sprintf("%08x", h.Sum32())
}

// encodeList encodes words as labels: key=80.443, key-2=8080.… The value of a label can have 63 characters
// and no comma, so several labels may be needed.
func encodeList(label string, words []string) map[string]string {
	result := map[string]string{}
	key, value := label, ""
	for _, word := range words {
		if value != "" && len(value)+1+len(word) > maxLabelValue {
			result[key] = value
			key, value = fmt.Sprintf("%s-%d", label, len(result)+1), ""
		}
		if value != "" {
			value += "."
		}
		value += word
	}
	if value != "" {
		result[key] = value
	}
	return result
}

// decodeList returns the words of encodeList, in no particular order.
func decodeList(labels map[string]string, label string) (words []string) {
	for k, v := range labels {
		if isListLabel(k, label) {
			words = append(words, strings.Split(v, ".")...)
		}
	}
	return words
}

// isListLabel reports whether encodeList makes the key for this label.
func isListLabel(key, label string) bool { return key == label || strings.HasPrefix(key, label+"-") }
