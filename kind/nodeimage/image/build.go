package image

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/ccm-from-scratch/ccm-from-scratch/kind/nodeimage/job"
)

// nodePackages are the Debian packages of a node: those of kind's own image (see the package comment for what is left out),
// and runc, which kind builds, with socat for `kubectl port-forward` and openssl for a person.
var nodePackages = []string{
	"systemd", "conntrack", "iptables", "nftables", "iproute2", "ethtool", "util-linux", "mount", "kmod", "libseccomp2",
	"pigz", "e2fsprogs", "bash", "ca-certificates", "curl", "jq", "procps", "runc", "socat", "openssl",
}

// agnhostPackages are the Debian packages whose programs Kubernetes' specs run in containers of agnhost.
var agnhostPackages = []string{"bash", "bind9-dnsutils", "curl", "iproute2", "netcat-openbsd", "procps", "socat", "wget"}

// agnhostProgram is the package of agnhost, a tool of modules/kubernetes.
const agnhostProgram = "k8s.io/kubernetes/test/images/agnhost"

// build makes one image in the folder work, of which Docker sees the folder context.
type build struct {
	Options
	work string
}

func (b *build) context(name string) string { return filepath.Join(b.work, "context", name) }

func (b *build) module(name string) string { return filepath.Join(b.folder(), "modules", name) }

// image builds the image that the folder from has the Dockerfile of. Debian is installed while fill puts what else the
// Dockerfile wants into the context: one mostly waits for downloads, the other for the processor. The first error ends both.
func (b *build) image(ctx context.Context, tag, from string, packages []string, fill func(context.Context) error) error {
	if err := os.CopyFS(b.context(""), os.DirFS(filepath.Join(b.folder(), from))); err != nil {
		return err
	}
	both, bothCtx := errgroup.WithContext(ctx)
	both.Go(func() error { return b.debian(bothCtx, packages) })
	both.Go(func() error { return fill(bothCtx) })
	if err := both.Wait(); err != nil {
		return err
	}
	return b.Progress.Step("putting the image together", func() error {
		cmd := exec.CommandContext(ctx, "docker", "build", "--network=none", "--tag="+tag, b.context(""))
		cmd.Env = append(os.Environ(), "BUILDX_BUILDER=default") // another builder would keep the image to itself
		err := job.Run(cmd, nil)
		// A builder without BuildKit leaves the parts behind.
		return errors.Join(err, job.Command(ctx, "docker", "image", "prune", "--force", "--filter=label="+labelKey+"=part"))
	})
}

// fillNode puts kind's files and the programs of a node into the context.
func (b *build) fillNode(ctx context.Context) error {
	kind, err := findKind(ctx, b.Root)
	if err != nil {
		return err
	}
	if err := os.CopyFS(b.context("kind"), os.DirFS(filepath.Join(kind.Dir, "images", "base", "files"))); err != nil {
		return fmt.Errorf("kind's files: %w", err)
	}
	if err := os.Mkdir(b.context("programs"), 0o755); err != nil {
		return err
	}
	if err := os.Link(filepath.Join(b.kubernetes.Dir, "kubernetes"), b.context("programs/kubernetes")); err != nil {
		return err
	}
	versions, err := b.list(ctx, "node", "-m", "-f={{.Version}}", "github.com/containerd/containerd/v2", "sigs.k8s.io/cri-tools")
	if err != nil {
		return err
	}
	containerd, crictl, _ := strings.Cut(versions, "\n")
	return b.compile(ctx, "node", "programs", "containerd "+containerd+", CoreDNS and the other programs of a node",
		// Without snapshotters that kind does not use, as in kind's own build.
		"-tags=no_aufs,no_zfs,no_btrfs,no_devmapper", "-ldflags=-s -w"+
			" -X github.com/containerd/containerd/v2/version.Version="+strings.TrimPrefix(containerd, "v")+
			" -X sigs.k8s.io/cri-tools/pkg/version.Version="+crictl, "tool", "./...")
}

// fillAgnhost puts agnhost and its certificate into the context.
func (b *build) fillAgnhost(ctx context.Context) error {
	if err := b.compile(ctx, "kubernetes", "agnhost", "agnhost", "-ldflags=-s -w", agnhostProgram); err != nil {
		return err
	}
	source, err := b.list(ctx, "kubernetes", "-f={{.Dir}}", agnhostProgram)
	if err != nil {
		return err
	}
	for _, name := range []string{"localhost.crt", "localhost.key"} {
		data, err := os.ReadFile(filepath.Join(source, "porter", name))
		if err != nil {
			return err
		}
		if err := os.WriteFile(b.context(name), data, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// compile builds programs of a nested module into the context: several into a folder, one into a file. They are built
// without -trimpath: so Go compiles the standard library once for them and for the other programs of this repository.
func (b *build) compile(ctx context.Context, module, to, what string, args ...string) error {
	return b.Progress.Go(ctx, b.Root, b.module(module), "compiling "+what, "linux", runtime.GOARCH,
		append([]string{"build", "-v", "-mod=readonly", "-buildvcs=false", "-o", b.context(to)}, args...)...)
}

// list returns what `go list` prints in a nested module.
func (b *build) list(ctx context.Context, module string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", append([]string{"list"}, args...)...)
	out, err := output(cmd, b.module(module), "GOWORK=off")
	return strings.TrimSpace(string(out)), err
}

// output returns what a go command prints in a folder.
func output(cmd *exec.Cmd, dir, workspace string) ([]byte, error) {
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOFLAGS=", workspace)
	var out bytes.Buffer
	cmd.Stdout = &out
	err := job.Run(cmd, nil)
	return out.Bytes(), err
}

// kindModule is the Go module of kind that makes the clusters.
type kindModule struct{ Version, Dir string }

// findKind asks the go command for kind's module, and downloads it if need be.
func findKind(ctx context.Context, root string) (kindModule, error) {
	cmd := exec.CommandContext(ctx, "go", "mod", "download", "-json", "sigs.k8s.io/kind")
	out, err := output(cmd, root, "GOWORK=")
	if err != nil {
		return kindModule{}, fmt.Errorf("finding kind's module: %w", err)
	}
	var found kindModule
	if err := json.Unmarshal(out, &found); err != nil || found.Version == "" || found.Dir == "" {
		return kindModule{}, fmt.Errorf("finding kind's module: the go command said %q, %w", out, err)
	}
	return found, nil
}
