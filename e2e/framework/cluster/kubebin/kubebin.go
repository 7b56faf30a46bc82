package kubebin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/semver"
	"k8s.io/utils/clock"
)

// EnvAssets is the environment variable, known from controller-runtime's
// envtest, that names a folder with programs to use instead of building any.
const EnvAssets = "KUBEBUILDER_ASSETS"

// ErrNotCached says that the programs would have to be built or downloaded.
var ErrNotCached = errors.New("the control plane's programs are not built yet")

// Options says where programs come from and go to. The zero value builds for
// the host from the checkout around the working directory, silently.
type Options struct {
	// Source is what is built. The zero value is what FindSource("") finds.
	Source Source
	// CacheDir is the folder that holds a folder per key. Empty means
	// <user's cache>/ccm-from-scratch/kubernetes.
	CacheDir string
	// Platform to build for. Zero means the host's.
	Platform Platform
	// Download gets the programs from their publishers instead of building:
	// envtest's archive for etcd, kube-apiserver and kubectl, and dl.k8s.io for
	// kube-controller-manager. It needs access to github.com and dl.k8s.io.
	Download bool
	// Progress is told what goes on, in words for a person. Nil means nobody.
	Progress io.Writer
	// Live says that Progress is a terminal, whose line may be rewritten.
	Live bool
	// Clock measures elapsed time. Nil means the real one.
	Clock clock.WithTicker
}

// Assets is a set of programs of one release.
type Assets struct {
	// Version is the release of Kubernetes, as "v1.36.3".
	Version string
	// Dir is the folder of the programs. With EnvAssets that is the folder named
	// there, and ControllerManager may lie elsewhere.
	Dir string
	// Paths of the programs that a control plane needs.
	Etcd, APIServer, ControllerManager, Kubectl string
}

func assetsIn(dir, version string) Assets {
	at := func(name string) string { return filepath.Join(dir, name) }
	return Assets{
		Version: version, Dir: dir, Etcd: at("etcd"), APIServer: at("kube-apiserver"),
		ControllerManager: at("kube-controller-manager"), Kubectl: at("kubectl"),
	}
}

// complete fills in what the caller left to be chosen.
func (o Options) complete() (Options, error) {
	var err error
	if o.Source == (Source{}) {
		if o.Source, err = FindSource(""); err != nil {
			return o, err
		}
	}
	if o.CacheDir == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			return o, fmt.Errorf("no place to keep Kubernetes' programs: %w; name one with --cache-dir", err)
		}
		o.CacheDir = filepath.Join(cache, "ccm-from-scratch", "kubernetes")
	}
	if o.Platform == (Platform{}) {
		o.Platform = Host()
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	return o, nil
}

// Cached returns the programs if they are there without building, downloading
// or changing anything. Otherwise the error wraps ErrNotCached.
func Cached(ctx context.Context, options Options) (Assets, error) {
	options, err := options.complete()
	if err != nil {
		return Assets{}, err
	}
	return options.present(ctx)
}

// Ensure returns the programs and makes them first if need be, which takes
// minutes the first time. A second process that asks meanwhile waits for the
// first one's result. Cancelling ctx stops the work and leaves nothing half-made.
func Ensure(ctx context.Context, options Options) (Assets, error) {
	options, err := options.complete()
	if err != nil {
		return Assets{}, err
	}
	assets, err := options.present(ctx)
	if err == nil || !errors.Is(err, ErrNotCached) {
		return assets, err
	}
	key, err := options.key(ctx)
	if err != nil {
		return Assets{}, err
	}
	progress := newProgress(options.Progress, options.Live, options.Clock)
	if err := os.MkdirAll(options.CacheDir, 0o755); err != nil {
		return Assets{}, err
	}
	unlock, err := lock(ctx, filepath.Join(options.CacheDir, key+".lock"), options.Clock, func() {
		progress.say("Another process is making Kubernetes %s; waiting for it.", options.Source.Kubernetes)
	})
	if err != nil {
		return Assets{}, err
	}
	defer unlock()
	if assets, err = options.present(ctx); err == nil || !errors.Is(err, ErrNotCached) {
		return assets, err // made while we waited
	}
	if err := options.make(ctx, key, progress); err != nil {
		return Assets{}, err
	}
	return options.present(ctx)
}

// key is Source.Key for these options; downloaded programs have one of their own.
func (o Options) key(ctx context.Context) (string, error) {
	if o.Download {
		return fmt.Sprintf("%s-downloaded-%s-%s", o.Source.Kubernetes, o.Platform.OS, o.Platform.Arch), nil
	}
	version, err := goVersion(ctx, o.Source.Dir)
	if err != nil {
		return "", err
	}
	return o.Source.Key(version, o.Platform)
}

// present finds programs in EnvAssets or in the cache.
func (o Options) present(ctx context.Context) (Assets, error) {
	key, err := o.key(ctx)
	if err != nil {
		return Assets{}, err
	}
	cached := assetsIn(filepath.Join(o.CacheDir, key), o.Source.Kubernetes)
	if given := os.Getenv(EnvAssets); given != "" && o.Platform == Host() {
		return o.given(ctx, given, cached)
	}
	if err := usable(cached.Etcd, cached.APIServer, cached.ControllerManager, cached.Kubectl); err != nil {
		return Assets{}, fmt.Errorf("%w (%w): `go run ./e2e/framework/cluster/cmd/kubebin` makes them", ErrNotCached, err)
	}
	return cached, nil
}

