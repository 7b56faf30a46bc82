package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/wire"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/journal"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/remote"
)

// errNotRunning ends fakecloud status if no cloud answers, which its output has said already.
var errNotRunning = statusError{errSilent, 3}

// newStatusCommand returns the command that describes a running cloud.
func newStatusCommand() *cobra.Command {
	var flags clientFlags
	cmd := &cobra.Command{
		Use: "status", Short: "Say whether fakecloud runs, and what it has done; exit with 3 if it does not run", Args: arguments(0, 0),
	}
	markdown := cmd.Flags().Bool("markdown", false, "summarize requests and faults in Markdown, such as for a CI's summary")
	flags.add(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		url, err := flags.url()
		if err != nil && !errors.Is(err, errNotStarted) {
			return fmt.Errorf("status: %w", err)
		}
		cloud := remote.New(url)
		if err == nil {
			err = explain(url, cloud.Ready(cmd.Context()))
		}
		if cmd.Context().Err() != nil {
			return err
		}
		if err != nil {
			fmt.Fprintln(cmd.OutOrStdout(), "not running:", err)
			return errNotRunning
		}
		if *markdown {
			err = summarize(cmd.Context(), cloud, cmd.OutOrStdout())
		} else {
			err = describe(cmd.Context(), cloud, url, &flags, cmd.OutOrStdout())
		}
		if err != nil {
			return fmt.Errorf("status: %w", explain(url, err))
		}
		return nil
	}
	return cmd
}

func describe(ctx context.Context, cloud *remote.Client, control string, flags *clientFlags, out io.Writer) error {
	requests, err := cloud.Journal().Last(ctx)
	if err != nil {
		return err
	}
	due, err := cloud.Timeline(ctx)
	if err != nil {
		return err
	}
	actions := map[int64]bool{}
	for _, d := range due {
		if d.Action != 0 {
			actions[d.Action] = true
		}
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "running\n")
	if s, err := flags.server(); err == nil && s != nil && s.Control == control {
		fmt.Fprintf(w, "process\t%d\nendpoint\t%s\nlog\t%s\n", s.PID, s.Endpoint, s.Log)
	}
	fmt.Fprintf(w, "page\t%s\ncontrol API\t%s\nrequests\t%d\nrunning actions\t%d, without those that hang\n",
		control, control, requests, len(actions))
	return w.Flush()
}

// count is what clients did with one operation.
type count struct{ requests, failed, faulty int }

// summarize writes what the journal and the fault rules have, as tables.
func summarize(ctx context.Context, cloud *remote.Client, out io.Writer) error {
	entries, err := cloud.Journal().Entries(ctx, journal.Filter{})
	if err != nil {
		return err
	}
	rules, err := cloud.Faults().List(ctx)
	if err != nil {
		return err
	}
	var text strings.Builder
	text.WriteString("### The simulated cloud\n\n| operation | requests | failed | taken by a fault |\n|---|--:|--:|--:|\n")
	operations, all := countRequests(entries)
	for _, name := range slices.Sorted(maps.Keys(operations)) {
		operations[name].row(&text, name)
	}
	all.row(&text, "all")
	if len(rules) > 0 {
		text.WriteString("\n| fault rule | effect | selected | taken |\n|---|---|--:|--:|\n")
	}
	for _, r := range rules {
		fmt.Fprintf(&text, "| %s | %s | %d | %d |\n", cell(r.Name), cell(string(r.Effect.Kind)), r.Matched, r.Applied)
	}
	_, err = io.WriteString(out, text.String())
	return err
}

func countRequests(entries []journal.Entry) (operations map[string]*count, all *count) {
	operations, all = map[string]*count{}, &count{}
	for _, e := range entries {
		name := e.Operation
		if name == "" {
			name = "none: " + e.Method + " of an unknown path"
		}
		if operations[name] == nil {
			operations[name] = &count{}
		}
		for _, c := range []*count{operations[name], all} {
			c.requests++
			if e.Status == 0 || e.Status >= 400 {
				c.failed++
			}
			if e.Fault != "" {
				c.faulty++
			}
		}
	}
	return operations, all
}

func (c *count) row(text *strings.Builder, name string) {
	fmt.Fprintf(text, "| %s | %d | %d | %d |\n", cell(name), c.requests, c.failed, c.faulty)
}

// cell returns a text for a cell of a table.
func cell(s string) string {
	return strings.NewReplacer("|", `\|`, "<", "&lt;").Replace(wire.Printable(s))
}
