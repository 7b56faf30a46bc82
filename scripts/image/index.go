package main

import (
	"archive/tar"
	"errors"
	"io"
	"io/fs"
	"os"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
)

// writeIndex writes the images, one for each architecture, as the archive of an OCI image layout with one index. It returns the
// digest of the index: a registry knows the image by it.
func writeIndex(w io.Writer, images []image) (digest string, err error) {
	index := mutate.Annotations(empty.Index, images[0].labels).(v1.ImageIndex)
	for i := range images {
		img, err := images[i].compressed()
		if err != nil {
			return "", err
		}
		config, err := img.ConfigFile()
		if err != nil {
			return "", err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{Platform: config.Platform()}})
	}
	sum, err := index.Digest()
	if err != nil {
		return "", err
	}
	folder, err := os.MkdirTemp("", "image-")
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	whole, err := layout.Write(folder, empty.Index)
	if err != nil {
		return "", err
	}
	// The name is kept where containerd looks for it, and where the specification says.
	names := map[string]string{"io.containerd.image.name": images[0].tag, "org.opencontainers.image.ref.name": images[0].tag}
	if err := whole.AppendIndex(index, layout.WithAnnotations(names)); err != nil {
		return "", err
	}
	return sum.String(), archive(w, os.DirFS(folder), images[0].created)
}

// archive writes the files as a tar archive. Their owners and times are not in it.
func archive(w io.Writer, files fs.FS, modified time.Time) error {
	t := tar.NewWriter(w)
	return errors.Join(fs.WalkDir(files, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == "." {
			return err
		}
		if d.IsDir() {
			return t.WriteHeader(&tar.Header{Name: path + "/", Typeflag: tar.TypeDir, Mode: 0o755, ModTime: modified})
		}
		content, err := fs.ReadFile(files, path)
		if err != nil {
			return err
		}
		return tarFile(t, path, 0o644, content, modified)
	}), t.Close())
}
