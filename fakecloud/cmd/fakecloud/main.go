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
	stop()
	if status, ok := errors.AsType[exitStatus](err); ok {
		os.Exit(int(status))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "fakecloud:", err)
		os.Exit(exitStatus(err))
	}
}
