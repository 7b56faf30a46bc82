package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/report"
	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/speclist"
)

func TestAnEarlierRunIsComparedOnThePage(t *testing.T) {
	t.Parallel()
	out, other := t.TempDir(), t.TempDir()
	write := func(path, text string) string {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	if err := os.Mkdir(filepath.Join(out, "e2e-kind"), 0o755); err != nil {
		t.Fatal(err)
	}
	run := `{"ccm": "ours", "cluster": "kind", "time": "2026-11-25T12:00:00Z", "specs": [{"name": "a", "result": "passed", "seconds": 1}]}`
	write(filepath.Join(out, "e2e-kind", speclist.File), run)
	one := write(filepath.Join(other, "one.json"), run)
	list := write(filepath.Join(other, "list.json"), "["+run+"]")
	if err := writeReport(out, []string{one, list}); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(out, report.File))
	for _, want := range []string{`"label":"one.json of 2026-11-25 12:00"`, `"label":"list.json of 2026-11-25 12:00"`, `"compare":true`} {
		if err != nil || !strings.Contains(string(page), want) {
			t.Errorf("%v: the page lacks %s", err, want)
		}
	}
	for _, file := range []string{speclist.File, "badge-ours-kind.svg"} {
		if _, err := os.Stat(filepath.Join(out, file)); err != nil {
			t.Error(err)
		}
	}
	for name, text := range map[string]string{"broken.json": "{", "other.json": `{"name": "x"}`, "number.json": "7"} {
		err := writeReport(out, []string{write(filepath.Join(other, name), text)})
		if err == nil || !strings.Contains(err.Error(), "--compare "+other) || !strings.Contains(err.Error(), "must be a specs.json") {
			t.Errorf("%s: got %v", name, err)
		}
	}
	missing := filepath.Join(other, "missing.json")
	for name, err := range map[string]error{"file": writeReport(out, []string{missing}), "folder": writeReport(missing, nil)} {
		if !errors.Is(err, os.ErrNotExist) || strings.Count(err.Error(), missing) != 1 {
			t.Errorf("a missing %s: %v", name, err)
		}
	}
}
