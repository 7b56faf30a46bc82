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
	"strconv"
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
	// Unsupported is for specs that need a feature that the CCM lacks.
	Unsupported Result = "unsupported"
	// NotHere is for specs that this kind of cluster cannot run.
	NotHere Result = "not here"
	// Skipped is for specs that discover while they run that they cannot run here.
	Skipped Result = "skipped"
	// KnownGap is for specs that fail, as the CCM's file says.
	KnownGap Result = "known gap"
	// GapClosed is for specs that pass although the CCM's file calls them a known gap.
	GapClosed Result = "gap closed"
	// NotExercised is for specs that show nothing, because no request met their fault. The reason lists the requests that came.
	NotExercised Result = "not exercised"
)

// Spec is one spec of a run.
type Spec struct {
	Name string `json:"name"`
	// Group is the heading over the spec's declaration.
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
	// LeftOut counts specs that this cluster can run, but that a focus, a filter or a shard left out.
	LeftOut int `json:"left_out,omitempty"`
	// Shard says which part of the specs ran, such as 2/5.
	Shard string `json:"shard,omitempty"`
	// Seconds is how long the run took, Processes how many specs ran at a time, and Seed the one of their order.
	Seconds   float64 `json:"seconds,omitempty"`
	Processes int     `json:"processes,omitempty"`
	Seed      int64   `json:"seed,omitempty"`
	// Specs are in the order of the source.
	Specs []Spec `json:"specs"`
	// Incomplete says why results are missing, such as a failed BeforeSuite.
	Incomplete string `json:"incomplete,omitempty"`
	// Outside are the failures outside of specs, such as in BeforeSuite, and those of the suite as a whole.
	Outside []Spec `json:"outside,omitempty"`
}

// Failed reports whether a spec failed that is not a known gap, or whether results are missing.
func (r Run) Failed() bool {
	return r.Incomplete != "" || slices.ContainsFunc(r.Specs, func(s Spec) bool { return s.Result == Failed })
}

// Sort sorts specs by their place in the source.
func Sort(specs []Spec) {
	line := func(place string) (file string, number int) {
		file, text, _ := strings.Cut(place, ":")
		number, _ = strconv.Atoi(text) // 0 of a spec without a place
		return file, number
	}
	slices.SortStableFunc(specs, func(a, b Spec) int {
		fileA, lineA := line(a.Source)
		fileB, lineB := line(b.Source)
		_, containerA := line(a.Container)
		_, containerB := line(b.Container)
		return cmp.Or(cmp.Compare(fileA, fileB), cmp.Compare(containerA, containerB), cmp.Compare(lineA, lineB),
			cmp.Compare(a.Name, b.Name))
	})
}

// Write writes a run into a folder.
func (r Run) Write(folder string) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, File), append(text, '\n'), 0o644)
}

// Read returns the runs in all folders of a folder, by CCM and kind of cluster. Of several runs with the same CCM and kind, it returns the
// newest. A shard counts only if the folder lacks a run of all shards.
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
	return runs, os.WriteFile(filepath.Join(folder, File), append(text, '\n'), 0o644)
}
