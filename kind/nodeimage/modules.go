package nodeimage

import (
	"bytes"
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

	"golang.org/x/mod/modfile"
)

// module is a nested module below modules/ that programs are built from. Their
// go.mod pins them exactly; the packages to build are its tools, as go.mod
// names them, or its own.
type module struct {
	dir      string
	requires string   // path of the module whose version matters to a person
	packages []string // for go build; "tool" is Go's name of all tools of go.mod
	tags     string
	version  string // variable that the program keeps its version in
	versionV bool   // with the "v" in front
}

var modules = []module{
	{dir: "cni", requires: "github.com/containernetworking/plugins", packages: []string{"tool"}},
	{
		dir: "containerd", requires: "github.com/containerd/containerd/v2", packages: []string{"tool", "./preload"},
		// Snapshotters that kind does not use, as in kind's own build.
		tags: "no_aufs,no_zfs,no_btrfs,no_devmapper", version: "github.com/containerd/containerd/v2/version.Version",
	},
	{dir: "coredns", requires: "github.com/coredns/coredns", packages: []string{"."}},
	{
		dir: "crictl", requires: "sigs.k8s.io/cri-tools", packages: []string{"tool"},
		version: "sigs.k8s.io/cri-tools/pkg/version.Version", versionV: true,
	},
}

// pinned returns the version that the module's go.mod, in folder root, pins.
func (m module) pinned(root string) (string, error) {
	path := filepath.Join(root, m.dir, "go.mod")
	data, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	file, err := modfile.Parse(path, data, nil)
	if err != nil {
		return "", err
	}
	for _, r := range file.Require {
		if r.Mod.Path == m.requires {
			return r.Mod.Version, nil
		}
	}
	return "", fmt.Errorf("%s does not require %s", path, m.requires)
}

// args returns the arguments of the go command that builds the module's programs
// into dir, static and reproducible.
func (m module) args(version, dir string) []string {
	linker := "-s -w"
	if m.version != "" {
		if !m.versionV {
			version = strings.TrimPrefix(version, "v")
		}
		linker += " -X " + m.version + "=" + version
	}
	args := []string{"build", "-mod=readonly", "-trimpath", "-buildvcs=false", "-tags=" + m.tags, "-ldflags=" + linker,
		"-o", dir + string(filepath.Separator)}
	return append(args, m.packages...)
}

// build builds the module's programs into dir.
func (m module) build(ctx context.Context, root, arch, dir string) error {
	version, err := m.pinned(root)
	if err != nil {
		return err
	}
	return goBuild(ctx, filepath.Join(root, m.dir), arch, m.args(version, dir)...)
}

// goBuild runs a go command in a folder, undisturbed by settings that are meant
// for other modules, for Linux on arch.
func goBuild(ctx context.Context, dir, arch string, args ...string) error {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off", "GOOS=linux", "GOARCH="+arch)
	return run(cmd)
}

// stopGrace is how long a cancelled program has to end by itself.
const stopGrace = 2 * time.Second

// run runs a command; if it fails, the error holds the end of what it said. When
// the command's context ends, so do all processes that it started: compilers, or
// debootstrap's chroots.
func run(cmd *exec.Cmd) error {
	said := &tail{limit: 4 << 10}
	if cmd.Cancel != nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
		cmd.WaitDelay = stopGrace
		defer func() {
			if cmd.Process != nil {
				_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
			}
		}()
	}
	cmd.Stderr = said
	if cmd.Stdout == nil {
		cmd.Stdout = said
	}
	err := cmd.Run()
	if errors.Is(err, exec.ErrNotFound) {
		return fmt.Errorf("building a node image needs %s: %w", filepath.Base(cmd.Path), err)
	}
	if err != nil {
		return fmt.Errorf("%s %s: %w\n%s", filepath.Base(cmd.Path), cmd.Args[min(1, len(cmd.Args)-1)], err, bytes.TrimSpace(said.data))
	}
	return nil
}

// tail is a writer that keeps the last limit bytes.
type tail struct {
	limit int
	data  []byte
}

var _ io.Writer = (*tail)(nil)

func (t *tail) Write(data []byte) (int, error) {
	t.data = append(t.data, data...)
	if over := len(t.data) - t.limit; over > 0 {
		t.data = t.data[over:]
	}
	return len(data), nil
}