// given takes the programs from the folder that EnvAssets names. envtest's
// archives have no kube-controller-manager, so that one may come from the cache.
func (o Options) given(ctx context.Context, dir string, cached Assets) (Assets, error) {
	assets := assetsIn(dir, o.Source.Kubernetes)
	if err := usable(assets.Etcd, assets.APIServer, assets.Kubectl); err != nil {
		return Assets{}, fmt.Errorf("%s names a folder without the programs etcd, kube-apiserver and kubectl: %w; unset it to build them", EnvAssets, err)
	}
	version, err := programVersion(ctx, assets.APIServer)
	if err != nil {
		return Assets{}, fmt.Errorf("%s: %w", EnvAssets, err)
	}
	if semver.MajorMinor(version) != semver.MajorMinor(o.Source.Kubernetes) {
		return Assets{}, fmt.Errorf("%s holds Kubernetes %s, this checkout is tested with %s; unset it to build that",
			EnvAssets, version, o.Source.Kubernetes)
	}
	assets.Version = version
	if usable(assets.ControllerManager) == nil {
		return assets, nil
	}
	assets.ControllerManager = cached.ControllerManager
	if err := usable(assets.ControllerManager); err != nil {
		return Assets{}, fmt.Errorf("%w (%s has no kube-controller-manager)", ErrNotCached, EnvAssets)
	}
	return assets, nil
}

// make puts the programs into a temporary folder beside their place, checks
// them, and renames the folder, so that the place has all of them or none.
func (o Options) make(ctx context.Context, key string, progress *progress) (err error) {
	place := filepath.Join(o.CacheDir, key)
	// What a killed process left. We hold the lock of this key: nobody uses it.
	if stale, _ := filepath.Glob(place + ".tmp-*"); stale != nil {
		for _, dir := range stale {
			err = errors.Join(err, os.RemoveAll(dir))
		}
		if err != nil {
			return err
		}
	}
	temporary, err := os.MkdirTemp(o.CacheDir, key+".tmp-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(temporary)) }()
	start := o.Clock.Now()
	if o.Download {
		err = newDownloader().fetch(ctx, o, temporary, progress)
	} else {
		err = o.build(ctx, temporary, progress)
	}
	if err != nil {
		return err
	}
	if o.Platform == Host() {
		if err := verify(ctx, assetsIn(temporary, o.Source.Kubernetes)); err != nil {
			return err
		}
	}
	if err := o.record(temporary, key, start); err != nil {
		return err
	}
	if err := os.RemoveAll(place); err != nil { // incomplete: somebody deleted files in it
		return err
	}
	if err := os.Chmod(temporary, 0o755); err != nil {
		return err
	}
	if err := os.Rename(temporary, place); err != nil {
		return err
	}
	progress.say("Kubernetes %s is ready after %s, in %s", o.Source.Kubernetes,
		o.Clock.Since(start).Round(time.Second), place)
	return nil
}

// record leaves a note for whoever wonders what a folder in the cache is.
func (o Options) record(dir, key string, start time.Time) error {
	note, err := json.MarshalIndent(map[string]any{
		"key": key, "kubernetes": o.Source.Kubernetes, "etcd": o.Source.Etcd, "platform": o.Platform.String(),
		"downloaded": o.Download, "made": start.UTC().Format(time.RFC3339), "seconds": int(o.Clock.Since(start).Seconds()),
	}, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "made.json"), append(note, '\n'), 0o644)
}

// Prune deletes every folder in the cache but the one that Ensure would use with
// these options, and returns the paths that it deleted. It spares what another
// process is making.
func Prune(ctx context.Context, options Options) ([]string, error) {
	options, err := options.complete()
	if err != nil {
		return nil, err
	}
	keep, err := options.key(ctx)
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(options.CacheDir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	var deleted []string
	for _, entry := range entries {
		name := entry.Name()
		key, _, _ := strings.Cut(name, ".tmp-")
		if !entry.IsDir() || key == keep {
			continue
		}
		unlock, free, err := tryLock(filepath.Join(options.CacheDir, key+".lock"))
		if err != nil {
			return deleted, err
		}
		if !free {
			continue
		}
		path := filepath.Join(options.CacheDir, name)
		err = os.RemoveAll(path)
		unlock()
		if err != nil {
			return deleted, err
		}
		deleted = append(deleted, path)
	}
	return deleted, nil
}

// usable returns an error that names the files that are not executable.
func usable(paths ...string) error {
	bad := slices.DeleteFunc(slices.Clone(paths), func(path string) bool {
		info, err := os.Stat(path)
		return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
	})
	if len(bad) > 0 {
		return fmt.Errorf("not an executable file: %s", strings.Join(bad, ", "))
	}
	return nil
}

var versionPattern = regexp.MustCompile(`\bv\d+\.\d+\.\d+\S*`)

// programVersion runs a Kubernetes server program to learn its release.
func programVersion(ctx context.Context, path string) (string, error) {
	out, err := exec.CommandContext(ctx, path, "--version").Output()
	if err != nil {
		return "", fmt.Errorf("%s --version: %w", path, err)
	}
	version := versionPattern.FindString(string(out))
	if version == "" {
		return "", fmt.Errorf("%s --version names no version: %q", path, out)
	}
	return version, nil
}

// verify runs each program of a control plane once.
func verify(ctx context.Context, assets Assets) error {
	for _, path := range []string{assets.APIServer, assets.ControllerManager} {
		version, err := programVersion(ctx, path)
		if err != nil {
			return err
		}
		if version != assets.Version {
			return fmt.Errorf("%s says that it is %s, not %s", filepath.Base(path), version, assets.Version)
		}
	}
	if out, err := exec.CommandContext(ctx, assets.Etcd, "--version").CombinedOutput(); err != nil {
		return fmt.Errorf("etcd --version: %w: %s", err, out)
	}
	if out, err := exec.CommandContext(ctx, assets.Kubectl, "version", "--client").CombinedOutput(); err != nil {
		return fmt.Errorf("kubectl version: %w: %s", err, out)
	}
	return nil
}
