package environment

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/ccm-from-scratch/ccm-from-scratch/kind/build"
)

// program is a program of this module that runs in a container.
type program struct {
	name  string // of the file in Folder
	pkg   string
	image string
}

var (
	cloudProgram   = program{"fakecloud", build.Module + "/fakecloud/cmd/fakecloud", "fakecloud:kind"}
	ccmProgram     = program{"ccm", build.Module + "/ccm/cmd/ccm-from-scratch", "ccm-from-scratch:kind"}
	machineProgram = program{"machine-controller", build.Module + "/ccm/cmd/machine-controller", "machine-controller:kind"}
	probeProgram   = program{"probe", build.Module + "/kind/cmd/probe", ProbeImage}
)

// ProbeImage is the name of the image of kind/cmd/probe. All nodes have it: its pods describe the requests
// that reach them.
const ProbeImage = "probe:kind"

// build makes an archive with the program's image, as `docker save` writes it, and
// returns its path. The same source gives the same archive.
func (p program) build(ctx context.Context, cluster string, out io.Writer) (string, error) {
	folder, err := Folder(cluster)
	if err != nil {
		return "", err
	}
	archive := filepath.Join(folder, p.name+".tar")
	_, err = build.Go(ctx, out, "compiling "+p.image, "run", "-v", build.Module+"/scripts/image", "-package", p.pkg, "-tag", p.image, "-o",
		archive)
	return archive, err
}

// load gives Docker the image of an archive. The image takes the name of an older one. The older one is
// removed, unless a container runs it.
func (p program) load(ctx context.Context, archive string) error {
	before, _ := p.loaded(ctx) // there may be none
	if _, err := docker(ctx, "load", "--input", archive); err != nil {
		return err
	}
	after, err := p.loaded(ctx)
	if err != nil {
		return err
	}
	if before != "" && before != after {
		_, _ = docker(ctx, "image", "rm", before)
	}
	return nil
}

// loaded returns the ID of the image that Docker has under the program's name.
func (p program) loaded(ctx context.Context) (string, error) {
	return docker(ctx, "image", "inspect", "--format={{.Id}}", p.image)
}

// removeImages takes back from Docker the images that load gave it. Images that another environment's
// container runs stay.
func removeImages(ctx context.Context) error {
	for _, p := range []program{cloudProgram, probeProgram} {
		if _, err := p.loaded(ctx); err != nil {
			continue // it is not there
		}
		if _, err := docker(ctx, "image", "rm", p.image); err != nil && !strings.Contains(err.Error(), "conflict") {
			return err
		}
	}
	return nil
}

// LoadImages puts images that Docker has into all nodes, and into those of servers that are created later.
func (e *Environment) LoadImages(ctx context.Context, names ...string) (err error) {
	for _, name := range names {
		if _, err := docker(ctx, "image", "inspect", "--format={{.Id}}", name); err != nil {
			return fmt.Errorf("image %s: Docker does not have it: build or pull it first: %w", name, err)
		}
	}
	dir, err := os.MkdirTemp("", "kind-images-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	archive := filepath.Join(dir, "images.tar")
	if _, err := docker(ctx, append([]string{"save", "--output", archive}, names...)...); err != nil {
		return err
	}
	return e.LoadImage(ctx, archive)
}

// loadWithChecksum is LoadImage, and returns the archive's SHA-256.
func (e *Environment) loadWithChecksum(ctx context.Context, archive string) (string, error) {
	sum, err := checksum(archive)
	if err != nil {
		return "", err
	}
	return sum, e.LoadImage(ctx, archive)
}

// checksum returns a file's SHA-256.
func checksum(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = file.Close() }()
	sum := sha256.New()
	if _, err := io.Copy(sum, file); err != nil {
		return "", err
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}
