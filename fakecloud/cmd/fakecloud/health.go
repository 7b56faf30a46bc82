package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/fault"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/remote"
)

// healthTimeout is how long the check waits for an answer.
const healthTimeout = 3 * time.Second

// newHealthCommand returns the command for a container's health check. An image made from scratch has no curl.
func newHealthCommand() *cobra.Command {
	return newClientCommand("health", "Ask the control API whether fakecloud is ready; exit with 0 if it is, else with 1", arguments(0, 0),
		func(cmd *cobra.Command, cloud *remote.Client, _ []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), healthTimeout)
			defer cancel()
			if err := cloud.Ready(ctx); err != nil {
				return err
			}
			_, err := fmt.Fprintln(cmd.OutOrStdout(), "ready")
			return err
		})
}

// newWaitCommand returns the command that waits until the cloud can be used. It looks for the server each time.
func newWaitCommand() *cobra.Command {
	var flags clientFlags
	cmd := &cobra.Command{Use: "wait", Short: "Wait until fakecloud is ready", Args: arguments(0, 0)}
	var timeout fault.Duration
	cmd.Flags().TextVar(&timeout, "timeout", fault.Duration(30*time.Second), "`duration` after which to give up, with exit status 1")
	flags.add(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		ctx, cancel := context.WithTimeout(cmd.Context(), time.Duration(timeout))
		defer cancel()
		for {
			url, err := flags.url()
			if err == nil {
				err = explain(url, remote.New(url).Ready(ctx))
			} else if !errors.Is(err, errNotStarted) {
				return fmt.Errorf("wait: %w", err)
			}
			if err == nil {
				return nil
			}
			select {
			case <-ctx.Done():
				return fmt.Errorf("wait: not ready after %v: %w", time.Duration(timeout), err)
			case <-time.After(pollInterval):
			}
		}
	}
	return cmd
}
