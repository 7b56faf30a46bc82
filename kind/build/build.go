// Package build compiles programs of this repository and shows the progress. It runs two other programs: kind/nodeimage builds images and
// programs that a host cannot pull, and scripts/image makes images of this module's programs.
package build

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Module is the path of this module. Its packages are found by it from any of its folders.
const Module = "github.com/ccm-from-scratch/ccm-from-scratch"

// NodeImage has Docker take an image for kind's nodes that is built from source, and returns its name. The first time
// takes about ten minutes. Progress is shown on out, unless that is nil.
func NodeImage(ctx context.Context, out io.Writer) (string, error) {
	root, err := Root(ctx)
	if err != nil {
		return "", err
	}
	return Run(ctx, out, filepath.Join(root, "scripts", "gorun.sh"), "kind/nodeimage", "image")
}

// Go runs a go command that compiles. It shows the progress on out; the argument what names the compiled program.
func Go(ctx context.Context, out io.Writer, what string, args ...string) (string, error) {
	root, err := Root(ctx)
	if err != nil {
		return "", err
	}
	return Run(ctx, out, filepath.Join(root, "scripts", "progress.sh"), append([]string{what, "go"}, args...)...)
}

// Root returns the folder of this module's checkout. The working directory must be in the checkout.
func Root(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", Module).Output()
	if err != nil {
		return "", fmt.Errorf("%s is not found: run this in a folder of its checkout: %w", Module, cmp.Or(ctx.Err(), err))
	}
	return strings.TrimSpace(string(out)), nil
}

// stopGrace is how long a program has to end when its context does.
const stopGrace = 10 * time.Second

// Run runs a program in a new process group, and returns its standard output. The group ends with the context. The program's standard error
// goes to out or, if that is nil, into the error.
func Run(ctx context.Context, out io.Writer, program string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = stopGrace
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if out != nil {
		cmd.Stderr = out
	}
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", filepath.Base(program), args[0], cmp.Or(ctx.Err(), err),
			cmp.Or(strings.TrimSpace(stderr.String()), "its output is above"))
	}
	return strings.TrimSpace(stdout.String()), nil
}
