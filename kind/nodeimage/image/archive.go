package image

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
	"time"
)

// layer is a layer of an image: an uncompressed archive on disk.
type layer struct {
	path   string
	digest string // SHA-256 of the archive, hexadecimal
	size   int64
}

// writeLayer writes the tree as a layer into a new file in dir.
func writeLayer(t *tree, dir string, at time.Time) (_ layer, err error) {
	file, err := os.CreateTemp(dir, "layer-*.tar")
	if err != nil {
		return layer{}, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	sum := sha256.New()
	if err := t.write(io.MultiWriter(file, sum), at); err != nil {
		return layer{}, err
	}
	info, err := file.Stat()
	if err != nil {
		return layer{}, err
	}
	return layer{path: file.Name(), digest: hex.EncodeToString(sum.Sum(nil)), size: info.Size()}, nil
}

// image is a container image of one layer.
type image struct {
	tags   []string // name:tag; all of them are the same image
	arch   string   // as GOARCH
	config containerConfig
	layer  layer
}

// containerConfig is the part of an image's configuration that says how a
// container is run, as in Docker's image specification v1.2.
type containerConfig struct {
	Env        []string          `json:",omitempty"`
	Entrypoint []string          `json:",omitempty"`
	Cmd        []string          `json:",omitempty"`
	StopSignal string            `json:",omitempty"`
	Labels     map[string]string `json:",omitempty"`
}

// archiveManifest is one element of manifest.json in an archive.
type archiveManifest struct {
	Config   string
	RepoTags []string
	Layers   []string
}

// configJSON returns the image's configuration.
func (im *image) configJSON(at time.Time) ([]byte, error) {
	type rootFS struct {
		Type    string   `json:"type"`
		DiffIDs []string `json:"diff_ids"`
	}
	type history struct {
		Created   time.Time `json:"created"`
		CreatedBy string    `json:"created_by"`
	}
	return json.Marshal(struct {
		Created      time.Time       `json:"created"`
		Architecture string          `json:"architecture"`
		OS           string          `json:"os"`
		Config       containerConfig `json:"config"`
		RootFS       rootFS          `json:"rootfs"`
		History      []history       `json:"history"`
	}{
		Created: at, Architecture: im.arch, OS: "linux", Config: im.config,
		RootFS:  rootFS{"layers", []string{"sha256:" + im.layer.digest}},
		History: []history{{at, "ccm-from-scratch"}},
	})
}

// writeArchive writes images as `docker save` does. A layer that several images
// share is written once.
func writeArchive(w io.Writer, at time.Time, images ...*image) error {
	archive := tar.NewWriter(w)
	manifests := make([]archiveManifest, 0, len(images))
	written := map[string]bool{}
	for _, im := range images {
		layerName := im.layer.digest + ".tar"
		if !written[layerName] {
			written[layerName] = true
			if err := copyFile(archive, layerName, im.layer, at); err != nil {
				return err
			}
		}
		config, err := im.configJSON(at)
		if err != nil {
			return err
		}
		sum := sha256.Sum256(config)
		configName := hex.EncodeToString(sum[:]) + ".json"
		if err := copyBytes(archive, configName, config, at); err != nil {
			return err
		}
		manifests = append(manifests, archiveManifest{Config: configName, RepoTags: im.tags, Layers: []string{layerName}})
	}
	manifest, err := json.Marshal(manifests)
	if err != nil {
		return err
	}
	return errors.Join(copyBytes(archive, "manifest.json", manifest, at), archive.Close())
}

// writeImages writes images to a file.
func writeImages(path string, at time.Time, images ...*image) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(writeArchive(file, at, images...), file.Close())
}

func copyBytes(archive *tar.Writer, name string, data []byte, at time.Time) error {
	header := tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(data)), ModTime: at}
	if err := archive.WriteHeader(&header); err != nil {
		return err
	}
	_, err := io.Copy(archive, bytes.NewReader(data))
	return err
}

func copyFile(archive *tar.Writer, name string, l layer, at time.Time) error {
	file, err := os.Open(l.path)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	header := tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: l.size, ModTime: at}
	if err := archive.WriteHeader(&header); err != nil {
		return err
	}
	_, err = io.Copy(archive, file)
	return err
}
