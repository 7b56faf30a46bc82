package framework

import (
	"fmt"
	"os"
	"regexp"

	. "github.com/onsi/ginkgo/v2"
	"github.com/onsi/ginkgo/v2/types"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/shards"
	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/speclist"
)

// EnvShard is such as 2/5: the second of five parts of the specs, so that five machines run all of them.
const EnvShard = "SHARD"

// Shard returns the configuration with which RunSpecs runs the specs of EnvShard only: a part of those that would run with the given one,
// by how long they take. Of the specs of an ordered container, one shard runs all.
func Shard(description string, config types.SuiteConfig) types.SuiteConfig {
	text := os.Getenv(EnvShard)
	if text == "" {
		return config
	}
	number, of, err := speclist.ParseShard(text)
	if err != nil {
		panic(fmt.Sprintf("%s=%v", EnvShard, err))
	}
	durations, err := durations()
	if err != nil {
		panic(fmt.Sprintf("%s=%s: %v", shards.EnvDurations, os.Getenv(shards.EnvDurations), err))
	}
	for name, shard := range durations.Split(unitsOf(PreviewSpecs(description, config)), of) {
		if shard != number {
			// Skip by name: a label would appear in reports. Ginkgo matches the description and the name.
			config.SkipStrings = append(config.SkipStrings, "^"+regexp.QuoteMeta(description+" "+name)+"$")
		}
	}
	return config
}

func durations() (shards.Durations, error) {
	path := os.Getenv(shards.EnvDurations)
	if path == "" {
		return shards.Measured()
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return shards.Parse(text)
}

// unitsOf returns the specs of a preview that are to run. Those of the same ordered container, or of the same name, are a unit.
func unitsOf(preview types.Report) (units [][]string) {
	unit, seen := map[string]int{}, map[string]bool{}
	for _, s := range preview.SpecReports.WithLeafNodeType(types.NodeTypeIt) {
		name := s.FullText()
		if s.State.Is(types.SpecStateSkipped|types.SpecStatePending) || seen[name] {
			continue
		}
		seen[name] = true
		key := name
		if s.IsInOrderedContainer {
			key = s.ContainerHierarchyLocations[0].String() // at most, it is around the ordered one
		}
		i, ok := unit[key]
		if !ok {
			i, units = len(units), append(units, nil)
			unit[key] = i
		}
		units[i] = append(units[i], name)
	}
	return units
}
