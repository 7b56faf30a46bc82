package nodeimage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"k8s.io/utils/clock"
	"sigs.k8s.io/kind/pkg/apis/config/defaults"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/framework/cluster/kubebin"
)

const (
	// repository is the name of built images; the tag is their key.
	repository = "ccm-from-scratch/node"
	// labelKey marks built images, so that old ones can be found.
	labelKey = "ccm-from-scratch.node-image"
	// maxAge is how long an image that nobody asks for is kept in the cache.
	maxAge = 14 * 24 * time.Hour
	// maxKept is how many images are kept: those of the branches that a person
	// switches between. Each is 600 MB in the cache and again in Docker.
	maxKept = 3
	// pullPatience bounds how long a registry may stay silent before an image is
	// built instead. A firewall that drops packets would else cost minutes.
	pullPatience = 5 * time.Minute
)

// Published is kind's own image, with its digest, of the release of kind that
// this repository uses.
const Published = defaults.Image

// Mode says where the image comes from.
type Mode string

// The modes. Any other value is the name of an image to use as it is.
const (
	// Auto takes what is there already, else pulls, else builds.
	Auto Mode = "auto"
	// Pull takes kind's own image or fails.
	Pull Mode = "pull"
	// Build takes an image that is built here or fails.
	Build Mode = "build"
)

// Source says what an image is built from.
type Source struct {
	// Root is the folder of the repository.
	Root string
	// Kubernetes is the folder with the multi-call program that
	// e2e/framework/cluster/kubebin makes, and links to it.
	Kubernetes string
	// Arch is the architecture as GOARCH; empty means the host's. Programs are
	// run while the image is built, so another one needs an emulator.
	Arch string
}

// Options say what Ensure is to do.
type Options struct {
	// Mode, empty for Auto, or the name of an image.
	Mode Mode
	// Kubernetes is Source.Kubernetes; empty means that the program is built, or
	// found built, when it is needed.
	Kubernetes string
	// Root is the folder of the repository; empty means that around the working
	// directory.
	Root string
	// CacheDir keeps images by key; empty means
	// <user's cache>/ccm-from-scratch/node-image.
	CacheDir string
	// Mirror is the address of a Debian mirror; empty means debootstrap's own.
	Mirror string
	// Progress is told what goes on. Nil means nobody.
	Progress io.Writer
	// Clock measures elapsed time. Nil means the real one.
	Clock clock.WithTicker
}

// Ensure returns the name of a node image that Docker has. The first time it may
// take ten minutes; afterwards a second.
func Ensure(ctx context.Context, o Options) (string, error) {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	p := &progress{out: o.Progress, clock: o.Clock}
	if err := command(ctx, "docker", "version"); err != nil {
		return "", fmt.Errorf("no Docker answers: %w", err)
	}
	switch o.Mode {
	case Auto, "":
		return o.auto(ctx, p)
	case Pull:
		return Published, pull(ctx, p)
	case Build:
		return o.built(ctx, p)
	}
	if name := string(o.Mode); !present(ctx, name) {
		return "", fmt.Errorf("there is no image %s in Docker (it was asked for by name; docker pull it, or ask for auto, pull or build)", name)
	}
	return string(o.Mode), nil
}

// auto prefers what costs nothing: kind's own image if Docker has it; a build
// that is cached; a pull; a build.
func (o Options) auto(ctx context.Context, p *progress) (string, error) {
	if present(ctx, Published) {
		return Published, nil
	}
	cached, err := o.anyCached()
	if err != nil {
		return "", err
	}
	if !cached {
		err := pull(ctx, p)
		if err == nil {
			return Published, nil
		}
		if ctx.Err() != nil {
			return "", ctx.Err()
		}
		p.say("kind's own image cannot be pulled, so one is built here: %s", lastLine(err))
	}
	return o.built(ctx, p)
}

// present says whether Docker has the image.
func present(ctx context.Context, name string) bool {
	return command(ctx, "docker", "image", "inspect", name) == nil
}

// pull pulls kind's own image.
func pull(ctx context.Context, p *progress) error {
	if present(ctx, Published) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, pullPatience)
	defer cancel()
	return p.step("pulling "+Published, func() error { return command(ctx, "docker", "pull", "--quiet", Published) })
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

