package kubebin

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// program is the file name of the multi-call program in the cache.
const program = "kubernetes"

// stopGrace is how long a cancelled go command may take to end by itself, with
// its compilers, before it is killed.
const stopGrace = 5 * time.Second

// goCommand prepares a go command that runs in the nested module, undisturbed by
// the caller's settings for other modules, and ends with all its children when
// ctx does.
func goCommand(ctx context.Context, dir string, platform Platform, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(),
		"CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off", "GO111MODULE=on",
		"GOOS="+platform.OS, "GOARCH="+platform.Arch)
	// A group of its own: a terminal's Ctrl-C reaches us alone, and we stop the
	// go command together with the compilers and the linker that it started.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) }
	cmd.WaitDelay = stopGrace
	return cmd
}

// runGo runs a go command; what it says on standard error goes to progress.
func runGo(cmd *exec.Cmd, progress *progress) error {
	cmd.Stderr = progress
	err := cmd.Run()
	if cmd.Process != nil {
		// Whatever outlived the go command, after a cancellation or a crash.
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	}
	return err
}

// goVersion asks the go command in dir which release it is, as "go1.26.8"; a
// go.mod there may have switched it to another toolchain.
func goVersion(ctx context.Context, dir string) (string, error) {
	cmd := goCommand(ctx, dir, Host(), "env", "GOVERSION")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if errors.Is(err, exec.ErrNotFound) {
		return "", fmt.Errorf("building Kubernetes needs Go: %w", err)
	}
	if err != nil {
		return "", fmt.Errorf("asking for Go's version: %w: %s", err, bytes.TrimSpace(stderr.Bytes()))
	}
	return strings.TrimSpace(string(out)), nil
}

// build compiles the program into dir and links the commands' names to it.
func (o Options) build(ctx context.Context, dir string, progress *progress) error {
	progress.say("Building Kubernetes %s with etcd %s for %s from source, once: 4 to 6 minutes on 2 cores if nothing is cached, 20 seconds if all is.",
		o.Source.Kubernetes, o.Source.Etcd, o.Platform)
	err := progress.during(func() error {
		var packages bytes.Buffer
		// Downloads what is missing, and says how much there is to compile.
		list := goCommand(ctx, o.Source.Dir, o.Platform, "list", "-mod=readonly", "-deps", ".")
		list.Stdout = &packages
		if err := runGo(list, progress); err != nil {
			return err
		}
		total, err := countLines(&packages)
		if err != nil {
			return err
		}
		progress.setTotal(total)
		args := append([]string{"build", "-v", "-o", filepath.Join(dir, program)}, o.Source.buildFlags()...)
		return runGo(goCommand(ctx, o.Source.Dir, o.Platform, append(args, ".")...), progress)
	})
	if ctx.Err() != nil {
		return fmt.Errorf("building Kubernetes %s was stopped: %w; what is compiled stays in Go's build cache", o.Source.Kubernetes, ctx.Err())
	}
	if err != nil {
		return fmt.Errorf("building Kubernetes %s: %w\n%s", o.Source.Kubernetes, err, progress.complaint())
	}
	for _, name := range o.Platform.Commands() {
		if err := os.Symlink(program, filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return nil
}
