package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/doors/proxy"
)

// newStartCommand returns the command that runs a server without a terminal.
func newStartCommand(lookup func(string) (string, bool)) *cobra.Command {
	var flags clientFlags
	var s settings
	cmd := &cobra.Command{
		Use:   "start",
		Short: "Start a server in the background, and print the lines for a shell when it is ready",
		Args:  arguments(0, 0),
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		path, err := flags.path()
		if err == nil && s.control == off {
			err = wrongUsage(fmt.Errorf("--control %s: fakecloud start needs the control API; name an address", off))
		}
		var started *server
		if err == nil {
			args, env := givenFlags(cmd.Flags())
			started, err = startServer(cmd.Context(), path, append(args, "--"+backgroundFlag, path), env)
		}
		if err == nil {
			started.warnRealToken(cmd.ErrOrStderr(), lookup, replacedToken)
			err = started.export(cmd.OutOrStdout(), shellPOSIX)
		}
		return named(cmd, err)
	}
	s.add(cmd.Flags())
	flags.addStateFile(cmd)
	return cmd
}

// givenFlags returns the flags of the server that were given, by the command line or by variables. Tokens are in the environment: each
// user of the machine can read a command line.
func givenFlags(f *pflag.FlagSet) (args, env []string) {
	f.Visit(func(f *pflag.Flag) {
		values := []string{f.Value.String()}
		if list, ok := f.Value.(pflag.SliceValue); ok {
			values = list.GetSlice()
		}
		switch f.Name {
		case "state-file":
		case tokenFlag:
			env = append(env, envName(f.Name)+"="+strings.Join(values, listSeparator)+listSeparator)
		default:
			for _, v := range values {
				args = append(args, "--"+f.Name+"="+v)
			}
		}
	})
	return args, env
}

// startServer runs a server in the background until it is ready.
func startServer(ctx context.Context, path string, args, env []string) (*server, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	lock, err := acquire(ctx, path+startLock)
	if err != nil {
		return nil, err
	}
	defer func() { _ = lock.Close() }()
	running, err := readServer(path)
	if err != nil {
		return nil, err
	}
	if running != nil {
		return nil, fmt.Errorf("a server runs already at %s (process %d): fakecloud env prints its settings, fakecloud stop ends it; "+
			"another --state-file and other ports make a second one", running.Endpoint, running.PID)
	}
	// What another process has left must not be taken for the state of the one that gets the lock.
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	if err := run(ctx, logPath(path), args, env); err != nil {
		return nil, err
	}
	running, err = readServer(path)
	if err == nil && running == nil {
		err = fmt.Errorf("the server ended right after its start; its log is %s", logPath(path))
	}
	return running, err
}

// run starts the program with args, and env in addition to the environment. It returns when the program has printed its last line.
func run(ctx context.Context, logFile string, args, env []string) error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	log, err := os.OpenFile(logFile, os.O_CREATE|os.O_TRUNC|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	cmd := exec.CommandContext(context.WithoutCancel(ctx), program, args...) // it outlives this program
	cmd.Stderr, cmd.Env = log, append(os.Environ(), env...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	detach(cmd)
	if err := cmd.Start(); err != nil {
		return err
	}
	// An interrupt ends a server that is not ready yet.
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })
	defer stop()
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), controlLine) {
			return cmd.Process.Release()
		}
	}
	_ = cmd.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if cmd.ProcessState.ExitCode() == usageStatus {
		return wrongUsage(errors.New(lastLine(logFile)))
	}
	return fmt.Errorf("the server ended before it was ready: %s (its log is %s)", lastLine(logFile), logFile)
}

// lastLine returns the last line of a log, which is the error of a program that has ended.
func lastLine(file string) string {
	log, _ := os.ReadFile(file) // without it, the message has the name of the file
	text := strings.TrimSpace(string(log))
	return strings.TrimPrefix(text[strings.LastIndexByte(text, '\n')+1:], "fakecloud: ")
}

// killAfter is how long fakecloud stop waits. It is longer than a server's stopTimeout.
const killAfter = stopTimeout + 7*time.Second

// newStopCommand returns the command that ends the server of fakecloud start.
func newStopCommand() *cobra.Command {
	var flags clientFlags
	cmd := &cobra.Command{Use: "stop", Short: "Stop the server of fakecloud start, and wait until it has ended", Args: arguments(0, 0)}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return named(cmd, stopServer(cmd.Context(), &flags, cmd.OutOrStdout()))
	}
	flags.addStateFile(cmd)
	return cmd
}

func stopServer(ctx context.Context, flags *clientFlags, out io.Writer) error {
	path, err := flags.path()
	if err != nil {
		return err
	}
	s, err := readServer(path)
	if err != nil {
		return err
	}
	if s == nil {
		_, err := fmt.Fprintln(out, "nothing to stop: no server of fakecloud start runs")
		return err
	}
	process, err := os.FindProcess(s.PID)
	if err != nil {
		return err
	}
	if err := terminate(process); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("process %d: %w", s.PID, err)
	}
	ctx, cancel := context.WithTimeout(ctx, killAfter)
	defer cancel()
	lock, err := acquire(ctx, path+serverLock)
	if err != nil {
		return fmt.Errorf("process %d still runs; kill it: %w", s.PID, err)
	}
	if err := lock.Close(); err != nil {
		return err
	}
	_, err = fmt.Fprintln(out, "stopped")
	return err
}

// newEnvCommand returns the command that prints the lines of fakecloud start again.
func newEnvCommand(lookup func(string) (string, bool)) *cobra.Command {
	var flags clientFlags
	cmd := &cobra.Command{Use: "env", Short: "Print the lines for a shell that fakecloud start has printed", Args: arguments(0, 0)}
	asHetzner := cmd.Flags().Bool("as-hetzner", false, "print those for programs that know only "+proxy.APIHost+"; the --proxy of the "+
		"server of fakecloud start answers them, until it is stopped")
	shell := cmd.Flags().String("shell", shellPOSIX, "`shell` that reads them: sh (also bash, zsh), fish or powershell")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		s, err := flags.server()
		if err == nil && s == nil {
			err = fmt.Errorf("%w; this command knows no other cloud, but fakecloud exec does", errNotStarted)
		}
		if err == nil {
			s.warnRealToken(cmd.ErrOrStderr(), lookup, replacedToken)
			if *asHetzner {
				err = s.exportDoor(cmd.OutOrStdout(), *shell, lookup)
			} else {
				err = s.export(cmd.OutOrStdout(), *shell)
			}
		}
		return named(cmd, err)
	}
	flags.addStateFile(cmd)
	return cmd
}
