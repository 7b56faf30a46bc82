package cluster

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"math/big"
	"os"
	"os/exec"
	"strings"
)

// imageFolder is where the control plane's node keeps the archives of images that were loaded into the cluster, for all nodes. containerd
// could not return them: it forgets a layer once it is unpacked.
const imageFolder = "/kind/images"

// loadedFile is where a node keeps the time of the archive that it has imported last.
const loadedFile = "/kind/images-loaded"

// LoadImage puts the images of an archive, as `docker save` writes it, into every node that runs, and into those that join
// or start later. Loading the archive again that was loaded last changes nothing in the nodes that have it.
func (c *Cluster) LoadImage(ctx context.Context, archive string) error {
	if err := c.keepImage(ctx, archive); err != nil {
		return fmt.Errorf("loading the images of %s: %w", archive, err)
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
	return each(names, func(name string) error {
		for {
			started := c.startOf(ctx, name)
			if started == "" {
				return nil // it gets them when it starts
			}
			err := c.awaitContainerd(ctx, name)
			if err == nil {
				err = c.CopyImages(ctx, name)
			}
			if err == nil || c.startOf(ctx, name) == started {
				return err
			}
			// It was powered off meanwhile, and perhaps on again.
		}
	})
}

// keepImage keeps an archive on the control plane's node as the one that was loaded last.
func (c *Cluster) keepImage(ctx context.Context, archive string) error {
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
	last, err := onNode(ctx, c.ControlPlane(), "sh", "-c", "ls -t "+imageFolder+"/*.tar 2>/dev/null | head -n 1")
	if err != nil || strings.TrimSpace(last) == kept {
		return err
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	// It gets its name only when it is complete.
	_, err = onNodeIn(ctx, file, c.ControlPlane(), "sh", "-ec",
		"mkdir -p "+imageFolder+"; cat >"+kept+".part; mv "+kept+".part "+kept)
	return err
}

// importImages imports an archive's images into a node's containerd.
func importImages(ctx context.Context, node string, archive io.Reader) error {
	_, err := onNodeIn(ctx, archive, node, "ctr", "--namespace=k8s.io", "images", "import", "--all-platforms", "--digests", "-")
	return err
}

// CopyImages loads into a node that runs what LoadImage has loaded into the cluster since the node had its last image.
func (c *Cluster) CopyImages(ctx context.Context, node string) error {
	had, err := onNode(ctx, node, "sh", "-c", "cat "+loadedFile+" 2>/dev/null || echo 0")
	if err != nil {
		return err
	}
	out, err := onNode(ctx, c.ControlPlane(), "sh", "-c", "find "+imageFolder+` -name '*.tar' -printf '%T@ %p\n' 2>/dev/null | sort -n`)
	if err != nil {
		return err
	}
	for line := range strings.Lines(out) {
		at, archive, _ := strings.Cut(strings.TrimSpace(line), " ")
		if !later(at, strings.TrimSpace(had)) {
			continue
		}
		if err := c.copyImage(ctx, node, archive); err != nil {
			return fmt.Errorf("loading the cluster's images into %s: %w", node, err)
		}
		if _, err := onNode(ctx, node, "sh", "-c", "echo "+at+" >"+loadedFile); err != nil {
			return err
		}
	}
	return nil
}

// later reports whether a time in seconds, as `find` prints it, is after another. A text that is not a time counts as the
// earliest.
func later(a, b string) bool {
	x, okX := new(big.Rat).SetString(a)
	y, okY := new(big.Rat).SetString(b)
	return okX && (!okY || x.Cmp(y) > 0)
}

// copyImage sends an archive from the control plane's node to another.
func (c *Cluster) copyImage(ctx context.Context, node, archive string) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	source := exec.CommandContext(ctx, "docker", "exec", c.ControlPlane(), "cat", archive)
	stream, err := source.StdoutPipe()
	if err != nil {
		return err
	}
	if err := source.Start(); err != nil {
		return err
	}
	if err := importImages(ctx, node, stream); err != nil {
		stop() // else it waits until its output is read, which never happens
		_ = source.Wait()
		return err
	}
	return source.Wait()
}
