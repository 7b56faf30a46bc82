package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/cli"
	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/report"
	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/shards"
	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/speclist"
)

func reportCommand() *cobra.Command {
	var compare []string
	cmd := &cobra.Command{
		Use: "report [FOLDER]", Short: "Merge the results of all runs in a folder into a page and badges",
		Args: cobra.MaximumNArgs(1),
		Long: `Merge the results of all runs in a folder, by default out, into its report.html, specs.json and badges. The source of the
specs on the page is that of the module in which the command runs.`,
		RunE: func(_ *cobra.Command, args []string) error { return writeReport(append(args, "out")[0], compare) },
	}
	cmd.Flags().StringArrayVar(&compare, "compare", nil,
		"a specs.json of an earlier run, with which the page begins to compare; can be repeated")
	return cmd
}

func writeReport(folder string, compare []string) error {
	if _, err := os.Stat(folder); err != nil {
		return cli.Usage(fmt.Errorf("%s: %w; name a folder that has those of runs, such as out", folder, errors.Unwrap(err)))
	}
	o := report.Options{Root: report.ModuleOf(".")}
	for _, path := range compare {
		more, err := readRuns(path)
		if err != nil {
			return fmt.Errorf("--compare %s: %w", path, err)
		}
		for _, r := range more {
			name := filepath.Base(path) + " of " + r.Time.UTC().Format("2006-01-02 15:04")
			o.Compare = append(o.Compare, report.Other{Name: name, Run: r})
		}
	}
	runs, err := speclist.Merge(folder)
	if err != nil {
		return err
	}
	return report.Write(folder, runs, o)
}

// readRuns reads the results of one run or of several.
func readRuns(path string) ([]speclist.Run, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, errors.Unwrap(err) // callers name the file
	}
	return speclist.Parse(text)
}

func mergeCommand() *cobra.Command {
	return &cobra.Command{
		Use: "merge OUT SHARD…", Short: "Merge the folders of shards into one, as a run of all specs makes it", Args: cobra.MinimumNArgs(2),
		Long: `Merge the folders of shards into one, as a run of all specs makes it: specs.json, report.html, junit.xml and a badge.
Fails if a shard is missing.`,
		RunE: func(_ *cobra.Command, args []string) error {
			run, err := speclist.ReadShards(args[1:])
			if err != nil {
				return err
			}
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return err
			}
			if err := report.WriteRun(args[0], run); err != nil || !strings.Contains(run.Incomplete, "is missing") {
				return err
			}
			return fmt.Errorf("the merged report is incomplete: %s", run.Incomplete)
		},
	}
}

func resultsCommand() *cobra.Command {
	return &cobra.Command{
		Use: "results FOLDER", Short: "Print the results of a run, and fail if one is worse than the CCM's file says",
		Args: cobra.ExactArgs(1),
		Long: `Print the results in the specs.json of a run's folder: counts, the report card of the incidents, known gaps, and each failure
with its place and reason. Fails if a spec failed that is not a known gap of the CCM, or if results are missing.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			runs, err := readRuns(filepath.Join(args[0], speclist.File))
			if err != nil {
				return fmt.Errorf("%s: %w; name the folder of a run, such as out/e2e-kind", args[0], err)
			}
			bad := 0
			for _, r := range runs {
				fmt.Fprint(cmd.OutOrStdout(), report.Results(r))
				if r.Failed() {
					bad++
				}
			}
			if bad > 0 {
				return fmt.Errorf("%s: specs failed, or their results are missing: see above", args[0])
			}
			return nil
		},
	}
}

func durationsCommand() *cobra.Command {
	return &cobra.Command{
		Use: "durations FILE…", Short: "Print how long specs take, from the specs.json of runs", Args: cobra.MinimumNArgs(1),
		Long: `Print how long specs take, from the specs.json of runs. The output is e2e/shards/durations.txt, by which SHARD=2/5 divides the
specs. DURATIONS=out/e2e-embedded/specs.json uses a run without that.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			var all []speclist.Run
			for _, path := range args {
				runs, err := readRuns(path)
				if err != nil {
					return fmt.Errorf("%s: %w", path, err)
				}
				all = append(all, runs...)
			}
			_, err := fmt.Fprint(cmd.OutOrStdout(), shards.Of(all))
			return err
		},
	}
}

func consoleCommand() *cobra.Command {
	return &cobra.Command{
		Use: "console LOG", Short: "Show what Ginkgo prints, without what is long, and write all of it to a log", Args: cobra.ExactArgs(1),
		// A signal does not end it: Ginkgo gets the signal, too, and still reports its cleanup.
		RunE: func(cmd *cobra.Command, args []string) error {
			log, err := os.Create(args[0])
			if err != nil {
				return err
			}
			return errors.Join(report.Console(cmd.OutOrStdout(), cmd.InOrStdin(), log), log.Close())
		},
	}
}
