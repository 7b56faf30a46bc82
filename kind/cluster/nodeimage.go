package cluster

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"os/exec"
	"strings"

	"sigs.k8s.io/kind/pkg/apis/config/defaults"

	"github.com/ccm-from-scratch/ccm-from-scratch/kind/build"
)

// KindImage is kind's own node image, with its digest, of the release of kind that this repository uses.
const KindImage = defaults.Image

// Where a node image comes from, for EnsureImage. Any other value is the name of an image that Docker has.
const (
	// ImageAuto takes kind's own image, and builds one where no registry can be reached.
	ImageAuto = "auto"
	// ImagePull takes kind's own image.
	ImagePull = "pull"
	// ImageBuild builds one from source.
	ImageBuild = "build"
)

// builtImages is the repository of images that are built from source.
const builtImages = "ccm-from-scratch/node"

// Built reports whether a node image was built from source. It lacks what kind's own has beyond a cluster: a provisioner of volumes.
func Built(image string) bool { return strings.HasPrefix(image, builtImages+":") }

// EnsureImage returns the name of a node image that Docker has. The argument from says where it comes from; "" is ImageAuto.
// Progress is shown on out, unless that is nil.
func EnsureImage(ctx context.Context, from string, out io.Writer) (string, error) {
	if out == nil {
		out = io.Discard
	}
	switch from {
	case ImageAuto, "":
	case ImagePull:
		return KindImage, pull(ctx, out)
	case ImageBuild:
		return build.NodeImage(ctx, out)
	default:
		if !hasImage(ctx, from) {
			return "", fmt.Errorf("node image %s: Docker does not have it: pull it, or ask for %s, %s or %s", from, ImageAuto, ImagePull,
				ImageBuild)
		}
		return from, nil
	}
	if hasImage(ctx, KindImage) {
		return KindImage, nil
	}
	// If an image was built here before, no registry could be reached.
	built, err := docker(ctx, "images", "--quiet", builtImages)
	if err != nil {
		return "", err
	}
	if built == "" {
		err := pull(ctx, out)
		if err == nil || ctx.Err() != nil {
			return KindImage, err
		}
		fmt.Fprintf(out, "kind's own image cannot be pulled, so one is built from source: %v\n", err)
	}
	return build.NodeImage(ctx, out)
}

// hasImage reports whether Docker has an image.
func hasImage(ctx context.Context, name string) bool {
	_, err := docker(ctx, "image", "inspect", "--format={{.Id}}", name)
	return err == nil
}

// pull pulls kind's own image and shows what Docker says about it.
func pull(ctx context.Context, out io.Writer) error {
	if hasImage(ctx, KindImage) {
		return nil
	}
	fmt.Fprintf(out, "pulling %s ... (Ctrl-C stops it)\n", KindImage)
	cmd := exec.CommandContext(ctx, "docker", "pull", KindImage)
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = out, &said
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("pulling %s: %w: %s", KindImage, cmp.Or(ctx.Err(), err), strings.TrimSpace(said.String()))
	}
	return nil
}
