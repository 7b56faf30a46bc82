package ccm

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/node"
)

// This file reads the settings about Nodes and about the identity of the cluster.

// list returns the parts of a value that are separated by commas.
func (r *envReader) list(name string) (parts []string) {
	for part := range strings.SplitSeq(r.str(name, ""), ",") {
		if part = strings.TrimSpace(part); part != "" {
			parts = append(parts, part)
		}
	}
	return parts
}

func (r *envReader) nodeLabels(name string) (patterns []LabelPattern) {
	for _, part := range r.list(name) {
		if reason := badPattern(part); reason != "" {
			r.fail(name, part, reason)
			continue
		}
		patterns = append(patterns, LabelPattern(part))
	}
	return patterns
}

func (r *envReader) nodeTaints(name string) (patterns []TaintPattern) {
	effects := []corev1.TaintEffect{corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute}
	for _, part := range r.list(name) {
		key, effect, _ := strings.Cut(part, ":")
		if !slices.Contains(effects, corev1.TaintEffect(effect)) {
			r.fail(name, part, "must be the key of a label of servers, a colon, and NoSchedule, PreferNoSchedule or NoExecute, for "+
				"example dedicated:NoSchedule")
			continue
		}
		if reason := badPattern(key); reason != "" {
			r.fail(name, part, reason)
			continue
		}
		patterns = append(patterns, TaintPattern{LabelPattern: LabelPattern(key), Effect: corev1.TaintEffect(effect)})
	}
	return patterns
}

// badPattern says what is wrong with a pattern of label keys, or returns "".
func badPattern(pattern string) string {
	start, isStart := strings.CutSuffix(pattern, "*")
	if isStart {
		start += "x" // stands for what the asterisk matches
	}
	if problems := validation.IsQualifiedName(start); len(problems) > 0 {
		return "must be the key of a label of servers, such as pool, or the beginning of keys and an asterisk, such as example.org/*"
	}
	if node.IsReservedLabel(start) {
		return fmt.Sprintf("is reserved for Kubernetes and its controllers: only node-role.kubernetes.io/… and %s can come from servers",
			corev1.LabelNodeExcludeBalancers)
	}
	return ""
}

// clusterID returns an ID that is valid in labels and in names of load balancers.
func (r *envReader) clusterID(name string) string {
	v := r.str(name, "")
	if v != "" && len(validation.IsDNS1123Label(v)) > 0 {
		r.fail(name, v, "must be 1 to 63 lower case letters, digits and hyphens, for example berlin-1")
		return ""
	}
	return v
}
