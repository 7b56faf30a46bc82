package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// files reads the files of an archive.
func files(t *testing.T, archive io.Reader) map[string][]byte {
	t.Helper()
	out := map[string][]byte{}
	for r := tar.NewReader(archive); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		if out[h.Name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
	}
}

// check fails unless an image is whole and holds a program for an architecture.
func check(t *testing.T, img v1.Image, arch, program string) *v1.ConfigFile {
	t.Helper()
	config, err := img.ConfigFile()
	if err = errors.Join(err, validate.Image(img)); err != nil {
		t.Fatal(err)
	}
	inner := files(t, mutate.Extract(img))
	if config.Architecture != arch || config.OS != "linux" || config.Config.User != "65532:65532" || string(inner["x"]) != program ||
		!slices.Equal(config.Config.Entrypoint, []string{"/x"}) || !bytes.Contains(inner["etc/passwd"], []byte("nonroot:x:65532")) ||
		len(inner) != 4 {
		t.Errorf("%+v: %q", config, inner)
	}
	return config
}

func TestAnImageHoldsAProgramThatIsNotRoot(t *testing.T) {
	t.Parallel()
	im := image{
		tag: "x:dev", arch: "arm64", name: "x", program: []byte("binary"), env: []string{"A=b"}, ports: []string{"80"},
		labels: map[string]string{"l": "v"}, health: "health", created: time.Unix(1, 0).UTC(),
	}
	var buf, again bytes.Buffer
	if err := errors.Join(im.write(&buf), im.write(&again)); err != nil || !bytes.Equal(buf.Bytes(), again.Bytes()) {
		t.Fatalf("%v: or the same source makes another file", err)
	}
	tag, _ := name.NewTag("x:dev")
	img, err := tarball.Image(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(buf.Bytes())), nil }, &tag)
	if err != nil {
		t.Fatal(err)
	}
	c := check(t, img, "arm64", "binary").Config
	if _, ok := c.ExposedPorts["80/tcp"]; !ok || !slices.Equal(c.Healthcheck.Test, []string{"CMD", "/x", "health"}) ||
		!slices.Equal(c.Env, im.env) || c.Labels["l"] != "v" {
		t.Errorf("%+v", c)
	}
}

func TestAnIndexLeadsToTheProgramOfEachArchitecture(t *testing.T) {
	t.Parallel()
	var images []image
	for _, arch := range []string{"amd64", "arm64"} {
		images = append(images, image{tag: "x:v1", arch: arch, name: "x", program: []byte("for " + arch), created: time.Unix(1, 0).UTC(),
			labels: map[string]string{"l": "v"}})
	}
	var archive, again bytes.Buffer
	sum, err := writeIndex(&archive, images)
	sum2, err2 := writeIndex(&again, images)
	if err = errors.Join(err, err2); err != nil || sum != sum2 || !bytes.Equal(archive.Bytes(), again.Bytes()) {
		t.Fatalf("%v, %s, %s: or the same source makes another file", err, sum, sum2)
	}
	folder := t.TempDir()
	for name, text := range files(t, &archive) {
		if strings.HasSuffix(name, "/") {
			continue
		}
		name = filepath.Join(folder, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o700), os.WriteFile(name, text, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	whole, err := layout.ImageIndexFromPath(folder)
	if err != nil {
		t.Fatal(err)
	}
	entry, err := whole.IndexManifest()
	if err != nil || len(entry.Manifests) != 1 || entry.Manifests[0].Digest.String() != sum ||
		entry.Manifests[0].MediaType != types.OCIImageIndex ||
		entry.Manifests[0].Annotations["org.opencontainers.image.ref.name"] != "x:v1" {
		t.Fatalf("%+v, %v", entry, err)
	}
	index, err := whole.ImageIndex(entry.Manifests[0].Digest)
	if err = errors.Join(err, validate.Index(index)); err != nil {
		t.Fatal(err)
	}
	list, err := index.IndexManifest()
	if err != nil || len(list.Manifests) != len(images) || list.Annotations["l"] != "v" {
		t.Fatalf("%+v, %v", list, err)
	}
	for i, d := range list.Manifests {
		img, err := index.Image(d.Digest)
		if err != nil {
			t.Fatal(err)
		}
		c := check(t, img, images[i].arch, "for "+images[i].arch)
		if d.Platform.Architecture != images[i].arch || d.Platform.Variant != c.Variant || d.Platform.OS != "linux" {
			t.Errorf("%+v, %+v", d.Platform, c)
		}
	}
}
