package kubernetes

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/ccm-from-scratch/ccm-from-scratch/kind/nodeimage/job"
)

// program is the file name of the multi-call program in the cache.
const program = "kubernetes"

// goVersion asks the go command in dir which release it is, such as "go1.26.8"; a
// go.mod there may have switched it to another toolchain.
func goVersion(ctx context.Context, dir string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", "env", "GOVERSION")
	cmd.Dir, cmd.Env = dir, job.GoEnv(Host().OS, Host().Arch)
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
func (o Options) build(ctx context.Context, dir string) error {
	name := fmt.Sprintf("compiling Kubernetes %s with etcd %s for %s (5 to 15 minutes on 2 cores, the first time)",
		o.Source.Kubernetes, o.Source.Etcd, o.Platform)
	args := append([]string{"build", "-v", "-o", filepath.Join(dir, program)}, o.Source.buildFlags()...)
	if err := o.Progress.Go(ctx, o.Root, o.Source.Dir, name, o.Platform.OS, o.Platform.Arch, append(args, ".")...); err != nil {
		return errors.Join(err, ctx.Err())
	}
	for _, name := range o.Platform.Commands() {
		if err := os.Symlink(program, filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return nil
}
