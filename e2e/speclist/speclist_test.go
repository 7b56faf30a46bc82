package speclist

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestRunsAreMergedIntoOneTable(t *testing.T) {
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
	text, err := os.ReadFile(filepath.Join(folder, "specs.md"))
	if err != nil {
		t.Fatal(err)
	}
	want := `| spec | other on kind | ours on embedded | ours on kind |
|---|---|---|---|
| *last run* | 2026-11-21 12:00 | 2026-11-21 12:01 | 2026-11-21 12:00 |
| Node asks |  |  | – |
| Route a\|b |  | ✘ | – |
| Service works | unsupported | ✔ | ✔ |
`
	if _, got, _ := strings.Cut(string(text), "last run.\n\n"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	list, err := os.ReadFile(filepath.Join(folder, File))
	if err != nil || !strings.Contains(string(list), `"result": "unsupported"`) || strings.Contains(string(list), "was renamed") {
		t.Errorf("the list for programs: %v\n%s", err, list)
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
