// e2e-probe writes what a run of all specs has found out about a cloud-controller-manager into its file:
// e2e-probe FILE FOLDER, where FOLDER has the run's specs.json. scripts/e2e-probe.sh makes the run.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/probe"
	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/speclist"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "e2e-probe:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 2 {
		return fmt.Errorf("usage: e2e-probe FILE FOLDER")
	}
	file, err := os.ReadFile(args[0])
	if err != nil {
		return err
	}
	results := filepath.Join(args[1], speclist.File)
	text, err := os.ReadFile(results)
	if err != nil {
		return fmt.Errorf("the run has no results: %w", err)
	}
	var r speclist.Run
	if err := json.Unmarshal(text, &r); err != nil {
		return fmt.Errorf("%s: %w", results, err)
	}
	updated, found, err := probe.Update(file, r)
	if err != nil {
		return fmt.Errorf("%s: %w", args[0], err)
	}
	if err := os.WriteFile(args[0], updated, 0o644); err != nil {
		return err
	}
	specs := 0
	for _, gap := range found.KnownGaps {
		specs += len(gap.Specs)
	}
	fmt.Printf("%s: lacks %d features; %d other specs fail. Write the reasons instead of %q.\n", args[0], len(found.Lacks), specs, probe.Unexplained)
	return nil
}
