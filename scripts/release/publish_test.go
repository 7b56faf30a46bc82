package release

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// published is a release with one image and two charts, and a registry for it. cosign and gh only write down how they are called.
type published struct {
	folder, files, registry, calls string
	digest                         string // of the image
}

func newPublished(t *testing.T) *published {
	t.Helper()
	folder := repository(t, changelog, "v1.2.3", "v1.2.3")
	p := &published{
		folder: folder, files: filepath.Join(folder, "out/release/v1.2.3"), calls: filepath.Join(t.TempDir(), "calls"),
		registry: startRegistry(t),
	}
	if err := os.MkdirAll(p.files, 0o700); err != nil {
		t.Fatal(err)
	}
	var layout []byte
	layout, p.digest = imageLayout()
	chart := func(name string) []byte {
		return gzipped(archive(map[string]string{name + "/Chart.yaml": "apiVersion: v2\nname: " + name + "\nversion: 1.2.3\n"}))
	}
	var sums strings.Builder
	for name, data := range map[string][]byte{
		"fakecloud.tar": layout, "NOTES.md": []byte("- something\n"),
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
	// There is no release yet.
	write(t, filepath.Join(bin, "gh"), []byte("#!/bin/sh\necho gh \"$@\" >>"+p.calls+"\n[ \"$2\" != view ]\n"))
	cmd := exec.CommandContext(t.Context(), filepath.Join(p.folder, "scripts/publish.sh"), append(args, "v1.2.3")...)
	cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "REGISTRY="+p.registry+"/project")
	text, err := cmd.CombinedOutput()
	log, readErr := os.ReadFile(p.calls)
	if readErr != nil && !errors.Is(readErr, os.ErrNotExist) {
		t.Fatal(readErr)
	}
	return string(text), slices.Collect(strings.Lines(string(log))), err
}

// manifest asks the registry for a manifest and returns the answer's status and digest.
func (p *published) manifest(t *testing.T, name, tag string) (status int, digest string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodHead, "http://"+p.registry+"/v2/project/"+name+"/manifests/"+
		tag, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", "*/*")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
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

// startRegistry starts a registry in memory and returns its address.
func startRegistry(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	_ = listener.Close()
	crane, err := exec.CommandContext(t.Context(), "../tool.sh", "crane").Output()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), strings.TrimSpace(string(crane)), "registry", "serve", "--address", address)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	for t.Context().Err() == nil {
		if resp, err := http.Get("http://" + address + "/v2/"); err == nil {
			_ = resp.Body.Close()
			return address
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Fatal("the registry does not answer")
	return ""
}

// imageLayout returns the archive of an OCI layout with one index, as scripts/image.sh makes it, and the digest of that index.
func imageLayout() (data []byte, digest string) {
	blobs := map[string]string{"oci-layout": `{"imageLayoutVersion":"1.0.0"}`}
	add := func(media, text string) string {
		sum := fmt.Sprintf("%x", sha256.Sum256([]byte(text)))
		blobs["blobs/sha256/"+sum] = text
		return fmt.Sprintf(`{"mediaType":"application/vnd.oci.image.%s+json","digest":"sha256:%s","size":%d}`, media, sum, len(text))
	}
	config := add("config.v1", `{"architecture":"amd64","os":"linux","rootfs":{"type":"layers","diff_ids":[]}}`)
	manifest := add("manifest.v1", `{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","config":`+config+
		`,"layers":[]}`)
	index := `{"schemaVersion":2,"mediaType":"application/vnd.oci.image.index.v1+json","manifests":[`
	text := index + manifest + "]}"
	blobs["index.json"] = index + add("index.v1", text) + "]}"
	return archive(blobs), fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(text)))
}

func archive(files map[string]string) []byte {
	var buffer bytes.Buffer
	w := tar.NewWriter(&buffer)
	for name, text := range files {
		_ = w.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: int64(len(text))})
		_, _ = w.Write([]byte(text))
	}
	_ = w.Close()
	return buffer.Bytes()
}

func gzipped(data []byte) []byte {
	var buffer bytes.Buffer
	w := gzip.NewWriter(&buffer)
	_, _ = w.Write(data)
	_ = w.Close()
	return buffer.Bytes()
}
