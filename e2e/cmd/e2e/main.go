// Command e2e works on the results of the suite's runs: it writes pages, lists and files of CCMs
// from them. Makefile targets and scripts call it; e2e --help lists the commands.
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/cli"
	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/probe"
	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/speclist"
	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/upstream"
)

func main() { cli.Main(command()) }

func command() *cobra.Command {
	root := &cobra.Command{Use: "e2e", Short: "Write down what runs of the e2e suite have shown"}
	root.AddCommand(&cobra.Command{
		Use: "conformance REPORT UNSUPPORTED PAGE", Short: "Write the page of what Kubernetes' own specs have shown",
		Args: cobra.ExactArgs(3),
		Long: `Write the page of what Kubernetes' own specs have shown, and fail if something has become worse than on the page before. REPORT
is Ginkgo's JSON report, UNSUPPORTED the list of what cannot pass, with reasons, and PAGE the Markdown page.`,
		RunE: func(_ *cobra.Command, args []string) error {
			return upstream.Update(os.Stdout, args[0], args[1], args[2])
		},
	}, &cobra.Command{
		Use: "probe FILE FOLDER", Short: "Write what a run of all specs has found out about a CCM into its file", Args: cobra.ExactArgs(2),
		RunE: func(_ *cobra.Command, args []string) error { return updateCCM(args[0], args[1]) },
	}, reportCommand(), resultsCommand(), mergeCommand(), durationsCommand(), consoleCommand())
	return root
}

func updateCCM(path, folder string) error {
	file, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	runs, err := readRuns(filepath.Join(folder, speclist.File))
	if err == nil && len(runs) != 1 {
		err = errors.New("it has the results of several runs")
	}
	if err != nil {
		return fmt.Errorf("%s: %w; name the folder of a run of all specs", folder, err)
	}
	updated, found, err := probe.Update(file, runs[0])
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if err := os.WriteFile(path, updated, 0o644); err != nil {
		return err
	}
	specs := 0
	for _, gap := range found.KnownGaps {
		specs += len(gap.Specs)
	}
	fmt.Printf("%s: lacks %d features; %d other specs fail. Write the reasons instead of %q.\n", path, len(found.Lacks), specs,
		probe.Unexplained)
	return nil
}
