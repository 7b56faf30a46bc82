package cluster

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
)

// imageFolder is where the control plane's node keeps the archives of images that
// were loaded into the cluster, for nodes that join later. They are kept there,
// and not taken from containerd, which forgets layers that it has unpacked.
const imageFolder = "/kind/images"

// LoadImage puts the images of an archive, as `docker save` writes it, into every
// node, and into those that join later. Loading the same archive again does
// nothing.
func (c *Cluster) LoadImage(ctx context.Context, archive string) error {
	file, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	sum := sha256.New()
	if _, err := io.Copy(sum, file); err != nil {
		return err
	}
	kept := imageFolder + "/" + hex.EncodeToString(sum.Sum(nil)) + ".tar"
	if _, err := onNode(ctx, c.ControlPlane(), "test", "-f", kept); err == nil {
		return nil
	}
	containers, err := c.Containers(ctx)
	if err != nil {
		return err
	}
	var names []string
	for _, container := range containers {
		if container.Running {
			names = append(names, container.Name)
		}
	}
	err = each(names, func(name string) error {
		file, err := os.Open(archive)
		if err != nil {
			return err
		}
		defer func() { _ = file.Close() }()
		return importImages(ctx, name, file)
	})
	if err != nil {
		return fmt.Errorf("loading the images of %s: %w", archive, err)
	}
	// Last, and under its name only when it is whole: it says that all nodes have it.
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	_, err = onNodeIn(ctx, file, c.ControlPlane(), "sh", "-ec",
		"mkdir -p "+imageFolder+"; cat >"+kept+".part; mv "+kept+".part "+kept)
	return err
}

// importImages imports an archive's images into a node's containerd.
func importImages(ctx context.Context, node string, archive io.Reader) error {
	_, err := onNodeIn(ctx, archive, node, "ctr", "--namespace=k8s.io", "images", "import", "--all-platforms", "--digests", "-")
	return err
}

// copyImages loads into a node what was loaded into the cluster before it was
// there.
func (c *Cluster) copyImages(ctx context.Context, node string) error {
	out, err := onNode(ctx, c.ControlPlane(), "sh", "-c", "ls "+imageFolder+"/*.tar 2>/dev/null || true")
	if err != nil {
		return err
	}
	for archive := range strings.FieldsSeq(out) {
		if err := c.copyImage(ctx, node, archive); err != nil {
			return fmt.Errorf("loading the cluster's images into %s: %w", node, err)
		}
	}
	return nil
}

// copyImage sends an archive from the control plane's node to another.
func (c *Cluster) copyImage(ctx context.Context, node, archive string) error {
	source := exec.CommandContext(ctx, "docker", "exec", c.ControlPlane(), "cat", archive)
	stream, err := source.StdoutPipe()
	if err != nil {
		return err
	}
	if err := source.Start(); err != nil {
		return err
	}
	return errors.Join(importImages(ctx, node, stream), source.Wait())
}
