package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// content returns what a descriptor refers to, and fails if its digest or size is wrong.
func content(t *testing.T, blobs map[string][]byte, d v1.Descriptor) []byte {
	t.Helper()
	b, ok := blobs["blobs/"+d.Digest.Algorithm+"/"+d.Digest.Hex]
	if !ok || digest(b) != d.Digest.String() || int64(len(b)) != d.Size {
		t.Fatalf("%+v: found %t, %d bytes", d, ok, len(b))
	}
	return b
}

func decode[T any](t *testing.T, text []byte) (v T) {
	t.Helper()
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return v
}

func TestAnIndexLeadsToTheProgramOfEachArchitecture(t *testing.T) {
	t.Parallel()
	images := []image{
		{tag: "x:v1", arch: "amd64", name: "x", program: []byte("for amd64"), created: time.Unix(1, 0).UTC(),
			labels: map[string]string{"l": "v"}},
		{tag: "x:v1", arch: "arm64", name: "x", program: []byte("for arm64"), created: time.Unix(1, 0).UTC(),
			labels: map[string]string{"l": "v"}},
	}
	var archive, again bytes.Buffer
	sum, err := writeIndex(&archive, images)
	sum2, err2 := writeIndex(&again, images)
	if err != nil || err2 != nil || sum != sum2 || !bytes.Equal(archive.Bytes(), again.Bytes()) {
		t.Fatalf("%v, %v, %s, %s: the same source makes another file", err, err2, sum, sum2)
	}
	blobs := files(t, archive.Bytes())
	if decode[map[string]string](t, blobs["oci-layout"])["imageLayoutVersion"] != "1.0.0" {
		t.Errorf("%s", blobs["oci-layout"])
	}
	entry := decode[v1.IndexManifest](t, blobs["index.json"])
	if len(entry.Manifests) != 1 || entry.Manifests[0].Digest.String() != sum || entry.Manifests[0].MediaType != types.OCIImageIndex ||
		entry.Manifests[0].Annotations["org.opencontainers.image.ref.name"] != "x:v1" {
		t.Fatalf("%+v", entry)
	}
	index := decode[v1.IndexManifest](t, content(t, blobs, entry.Manifests[0]))
	if len(index.Manifests) != len(images) || index.Annotations["l"] != "v" {
		t.Fatalf("%+v", index)
	}
	for i, d := range index.Manifests {
		m := decode[v1.Manifest](t, content(t, blobs, d))
		c := decode[v1.ConfigFile](t, content(t, blobs, m.Config))
		arch := images[i].arch
		if d.Platform.Architecture != arch || c.Architecture != arch || d.Platform.Variant != c.Variant || d.Platform.OS != "linux" {
			t.Errorf("%s: %+v, %+v", arch, d.Platform, c)
		}
		z, err := gzip.NewReader(bytes.NewReader(content(t, blobs, m.Layers[0])))
		if err != nil {
			t.Fatal(err)
		}
		layer, err := io.ReadAll(z)
		if err != nil || c.RootFS.DiffIDs[0].String() != digest(layer) || string(files(t, layer)["x"]) != "for "+arch {
			t.Errorf("%s: %v, %+v", arch, err, c.RootFS)
		}
	}
}
