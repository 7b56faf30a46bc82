package image

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"
)

// contents returns an archive's files by name; a name that comes twice is an error.
func contents(t *testing.T, archive []byte) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	for r := tar.NewReader(bytes.NewReader(archive)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, twice := files[h.Name]; twice {
			t.Errorf("%s is there twice", h.Name)
		}
		if files[h.Name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
	}
}

func TestImagesThatShareALayerAreOneArchive(t *testing.T) {
	t.Parallel()
	tr := newTree()
	if err := tr.put("bin/x", 0o755, []byte("X")); err != nil {
		t.Fatal(err)
	}
	l, err := writeLayer(tr, t.TempDir(), epoch)
	if err != nil {
		t.Fatal(err)
	}
	one := &image{tags: []string{"r/a:1", "r/b:1"}, arch: "arm64", layer: l, config: containerConfig{Entrypoint: []string{"/bin/x"},
		StopSignal: "SIGRTMIN+3"}}
	two := &image{tags: []string{"r/c:1"}, arch: "arm64", layer: l}
	var first, second bytes.Buffer
	if err := errors.Join(writeArchive(&first, epoch, one, two), writeArchive(&second, epoch, one, two)); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Error("the same images make two archives")
	}
	files := contents(t, first.Bytes())
	var manifests []archiveManifest
	if err := json.Unmarshal(files["manifest.json"], &manifests); err != nil || len(manifests) != 2 {
		t.Fatalf("%s, %v", files["manifest.json"], err)
	}
	if !slices.Equal(manifests[0].RepoTags, one.tags) || !slices.Equal(manifests[1].RepoTags, two.tags) {
		t.Errorf("%+v", manifests)
	}
	for _, m := range manifests {
		var config struct {
			Architecture string
			RootFS       struct {
				DiffIDs []string `json:"diff_ids"`
			}
		}
		if err := json.Unmarshal(files[m.Config], &config); err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256(files[m.Layers[0]])
		if config.Architecture != "arm64" || config.RootFS.DiffIDs[0] != "sha256:"+hex.EncodeToString(sum[:]) {
			t.Errorf("%+v, but the layer's digest is %x", config, sum)
		}
	}
	if config := string(files[manifests[0].Config]); !strings.Contains(config, `"StopSignal":"SIGRTMIN+3"`) {
		t.Error(config)
	}
	if got := contents(t, files[manifests[0].Layers[0]]); string(got["bin/x"]) != "X" {
		t.Errorf("the layer holds %v", got)
	}
}

func TestLayersOfEqualTreesAreEqual(t *testing.T) {
	t.Parallel()
	var digests []string
	for range 2 {
		l, err := writeLayer(debianTree(t), t.TempDir(), time.Unix(7, 0))
		if err != nil {
			t.Fatal(err)
		}
		digests = append(digests, l.digest)
	}
	if digests[0] != digests[1] {
		t.Error(digests)
	}
}
