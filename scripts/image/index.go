package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"time"
)

// Media types of the OCI image specification v1.1.
const (
	mediaIndex    = "application/vnd.oci.image.index.v1+json"
	mediaManifest = "application/vnd.oci.image.manifest.v1+json"
	mediaConfig   = "application/vnd.oci.image.config.v1+json"
	mediaLayer    = "application/vnd.oci.image.layer.v1.tar+gzip"
)

type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int               `json:"size"`
	Platform    *platform         `json:"platform,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

type platform struct {
	Architecture string `json:"architecture"`
	OS           string `json:"os"`
	Variant      string `json:"variant,omitempty"`
}

type ociManifest struct {
	SchemaVersion int          `json:"schemaVersion"`
	MediaType     string       `json:"mediaType"`
	Config        descriptor   `json:"config"`
	Layers        []descriptor `json:"layers"`
}

type ociIndex struct {
	SchemaVersion int               `json:"schemaVersion"`
	MediaType     string            `json:"mediaType"`
	Manifests     []descriptor      `json:"manifests"`
	Annotations   map[string]string `json:"annotations,omitempty"`
}

// layout is the tar archive of an OCI image layout.
type layout struct {
	tar     *tar.Writer
	created time.Time
}

// blob writes content under its digest and returns what refers to it.
func (l *layout) blob(mediaType string, content []byte) (descriptor, error) {
	sum := digest(content)
	err := tarFile(l.tar, "blobs/sha256/"+sum, 0o644, content, l.created)
	return descriptor{MediaType: mediaType, Digest: "sha256:" + sum, Size: len(content)}, err
}

// encoded writes v as a blob of JSON.
func (l *layout) encoded(mediaType string, v any) (descriptor, error) {
	content, err := json.Marshal(v)
	if err != nil {
		return descriptor{}, err
	}
	return l.blob(mediaType, content)
}

// writeIndex writes the images, one for each architecture, as an OCI image layout with one index. It returns the
// digest of the index, by which a registry knows the image.
func writeIndex(w io.Writer, images []image) (string, error) {
	l := layout{tar.NewWriter(w), images[0].created}
	for _, name := range []string{"blobs/", "blobs/sha256/"} {
		if err := l.tar.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeDir, Mode: 0o755, ModTime: l.created}); err != nil {
			return "", err
		}
	}
	index := ociIndex{SchemaVersion: 2, MediaType: mediaIndex, Annotations: images[0].labels}
	for i := range images {
		manifest, err := l.image(&images[i])
		if err != nil {
			return "", err
		}
		index.Manifests = append(index.Manifests, manifest)
	}
	whole, err := l.encoded(mediaIndex, index)
	if err != nil {
		return "", err
	}
	// The name is kept where containerd looks for it, and where the specification says.
	whole.Annotations = map[string]string{"io.containerd.image.name": images[0].tag, "org.opencontainers.image.ref.name": images[0].tag}
	entry, err := json.Marshal(ociIndex{SchemaVersion: 2, MediaType: mediaIndex, Manifests: []descriptor{whole}})
	if err != nil {
		return "", err
	}
	return whole.Digest, errors.Join(
		tarFile(l.tar, "index.json", 0o644, entry, l.created),
		tarFile(l.tar, "oci-layout", 0o644, []byte(`{"imageLayoutVersion":"1.0.0"}`), l.created),
		l.tar.Close(),
	)
}

// image writes the layer, the configuration and the manifest of one architecture.
func (l *layout) image(im *image) (descriptor, error) {
	content, err := im.layer()
	if err != nil {
		return descriptor{}, err
	}
	packed, err := compress(content)
	if err != nil {
		return descriptor{}, err
	}
	layer, err := l.blob(mediaLayer, packed)
	if err != nil {
		return descriptor{}, err
	}
	c := im.config(content)
	conf, err := l.encoded(mediaConfig, c)
	if err != nil {
		return descriptor{}, err
	}
	manifest, err := l.encoded(mediaManifest, ociManifest{2, mediaManifest, conf, []descriptor{layer}})
	manifest.Platform = &platform{c.Architecture, c.OS, c.Variant}
	return manifest, err
}

// compress packs content. The header has no time, so that the same content gives the same bytes.
func compress(content []byte) ([]byte, error) {
	var packed bytes.Buffer
	z, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	_, err = z.Write(content)
	if err = errors.Join(err, z.Close()); err != nil {
		return nil, err
	}
	return packed.Bytes(), nil
}
