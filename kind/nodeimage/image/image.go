package image

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"k8s.io/utils/clock"

	"github.com/ccm-from-scratch/ccm-from-scratch/kind/nodeimage/job"
	"github.com/ccm-from-scratch/ccm-from-scratch/kind/nodeimage/kubernetes"
)

const (
	// repository is the name of built images; the tag is their key.
	repository = "ccm-from-scratch/node"
	// labelKey marks built images, so that old ones can be found.
	labelKey = "ccm-from-scratch.node-image"
	// maxAge is how long an image that is not asked for is kept in the cache.
	maxAge = 14 * 24 * time.Hour
	// maxKept is how many images are kept: those of the branches that a person
	// switches between. Each is 600 MB in the cache and again in Docker.
	maxKept = 3
)

// Source says what an image is built from.
type Source struct {
	// Root is the folder of the repository.
	Root string
	// Kubernetes is the folder with the multi-call program that package kubernetes makes, and links to it.
	Kubernetes string
	// Arch is the architecture as GOARCH. Programs are run while the image is built, so another one than the host's
	// needs an emulator.
	Arch string
}

// folder is where the modules and this package lie in a checkout.
func (s Source) folder() string { return filepath.Join(s.Root, "kind", "nodeimage") }

// Options say what Ensure is to do. Root must be set.
type Options struct {
	// Root is the folder of the repository.
	Root string
	// Kubernetes is Source.Kubernetes. If empty, the program is built, or found built, when it is needed.
	Kubernetes string
	// CacheDir keeps images by key. If empty, it is <user's cache>/ccm-from-scratch/node-image.
	CacheDir string
	// Mirror is the address of a Debian mirror. If empty, it is debootstrap's own.
	Mirror string
	// Progress shows what happens. If nil, nothing is shown.
	Progress *job.Progress
	// Clock measures elapsed time. If nil, it is the host's.
	Clock clock.WithTicker
}

// present reports whether Docker has the image.
func present(ctx context.Context, name string) bool {
	return job.Command(ctx, "docker", "image", "inspect", name) == nil
}

// load hands the images of an archive to Docker.
func load(ctx context.Context, p *job.Progress, archive string) error {
	return p.Step("handing the image to Docker", func() error { return job.Command(ctx, "docker", "load", "--quiet", "--input", archive) })
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

// workPrefix begins the name of a build's own folder.
const workPrefix = "work-"

// archiveName is an image in the folder of its key.
const archiveName = "image.tar"

// Ensure returns the name of a node image that Docker has, built from this repository's sources: once, in about ten
// minutes, afterwards in a second.
func Ensure(ctx context.Context, o Options) (string, error) {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.Progress == nil {
		o.Progress = &job.Progress{}
	}
	p := o.Progress
	if err := job.Command(ctx, "docker", "version"); err != nil {
		return "", fmt.Errorf("no Docker answers; start it: %w", err)
	}
	b, key, err := o.prepare(ctx)
	if err != nil {
		return "", err
	}
	tag := repository + ":" + key
	dir := filepath.Join(b.cache, key)
	archive := filepath.Join(dir, archiveName)
	touch := func() { now := o.Clock.Now(); _ = os.Chtimes(dir, now, now) }
	if present(ctx, tag) {
		touch()
		return tag, nil
	}
	unlock, err := job.Lock(ctx, filepath.Join(b.cache, key+".lock"), o.Clock, func() {
		p.Say("another process is making this image; waiting for it (Ctrl-C stops waiting)")
	})
	if err != nil {
		return "", err
	}
	defer unlock()
	if _, err := os.Stat(archive); errors.Is(err, os.ErrNotExist) {
		if err := b.inWorkDir(func() error { return b.make(ctx, tag, archive) }, dir); err != nil {
			return "", fmt.Errorf("building a node image: %w", err)
		}
	} else if err != nil {
		return "", err
	}
	touch()
	if !present(ctx, tag) {
		if err := load(ctx, p, archive); err != nil {
			return "", err
		}
	}
	o.prune(ctx, b.cache, key)
	return tag, nil
}

// prepare finds out what is to be built.
func (o Options) prepare(ctx context.Context) (*build, string, error) {
	programs, err := o.programs(ctx)
	if err != nil {
		return nil, "", err
	}
	b, err := o.build(programs)
	if err != nil {
		return nil, "", err
	}
	if b.version, err = kubernetesVersion(ctx, programs); err != nil {
		return nil, "", err
	}
	if b.kind, err = findKind(ctx, b.folder()); err != nil {
		return nil, "", err
	}
	key, err := b.key(ctx, b.kind, runtime.Version())
	return b, key, err
}

// build returns a build with Kubernetes' program in the folder programs, "" where that is not needed.
func (o Options) build(programs string) (*build, error) {
	cache, err := o.cacheDir()
	s := Source{Root: o.Root, Kubernetes: programs, Arch: runtime.GOARCH}
	return &build{Source: s, modules: filepath.Join(s.folder(), "modules"), mirror: o.Mirror, cache: cache, epoch: epoch,
		progress: o.Progress}, err
}

// programs returns the folder of Kubernetes' program, built if need be.
func (o Options) programs(ctx context.Context) (string, error) {
	if o.Kubernetes != "" {
		return o.Kubernetes, nil
	}
	programs, err := kubernetes.Ensure(ctx, kubernetes.Options{Root: o.Root, Build: true, Progress: o.Progress, Clock: o.Clock})
	return programs.Dir, err
}

// inWorkDir runs work with a folder of its own, which it removes in any case,
// and makes the folder for the result.
func (b *build) inWorkDir(work func() error, result string) (err error) {
	if b.work, err = os.MkdirTemp(b.cache, workPrefix); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(b.work)) }()
	b.programs = filepath.Join(b.work, "programs")
	if err := os.MkdirAll(result, 0o755); err != nil {
		return err
	}
	return work()
}

// prune removes built images that were not asked for in a long time, or that
// are too many, from the cache and from Docker. An image that a container uses
// stays in Docker; what fails is tried again next time.
func (o Options) prune(ctx context.Context, cache, keep string) {
	entries, err := os.ReadDir(cache)
	if err != nil {
		return
	}
	used := map[string]time.Time{} // when each was asked for last
	for _, entry := range entries {
		if info, err := entry.Info(); err == nil && entry.IsDir() && entry.Name() != keep {
			used[entry.Name()] = info.ModTime()
		}
	}
	names := slices.SortedFunc(maps.Keys(used), func(a, b string) int { return used[b].Compare(used[a]) })
	kept := 1 // the one to keep
	for _, name := range names {
		work := strings.HasPrefix(name, workPrefix)
		if o.Clock.Since(used[name]) < maxAge && (work || kept < maxKept) {
			if !work {
				kept++
			}
			continue
		}
		if !work {
			_ = job.Command(ctx, "docker", "image", "rm", repository+":"+name)
		}
		_ = os.RemoveAll(filepath.Join(cache, name))
		_ = os.Remove(filepath.Join(cache, name+".lock"))
	}
}
