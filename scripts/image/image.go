package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
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

// The image's configuration, as in Docker's image specification v1.2, which has a health check where
// OCI's has none.
type config struct {
	Created      time.Time       `json:"created"`
	Architecture string          `json:"architecture"`
	Variant      string          `json:"variant,omitempty"`
	OS           string          `json:"os"`
	Config       containerConfig `json:"config"`
	RootFS       rootFS          `json:"rootfs"`
	History      []history       `json:"history"`
}

type containerConfig struct {
	User         string              `json:"User"`
	ExposedPorts map[string]struct{} `json:"ExposedPorts,omitempty"`
	Env          []string            `json:"Env,omitempty"`
	Entrypoint   []string            `json:"Entrypoint"`
	WorkingDir   string              `json:"WorkingDir"`
	Labels       map[string]string   `json:"Labels,omitempty"`
	Healthcheck  *healthcheck        `json:"Healthcheck,omitempty"`
}

type healthcheck struct {
	Test        []string      `json:"Test"`
	Interval    time.Duration `json:"Interval"`
	Timeout     time.Duration `json:"Timeout"`
	StartPeriod time.Duration `json:"StartPeriod"`
	Retries     int           `json:"Retries"`
}

type rootFS struct {
	Type    string   `json:"type"`
	DiffIDs []string `json:"diff_ids"`
}

type history struct {
	Created   time.Time `json:"created"`
	CreatedBy string    `json:"created_by"`
}

type manifest struct {
	Config   string
	RepoTags []string
	Layers   []string
}

// write writes the image in the format of `docker save`.
func (im *image) write(w io.Writer) error {
	layer, err := im.layer()
	if err != nil {
		return err
	}
	conf, err := json.Marshal(im.config(layer))
	if err != nil {
		return err
	}
	confName := digest(conf) + ".json"
	man, err := json.Marshal([]manifest{{Config: confName, RepoTags: []string{im.tag}, Layers: []string{"layer.tar"}}})
	if err != nil {
		return err
	}
	t := tar.NewWriter(w)
	return errors.Join(
		im.file(t, confName, 0o644, conf),
		im.file(t, "layer.tar", 0o644, layer),
		im.file(t, "manifest.json", 0o644, man),
		t.Close(),
	)
}

func (im *image) config(layer []byte) config {
	c := config{
		Created: im.created, Architecture: im.arch, OS: "linux",
		RootFS:  rootFS{Type: "layers", DiffIDs: []string{"sha256:" + digest(layer)}},
		History: []history{{im.created, "static " + im.name + " FROM scratch"}},
		Config: containerConfig{
			User: user + ":" + user, Env: im.env, Labels: im.labels, Entrypoint: []string{"/" + im.name}, WorkingDir: "/tmp",
		},
	}
	if im.arch == "arm64" {
		c.Variant = "v8"
	}
	for _, p := range im.ports {
		if c.Config.ExposedPorts == nil {
			c.Config.ExposedPorts = map[string]struct{}{}
		}
		c.Config.ExposedPorts[p+"/tcp"] = struct{}{}
	}
	if im.health != "" {
		c.Config.Healthcheck = &healthcheck{
			Test: []string{"CMD", "/" + im.name, im.health}, Interval: 10 * time.Second, Timeout: 5 * time.Second,
			StartPeriod: 5 * time.Second, Retries: 3,
		}
	}
	return c
}

// layer is the whole file system: the program, a name for its user, and a folder to write to.
func (im *image) layer() ([]byte, error) {
	var buf bytes.Buffer
	t := tar.NewWriter(&buf)
	err := errors.Join(
		im.file(t, "etc/passwd", 0o644, fmt.Appendf(nil, "root:x:0:0:root:/:/sbin/nologin\nnonroot:x:%s:%s:nonroot:/tmp:/sbin/nologin\n", user, user)),
		im.file(t, "etc/group", 0o644, fmt.Appendf(nil, "root:x:0:\nnonroot:x:%s:\n", user)),
		t.WriteHeader(&tar.Header{Name: "tmp/", Typeflag: tar.TypeDir, Mode: 0o1777, ModTime: im.created}),
		im.file(t, im.name, 0o755, im.program),
		t.Close(),
	)
	return buf.Bytes(), err
}

func (im *image) file(t *tar.Writer, name string, mode int64, content []byte) error {
	return tarFile(t, name, mode, content, im.created)
}

func tarFile(t *tar.Writer, name string, mode int64, content []byte, modified time.Time) error {
	h := &tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: mode, Size: int64(len(content)), ModTime: modified}
	if err := t.WriteHeader(h); err != nil {
		return err
	}
	_, err := t.Write(content)
	return err
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}
