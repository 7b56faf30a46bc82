package kubernetes

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/tools/setup-envtest/remote"
	"sigs.k8s.io/controller-runtime/tools/setup-envtest/store"
	"sigs.k8s.io/controller-runtime/tools/setup-envtest/versions"
)

// publisher is where programs that others built are. A test has its own.
type publisher struct {
	index    string // envtest's list of archives
	releases string // Kubernetes' releases: <releases>/<version>/bin/<os>/<arch>/<program>, with its sum in .sha256
}

var published = publisher{index: remote.DefaultIndexURL, releases: "https://dl.k8s.io"}

// download puts etcd, kube-apiserver and kubectl of envtest's archive into dir, and kube-controller-manager, which that
// archive does not have, from where Kubernetes publishes it, which is for Linux only.
func (p publisher) download(ctx context.Context, o Options, dir string) error {
	if o.Platform.OS != "linux" {
		return fmt.Errorf("no kube-controller-manager is published for %s", o.Platform.OS)
	}
	spec, err := versions.FromExpr(strings.TrimPrefix(o.Source.Kubernetes, "v"))
	if err != nil {
		return err
	}
	ctx = logr.NewContext(ctx, logr.Discard()) // the library asks for one
	item := store.Item{Version: *spec.AsConcrete(), Platform: versions.Platform{OS: o.Platform.OS, Arch: o.Platform.Arch}}
	platform := versions.PlatformItem{Platform: item.Platform}
	client := &remote.HTTPClient{Log: logr.Discard(), IndexURL: p.index}
	if err := client.FetchSum(ctx, item.Version, &platform); err != nil {
		return err
	}
	archive, err := os.CreateTemp(dir, "archive-")
	if err != nil {
		return err
	}
	defer func() { _ = errors.Join(archive.Close(), os.Remove(archive.Name())) }()
	if err := client.GetVersion(ctx, item.Version, platform, archive); err != nil {
		return err
	}
	if _, err := archive.Seek(0, io.SeekStart); err != nil {
		return err
	}
	kept := store.NewAt(filepath.Join(dir, "envtest"))
	if err := kept.Initialize(ctx); err != nil {
		return err
	}
	if err := kept.Add(ctx, item, archive); err != nil {
		return err
	}
	unpacked, err := kept.Path(item)
	if err != nil {
		return err
	}
	if err := os.Chmod(unpacked, 0o755); err != nil { // the library makes it read-only
		return err
	}
	for _, name := range []string{"etcd", "kube-apiserver", "kubectl"} {
		if err := os.Rename(filepath.Join(unpacked, name), filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return p.controllerManager(ctx, fmt.Sprintf("%s/%s/bin/%s/kube-controller-manager", p.releases, o.Source.Kubernetes, o.Platform), dir)
}

// controllerManager downloads the program, and compares it with its published sum.
func (p publisher) controllerManager(ctx context.Context, url, dir string) error {
	get := func(url string) ([]byte, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return nil, err
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return nil, err
		}
		defer func() { _ = resp.Body.Close() }()
		if resp.StatusCode != http.StatusOK {
			return nil, fmt.Errorf("GET %s: %s", url, resp.Status)
		}
		return io.ReadAll(resp.Body)
	}
	sum, err := get(url + ".sha256")
	if err != nil {
		return err
	}
	data, err := get(url)
	if err != nil {
		return err
	}
	if got := fmt.Sprintf("%x", sha256.Sum256(data)); got != strings.TrimSpace(string(sum)) {
		return fmt.Errorf("GET %s: its checksum is %s, it must be %s", url, got, sum)
	}
	return os.WriteFile(filepath.Join(dir, "kube-controller-manager"), data, 0o755)
}
