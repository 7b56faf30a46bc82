// Package build compiles programs of this repository and shows the progress. It runs kind/nodeimage, which builds what a host
// cannot pull, and scripts/image, which makes images of this module's programs.
package build

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Module is the path of this module, by which its packages are found from any of its folders.
const Module = "github.com/ccm-from-scratch/ccm-from-scratch"

// EnvPrograms is the environment variable, known from controller-runtime's envtest, that names a folder with a control
// plane's programs.
const EnvPrograms = "KUBEBUILDER_ASSETS"

// ErrNotBuilt says that a control plane's programs would have to be downloaded or built, which takes minutes.
var ErrNotBuilt = errors.New("the control plane's programs are not there yet: `make kubernetes` downloads or builds them")

// NodeImage has Docker take an image for kind's nodes that is built from source, and returns its name. The first time
// takes about ten minutes. Progress is shown on out, unless that is nil.
func NodeImage(ctx context.Context, out io.Writer) (string, error) {
	return nodeimage(ctx, out, "image")
}

// Kubernetes returns the folder with the programs of a control plane: the one that EnvPrograms names, else one that is
// downloaded or built, which takes minutes the first time. Progress is shown on out, unless that is nil.
func Kubernetes(ctx context.Context, out io.Writer) (string, error) {
	if given := os.Getenv(EnvPrograms); given != "" {
		return given, nil // scripts/e2e.sh has it checked
	}
	return nodeimage(ctx, out, "kubernetes")
}

// CachedKubernetes is Kubernetes, but returns ErrNotBuilt instead of downloading or building.
func CachedKubernetes(ctx context.Context) (string, error) {
	if given := os.Getenv(EnvPrograms); given != "" {
		return given, nil
	}
	dir, err := nodeimage(ctx, nil, "kubernetes", "--check")
	if err == nil && dir == "" {
		return "", ErrNotBuilt
	}
	return dir, err
}

// nodeimage runs the program in kind/nodeimage and returns what it prints.
func nodeimage(ctx context.Context, out io.Writer, args ...string) (string, error) {
	root, err := Root(ctx)
	if err != nil {
		return "", err
	}
	return Run(ctx, out, filepath.Join(root, "scripts", "gorun.sh"), append([]string{"kind/nodeimage"}, args...)...)
}

// Go runs a go command that compiles. It shows the progress on out; the argument what says what is compiled.
func Go(ctx context.Context, out io.Writer, what string, args ...string) (string, error) {
	root, err := Root(ctx)
	if err != nil {
		return "", err
	}
	return Run(ctx, out, filepath.Join(root, "scripts", "progress.sh"), append([]string{what, "go"}, args...)...)
}

// Root returns the folder of this module's checkout, which must be around the working directory.
func Root(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", Module).Output()
	if err != nil {
		return "", fmt.Errorf("%s is not found: run this in a folder of its checkout: %w", Module, errors.Join(err, ctx.Err()))
	}
	return strings.TrimSpace(string(out)), nil
}

// stopGrace is how long a program has to end when its context does.
const stopGrace = 10 * time.Second

// Run runs a program in a process group of its own, which ends with the context, and returns its standard output. Its
// standard error goes to out or, if that is nil, into the error.
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
		return "", fmt.Errorf("%s %s: %w: %s", filepath.Base(program), args[0], errors.Join(err, ctx.Err()),
			cmp.Or(strings.TrimSpace(stderr.String()), "its output is above"))
	}
	return strings.TrimSpace(stdout.String()), nil
}
