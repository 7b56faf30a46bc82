// Package cli runs the programs of this repository that people call by hand: with one form of errors, exit code and end by a signal.
package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Main runs the command of the command line, and exits: with 2 if that is wrong, with 130 if a signal ends it, with 1 after any other
// error.
func Main(root *cobra.Command) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	code, err := Run(ctx, root)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", root.Name(), err)
	}
	os.Exit(code)
}

// Usage marks an error as one of the command line or of the environment.
func Usage(err error) error { return usage{err} }

type usage struct{ error }

func (u usage) Unwrap() error { return u.error }

// Run runs a command and returns the code to exit with.
func Run(ctx context.Context, root *cobra.Command) (code int, err error) {
	root.SilenceUsage, root.SilenceErrors = true, true
	root.SetFlagErrorFunc(flagError)
	if root.HasSubCommands() {
		root.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	}
	for _, c := range append(root.Commands(), root) {
		check := c.Args
		c.Args = func(cmd *cobra.Command, args []string) error {
			switch {
			case cmd.HasSubCommands() && len(args) > 0:
				cmd.SuggestionsMinimumDistance = 2
				return Usage(fmt.Errorf("%q: is not a command%s; %s --help lists them",
					args[0], meant("", cmd.SuggestionsFor(args[0])), cmd.Name()))
			case check != nil && check(cmd, args) != nil:
				return Usage(fmt.Errorf("the arguments %q do not fit: call %s", args, cmd.UseLine()))
			}
			return nil
		}
	}
	err = root.ExecuteContext(ctx)
	switch {
	case err == nil:
		return 0, nil
	case errors.As(err, &usage{}):
		return 2, err
	case ctx.Err() != nil:
		return 130, err
	}
	return 1, err
}

// kinds describe the values of flags, by type.
var kinds = map[string]string{
	"int": "a whole number", "uint16": "a whole number from 0 to 65535", "bool": "true or false", "duration": "a duration such as 90s",
}

// flagError explains a mistake in a flag in plain words.
func flagError(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	var invalid *pflag.InvalidValueError
	var missing *pflag.ValueRequiredError
	switch {
	case errors.As(err, &unknown):
		// cobra knows which names are near, but only those of commands.
		flags := &cobra.Command{SuggestionsMinimumDistance: 2}
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			flags.AddCommand(&cobra.Command{Use: f.Name, Run: func(*cobra.Command, []string) {}})
		})
		name := unknown.GetSpecifiedName()
		err = fmt.Errorf("--%s: is not a flag%s; %s --help lists them", name, meant("--", flags.SuggestionsFor(name)), cmd.CommandPath())
	case errors.As(err, &invalid) && kinds[invalid.GetFlag().Value.Type()] != "":
		f := invalid.GetFlag()
		err = fmt.Errorf("--%s=%s: must be %s", f.Name, invalid.GetValue(), kinds[f.Value.Type()])
	case errors.As(err, &missing):
		err = fmt.Errorf("--%s: the value is missing; %s --help says which it takes", missing.GetSpecifiedName(), cmd.CommandPath())
	}
	return Usage(err)
}

func meant(prefix string, names []string) string {
	if len(names) == 0 {
		return ""
	}
	return ", but " + prefix + strings.Join(names, " and "+prefix) + " is"
}
