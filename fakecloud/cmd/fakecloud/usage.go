package main

import (
	"errors"
	"fmt"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// helpColumns is how wide --help is at most.
const helpColumns = 100

// wrongUsage gives an error the exit status of a wrong command line, unless the system is the one that refused something.
func wrongUsage(err error) error {
	if _, ok := errors.AsType[syscall.Errno](err); ok || err == nil {
		return err
	}
	return statusError{err, usageStatus}
}

// ofFlag returns the error of a flag's value, without the library's name for that value.
func ofFlag(flag, subject string, err error) error {
	return fmt.Errorf("%s: %w", flag, trimmed{err, subject})
}

// trimmed is an error without the beginning of its text.
type trimmed struct {
	error
	prefix string
}

func (e trimmed) Error() string { return strings.TrimPrefix(e.error.Error(), e.prefix) }

// Unwrap returns the error.
func (e trimmed) Unwrap() error { return e.error }

// arguments allows a number of arguments.
func arguments(least, most int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch n := len(args); {
		case n > 0 && cmd.HasSubCommands():
			return wrongUsage(named(cmd, fmt.Errorf("%q: there is no such command; %s%s --help lists all", args[0],
				didYouMean(cmd, args[0], ""), cmd.CommandPath())))
		case n < least || n > most:
			return wrongUsage(named(cmd, fmt.Errorf("wrong number of arguments, %d; the form is %s", n, cmd.UseLine())))
		}
		return nil
	}
}

// didYouMean suggests commands with names close to the typed one.
func didYouMean(cmd *cobra.Command, typed, dashes string) string {
	cmd.SuggestionsMinimumDistance = 2
	names := cmd.SuggestionsFor(typed)
	if len(names) == 0 {
		return ""
	}
	return "did you mean " + dashes + strings.Join(names, " or "+dashes) + "? "
}

// flagError returns an error of the parser in words that say what is allowed.
func flagError(cmd *cobra.Command, err error) error {
	if e, ok := errors.AsType[*pflag.NotExistError](err); ok {
		flags := &cobra.Command{} // which compares names
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			flags.AddCommand(&cobra.Command{Use: f.Name, Hidden: f.Hidden, Run: func(*cobra.Command, []string) {}})
		})
		dashes := "--"
		if e.GetSpecifiedShortnames() != "" {
			dashes = "-"
		}
		err = fmt.Errorf("%s%s: there is no such flag; %s%s --help lists all", dashes, e.GetSpecifiedName(),
			didYouMean(flags, e.GetSpecifiedName(), "--"), cmd.CommandPath())
	}
	if e, ok := errors.AsType[*pflag.ValueRequiredError](err); ok {
		name, _ := pflag.UnquoteUsage(e.GetFlag())
		err = fmt.Errorf("--%s: the value is missing; write --%[1]s %s", e.GetFlag().Name, name)
	}
	if e, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		err = wrongValue("--"+e.GetFlag().Name, " ", e.GetFlag(), e.GetValue(), err)
	}
	return wrongUsage(named(cmd, err))
}

// values says of each type of a flag what is allowed.
var values = map[string]string{
	"int": "a whole number", "int64": "a whole number", "uint64": "a whole number of at least 0", "float64": "a number",
	"bool": "true or false",
}

// wrongValue returns the error of a flag's value, set by a flag or a variable.
func wrongValue(from, sign string, f *pflag.Flag, value string, err error) error {
	must, ok := values[f.Value.Type()]
	if f.Name == "log-level" {
		must, ok = "debug, info, warn or error", true
	}
	if ok {
		return fmt.Errorf("%s%s%q: must be %s", from, sign, value, must)
	}
	if e, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		err = e.Unwrap()
	}
	return fmt.Errorf("%s: %w", from, err)
}

// newGroup returns a command that has commands only.
func newGroup(use, short string) *cobra.Command {
	return &cobra.Command{Use: use, Short: short, Args: arguments(0, 0), DisableFlagsInUseLine: true,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
}

// The groups of --help.
const (
	groupServer = "The server:"
	groupLook   = "Look at the cloud:"
	groupSteer  = "Steer it:"
	groupReal   = "Compare it with the real cloud:"
	groupHelp   = "Help:"
)

// helps has the group and an example of each command.
var helps = []struct{ command, group, example string }{
	{"", "", "fakecloud --actions instant --rate-limit 0"},
	{"start", groupServer, `eval "$(fakecloud start --rate-limit 0)"`},
	{"env", groupServer, `eval "$(fakecloud env)"`},
	{"exec", groupServer, "fakecloud exec --allow registry.terraform.io -- terraform plan"},
	{"wait", groupServer, "fakecloud wait --timeout 1m"},
	{"health", groupServer, "fakecloud health --control :4243"},
	{"logs", groupServer, "fakecloud logs --follow"},
	{"stop", groupServer, "fakecloud stop"},
	{"ui", groupLook, "fakecloud ui --open"},
	{"status", groupLook, "fakecloud status --markdown"},
	{"journal", groupLook, "fakecloud journal --writes --follow"},
	{"guest", groupLook, "fakecloud guest web-1"},
	{"step", groupSteer, "fakecloud step 1h30m"},
	{"speed", groupSteer, "fakecloud speed 60"},
	{"fault", groupSteer, ""},
	{"fault add", "", "fakecloud fault add --operation create_server --first 1 --effect api_error --code conflict"},
	{"fault list", "", "fakecloud fault list"},
	{"fault remove", "", "fakecloud fault remove fault-1"},
	{"scenario", groupSteer, ""},
	{"scenario start", "", "fakecloud scenario start sold-out=cx23@fsn1"},
	{"scenario list", "", "fakecloud scenario list"},
	{"scenario end", "", "fakecloud scenario end 1"},
	{"reset", groupSteer, "fakecloud reset --keep faults,catalogue"},
	{"snapshot", groupSteer, ""},
	{"snapshot save", "", "fakecloud snapshot save cloud.snapshot"},
	{"snapshot load", "", "fakecloud snapshot load cloud.snapshot"},
	{"record", groupReal, "fakecloud record --out recording"},
	{"verify", groupReal, "fakecloud verify recording"},
	{"doctor", groupHelp, "fakecloud doctor"},
	{"version", groupHelp, "fakecloud version"},
}

// otherNames are the names that people of other programs try.
var otherNames = map[string][]string{
	"start": {"up", "run", "begin", "serve"}, "stop": {"down", "kill", "delete"}, "status": {"ps", "info"}, "logs": {"log"},
	"ui": {"open", "dashboard", "page"},
}

// addHelp gives all commands their groups, examples and messages.
func addHelp(root *cobra.Command) {
	for _, g := range []string{groupServer, groupLook, groupSteer, groupReal, groupHelp} {
		root.AddGroup(&cobra.Group{ID: g, Title: g})
	}
	for _, h := range helps {
		cmd, _, _ := root.Find(strings.Fields(h.command))
		cmd.GroupID, cmd.SuggestFor = h.group, otherNames[h.command]
		if h.example != "" {
			cmd.Example = "  " + h.example
		}
	}
	root.SetHelpCommandGroupID(groupHelp)
	root.SetCompletionCommandGroupID(groupHelp)
	root.SetFlagErrorFunc(flagError)
	root.SetUsageTemplate(strings.ReplaceAll(root.UsageTemplate(), ".FlagUsages |", fmt.Sprintf(".FlagUsagesWrapped %d |", helpColumns)))
}

// newVersionCommand returns the command that prints the version.
func newVersionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version", Args: arguments(0, 0), RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), cmd.Root().Name(), "version", version())
			return err
		},
	}
}
