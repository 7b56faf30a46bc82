package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

func files(t *testing.T, archive []byte) map[string][]byte {
	t.Helper()
	out := map[string][]byte{}
	r := tar.NewReader(bytes.NewReader(archive))
	for {
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

func digest(b []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(b)) }

func TestAnImageHoldsAProgramThatIsNotRoot(t *testing.T) {
	t.Parallel()
	im := image{
		tag: "x:dev", arch: "arm64", name: "x", program: []byte("binary"), env: []string{"A=b"}, ports: []string{"80"},
		labels: map[string]string{"l": "v"}, health: "health", created: time.Unix(1, 0).UTC(),
	}
	var buf, again bytes.Buffer
	if err := errors.Join(im.write(&buf), im.write(&again)); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(buf.Bytes(), again.Bytes()) {
		t.Error("the same source makes another file")
	}
	outer := files(t, buf.Bytes())
	var man tarball.Manifest
	if err := json.Unmarshal(outer["manifest.json"], &man); err != nil || len(man) != 1 || man[0].RepoTags[0] != "x:dev" {
		t.Fatalf("%s, %v", outer["manifest.json"], err)
	}
	layer := outer[man[0].Layers[0]]
	var c v1.ConfigFile
	if err := json.Unmarshal(outer[man[0].Config], &c); err != nil {
		t.Fatal(err)
	}
	if c.Architecture != "arm64" || c.Config.User != "65532:65532" || !slices.Equal(c.Config.Entrypoint, []string{"/x"}) ||
		!slices.Equal(c.Config.Healthcheck.Test, []string{"CMD", "/x", "health"}) || c.RootFS.DiffIDs[0].String() != digest(layer) {
		t.Errorf("%+v", c)
	}
	if _, ok := c.Config.ExposedPorts["80/tcp"]; !ok || man[0].Config != digest(outer[man[0].Config]) {
		t.Errorf("%+v", c)
	}
	inner := files(t, layer)
	if string(inner["x"]) != "binary" || !bytes.Contains(inner["etc/passwd"], []byte("nonroot:x:65532")) || len(inner) != 4 {
		t.Errorf("%v", inner)
	}
}
