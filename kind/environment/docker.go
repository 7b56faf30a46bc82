package environment

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
)

// docker runs a docker command and returns what it printed. An error holds what
// it said.
func docker(ctx context.Context, args ...string) (string, error) {
	return run(ctx, nil, "docker", args...)
}

// run runs a program and returns what it printed.
func run(ctx context.Context, stdin io.Reader, program string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", program, args[0], errors.Join(err, ctx.Err()), strings.TrimSpace(stderr.String()))
	}
	return strings.TrimSpace(stdout.String()), nil
}
