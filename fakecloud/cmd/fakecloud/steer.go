package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/fault"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/wire"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/remote"
)

// newStepCommand returns the command that moves the clock.
func newStepCommand() *cobra.Command {
	return newClientCommand("step DURATION", "Move the cloud's clock forward, such as by 1h or 1d, and do what became due", arguments(1, 1),
		func(cmd *cobra.Command, cloud *remote.Client, args []string) error {
			var d fault.Duration
			if err := d.UnmarshalText([]byte(args[0])); err != nil {
				return wrongUsage(err)
			}
			if err := cloud.Step(cmd.Context(), time.Duration(d)); err != nil {
				return err
			}
			return printClock(cmd, cloud)
		})
}

// newSpeedCommand returns the command that changes how fast the clock runs.
func newSpeedCommand() *cobra.Command {
	short := "Set how fast the cloud's clock runs: 60 makes a minute pass in a second, 0 stops it"
	return newClientCommand("speed X", short, arguments(1, 1),
		func(cmd *cobra.Command, cloud *remote.Client, args []string) error {
			x, err := strconv.ParseFloat(args[0], 64)
			if err != nil {
				return wrongUsage(fmt.Errorf("%q: must be a number such as 60", args[0]))
			}
			if err := cloud.SetSpeed(cmd.Context(), x); err != nil {
				return err
			}
			return printClock(cmd, cloud)
		})
}

func printClock(cmd *cobra.Command, cloud *remote.Client) error {
	now, err := cloud.Now(cmd.Context())
	if err != nil {
		return err
	}
	speed, err := cloud.Speed(cmd.Context())
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "the cloud's clock shows %s and runs at speed %v\n", now.Format(time.RFC3339), speed)
	return err
}

// newResetCommand returns the command that empties the cloud.
func newResetCommand() *cobra.Command {
	var keep []string
	cmd := newClientCommand(
		"reset", "Remove resources, actions, faults, scenarios and the journal, and fill the rate limits", arguments(0, 0),
		func(cmd *cobra.Command, cloud *remote.Client, _ []string) error {
			return cloud.Reset(cmd.Context(), keep...)
		})
	cmd.Flags().StringSliceVar(&keep, "keep", nil,
		"`parts` to keep: resources, journal, faults, rate_limit, catalogue, limits, scenarios; separated by commas")
	return cmd
}

// newFaultCommand returns the commands for fault rules.
func newFaultCommand() *cobra.Command {
	cmd := newGroup("fault", "Make the cloud misbehave")
	var rule fault.Rule
	add := newClientCommand("add [JSON]", "Add a fault rule, in JSON as for the control API, by flags, or both", arguments(0, 1),
		func(cmd *cobra.Command, cloud *remote.Client, args []string) error {
			if len(args) > 0 {
				if err := readRule(args[0], &rule, cmd.Flags()); err != nil {
					return wrongUsage(err)
				}
			}
			rule, err := cloud.Faults().Add(cmd.Context(), rule)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), rule.Name)
			return err
		})
	addRule(add.Flags(), &rule)
	list := newClientCommand("list", "List the fault rules, and what each has done", arguments(0, 0),
		func(cmd *cobra.Command, cloud *remote.Client, _ []string) error {
			rules, err := cloud.Faults().List(cmd.Context())
			for _, r := range rules {
				text, _ := json.Marshal(r.Rule) // it came as JSON
				printLine(cmd, "%s took %d of %d requests: %s", r.Name, r.Applied, r.Matched, text)
			}
			return err
		})
	remove := newClientCommand("remove NAME", "Remove a fault rule", arguments(1, 1),
		func(cmd *cobra.Command, cloud *remote.Client, args []string) error {
			ok, err := cloud.Faults().Remove(cmd.Context(), args[0])
			if err == nil && !ok {
				err = fmt.Errorf("%q does not exist; fakecloud fault list lists all", args[0])
			}
			return err
		})
	cmd.AddCommand(add, list, remove)
	return cmd
}

// printLine prints a line with texts of clients.
func printLine(cmd *cobra.Command, format string, args ...any) {
	fmt.Fprintln(cmd.OutOrStdout(), wire.Printable(fmt.Sprintf(format, args...)))
}

