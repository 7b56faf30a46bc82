package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"time"
)

// content returns what a descriptor refers to, and fails if its digest or size is wrong.
func content(t *testing.T, blobs map[string][]byte, d descriptor) []byte {
	t.Helper()
	b, ok := blobs["blobs/"+strings.Replace(d.Digest, ":", "/", 1)]
	if !ok || "sha256:"+digest(b) != d.Digest || len(b) != d.Size {
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
		{tag: "x:v1", arch: "amd64", name: "x", program: []byte("for amd64"), created: time.Unix(1, 0).UTC(), labels: map[string]string{"l": "v"}},
		{tag: "x:v1", arch: "arm64", name: "x", program: []byte("for arm64"), created: time.Unix(1, 0).UTC(), labels: map[string]string{"l": "v"}},
	}
	var archive, again bytes.Buffer
	sum, err := writeIndex(&archive, images)
	sum2, err2 := writeIndex(&again, images)
	if err != nil || err2 != nil || sum != sum2 || !bytes.Equal(archive.Bytes(), again.Bytes()) {
		t.Fatalf("%v, %v, %s, %s: the same source makes another file", err, err2, sum, sum2)
	}
	blobs := files(t, archive.Bytes())
	if string(blobs["oci-layout"]) != `{"imageLayoutVersion":"1.0.0"}` {
		t.Errorf("%s", blobs["oci-layout"])
	}
	entry := decode[ociIndex](t, blobs["index.json"])
	if len(entry.Manifests) != 1 || entry.Manifests[0].Digest != sum || entry.Manifests[0].MediaType != mediaIndex ||
		entry.Manifests[0].Annotations["org.opencontainers.image.ref.name"] != "x:v1" {
		t.Fatalf("%+v", entry)
	}
	index := decode[ociIndex](t, content(t, blobs, entry.Manifests[0]))
	if len(index.Manifests) != len(images) || index.Annotations["l"] != "v" {
		t.Fatalf("%+v", index)
	}
	for i, d := range index.Manifests {
		m := decode[ociManifest](t, content(t, blobs, d))
		c := decode[config](t, content(t, blobs, m.Config))
		arch := images[i].arch
		if d.Platform.Architecture != arch || c.Architecture != arch || d.Platform.Variant != c.Variant || d.Platform.OS != "linux" {
			t.Errorf("%s: %+v, %+v", arch, d.Platform, c)
		}
		z, err := gzip.NewReader(bytes.NewReader(content(t, blobs, m.Layers[0])))
		if err != nil {
			t.Fatal(err)
		}
		layer, err := io.ReadAll(z)
		if err != nil || c.RootFS.DiffIDs[0] != "sha256:"+digest(layer) || string(files(t, layer)["x"]) != "for "+arch {
			t.Errorf("%s: %v, %+v", arch, err, c.RootFS)
		}
	}
}
