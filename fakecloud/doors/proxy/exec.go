package proxy

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
)

// Exec runs a command, passes the signals of this process on to it, and returns an exit status: that of the command; 128 and the number of
// the signal that has ended it; with an error, 127 if there is no such command, and 126 if it cannot run. A signal that a terminal sends to
// its foreground is not passed on: the command has it already.
func Exec(cmd *exec.Cmd) (status int, err error) {
	signals := make(chan os.Signal, 16)
	for _, s := range passedOn {
		if !signal.Ignored(s) { // as nohup has it ignored, for the command, too
			signal.Notify(signals, s)
		}
	}
	if err := cmd.Start(); err != nil {
		signal.Stop(signals)
		if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
			return 127, err
		}
		return 126, err
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for s := range signals {
			if !ofTerminal(s) {
				_ = cmd.Process.Signal(s)
			}
		}
	}()
	err = cmd.Wait()
	signal.Stop(signals)
	close(signals)
	<-ended
	exit, ok := errors.AsType[*exec.ExitError](err)
	if !ok {
		return 0, err
	}
	if s, ok := exit.Sys().(syscall.WaitStatus); ok && s.Signaled() {
		return 128 + int(s.Signal()), nil
	}
	return exit.ExitCode(), nil
}
