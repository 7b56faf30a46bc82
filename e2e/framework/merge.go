package framework

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/onsi/ginkgo/v2/reporters"
	"github.com/onsi/ginkgo/v2/types"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/speclist"
)

// Files of Ginkgo in the folder of a run.
const (
	jsonReport  = "report.json"
	junitReport = "junit.xml"
)

// shardReport is what a shard has left in its folder.
type shardReport struct {
	number, of int
	report     types.Report
	run        speclist.Run
}

// MergeShards writes into the folder out what a run of all specs would have written there, from the folders of shards. If one is missing,
// it writes the rest, marked as incomplete, and returns an error.
func MergeShards(out string, folders []string) error {
	ccm, err := LoadCCM()
	if err != nil {
		return err
	}
	return mergeFolders(out, folders, ccm)
}

func mergeFolders(out string, folders []string, ccm CCMDescription) error {
	all := make([]shardReport, len(folders))
	for i, folder := range folders {
		var err error
		if all[i], err = readShard(folder); err != nil {
			return fmt.Errorf("%s: %w", folder, err)
		}
		if first := all[0]; all[i].of != first.of || all[i].run.CCM != first.run.CCM || all[i].run.Cluster != first.run.Cluster {
			return fmt.Errorf("%s: is a shard of another run than %s: name the shards of one run", folder, folders[0])
		}
	}
	if len(all) == 0 {
		return errors.New("there are no shards to merge: name their folders, such as out/e2e-embedded-1-of-5")
	}
	if name := all[0].run.CCM; ccm.Name != name {
		return fmt.Errorf("the shards tested %s, and not %s: set %s to its file", name, ccm.Name, EnvCCM)
	}
	report, missing := mergeShards(all)
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	if err := errors.Join(
		writeSummary(out, report, ccm, ClusterKind(all[0].run.Cluster), ""),
		reporters.GenerateJSONReport(report, filepath.Join(out, jsonReport)),
		reporters.GenerateJUnitReport(report, filepath.Join(out, junitReport)),
	); err != nil {
		return err
	}
	if len(missing) > 0 {
		return fmt.Errorf("the merged report is incomplete: %s", strings.Join(missing, ", "))
	}
	return nil
}

func readShard(folder string) (s shardReport, err error) {
	text, err := os.ReadFile(filepath.Join(folder, speclist.File))
	if err == nil {
		err = json.Unmarshal(text, &s.run)
	}
	if err != nil {
		return s, err
	}
	if s.number, s.of, err = parseShard(s.run.Shard); err != nil {
		return s, fmt.Errorf("it is not the folder of a shard: shard %w", err)
	}
	if text, err = os.ReadFile(filepath.Join(folder, jsonReport)); err != nil {
		return s, err
	}
	var reports []types.Report
	if err := json.Unmarshal(text, &reports); err != nil || len(reports) != 1 {
		return s, fmt.Errorf("%s has %d suites, want 1: %w", jsonReport, len(reports), err)
	}
	s.report = reports[0]
	return s, nil
}

// mergeShards makes the report of all specs, and says which shards are missing.
func mergeShards(all []shardReport) (merged types.Report, missing []string) {
	slices.SortStableFunc(all, func(a, b shardReport) int { return a.number - b.number })
	merged = all[0].report
	merged.SpecReports = nil
	merged.SuiteConfig.SkipStrings = nil // by these, a shard leaves out the specs of others
	merged.PreRunStats.SpecsThatWillRun = 0
	at, reasons := map[string]int{}, []string(nil)
	for _, s := range all {
		r := s.report
		merged.SuiteSucceeded = merged.SuiteSucceeded && r.SuiteSucceeded
		merged.PreRunStats.SpecsThatWillRun += r.PreRunStats.SpecsThatWillRun
		merged.RunTime = max(merged.RunTime, r.RunTime)
		reasons = append(reasons, r.SpecialSuiteFailureReasons...)
		if r.StartTime.Before(merged.StartTime) {
			merged.StartTime = r.StartTime
		}
		if r.EndTime.After(merged.EndTime) {
			merged.EndTime = r.EndTime
		}
		for _, spec := range r.SpecReports {
			key := fmt.Sprint(spec.LeafNodeType, spec.FullText(), spec.LeafNodeLocation)
			if spec.LeafNodeType != types.NodeTypeIt {
				key = fmt.Sprint(key, spec.ParallelProcess) // each process has its own BeforeSuite
			}
			if i, ok := at[key]; !ok {
				at[key] = len(merged.SpecReports)
				merged.SpecReports = append(merged.SpecReports, spec)
			} else if tells(spec) > tells(merged.SpecReports[i]) {
				merged.SpecReports[i] = spec
			}
		}
	}
	for number := 1; number <= all[0].of; number++ {
		if !slices.ContainsFunc(all, func(s shardReport) bool { return s.number == number }) {
			missing = append(missing, fmt.Sprintf("shard %d/%d is missing", number, all[0].of))
		}
	}
	reasons = append(reasons, missing...)
	slices.Sort(reasons)
	merged.SpecialSuiteFailureReasons = slices.Compact(reasons)
	return merged, missing
}

// tells returns how much a shard's report of a spec tells: that of the shard that ran it tells more than those of others.
func tells(s types.SpecReport) int {
	switch {
	case s.Failed():
		return 3
	case s.State != types.SpecStateSkipped:
		return 2
	}
	return min(1, len(s.Failure.Message)) // it was skipped by itself, and not by a filter
}
