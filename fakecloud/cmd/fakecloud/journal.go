package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/wire"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/journal"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/remote"
)

// newJournalCommand returns the command that prints what clients did.
func newJournalCommand() *cobra.Command {
	var f journal.Filter
	var follow bool
	var limit int
	cmd := newClientCommand("journal", "Print the latest requests: time, method, path, status, error code, duration",
		arguments(0, 0), func(cmd *cobra.Command, cloud *remote.Client, _ []string) error {
			return printJournal(cmd.Context(), cloud.Journal(), f, limit, follow, cmd.OutOrStdout())
		})
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "print later requests, too, until the program is interrupted")
	cmd.Flags().IntVar(&limit, "limit", 0, "print at most the latest `n` of the requests that are there; 0 means all")
	addFilter(cmd.Flags(), &f)
	return cmd
}

// addFilter adds a flag for each field of a filter.
func addFilter(flags *pflag.FlagSet, f *journal.Filter) {
	flags.BoolVar(&f.Writes, "writes", false, "select all methods except GET and HEAD")
	flags.BoolVar(&f.Errors, "errors", false, "select what failed for the client")
	flags.BoolVar(&f.Dropped, "dropped", false, "select what got no answer")
	flags.StringVar(&f.Operation, "operation", "", "select an `operation` such as create_server")
	flags.StringVar(&f.Method, "method", "", "select an HTTP `method`")
	flags.StringVar(&f.Route, "route", "", "select a `pattern` such as /servers/{id}, or those that begin with /servers/*")
	flags.StringVar(&f.Path, "path", "", "select a `path` such as /v1/servers/42")
	flags.Int64Var(&f.ResourceID, "resource-id", 0, "select the `id` of a resource")
	flags.IntVar(&f.Status, "status", 0, "select an HTTP `status`")
	flags.StringVar(&f.ErrorCode, "error-code", "", "select a `code` such as conflict")
	flags.StringVar(&f.Client, "client", "", "select a `part` of the User-Agent")
	flags.StringVar(&f.Fault, "fault", "", "select the `name` of a fault rule")
	flags.Int64Var(&f.Project, "project", 0, "select the `id` of a project")
	flags.Uint64Var(&f.Since, "since", 0, "select requests after this `number`, the seq of the control API's journal")
}

func printJournal(ctx context.Context, requests journal.Journal, f journal.Filter, limit int, follow bool, out io.Writer) error {
	if limit < 0 {
		return wrongUsage(fmt.Errorf("--limit %d: must be at least 0", limit))
	}
	entries, err := requests.Entries(ctx, f)
	if limit > 0 {
		entries = entries[max(0, len(entries)-limit):]
	}
	for err == nil {
		for i := range entries {
			if _, err := fmt.Fprintln(out, wire.Printable(entries[i].String())); err != nil {
				return err
			}
			f.Since = entries[i].Seq
		}
		if !follow {
			return nil
		}
		entries, err = requests.Await(ctx, f, 1)
	}
	if follow && ctx.Err() != nil {
		err = nil // an interrupt is how it is ended
	}
	return err
}
