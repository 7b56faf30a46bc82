// Package probe derives from a run of all specs the features that a cloud-controller-manager lacks, and writes them into its file.
package probe

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/speclist"
)

// Unexplained begins the reason of a finding that no person has explained yet.
const Unexplained = "NOT EXPLAINED YET"

// needsPrefix begins the labels of specs that name a feature.
const needsPrefix = "needs-"

// Gap is a group of specs that fail for one reason, as the file has it.
type Gap struct {
	Reason string   `yaml:"reason"`
	Specs  []string `yaml:"specs"`
}

// Findings are a CCM's missing features with their reasons, and specs that fail although the CCM has the features that they need.
type Findings struct {
	Lacks     map[string]string `yaml:"lacks"`
	KnownGaps []Gap             `yaml:"knownGaps"`
}

// Update writes the findings of a run into the file of a CCM, and returns both. It keeps the rest of the file: the reasons, and the entries
// about specs that did not run.
func Update(file []byte, run speclist.Run) ([]byte, Findings, error) {
	if run.Incomplete != "" {
		return nil, Findings{}, fmt.Errorf("cannot learn what the CCM lacks: the run is incomplete: %s; correct that and run it again",
			run.Incomplete)
	}
	var document yaml.Node
	var before Findings
	if err := yaml.Unmarshal(file, &document); err != nil {
		return nil, Findings{}, err
	}
	if err := document.Decode(&before); err != nil {
		return nil, Findings{}, err
	}
	if len(document.Content) == 0 || document.Content[0].Kind != yaml.MappingNode {
		return nil, Findings{}, fmt.Errorf("the file of a CCM must be a mapping: copy e2e/ccms/ccm-from-scratch.yaml")
	}
	found := find(run, before)
	for name, value := range map[string]any{"lacks": found.Lacks, "knownGaps": found.KnownGaps} {
		var node yaml.Node
		if err := node.Encode(value); err != nil {
			return nil, Findings{}, err
		}
		set(document.Content[0], name, &node)
	}
	var out bytes.Buffer
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)
	if err := encoder.Encode(&document); err != nil {
		return nil, Findings{}, err
	}
	return out.Bytes(), found, encoder.Close()
}

// set replaces the value of a key, or adds the key at the end.
func set(mapping *yaml.Node, key string, value *yaml.Node) {
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		if mapping.Content[i].Value == key {
			mapping.Content[i+1] = value
			return
		}
	}
	mapping.Content = append(mapping.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: key}, value)
}

func find(run speclist.Run, before Findings) Findings {
	ran := slices.DeleteFunc(slices.Clone(run.Specs), func(s speclist.Spec) bool {
		return s.Result != speclist.Passed && s.Result != speclist.Failed
	})
	lacking := lackingFeatures(ran)
	found := Findings{Lacks: map[string]string{}}
	for _, feature := range lacking {
		found.Lacks[feature] = cmp.Or(before.Lacks[feature], Unexplained)
	}
	for feature, reason := range before.Lacks {
		if !slices.ContainsFunc(ran, func(s speclist.Spec) bool { return slices.Contains(needs(s), feature) }) {
			found.Lacks[feature] = reason
		}
	}
	reasons := map[string]string{}
	byReason := map[string][]string{}
	for _, gap := range before.KnownGaps {
		for _, name := range gap.Specs {
			reasons[name] = gap.Reason
			if !slices.ContainsFunc(ran, func(s speclist.Spec) bool { return s.Name == name }) {
				byReason[gap.Reason] = append(byReason[gap.Reason], name)
			}
		}
	}
	for _, s := range ran {
		explained := slices.ContainsFunc(needs(s), func(f string) bool { return slices.Contains(lacking, f) })
		if s.Result == speclist.Failed && !explained {
			reason := cmp.Or(reasons[s.Name], Unexplained+": "+s.Group)
			byReason[reason] = append(byReason[reason], s.Name)
		}
	}
	for _, reason := range slices.Sorted(maps.Keys(byReason)) {
		slices.Sort(byReason[reason])
		found.KnownGaps = append(found.KnownGaps, Gap{reason, byReason[reason]})
	}
	return found
}

// lackingFeatures returns the fewest features, found greedily, that explain failed specs: the CCM has a feature if one spec
// that needs it passes. One missing feature explains a failed spec that needs several.
func lackingFeatures(ran []speclist.Spec) []string {
	there := map[string]bool{}
	for _, s := range ran {
		for _, f := range needs(s) {
			there[f] = there[f] || s.Result == speclist.Passed
		}
	}
	var open [][]string // of each failed spec that is not explained, the features that may be missing
	for _, s := range ran {
		candidates := slices.DeleteFunc(needs(s), func(f string) bool { return there[f] })
		if s.Result == speclist.Failed && len(candidates) > 0 {
			open = append(open, candidates)
		}
	}
	var lacking []string
	for len(open) > 0 {
		best := bestExplanation(open)
		lacking = append(lacking, best)
		open = slices.DeleteFunc(open, func(candidates []string) bool { return slices.Contains(candidates, best) })
	}
	slices.Sort(lacking)
	return lacking
}

// bestExplanation returns the feature that is the only explanation of most specs; of several, the one that is needed by
// most, and then the first by name.
func bestExplanation(open [][]string) string {
	alone, needed := map[string]int{}, map[string]int{}
	for _, candidates := range open {
		for _, f := range candidates {
			needed[f]++
			if len(candidates) == 1 {
				alone[f]++
			}
		}
	}
	return slices.MinFunc(slices.Sorted(maps.Keys(needed)), func(a, b string) int {
		return cmp.Or(cmp.Compare(alone[b], alone[a]), cmp.Compare(needed[b], needed[a]), cmp.Compare(a, b))
	})
}

// needs returns the features that a spec needs.
func needs(s speclist.Spec) []string {
	var features []string
	for _, label := range s.Labels {
		if feature, ok := strings.CutPrefix(label, needsPrefix); ok {
			features = append(features, feature)
		}
	}
	return features
}
