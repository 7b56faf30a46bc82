package cli

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
)

func TestAWrongCommandLineIsExplainedAndExitsWith2(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"up --ratelimit=3", 2, "--ratelimit: is not a flag, but --rate-limit is; tool up --help lists them"},
		{"up --colour", 2, "--colour: is not a flag; tool up --help lists them"},
		{"up --rate-limit=many", 2, "--rate-limit=many: must be a whole number"},
		{"up --port=70000", 2, "--port=70000: must be a whole number from 0 to 65535"},
		{"up --timeout=5", 2, "--timeout=5: must be a duration such as 90s"},
		{"up --retain=perhaps", 2, "--retain=perhaps: must be true or false"},
		{"up --port", 2, "--port: the value is missing; tool up --help says which it takes"},
		{"up now", 2, `the arguments ["now"] do not fit: call tool up [flags]`},
		{"load", 2, "the arguments [] do not fit: call tool load IMAGE... [flags]"},
		{"upp", 2, `"upp": is not a command, but up is; tool --help lists them`},
		{"wrong", 2, `"wrong": is not a command; tool --help lists them`},
		{"load no-such", 2, "NAME=no-such: must be another"},
		{"load a", 1, "Docker does not answer"},
		{"up --rate-limit=0", 0, ""},
		{"", 0, ""},
		{"up --help", 0, ""},
	} {
		root := tool()
		root.SetArgs(strings.Fields(c.args))
		code, err := Run(t.Context(), root)
		text := ""
		if err != nil {
			text = err.Error()
		}
		if code != c.code || text != c.want {
			t.Errorf("%s: %d, %s\nwant %d, %s", c.args, code, text, c.code, c.want)
		}
	}
}

func TestACommandGetsTheContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	root := tool()
	root.SetArgs([]string{"up"})
	if code, err := Run(ctx, root); code != 130 || !errors.Is(err, context.Canceled) {
		t.Errorf("%d, %v", code, err)
	}
}

func tool() *cobra.Command {
	root := &cobra.Command{Use: "tool"}
	root.SetOut(io.Discard)
	up := &cobra.Command{Use: "up", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Context().Err() }}
	up.Flags().Int("rate-limit", 0, "")
	up.Flags().Uint16("port", 0, "")
	up.Flags().Duration("timeout", time.Second, "")
	up.Flags().Bool("retain", false, "")
	root.AddCommand(up, &cobra.Command{
		Use: "load IMAGE...", Args: cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if args[0] == "no-such" {
				return Usage(errors.New("NAME=no-such: must be another"))
			}
			return errors.New("Docker does not answer")
		},
	})
	return root
}
