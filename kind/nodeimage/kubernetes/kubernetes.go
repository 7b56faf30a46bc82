package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/semver"

	"github.com/ccm-from-scratch/ccm-from-scratch/kind/nodeimage/job"
)

// EnvAssets is the environment variable, known from controller-runtime's
// envtest, that names a folder with programs to use instead of building any.
const EnvAssets = "KUBEBUILDER_ASSETS"

// ErrNotCached says that the programs would have to be built or downloaded.
var ErrNotCached = errors.New("the control plane's programs are not built yet")

// Options say where programs come from and go to. Root must be set.
type Options struct {
	// Root is the folder of the repository.
	Root string
	// Source is what is built. The zero value is what FindSource finds in Root.
	Source Source
	// CacheDir is the folder that holds a folder per key. If empty, it is <user's cache>/ccm-from-scratch/kubernetes.
	CacheDir string
	// Platform to provide programs for. The zero value is the host's.
	Platform Platform
	// Build asks for programs that are built here, with those that run on nodes.
	Build bool
	// Progress shows what happens. If nil, nothing is shown.
	Progress *job.Progress

	publisher publisher
}

// Assets is a set of programs of one release.
type Assets struct {
	// Version is the release of Kubernetes, such as "v1.37.1".
	Version string
	// Dir is the folder of the programs.
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

// complete sets the defaults.
func (o Options) complete() (Options, error) {
	var err error
	if o.Source == (Source{}) {
		if o.Source, err = FindSource(o.Root); err != nil {
			return o, err
		}
	}
	if o.CacheDir == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			return o, fmt.Errorf("no place to keep Kubernetes' programs: %w", err)
		}
		o.CacheDir = filepath.Join(cache, "ccm-from-scratch", "kubernetes")
	}
	if o.Platform == (Platform{}) {
		o.Platform = Host()
	}
	if o.Progress == nil {
		o.Progress = &job.Progress{}
	}
	if o.publisher == (publisher{}) {
		o.publisher = published
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
	if err := os.MkdirAll(options.CacheDir, 0o755); err != nil {
		return Assets{}, err
	}
	unlock, err := options.Progress.Lock(ctx, filepath.Join(options.CacheDir, key+".lock"), "Kubernetes "+options.Source.Kubernetes)
	if err != nil {
		return Assets{}, err
	}
	defer unlock()
	if assets, err = options.present(ctx); err == nil || !errors.Is(err, ErrNotCached) {
		return assets, err // made while we waited
	}
	if err := options.make(ctx, key); err != nil {
		return Assets{}, err
	}
	return options.present(ctx)
}

// key is Source.Key for these options.
func (o Options) key(ctx context.Context) (string, error) {
	version, err := goVersion(ctx, o.Source.Dir)
	if err != nil {
		return "", err
	}
	return o.Source.Key(version, o.Platform)
}

// downloadedNote is a file in a folder of programs that were downloaded.
const downloadedNote = "downloaded"

// present finds programs in EnvAssets or in the cache.
func (o Options) present(ctx context.Context) (Assets, error) {
	key, err := o.key(ctx)
	if err != nil {
		return Assets{}, err
	}
	cached := assetsIn(filepath.Join(o.CacheDir, key), o.Source.Kubernetes)
	if given := os.Getenv(EnvAssets); given != "" && o.Platform == Host() && !o.Build {
		return o.given(ctx, given)
	}
	if err := usable(cached.Etcd, cached.APIServer, cached.ControllerManager, cached.Kubectl); err != nil {
		return Assets{}, fmt.Errorf("%w (%w): `make kubernetes` makes them", ErrNotCached, err)
	}
	if _, err := os.Stat(filepath.Join(cached.Dir, downloadedNote)); err == nil && o.Build {
		return Assets{}, fmt.Errorf("%w: those that are there were downloaded", ErrNotCached)
	}
	return cached, nil
}

// given takes the programs from the folder that EnvAssets names.
func (o Options) given(ctx context.Context, dir string) (Assets, error) {
	assets := assetsIn(dir, o.Source.Kubernetes)
	if err := usable(assets.Etcd, assets.APIServer, assets.ControllerManager, assets.Kubectl); err != nil {
		return Assets{}, fmt.Errorf("%s names a folder without all of etcd, kube-apiserver, kube-controller-manager and kubectl: %w; "+
			"unset it, and they are downloaded or built", EnvAssets, err)
	}
	version, err := programVersion(ctx, assets.APIServer)
	if err != nil {
		return Assets{}, fmt.Errorf("%s: %w", EnvAssets, err)
	}
	if semver.MajorMinor(version) != semver.MajorMinor(o.Source.Kubernetes) {
		return Assets{}, fmt.Errorf("%s holds Kubernetes %s, this checkout is tested with %s; unset it, and that is downloaded or built",
			EnvAssets, version, o.Source.Kubernetes)
	}
	assets.Version = version
	return assets, nil
}

// make puts the programs into a temporary folder next to their place, checks
// them, and renames the folder, so that the place has all of them or none.
func (o Options) make(ctx context.Context, key string) (err error) {
	place := filepath.Join(o.CacheDir, key)
	// What a killed process left. We hold the lock of this key, so no process uses it.
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
	start := o.Progress.Now()
	if err := o.fill(ctx, temporary); err != nil {
		return err
	}
	if o.Platform == Host() {
		if err := verify(ctx, assetsIn(temporary, o.Source.Kubernetes)); err != nil {
			return err
		}
	}
	if err := os.RemoveAll(place); err != nil { // incomplete, or downloaded where a build is asked for
		return err
	}
	if err := os.Chmod(temporary, 0o755); err != nil {
		return err
	}
	if err := os.Rename(temporary, place); err != nil {
		return err
	}
	o.Progress.Say("Kubernetes %s is ready after %s, in %s", o.Source.Kubernetes,
		o.Progress.Now().Sub(start).Round(time.Second), place)
	return nil
}

// fill puts the programs into dir: downloaded where their publishers can be reached, else built.
func (o Options) fill(ctx context.Context, dir string) error {
	if !o.Build {
		err := o.Progress.Step("downloading Kubernetes "+o.Source.Kubernetes, func() error { return o.publisher.download(ctx, o, dir) })
		if err == nil {
			return os.WriteFile(filepath.Join(dir, downloadedNote), nil, 0o644)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		o.Progress.Say("%s; building from source instead", job.LastLine(err))
	}
	return o.build(ctx, dir)
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
