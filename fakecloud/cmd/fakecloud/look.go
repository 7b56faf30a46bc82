package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"runtime"
	"time"

	"github.com/spf13/cobra"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/remote"
)

// newLogsCommand returns the command that prints the log of a server without a terminal.
func newLogsCommand() *cobra.Command {
	var flags clientFlags
	cmd := &cobra.Command{Use: "logs", Short: "Print the log of the server of fakecloud start, even after its end", Args: arguments(0, 0)}
	follow := cmd.Flags().BoolP("follow", "f", false, "print later lines, too, until the server ends or the program is interrupted")
	flags.addStateFile(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		path, err := flags.path()
		if err != nil {
			return named(cmd, err)
		}
		log, err := os.Open(logPath(path))
		if errors.Is(err, fs.ErrNotExist) {
			err = errNotStarted
		}
		if err != nil {
			return named(cmd, err)
		}
		defer func() { _ = log.Close() }()
		for {
			s, err := readServer(path) // before the copy: a server that has ended writes no more
			if err == nil {
				_, err = io.Copy(cmd.OutOrStdout(), log)
			}
			if err != nil || s == nil || !*follow {
				return named(cmd, err)
			}
			select {
			case <-cmd.Context().Done(): // an interrupt is how it is ended
				return nil
			case <-time.After(10 * pollInterval):
			}
		}
	}
	return cmd
}

// openers are the programs that open an address in a browser, by system.
var openers = map[string][]string{"darwin": {"open"}, "windows": {"rundll32", "url.dll,FileProtocolHandler"}}

// newUICommand returns the command that leads to the page.
func newUICommand() *cobra.Command {
	var flags clientFlags
	cmd := &cobra.Command{Use: "ui", Short: "Print the address of the page that shows the cloud, or open it", Args: arguments(0, 0)}
	open := cmd.Flags().Bool("open", false, "open it in a browser")
	flags.add(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		url, err := flags.url()
		if err == nil {
			err = explain(url, remote.New(url).Ready(cmd.Context()))
		}
		if err == nil {
			_, err = fmt.Fprintln(cmd.OutOrStdout(), url)
		}
		if err == nil && *open {
			opener, ok := openers[runtime.GOOS]
			if !ok {
				opener = []string{"xdg-open"}
			}
			if err = exec.CommandContext(cmd.Context(), opener[0], append(opener[1:], url)...).Run(); err != nil {
				err = fmt.Errorf("--open: %w; open the address by hand", err)
			}
		}
		return named(cmd, err)
	}
	return cmd
}