// anyCached says whether any image was ever built here: then building again,
// after a change, is what a person expects, and not half a minute of asking a
// registry that could not be reached last time either.
func (o Options) anyCached() (bool, error) {
	dir, err := o.cacheDir()
	if err != nil {
		return false, err
	}
	found, err := filepath.Glob(filepath.Join(dir, "*", archiveName))
	return len(found) > 0, err
}

// built returns an image that is built from this repository's sources, and
// builds it if nobody has.
func (o Options) built(ctx context.Context, p *progress) (string, error) {
	b, key, err := o.prepare(ctx)
	if err != nil {
		return "", err
	}
	b.progress = p
	tag := repository + ":" + key
	dir := filepath.Join(b.cache, key)
	archive := filepath.Join(dir, archiveName)
	touch := func() { now := o.Clock.Now(); _ = os.Chtimes(dir, now, now) }
	if present(ctx, tag) {
		touch()
		return tag, nil
	}
	unlock, err := lock(ctx, filepath.Join(b.cache, key+".lock"), o.Clock, func() {
		p.say("another process is making this image; waiting for it")
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
		err := p.step("handing the image to Docker", func() error { return command(ctx, "docker", "load", "--quiet", "--input", archive) })
		if err != nil {
			return "", err
		}
	}
	o.prune(ctx, b.cache, key)
	return tag, nil
}

// prepare finds out what is to be built.
func (o Options) prepare(ctx context.Context) (*build, string, error) {
	if o.Root == "" {
		out, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
		gomod := strings.TrimSpace(string(out))
		if err != nil || gomod == "" || gomod == os.DevNull {
			return nil, "", errors.Join(errors.New("building a node image needs a checkout of this repository, and Go"), err)
		}
		o.Root = filepath.Dir(gomod)
	}
	kubernetes, err := o.kubernetes(ctx)
	if err != nil {
		return nil, "", err
	}
	cache, err := o.cacheDir()
	if err != nil {
		return nil, "", err
	}
	s := Source{Root: o.Root, Kubernetes: kubernetes, Arch: runtime.GOARCH}
	b := &build{Source: s, modules: filepath.Join(o.Root, "kind", "nodeimage", "modules"), mirror: o.Mirror, cache: cache, epoch: epoch}
	if b.version, err = kubernetesVersion(ctx, kubernetes); err != nil {
		return nil, "", err
	}
	if b.kind, err = findKind(ctx, o.Root); err != nil {
		return nil, "", err
	}
	key, err := s.key(ctx, b.kind, runtime.Version())
	return b, key, err
}

// kubernetes returns the folder of Kubernetes' program, built if need be.
func (o Options) kubernetes(ctx context.Context) (string, error) {
	if o.Kubernetes != "" {
		return o.Kubernetes, nil
	}
	source, err := kubebin.FindSource(o.Root)
	if err != nil {
		return "", err
	}
	assets, err := kubebin.Ensure(ctx, kubebin.Options{Source: source, Progress: o.Progress, Clock: o.Clock})
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(filepath.Join(assets.Dir, kubernetesProgram)); err != nil {
		return "", fmt.Errorf("a node image needs the program that is built here: %w; unset %s", err, kubebin.EnvAssets)
	}
	return assets.Dir, nil
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

// prune removes built images that nobody has asked for in a long time, or that
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
			_ = command(ctx, "docker", "image", "rm", repository+":"+name)
		}
		_ = os.RemoveAll(filepath.Join(cache, name))
		_ = os.Remove(filepath.Join(cache, name+".lock"))
	}
}

// command runs a program and returns what it said on standard error as an error.
func command(ctx context.Context, name string, args ...string) error {
	return run(exec.CommandContext(ctx, name, args...))
}

// lastLine is the end of an error's text: the part that says what went wrong,
// after the command line and progress of a program.
func lastLine(err error) string {
	text := strings.TrimSpace(err.Error())
	return text[strings.LastIndexByte(text, '\n')+1:]
}

// lock takes the lock that the file at path stands for and returns how to give
// it back; the system does so when the process dies. It calls waiting once if it
// has to wait.
func lock(ctx context.Context, path string, c clock.WithTicker, waiting func()) (func(), error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	ticker := c.NewTicker(time.Second)
	defer ticker.Stop()
	for told := false; ; told = true {
		err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { _ = file.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, errors.Join(err, file.Close())
		}
		if !told {
			waiting()
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), file.Close())
		case <-ticker.C():
		}
	}
}
