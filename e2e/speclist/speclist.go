// Package speclist stores the result of every spec for each cloud-controller-manager and kind of cluster.
package speclist

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// File is the name of a run's results in its folder, and of the list of all runs.
const File = "specs.json"

// Result is the result of a spec.
type Result string

// The results.
const (
	Passed Result = "passed"
	Failed Result = "failed"
	// Unsupported is for specs that need what the CCM lacks.
	Unsupported Result = "unsupported"
	// NotHere is for specs that this kind of cluster cannot run.
	NotHere Result = "not here"
	// Skipped is for specs that have found out during their run that they cannot run here.
	Skipped Result = "skipped"
	// KnownGap is for specs that fail, as the CCM's file says.
	KnownGap Result = "known gap"
	// GapClosed is for specs that pass although the CCM's file calls them a known gap.
	GapClosed Result = "gap closed"
	// NotExercised is for specs whose fault no request has met: they show nothing. The reason says which requests were seen.
	NotExercised Result = "not exercised"
)

// Spec is one spec of a run.
type Spec struct {
	Name string `json:"name"`
	// Group is the heading under which the spec is declared.
	Group   string   `json:"group,omitempty"`
	Result  Result   `json:"result"`
	Reason  string   `json:"reason,omitempty"`
	Seconds float64  `json:"seconds"`
	Labels  []string `json:"labels,omitempty"`
	Details
}

// Run has the results of one run of the suite, without the specs that were not chosen.
type Run struct {
	CCM     string    `json:"ccm"`
	Cluster string    `json:"cluster"`
	Time    time.Time `json:"time"`
	// LeftOut is how many specs could have run here, but were left out by a focus, a filter or a shard.
	LeftOut int `json:"left_out,omitempty"`
	// Shard says which part of the specs ran, such as 2/5.
	Shard string `json:"shard,omitempty"`
	Specs []Spec `json:"specs"`
	// Incomplete says why results are missing, such as a failed BeforeSuite.
	Incomplete string `json:"incomplete,omitempty"`
}

// Write writes a run into a folder.
func (r Run) Write(folder string) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, File), append(text, '\n'), 0o644)
}

// Read returns the runs in all folders of a folder, by CCM and kind of cluster. Of several runs with the same CCM and
// kind, it returns the newest. A shard counts only where there is no run of all shards.
func Read(root fs.FS) ([]Run, error) {
	files, err := fs.Glob(root, "*/"+File)
	if err != nil {
		return nil, err
	}
	newest := map[[2]string]Run{}
	for _, file := range files {
		text, err := fs.ReadFile(root, file)
		if err != nil {
			return nil, err
		}
		var r Run
		if err := json.Unmarshal(text, &r); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		key := [2]string{r.CCM, r.Cluster}
		whole := r.Shard == ""
		if old, ok := newest[key]; !ok || whole && old.Shard != "" || whole == (old.Shard == "") && r.Time.After(old.Time) {
			newest[key] = r
		}
	}
	var runs []Run
	for _, r := range newest {
		runs = append(runs, r)
	}
	slices.SortFunc(runs, func(a, b Run) int { return cmp.Or(cmp.Compare(a.CCM, b.CCM), cmp.Compare(a.Cluster, b.Cluster)) })
	return runs, nil
}

// Parse returns the runs of a file: that of one run, or the list of several.
func Parse(text []byte) ([]Run, error) {
	var runs []Run
	var one Run
	if err := json.Unmarshal(text, &runs); err == nil {
		return runs, nil
	}
	if err := json.Unmarshal(text, &one); err != nil || one.CCM == "" {
		return nil, errors.Join(errors.New("must be a specs.json of the suite"), err)
	}
	return []Run{one}, nil
}

// signs represent results in a table.
var signs = map[Result]string{Passed: "✔", Failed: "✘", Unsupported: "unsupported", NotHere: "–", Skipped: "–", KnownGap: "known gap",
	GapClosed: "✔ gap closed", NotExercised: "not exercised"}

// Markdown renders runs as a table: a row for each spec, a column for each run.
func Markdown(runs []Run) string {
	var b strings.Builder
	b.WriteString("# Every spec, by CCM and kind of cluster\n\n")
	b.WriteString("✔ passed, ✘ failed, – cannot run there, unsupported: the CCM lacks a feature, known gap: fails as the CCM's file " +
		"says; not exercised: the CCM made no request that the spec's fault could meet; empty: was not part of the last run.\n\n| spec |")
	for _, r := range runs {
		fmt.Fprintf(&b, " %s on %s |", cell(r.CCM), cell(r.Cluster))
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(runs)) + "\n| *last run* |")
	for _, r := range runs {
		fmt.Fprintf(&b, " %s |", r.Time.UTC().Format("2006-01-02 15:04"))
	}
	b.WriteString("\n")
	for _, name := range names(runs) {
		b.WriteString("| " + cell(name) + " |")
		for _, r := range runs {
			sign := ""
			if i := slices.IndexFunc(r.Specs, func(s Spec) bool { return s.Name == name }); i >= 0 {
				sign = signs[r.Specs[i].Result]
			}
			b.WriteString(" " + sign + " |")
		}
		b.WriteString("\n")
	}
	return b.String()
}

// names returns the names of all specs, sorted.
func names(runs []Run) []string {
	seen := map[string]bool{}
	var all []string
	for _, r := range runs {
		for _, s := range r.Specs {
			if !seen[s.Name] {
				seen[s.Name] = true
				all = append(all, s.Name)
			}
		}
	}
	slices.Sort(all)
	return all
}

// Merge writes the list of all runs in a folder's folders into the folder, and returns them.
func Merge(folder string) ([]Run, error) {
	runs, err := Read(os.DirFS(folder))
	if err != nil {
		return nil, err
	}
	text, err := json.MarshalIndent(runs, "", "  ")
	if err != nil {
		return nil, err
	}
	return runs, errors.Join(
		os.WriteFile(filepath.Join(folder, File), append(text, '\n'), 0o644),
		os.WriteFile(filepath.Join(folder, "specs.md"), []byte(Markdown(runs)), 0o644),
	)
}

// cell makes a text fit into a cell of a table.
func cell(text string) string { return strings.ReplaceAll(text, "|", `\|`) }
