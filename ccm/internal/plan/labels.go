package plan

import (
	"crypto/sha256"
	"encoding/hex"
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
		_, twice := labels[key]
		if !found || twice || isReserved(key) ||
			len(validation.IsQualifiedName(key)) > 0 || len(validation.IsValidLabelValue(value)) > 0 {
			return nil, errNotAllowed
		}
		labels[key] = value
	}
	return labels, nil
}

// withUserLabels returns a copy of labels with the wanted ones, and without those that the annotation has set
// earlier. A label that was there before the annotation is that of someone else, and stays.
func withUserLabels(labels, want map[string]string) map[string]string {
	recorded := decodeList(labels, labelUserLabels)
	set := func(k string) bool { return isHashed(recorded, k) && !isReserved(k) }
	result := maps.Clone(labels)
	if result == nil {
		result = map[string]string{}
	}
	maps.DeleteFunc(result, func(k, _ string) bool { return isListLabel(k, labelUserLabels) || set(k) })
	var hashes []string
	for k, v := range want {
		if _, others := result[k]; !others {
			hashes = append(hashes, hashOf(k))
		}
		result[k] = v
	}
	slices.Sort(hashes)
	maps.Copy(result, encodeList(labelUserLabels, hashes))
	return result
}

// isReserved reports whether a user cannot set the label.
func isReserved(key string) bool {
	prefix, _, hasPrefix := strings.Cut(key, "/")
	return hasPrefix && slices.Contains(reservedLabels, prefix)
}

// hashOf returns a hash to which no second text can be found.
func hashOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:8])
}

// isHashed reports whether a text is among those that were recorded, also by an earlier version.
func isHashed(hashes []string, text string) bool {
	return slices.Contains(hashes, hashOf(text)) || slices.Contains(hashes, earlierHashOf(text))
}

// earlierHashOf is hashOf before version 0.1.
func earlierHashOf(text string) string {
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
