// Package oci makes container images FROM scratch, without a container engine and without a registry.
package oci

import (
	"archive/tar"
	"errors"
	"io"
	"io/fs"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Image returns an image for Linux with one layer that holds the files, compressed at a level of gzip.
func Image(config v1.ConfigFile, files fs.FS, level int) (v1.Image, error) {
	open := func() (io.ReadCloser, error) {
		r, w := io.Pipe()
		go func() { w.CloseWithError(Archive(w, files)) }()
		return r, nil
	}
	layer, err := tarball.LayerFromOpener(open, tarball.WithMediaType(types.OCILayer), tarball.WithCompressionLevel(level),
		tarball.WithCompressedCaching)
	if err != nil {
		return nil, err
	}
	config.OS, config.RootFS = "linux", v1.RootFS{Type: "layers"}
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	if img, err = mutate.ConfigFile(img, &config); err != nil {
		return nil, err
	}
	return mutate.Append(img, mutate.Addendum{Layer: layer, History: v1.History{Created: config.Created, CreatedBy: "FROM scratch"}})
}

// Archive writes the files as a tar archive.
func Archive(w io.Writer, files fs.FS) error {
	t := tar.NewWriter(w)
	return errors.Join(t.AddFS(files), t.Close())
}
