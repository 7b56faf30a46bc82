package release

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/random"
)

// published is a release with one image and two charts, and a registry for it. cosign and gh only write down how they are called.
type published struct {
	folder, files, registry, calls string
	digest                         string // of the image
}

func newPublished(t *testing.T) *published {
	t.Helper()
	folder := repository(t, changelog, "v1.2.3", "v1.2.3")
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	p := &published{
		folder: folder, files: filepath.Join(folder, "out/release/v1.2.3"), calls: filepath.Join(t.TempDir(), "calls"),
		registry: strings.TrimPrefix(server.URL, "http://"),
	}
	if err := os.MkdirAll(p.files, 0o700); err != nil {
		t.Fatal(err)
	}
	var image []byte
	image, p.digest = imageLayout(t)
	var sums strings.Builder
	for name, data := range map[string][]byte{
		"fakecloud.tar": image, "NOTES.md": []byte("- something\n"),
		"ccm-from-scratch-1.2.3.tgz": chart("ccm-from-scratch"), "fakecloud-1.2.3.tgz": chart("fakecloud"),
	} {
		write(t, filepath.Join(p.files, name), data)
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(data), name)
	}
	write(t, filepath.Join(p.files, "SHA256SUMS"), []byte(sums.String()))
	return p
}

func write(t *testing.T, name string, data []byte) {
	t.Helper()
	if err := os.WriteFile(name, data, 0o700); err != nil {
		t.Fatal(err)
	}
}

// publish runs the script. It returns all that it prints, and the calls of cosign and gh.
func (p *published) publish(t *testing.T, args ...string) (out string, calls []string, err error) {
	t.Helper()
	bin := t.TempDir()
	write(t, filepath.Join(bin, "cosign"), []byte("#!/bin/sh\necho cosign \"$@\" >>"+p.calls+"\n"))
	// No release exists yet.
	write(t, filepath.Join(bin, "gh"), []byte("#!/bin/sh\necho gh \"$@\" >>"+p.calls+"\n[ \"$2\" != view ]\n"))
	cmd := exec.CommandContext(t.Context(), filepath.Join(p.folder, "scripts/publish.sh"), append(args, "v1.2.3")...)
	cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "REGISTRY="+p.registry+"/project")
	text, err := cmd.CombinedOutput()
	called, readErr := os.ReadFile(p.calls)
	if readErr != nil && !errors.Is(readErr, os.ErrNotExist) {
		t.Fatal(readErr)
	}
	return string(text), slices.Collect(strings.Lines(string(called))), err
}

// manifest asks the registry for a manifest and returns the answer's status and digest.
func (p *published) manifest(t *testing.T, name, tag string) (status int, digest string) {
	t.Helper()
	resp, err := http.Get("http://" + p.registry + "/v2/project/" + name + "/manifests/" + tag)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	return resp.StatusCode, resp.Header.Get("Docker-Content-Digest")
}

func TestARunPublishesWhatItHasSignedByDigestAndTheReleaseLast(t *testing.T) {
	t.Parallel()
	p := newPublished(t)
	out, calls, err := p.publish(t)
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if status, digest := p.manifest(t, "fakecloud", "v1.2.3"); status != http.StatusOK || digest != p.digest {
		t.Errorf("the image: %d %s, want that of the file: %s", status, digest, p.digest)
	}
	charts := map[string]string{"ccm-from-scratch": "", "fakecloud": ""} // their digests
	for name := range charts {
		status, digest := p.manifest(t, "charts/"+name, "1.2.3")
		if status != http.StatusOK {
			t.Errorf("the chart %s: %d", name, status)
		}
		charts[name] = digest
	}
	want := []string{
		"cosign sign --yes " + p.registry + "/project/fakecloud@" + p.digest,
		"cosign sign --yes " + p.registry + "/project/charts/ccm-from-scratch@" + charts["ccm-from-scratch"],
		"cosign sign --yes " + p.registry + "/project/charts/fakecloud@" + charts["fakecloud"],
		"cosign sign-blob", "gh release view", "gh release create v1.2.3 --draft", "gh release upload v1.2.3",
		"gh release edit v1.2.3 --draft=false",
	}
	if len(calls) != len(want) {
		t.Fatalf("calls:\n%s", strings.Join(calls, ""))
	}
	for i, call := range calls {
		if !strings.HasPrefix(call, want[i]) {
			t.Errorf("call %d: %swant %s", i, call, want[i])
		}
	}
	if upload := calls[6]; !strings.Contains(upload, "SHA256SUMS.sigstore.json") || !strings.Contains(upload, "/fakecloud.tar") {
		t.Errorf("not all files: %s", upload)
	}
}

func TestADryRunPublishesNothing(t *testing.T) {
	t.Parallel()
	p := newPublished(t)
	out, calls, err := p.publish(t, "--dry-run")
	if err != nil || !strings.Contains(out, "+ crane push") || !strings.Contains(out, "nothing was published") {
		t.Errorf("%v: %s", err, out)
	}
	if status, _ := p.manifest(t, "fakecloud", "v1.2.3"); status != http.StatusNotFound || len(calls) > 0 {
		t.Errorf("the image: %d; calls: %q", status, calls)
	}
}

func TestAFileThatHasChangedIsNotPublished(t *testing.T) {
	t.Parallel()
	p := newPublished(t)
	write(t, filepath.Join(p.files, "fakecloud.tar"), []byte("another"))
	out, calls, err := p.publish(t)
	if err == nil || len(calls) > 0 || !strings.Contains(out, "fakecloud.tar: FAILED") {
		t.Errorf("%v: %s; calls: %q", err, out, calls)
	}
}

// imageLayout returns the archive of an OCI layout with one index, as scripts/image.sh makes it, and the digest of that index.
func imageLayout(t *testing.T) (data []byte, digest string) {
	t.Helper()
	folder := t.TempDir()
	whole, err := layout.Write(folder, empty.Index)
	index, err2 := random.Index(10, 1, 1)
	if err = errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	sum, err := index.Digest()
	var buffer bytes.Buffer
	w := tar.NewWriter(&buffer)
	if err = errors.Join(err, whole.AppendIndex(index), w.AddFS(os.DirFS(folder)), w.Close()); err != nil {
		t.Fatal(err)
	}
	return buffer.Bytes(), sum.String()
}

// chart returns the archive of a chart.
func chart(name string) []byte {
	text := "apiVersion: v2\nname: " + name + "\nversion: 1.2.3\n"
	var buffer bytes.Buffer
	zip := gzip.NewWriter(&buffer)
	w := tar.NewWriter(zip)
	_ = w.WriteHeader(&tar.Header{Name: name + "/Chart.yaml", Mode: 0o600, Size: int64(len(text))})
	_, _ = w.Write([]byte(text))
	_, _ = w.Close(), zip.Close()
	return buffer.Bytes()
}
