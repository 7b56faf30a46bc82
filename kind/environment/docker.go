package environment

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strings"
)

// docker runs a docker command and returns its output. An error includes that.
func docker(ctx context.Context, args ...string) (string, error) {
	return run(ctx, "docker", args...)
}

// The states of a container.
const (
	absent  = "absent"
	running = "running"
	stopped = "stopped"
)

// containerState returns whether there is a container of the name, and whether it runs.
func containerState(ctx context.Context, name string) (string, error) {
	out, err := docker(ctx, "ps", "--all", "--filter", "name=^"+name+"$", "--format", "{{.State}}")
	switch {
	case err != nil:
		return "", err
	case out == "":
		return absent, nil
	case out == running:
		return running, nil
	}
	return stopped, nil
}

// run runs a program and returns its output.
func run(ctx context.Context, program string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return "", fmt.Errorf("%s %s: %w", program, args[0], ctx.Err())
		}
		return "", fmt.Errorf("%s %s: %w: %s", program, args[0], err, strings.TrimSpace(stderr.String()))
	}
	return strings.TrimSpace(stdout.String()), nil
}
