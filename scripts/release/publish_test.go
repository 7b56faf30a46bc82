package release

import (
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/random"
)

// files makes the files of a release in a new folder: an image of an OCI layout, as scripts/image.sh makes it, and two charts.
const files = `mkdir -p out/release/v1.2.3 && cd out/release/v1.2.3 && tar -cf fakecloud.tar -C "$0" .
for name in ccm-from-scratch fakecloud; do
	mkdir $name && printf 'apiVersion: v2\nname: %s\nversion: 1.2.3\n' $name >$name/Chart.yaml
	tar -czf $name-1.2.3.tgz $name && rm -r $name
done
echo "- something" >NOTES.md && sha256sum -- * >"$0.sums" && mv "$0.sums" SHA256SUMS`

// programs makes cosign and gh, which only write down how they are called. No release exists yet.
const programs = `printf '#!/bin/sh\necho cosign "$@" >>%s/calls\n' "$PWD" >cosign
printf '#!/bin/sh\necho gh "$@" >>%s/calls\n[ "$2" != view ]\n' "$PWD" >gh && chmod +x cosign gh`

// published is a release with one image and two charts, and a registry for it.
type published struct {
	folder, registry string
	digest           string // of the image
}

func newPublished(t *testing.T) *published {
	t.Helper()
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	p := &published{folder: repository(t, changelog, "v1.2.3", "v1.2.3"), registry: strings.TrimPrefix(server.URL, "http://")}
	image := filepath.Join(t.TempDir(), "image")
	whole, err := layout.Write(image, empty.Index)
	index, err2 := random.Index(10, 1, 1)
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	sum, err := index.Digest()
	if err = errors.Join(err, whole.AppendIndex(index)); err != nil {
		t.Fatal(err)
	}
	p.digest = sum.String()
	must(t, p.folder, files, image)
	return p
}

// publish runs the script. It returns all that it prints, and the calls of cosign and gh.
func (p *published) publish(t *testing.T, args ...string) (out string, calls []string, err error) {
	t.Helper()
	bin := t.TempDir()
	must(t, bin, programs)
	out, err = shell(t, p.folder, `PATH="$0:$PATH" REGISTRY="$1" && shift && export PATH REGISTRY && scripts/publish.sh "$@" v1.2.3`,
		append([]string{bin, p.registry + "/project"}, args...)...)
	called, readErr := os.ReadFile(filepath.Join(bin, "calls"))
	if readErr != nil && !errors.Is(readErr, os.ErrNotExist) {
		t.Fatal(readErr)
	}
	return out, slices.Collect(strings.Lines(string(called))), err
}

// manifest asks the registry for a manifest and returns its digest, or nothing where there is none.
func (p *published) manifest(t *testing.T, name, tag string) (digest string) {
	t.Helper()
	resp, err := http.Get("http://" + p.registry + "/v2/project/" + name + "/manifests/" + tag)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	return resp.Header.Get("Docker-Content-Digest")
}

func TestARunPublishesWhatItHasSignedByDigestAndTheReleaseLast(t *testing.T) {
	t.Parallel()
	p := newPublished(t)
	out, calls, err := p.publish(t)
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if digest := p.manifest(t, "fakecloud", "v1.2.3"); digest != p.digest {
		t.Errorf("the image is %q, want that of the file: %s", digest, p.digest)
	}
	sign := "cosign sign --yes " + p.registry + "/project/"
	want := []string{
		sign + "fakecloud@" + p.digest,
		sign + "charts/ccm-from-scratch@" + p.manifest(t, "charts/ccm-from-scratch", "1.2.3") + "\n",
		sign + "charts/fakecloud@" + p.manifest(t, "charts/fakecloud", "1.2.3") + "\n",
		"cosign sign-blob", "gh release view", "gh release create v1.2.3 --draft", "gh release upload v1.2.3",
		"gh release edit v1.2.3 --draft=false",
	}
	if !slices.EqualFunc(calls, want, strings.HasPrefix) {
		t.Fatalf("calls:\n%swant:\n%s", strings.Join(calls, ""), strings.Join(want, "\n"))
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
	if digest := p.manifest(t, "fakecloud", "v1.2.3"); digest != "" || len(calls) > 0 {
		t.Errorf("the image: %q; calls: %q", digest, calls)
	}
}

func TestAFileThatHasChangedIsNotPublished(t *testing.T) {
	t.Parallel()
	p := newPublished(t)
	must(t, p.folder, "echo another >out/release/v1.2.3/fakecloud.tar")
	out, calls, err := p.publish(t)
	if err == nil || len(calls) > 0 || !strings.Contains(out, "fakecloud.tar: FAILED") {
		t.Errorf("%v: %s; calls: %q", err, out, calls)
	}
}
