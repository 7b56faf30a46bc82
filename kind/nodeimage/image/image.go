// Package image builds images where no registry can be reached: from the Go module proxy and Debian's packages alone.
//
// A node's image holds what kind's own holds: a Debian with systemd, kind's entrypoint and units (from kind's module),
// containerd, runc (Debian's), crictl and CNI plugins, kubelet, kubeadm and kubectl, and in containerd's store the images of
// the control plane, kube-proxy, CoreDNS and pause. Nothing in it knows of this project: package kind/cluster puts into
// running nodes what makes them servers of a cloud, whatever image they run.
//
// Every program is compiled from a pinned module below modules/ (Kubernetes and etcd come from modules/kubernetes, the very
// program that the embedded cluster runs). debootstrap makes a file system, which takes root. A Dockerfile puts both together.
//
// Left out, compared with kindest/node: kindnetd (clusters here have no overlay network), the local-path provisioner (the
// default StorageClass provisions nothing), iSCSI and NFS programs, the fuse-overlayfs snapshotter of rootless Docker, other
// architectures than the host's.
package image

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/ccm-from-scratch/ccm-from-scratch/kind/nodeimage/job"
	"github.com/ccm-from-scratch/ccm-from-scratch/kind/nodeimage/kubernetes"
)

const (
	// repository is the name of built images; the tag is their key.
	repository = "ccm-from-scratch/node"
	// labelKey marks built images and their parts.
	labelKey = "ccm-from-scratch.node-image"
	// maxKept is how many images are kept: those of the branches that a person
	// switches between. Each is 600 MB in the cache and again in Docker.
	maxKept = 3
)

// Options say what is built. Root and Progress must be set.
type Options struct {
	// Root is the folder of the repository.
	Root string
	// CacheDir keeps images by key. If empty, it is <user's cache>/ccm-from-scratch/node-image.
	CacheDir string
	// Mirror is the address of a Debian mirror. If empty, it is debootstrap's own.
	Mirror string
	// Progress shows what happens.
	Progress *job.Progress

	kubernetes kubernetes.Assets // found or built, unless a test sets it
}

// folder is where the modules and this package lie in a checkout.
func (o Options) folder() string { return filepath.Join(o.Root, "kind", "nodeimage") }

// EnsureNode returns the name of a node image that Docker has, built from this repository's sources: once, in about ten
// minutes, afterwards in a second.
func EnsureNode(ctx context.Context, o Options) (string, error) {
	if err := job.Command(ctx, "docker", "version"); err != nil {
		return "", fmt.Errorf("no Docker answers; start it: %w", err)
	}
	if o.kubernetes.Dir == "" {
		var err error
		if o.kubernetes, err = kubernetes.Ensure(ctx, kubernetes.Options{Root: o.Root, Build: true, Progress: o.Progress}); err != nil {
			return "", err
		}
	}
	cache, err := o.cacheDir()
	if err != nil {
		return "", err
	}
	kind, err := findKind(ctx, o.Root)
	if err != nil {
		return "", err
	}
	key, err := o.key(kind.Version, runtime.Version())
	if err != nil {
		return "", err
	}
	tag, archive := repository+":"+key, filepath.Join(cache, key+".tar")
	if err := o.ensure(ctx, tag, func(b *build) error {
		if _, err := os.Stat(archive); err == nil {
			return o.Progress.Step("handing the image to Docker", func() error {
				return job.Command(ctx, "docker", "load", "--quiet", "--input", archive)
			})
		}
		if err := b.image(ctx, tag, "node", nodePackages, b.fillNode); err != nil {
			return err
		}
		part := filepath.Join(b.work, "image.tar")
		if err := job.Command(ctx, "docker", "save", "--output", part, tag); err != nil {
			return err
		}
		return os.Rename(part, archive)
	}); err != nil {
		return "", err
	}
	now := o.Progress.Now()
	_ = os.Chtimes(archive, now, now) // when it was asked for last
	prune(ctx, cache)
	return tag, nil
}

// EnsureAgnhost makes sure that Docker has an image of agnhost under the name: the program of the pods in Kubernetes' own specs.
func EnsureAgnhost(ctx context.Context, name string, o Options) error {
	return o.ensure(ctx, name, func(b *build) error { return b.image(ctx, name, "agnhost", agnhostPackages, b.fillAgnhost) })
}

// ensure makes an image unless Docker has it. One process at a time makes images.
func (o Options) ensure(ctx context.Context, tag string, work func(*build) error) (err error) {
	present := func() bool { return job.Command(ctx, "docker", "image", "inspect", tag) == nil }
	if present() {
		return nil
	}
	cache, err := o.cacheDir()
	if err != nil {
		return err
	}
	unlock, err := o.Progress.Lock(ctx, filepath.Join(cache, "lock"), "an image")
	if err != nil {
		return err
	}
	defer unlock()
	if present() {
		return nil
	}
	b := &build{Options: o, work: filepath.Join(cache, "work")}
	remove := func() error { return errors.Join(unmount(b.root()), os.RemoveAll(b.work)) }
	if err := errors.Join(remove(), os.Mkdir(b.work, 0o755)); err != nil { // a killed process leaves it
		return err
	}
	defer func() { err = errors.Join(err, remove()) }()
	if err := work(b); err != nil {
		return fmt.Errorf("building %s: %w", tag, err)
	}
	return nil
}

// cacheDir returns the cache's folder and makes sure that there is one.
func (o Options) cacheDir() (string, error) {
	dir := o.CacheDir
	if dir == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			return "", fmt.Errorf("no place to keep node images: %w", err)
		}
		dir = filepath.Join(user, "ccm-from-scratch", "node-image")
	}
	return dir, os.MkdirAll(dir, 0o755)
}

// key names the image by what decides its content: the sources of the builder, the pinned modules, Kubernetes' programs by
// their own key, kind, Go and the architecture. Debian's packages are those of the day of the build: their names are in the key,
// their versions are not, or every update of Debian would be a new image.
func (o Options) key(kind, goVersion string) (string, error) {
	sum := sha256.New()
	fmt.Fprintln(sum, kind, goVersion, runtime.GOARCH, filepath.Base(o.kubernetes.Dir))
	for _, folder := range []string{"image", "node", "modules/node"} {
		files := os.DirFS(filepath.Join(o.folder(), folder))
		err := fs.WalkDir(files, ".", func(name string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || strings.HasSuffix(name, "_test.go") {
				return err
			}
			data, err := fs.ReadFile(files, name)
			fmt.Fprintf(sum, "%s %d %s", name, len(data), data)
			return err
		})
		if err != nil {
			return "", fmt.Errorf("naming the node image by its content: %w", err)
		}
	}
	return fmt.Sprintf("%s-%x", o.kubernetes.Version, sum.Sum(nil)[:8]), nil
}

// prune removes the node images that others were asked for after, from the cache and from Docker. An image that a container
// uses stays in Docker.
func prune(ctx context.Context, cache string) {
	archives, _ := filepath.Glob(filepath.Join(cache, "v*.tar"))
	used := map[string]time.Time{}
	for _, archive := range archives {
		if info, err := os.Stat(archive); err == nil {
			used[archive] = info.ModTime()
		}
	}
	slices.SortFunc(archives, func(a, b string) int { return used[b].Compare(used[a]) })
	for _, archive := range archives[min(maxKept, len(archives)):] {
		_ = job.Command(ctx, "docker", "image", "rm", repository+":"+strings.TrimSuffix(filepath.Base(archive), ".tar"))
		_ = os.Remove(archive)
	}
}
