package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// user is who the program runs as: the number that distroless images use for "nonroot".
const user = "65532"

// image is a container image with one layer that holds one program.
type image struct {
	tag     string
	arch    string
	name    string // of the program
	program []byte
	env     []string
	ports   []string
	labels  map[string]string
	health  string
	created time.Time
}

// write writes the image in the format of `docker save`. Its layer is not compressed: it is loaded on the same machine.
func (im *image) write(w io.Writer) error {
	tag, err := name.NewTag(im.tag)
	if err != nil {
		return err
	}
	content, err := im.layer()
	if err != nil {
		return err
	}
	img, err := im.with(static.NewLayer(content, types.OCIUncompressedLayer))
	if err != nil {
		return err
	}
	return tarball.Write(tag, img, w)
}

// compressed returns the image with its layer as small as possible.
func (im *image) compressed() (v1.Image, error) {
	content, err := im.layer()
	if err != nil {
		return nil, err
	}
	opener := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil }
	layer, err := tarball.LayerFromOpener(opener, tarball.WithMediaType(types.OCILayer),
		tarball.WithCompressionLevel(gzip.BestCompression), tarball.WithCompressedCaching)
	if err != nil {
		return nil, err
	}
	return im.with(layer)
}

// with returns the image with its one layer.
func (im *image) with(layer v1.Layer) (v1.Image, error) {
	c := &v1.ConfigFile{
		Created: v1.Time{Time: im.created}, Architecture: im.arch, OS: "linux", RootFS: v1.RootFS{Type: "layers"},
		Config: v1.Config{
			User: user + ":" + user, Env: im.env, Labels: im.labels, Entrypoint: []string{"/" + im.name}, WorkingDir: "/tmp",
			ExposedPorts: map[string]struct{}{},
		},
	}
	if im.arch == "arm64" {
		c.Variant = "v8"
	}
	for _, p := range im.ports {
		c.Config.ExposedPorts[p+"/tcp"] = struct{}{}
	}
	if im.health != "" {
		c.Config.Healthcheck = &v1.HealthConfig{
			Test: []string{"CMD", "/" + im.name, im.health}, Interval: 10 * time.Second, Timeout: 5 * time.Second,
			StartPeriod: 5 * time.Second, Retries: 3,
		}
	}
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	base, err := mutate.ConfigFile(base, c)
	if err != nil {
		return nil, err
	}
	return mutate.Append(base, mutate.Addendum{
		Layer: layer, History: v1.History{Created: c.Created, CreatedBy: "static " + im.name + " FROM scratch"},
	})
}

// layer is the whole file system: the program, a name for its user, and a folder to write to.
func (im *image) layer() ([]byte, error) {
	var buf bytes.Buffer
	t := tar.NewWriter(&buf)
	const passwd = "root:x:0:0:root:/:/sbin/nologin\nnonroot:x:" + user + ":" + user + ":nonroot:/tmp:/sbin/nologin\n"
	err := errors.Join(
		tarFile(t, "etc/passwd", 0o644, []byte(passwd), im.created),
		tarFile(t, "etc/group", 0o644, []byte("root:x:0:\nnonroot:x:"+user+":\n"), im.created),
		t.WriteHeader(&tar.Header{Name: "tmp/", Typeflag: tar.TypeDir, Mode: 0o1777, ModTime: im.created}),
		tarFile(t, im.name, 0o755, im.program, im.created),
		t.Close(),
	)
	return buf.Bytes(), err
}

func tarFile(t *tar.Writer, name string, mode int64, content []byte, modified time.Time) error {
	h := &tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: mode, Size: int64(len(content)), ModTime: modified}
	if err := t.WriteHeader(h); err != nil {
		return err
	}
	_, err := t.Write(content)
	return err
}
