package main

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// source writes a program that needs another module into a new folder.
func source(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module example.org/program\n\ngo 1.26\n\nrequire k8s.io/component-base v1.2.3\n\nreplace " +
			"k8s.io/component-base => ./library\n",
		"cmd/program/main.go": "package main\n\nimport \"k8s.io/component-base/version\"\n\nfunc main() {\n\tversion.F()\n\tpanic(\"the " +
			"text of a panic has the name of this file\")\n}\n",
		"library/go.mod":       "module k8s.io/component-base\n\ngo 1.26\n",
		"library/version/v.go": "package version\n\nvar gitCommit string\n\n// F prints the commit.\nfunc F() { println(gitCommit) }\n",
	} {
		write(t, filepath.Join(folder, name), []byte(text))
	}
	return folder
}

func write(t *testing.T, name string, text []byte) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o700), os.WriteFile(name, text, 0o600)); err != nil {
		t.Fatal(err)
	}
}

// made builds an image from a folder. It returns the image's file, and the bill of materials of the last architecture.
func made(t *testing.T, folder string, arches ...string) (image, bill []byte) {
	t.Helper()
	t.Setenv("GOWORK", "off")
	temporary := t.TempDir()
	t.Setenv("TMPDIR", temporary)
	tool, err := exec.CommandContext(t.Context(), "../tool.sh", "cyclonedx-gomod").Output()
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "program")
	j := job{
		pkg: "./cmd/program", tag: "localhost:5000/program:v1", arches: arches, out: out + ".tar", created: time.Unix(1700000000, 0).UTC(),
		bills: strings.TrimSpace(string(tool)),
		config: v1.Config{
			Env: []string{"A=b"}, Labels: map[string]string{"org.opencontainers.image.revision": "the-revision"},
		},
	}
	err = j.run(t.Context(), folder)
	if left, _ := os.ReadDir(temporary); err != nil || len(left) > 0 {
		t.Fatalf("%v; %v is left", err, left)
	}
	image, err = os.ReadFile(out + ".tar")
	bill, err2 := os.ReadFile(out + "." + arches[len(arches)-1] + ".cdx.json")
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	return image, bill
}

func TestTwoFoldersWithTheSameSourceMakeTheSameFiles(t *testing.T) {
	t.Setenv("GOFLAGS", "-trimpath")
	first, firstBill := made(t, source(t), "amd64", "arm64")
	second, secondBill := made(t, source(t), "amd64", "arm64")
	if !bytes.Equal(first, second) || !bytes.Equal(firstBill, secondBill) {
		t.Errorf("two folders make other files (%d and %d bytes, %d and %d)", len(first), len(second), len(firstBill), len(secondBill))
	}
	// Without the flag the folders are in the programs: the comparison above could have failed.
	t.Setenv("GOFLAGS", "")
	a, _ := made(t, source(t), runtime.GOARCH)
	b, _ := made(t, source(t), runtime.GOARCH)
	if bytes.Equal(a, b) {
		t.Error("two folders make the same image even without -trimpath; the test proves nothing")
	}
}

// check fails unless an image is whole and holds the program, which is not root, for an architecture.
func check(t *testing.T, img v1.Image, arch string) {
	t.Helper()
	config, err := img.ConfigFile()
	if err = errors.Join(err, validate.Image(img)); err != nil {
		t.Fatal(err)
	}
	c, inner := config.Config, files(t, mutate.Extract(img))
	if config.Architecture != arch || config.OS != "linux" || c.User != "65532:65532" ||
		!slices.Equal(c.Entrypoint, []string{"/program"}) ||
		!slices.Equal(c.Env, []string{"A=b"}) || c.Labels["org.opencontainers.image.revision"] != "the-revision" ||
		config.Created.Unix() != 1700000000 || !bytes.Contains(inner["etc/passwd"], []byte("nonroot:x:65532")) || len(inner) != 5 {
		t.Errorf("%+v: %d files", config, len(inner))
	}
	if !bytes.Contains(inner["program"], []byte("the-revision")) {
		t.Error("the program does not hold the revision; the metric kubernetes_build_info has none")
	}
}

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
		if h.Name == "tmp/" && h.Mode != 0o1777 || h.Name == "program" && h.Mode != 0o755 {
			t.Errorf("%s has mode %o", h.Name, h.Mode)
		}
		if out[h.Name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAnImageForOneArchitectureIsLoadedByDocker(t *testing.T) {
	file, _ := made(t, source(t), "arm64")
	tag, _ := name.NewTag("localhost:5000/program:v1")
	img, err := tarball.Image(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(file)), nil }, &tag)
	if err != nil {
		t.Fatal(err)
	}
	check(t, img, "arm64")
}

func TestAnIndexLeadsToTheProgramOfEachArchitecture(t *testing.T) {
	file, bill := made(t, source(t), "amd64", "arm64")
	folder := t.TempDir()
	for name, text := range files(t, bytes.NewReader(file)) {
		if !strings.HasSuffix(name, "/") {
			write(t, filepath.Join(folder, name), text)
		}
	}
	whole, err := layout.ImageIndexFromPath(folder)
	if err != nil {
		t.Fatal(err)
	}
	entry, err := whole.IndexManifest()
	if err != nil || len(entry.Manifests) != 1 ||
		entry.Manifests[0].Annotations["org.opencontainers.image.ref.name"] != "localhost:5000/program:v1" {
		t.Fatalf("%+v, %v", entry, err)
	}
	index, err := whole.ImageIndex(entry.Manifests[0].Digest)
	if err = errors.Join(err, validate.Index(index)); err != nil {
		t.Fatal(err)
	}
	list, err := index.IndexManifest()
	if err != nil || len(list.Manifests) != 2 || list.Annotations["org.opencontainers.image.revision"] != "the-revision" {
		t.Fatalf("%+v, %v", list, err)
	}
	for i, want := range []string{"linux/amd64", "linux/arm64/v8"} {
		d := list.Manifests[i]
		img, err := index.Image(d.Digest)
		if err != nil || d.Platform.String() != want {
			t.Fatalf("%v, %v", d.Platform, err)
		}
		check(t, img, d.Platform.Architecture)
	}
	billNamesEachModule(t, bill)
}

func billNamesEachModule(t *testing.T, text []byte) {
	t.Helper()
	type component struct{ Name, Version, Purl string }
	var bill struct {
		BomFormat string
		Metadata  struct {
			Tools     []struct{ Hashes []any }
			Component component
		}
		Components []component
	}
	if err := json.Unmarshal(text, &bill); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, c := range bill.Components {
		names = append(names, c.Name)
	}
	slices.Sort(names)
	if p := bill.Metadata.Component; bill.BomFormat != "CycloneDX" || p.Name != "example.org/program" || p.Version != "v1" ||
		p.Purl != "pkg:golang/example.org/program@v1" || !slices.Equal(names, []string{"./library", "std"}) {
		t.Errorf("%v, %s", names, text)
	}
	if len(bill.Metadata.Tools) != 1 || bill.Metadata.Tools[0].Hashes != nil {
		t.Errorf("the bill depends on the machine: %+v", bill.Metadata.Tools)
	}
}
