package speclist

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestTheNewestRunsAreMergedIntoOneList(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	noon := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for name, r := range map[string]Run{
		"e2e-kind": {CCM: "ours", Cluster: "kind", Time: noon, Specs: []Spec{
			{Name: "Service works", Result: Passed}, {Name: "Route a|b", Result: NotHere}, {Name: "Node asks", Result: Skipped}}},
		"e2e-embedded": {CCM: "ours", Cluster: "embedded", Time: noon.Add(time.Minute), Specs: []Spec{
			{Name: "Route a|b", Result: Failed}, {Name: "Service works", Result: Passed}}},
		"older": {CCM: "ours", Cluster: "kind", Time: noon.Add(-time.Hour), Specs: []Spec{{Name: "Service works", Result: Failed},
			{Name: "was renamed", Result: Passed}}},
		"other": {CCM: "other", Cluster: "kind", Time: noon, Specs: []Spec{{Name: "Service works", Result: Unsupported}}},
	} {
		if err := os.Mkdir(filepath.Join(folder, name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := r.Write(filepath.Join(folder, name)); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 { // the second time, its own list lies there
		if _, err := Merge(folder); err != nil {
			t.Fatal(err)
		}
	}
	list, err := os.ReadFile(filepath.Join(folder, File))
	runs, wrong := Parse(list)
	if err = errors.Join(err, wrong); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, r := range runs {
		names = append(names, fmt.Sprint(r.CCM, " on ", r.Cluster, ": ", r.Specs[0].Result, ", ", len(r.Specs)))
	}
	want := []string{"other on kind: unsupported, 1", "ours on embedded: failed, 2", "ours on kind: passed, 3"}
	if !slices.Equal(names, want) {
		t.Errorf("got %q, want %q", names, want)
	}
}

func TestAShardReplacesNoRunOfAllSpecs(t *testing.T) {
	t.Parallel()
	noon := time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)
	at := func(hours int, shard, name string) Run {
		begin := noon.Add(time.Duration(hours) * time.Hour)
		return Run{CCM: "ours", Cluster: "kind", Shard: shard, Time: begin, Specs: []Spec{{Name: name}}}
	}
	for _, c := range []struct {
		want string
		runs []Run
	}{
		{"whole", []Run{at(0, "", "whole"), at(1, "1/2", "part"), at(2, "2/2", "part")}},
		{"whole", []Run{at(2, "1/2", "part"), at(0, "", "whole"), at(3, "2/2", "part")}},
		{"newer", []Run{at(0, "", "whole"), at(1, "", "newer"), at(2, "2/2", "part")}},
		{"newest part", []Run{at(1, "1/2", "newest part"), at(0, "2/2", "part")}},
	} {
		folder := t.TempDir()
		for i, r := range c.runs {
			at := filepath.Join(folder, string(rune('a'+i)))
			if err := os.Mkdir(at, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := r.Write(at); err != nil {
				t.Fatal(err)
			}
		}
		runs, err := Read(os.DirFS(folder))
		if err != nil || len(runs) != 1 || runs[0].Specs[0].Name != c.want {
			t.Errorf("got %+v, %v, want %s", runs, err, c.want)
		}
	}
}

func TestABrokenFileIsNamed(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	if err := os.Mkdir(filepath.Join(folder, "broken"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, "broken", File), []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Merge(folder); err == nil || !strings.Contains(err.Error(), "broken/"+File) {
		t.Errorf("got %v", err)
	}
}

func TestOnlyAKnownGapDoesNotFailARun(t *testing.T) {
	t.Parallel()
	for result, want := range map[Result]bool{Passed: false, Failed: true, Unsupported: false, NotHere: false, Skipped: false,
		KnownGap: false, GapClosed: false, NotExercised: false} {
		if got := (Run{Specs: []Spec{{Result: Passed}, {Result: result}}}).Failed(); got != want {
			t.Errorf("with a spec that is %s: %t", result, got)
		}
	}
	if !(Run{Incomplete: "a spec ran too long"}).Failed() {
		t.Error("a run without all results did not fail")
	}
}

func TestAShardIsTwoNumbers(t *testing.T) {
	t.Parallel()
	if n, of, err := ParseShard("2/5"); n != 2 || of != 5 || err != nil {
		t.Errorf("got %d, %d, %v", n, of, err)
	}
	for _, wrong := range []string{"2", "0/5", "6/5", "a/b", "-1/5", "2/5x", "2/5/7", ""} {
		if _, _, err := ParseShard(wrong); err == nil || !strings.Contains(err.Error(), "must be such as 2/5") {
			t.Errorf("%q: got %v", wrong, err)
		}
	}
}
