// Command fakecloud runs a simulated Hetzner Cloud.
//
//	go run ./fakecloud/cmd/fakecloud
//
// It prints the lines to paste into a shell, so that hcloud, Terraform or a controller use it. It runs until it gets
// SIGINT, SIGTERM or SIGHUP. A second signal ends it at once. fakecloud start runs it in the background; other commands
// look at a running one and steer it.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	signals := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // nohup ignores it
		signals = append(signals, syscall.SIGHUP)
	}
	ctx, stop := signal.NotifyContext(context.Background(), signals...)
	context.AfterFunc(ctx, stop) // the next signal has its usual effect
	err := newCommand(os.LookupEnv, os.Environ()).ExecuteContext(ctx)
	interrupted := ctx.Err() != nil
	stop()
	if err != nil && interrupted && !errors.Is(err, errCommand) {
		fmt.Fprintln(os.Stderr, "fakecloud: interrupted")
		os.Exit(interruptedStatus)
	}
	if err != nil {
		if !errors.Is(err, errSilent) {
			fmt.Fprintln(os.Stderr, "fakecloud:", err)
		}
		os.Exit(exitStatus(err))
	}
}

// Exit statuses other than 1.
const (
	usageStatus       = 2
	interruptedStatus = 130 // as of a program that SIGINT ends
)

// errSilent is an error without a message.
var errSilent = errors.New("failed")

// statusError is an error with the exit status of the program.
type statusError struct {
	error
	status int
}

// Unwrap returns the error.
func (e statusError) Unwrap() error { return e.error }

// exitStatus returns the exit status for an error: 1, unless it has another one.
func exitStatus(err error) int {
	if e, ok := errors.AsType[statusError](err); ok {
		return e.status
	}
	return 1
}
