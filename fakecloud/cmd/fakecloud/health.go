package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/spf13/cobra"
)

// healthTimeout is how long the check waits for an answer.
const healthTimeout = 3 * time.Second

// newHealthCommand returns the command for a container's health check. An image made from scratch has no curl.
func newHealthCommand() *cobra.Command {
	var control string
	cmd := &cobra.Command{
		Use:   "health",
		Short: "Ask the control API whether fakecloud is ready; exit with 0 if it is, else with 1",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkHealth(cmd.Context(), control); err != nil {
				return err
			}
			_, err := fmt.Fprintln(cmd.OutOrStdout(), "ready")
			return err
		},
	}
	cmd.Flags().StringVar(&control, "control", "127.0.0.1:4243", "address of the control API, `host:port`")
	return cmd
}

// controlURL returns the URL of the control API at an address of the flag --control.
func controlURL(control string) (string, error) {
	if control == off {
		return "", errors.New("the control API is off; set --control to its address")
	}
	host, port, err := net.SplitHostPort(control)
	if err != nil {
		return "", fmt.Errorf("--control: %w", err)
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return "http://" + net.JoinHostPort(host, port), nil
}

func checkHealth(ctx context.Context, control string) error {
	url, err := controlURL(control)
	if err != nil {
		return fmt.Errorf("health: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/ready", nil)
	if err != nil {
		return fmt.Errorf("health: %w", err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("health: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
		return fmt.Errorf("health: not ready: %s", text)
	}
	return nil
}
