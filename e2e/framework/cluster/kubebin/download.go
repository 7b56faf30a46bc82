package kubebin

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/yaml"
)

// releaseURL is where Kubernetes publishes each program of a release on its own,
// with its SHA-256 sum beside it: <url>/<release>/bin/<os>/<arch>/<program>.
const releaseURL = "https://dl.k8s.io"

// maxDownload bounds what one answer may hold: archives are about 120 MB.
const maxDownload = 1 << 30

// downloader gets programs that others built. The addresses are fields so that a
// test can point them at a server of its own.
type downloader struct {
	client   *http.Client
	index    string // envtest's list of archives
	releases string
}

func newDownloader() downloader {
	return downloader{client: http.DefaultClient, index: envtest.DefaultBinaryAssetsIndexURL, releases: releaseURL}
}

// envtestIndex is the format of envtest's list of archives.
type envtestIndex struct {
	Releases map[string]map[string]struct {
		Hash     string `json:"hash"` // SHA-512, hexadecimal
		SelfLink string `json:"selfLink"`
	} `json:"releases"`
}

// fetch puts etcd, kube-apiserver, kubectl and kube-controller-manager into dir.
//
// envtest's archives hold the first three. Kubernetes publishes the controller
// manager for Linux only; elsewhere it is built, which takes most of the time
// that building everything takes, so there downloading gains little.
func (d downloader) fetch(ctx context.Context, o Options, dir string, progress *progress) error {
	version := o.Source.Kubernetes
	progress.say("Downloading Kubernetes %s for %s.", version, o.Platform)
	raw, err := d.get(ctx, d.index, nil, "")
	if err != nil {
		return err
	}
	var index envtestIndex
	if err := yaml.Unmarshal(raw, &index); err != nil {
		return fmt.Errorf("reading envtest's list of archives %s: %w", d.index, err)
	}
	name := fmt.Sprintf("envtest-%s-%s-%s.tar.gz", version, o.Platform.OS, o.Platform.Arch)
	archive, ok := index.Releases[version][name]
	if !ok {
		return fmt.Errorf("envtest publishes no archive %s; build instead (without --download)", name)
	}
	packed, err := d.get(ctx, archive.SelfLink, sha512.New(), archive.Hash)
	if err != nil {
		return err
	}
	if err := unpack(packed, dir, "etcd", "kube-apiserver", "kubectl"); err != nil {
		return fmt.Errorf("unpacking %s: %w", archive.SelfLink, err)
	}
	if o.Platform.OS != "linux" {
		return o.buildControllerManager(ctx, dir, progress)
	}
	url := fmt.Sprintf("%s/%s/bin/%s/%s/kube-controller-manager", d.releases, version, o.Platform.OS, o.Platform.Arch)
	sum, err := d.get(ctx, url+".sha256", nil, "")
	if err != nil {
		return err
	}
	data, err := d.get(ctx, url, sha256.New(), strings.TrimSpace(string(sum)))
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "kube-controller-manager"), data, 0o755)
}

// buildControllerManager compiles the one program alone.
func (o Options) buildControllerManager(ctx context.Context, dir string, progress *progress) error {
	progress.say("There is no kube-controller-manager for %s to download; building it takes some minutes.", o.Platform)
	args := append([]string{"build", "-v", "-o", filepath.Join(dir, "kube-controller-manager")}, o.Source.buildFlags()...)
	err := progress.during(func() error {
		return runGo(goCommand(ctx, o.Source.Dir, o.Platform, append(args, kubernetesModule+"/cmd/kube-controller-manager")...), progress)
	})
	if err != nil {
		return fmt.Errorf("building kube-controller-manager: %w\n%s", err, progress.complaint())
	}
	return nil
}

// get returns what url holds. With a hash, the body's sum must be want.
func (d downloader) get(ctx context.Context, url string, sum hash.Hash, want string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	resp, err := d.client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("%w; where the internet is out of reach, build instead (without --download)", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("GET %s: %s", url, resp.Status)
	}
	body, err := io.ReadAll(http.MaxBytesReader(nil, resp.Body, maxDownload))
	if err != nil {
		return nil, fmt.Errorf("GET %s: %w", url, err)
	}
	if sum == nil {
		return body, nil
	}
	sum.Write(body)
	if got := hex.EncodeToString(sum.Sum(nil)); !strings.EqualFold(got, want) {
		return nil, fmt.Errorf("GET %s: its checksum is %s, it must be %s", url, got, want)
	}
	return body, nil
}

// unpack writes the named files of a tar.gz archive to dir, wherever in the
// archive they lie, as executables. All of them must be there.
func unpack(archive []byte, dir string, names ...string) error {
	unzipped, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		return err
	}
	missing := slices.Clone(names)
	for files := tar.NewReader(unzipped); ; {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		name := path.Base(header.Name)
		at := slices.Index(missing, name)
		if header.Typeflag != tar.TypeReg || at < 0 {
			continue
		}
		data, err := io.ReadAll(files)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o755); err != nil {
			return err
		}
		missing = slices.Delete(missing, at, at+1)
	}
	if len(missing) > 0 {
		return fmt.Errorf("it has no %s", strings.Join(missing, ", "))
	}
	return nil
}