// addRule adds flags for the usual fields of a rule. Their names are those in JSON.
func addRule(f *pflag.FlagSet, r *fault.Rule) {
	f.StringVar(&r.Name, "name", "", "`name` of the rule")
	f.StringVar(&r.Operation, "operation", "", "select an `operation` such as create_server")
	f.StringVar(&r.Resource, "resource", "", "select a `kind` of resource such as load_balancer")
	f.BoolVar(&r.Writes, "writes", false, "select all methods except GET and HEAD")
	f.Int64Var(&r.Project, "project", 0, "select the `id` of a project")
	f.IntVar(&r.First, "first", 0, "take the first `n` requests")
	f.IntVar(&r.Every, "every", 0, "take each `n`-th request")
	f.Float64Var(&r.Probability, "probability", 0, "take a request by chance, `0 to 1`")
	f.StringVar((*string)(&r.Effect.Kind), "effect", "",
		"`kind` of the effect: api_error, http_status, latency, drop, reset, cut_body, fail_action, slow_action, hang_action, slow_guest, "+
			"ignore_shutdown, stay_off, empty, hide or exhaust_rate_limit")
	f.BoolVar(&r.Effect.After, "after", false, "carry the request out first")
	f.StringVar(&r.Effect.Code, "code", "", "error `code` such as conflict, of api_error and fail_action")
	f.IntVar(&r.Effect.Status, "status", 0, "HTTP `status` of api_error and http_status")
	f.TextVar(&r.Effect.Latency, "latency", fault.Duration(0), "`duration` by which the answer is late")
	f.Lookup("latency").DefValue = ""
}

// readRule reads JSON into a rule to which flags are bound. Flags that were given win.
func readRule(text string, rule *fault.Rule, flags *pflag.FlagSet) error {
	given := map[*pflag.Flag]string{}
	flags.Visit(func(f *pflag.Flag) { given[f] = f.Value.String() })
	dec := json.NewDecoder(strings.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(rule); err != nil {
		return fmt.Errorf(`the rule must be JSON such as {"operation": "create_server", "effect": {"kind": "drop"}}: %w`, err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("the rule must be one JSON object, but more follows")
	}
	var errs []error
	for f, v := range given {
		errs = append(errs, f.Value.Set(v))
	}
	return errors.Join(errs...)
}

// newScenarioCommand returns the commands for scenarios.
func newScenarioCommand() *cobra.Command {
	cmd := newGroup("scenario", "Rehearse an incident of the real cloud")
	start := newClientCommand("start NAME[=VALUES]", "Start a scenario, such as sold-out=cx23@fsn1, or a YAML file", arguments(1, 1),
		func(cmd *cobra.Command, cloud *remote.Client, args []string) error {
			s, err := cloud.Scenarios().Start(cmd.Context(), args[0])
			if err == nil {
				printLine(cmd, "%d %s: %s", s.ID, s.Name, s.Description)
			}
			return err
		})
	list := newClientCommand("list", "List the scenarios that run, with their ids, and the built-in ones", arguments(0, 0), listScenarios)
	end := newClientCommand("end ID", "End a scenario: all is as before", arguments(1, 1),
		func(cmd *cobra.Command, cloud *remote.Client, args []string) error {
			id, err := strconv.ParseInt(args[0], 10, 64)
			if err != nil {
				return wrongUsage(fmt.Errorf("%q: must be an id of fakecloud scenario list", args[0]))
			}
			return cloud.Scenarios().End(cmd.Context(), id)
		})
	cmd.AddCommand(start, list, end)
	return cmd
}

func listScenarios(cmd *cobra.Command, cloud *remote.Client, _ []string) error {
	running, err := cloud.Scenarios().List(cmd.Context())
	if err != nil {
		return err
	}
	available, err := cloud.Scenarios().Available(cmd.Context())
	if err != nil {
		return err
	}
	for _, s := range running {
		printLine(cmd, "running %d %s: %s", s.ID, s.Name, s.Description)
	}
	for _, s := range available {
		printLine(cmd, "%s: %s", s.Name, s.Description)
	}
	return nil
}
