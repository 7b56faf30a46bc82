package image

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/ccm-from-scratch/ccm-from-scratch/kind/nodeimage/job"
)

// suite is the release of Debian that the node runs.
const suite = "bookworm"

// errNoDebootstrap says that this host cannot make a Debian file system.
var errNoDebootstrap = errors.New("building a node image needs root and debootstrap on a Debian-like Linux; " +
	"elsewhere use kind's own image (docker pull), or name one that you have with --image or NODE_IMAGE")

// debianArchive names the archive of a Debian file system that has the packages.
func debianArchive(packages []string) string {
	sum := sha256.Sum256([]byte(strings.Join(packages, ",")))
	return fmt.Sprintf("debian-%s-%s-%x.tar", suite, runtime.GOARCH, sum[:4])
}

// debian puts the archive of a Debian that has the packages into the context. It is made once per list of them.
func (b *build) debian(ctx context.Context, packages []string) error {
	archive := filepath.Join(filepath.Dir(b.work), debianArchive(packages))
	if _, err := os.Stat(archive); err == nil {
		b.Progress.Say("Debian %s is there from an earlier build", suite)
	} else if err := b.Progress.Step("installing Debian "+suite+" into a folder", func() error {
		return b.debootstrap(ctx, archive, packages)
	}); err != nil {
		return err
	}
	return os.Link(archive, b.context("debian.tar"))
}

// root is the folder that Debian is installed into.
func (b *build) root() string { return filepath.Join(b.work, "debian") }

// debootstrap makes a Debian file system and writes it as an archive.
func (b *build) debootstrap(ctx context.Context, archive string, packages []string) error {
	if os.Geteuid() != 0 {
		return fmt.Errorf("%w (this user is not root)", errNoDebootstrap)
	}
	if err := installDebootstrap(ctx); err != nil {
		return err
	}
	root := b.root()
	args := []string{"--variant=minbase", "--include=" + strings.Join(packages, ","), suite, root}
	if b.Mirror != "" {
		args = append(args, b.Mirror)
	}
	if err := errors.Join(job.Command(ctx, "debootstrap", args...), unmount(root)); err != nil {
		return err
	}
	// What a node never needs. Packages' own files are kept otherwise: this is
	// still a Debian, with a list of what is installed.
	for _, pattern := range []string{"var/cache/apt/archives/*.deb", "var/cache/apt/*.bin", "var/lib/apt/lists/*", "usr/share/doc/*",
		"usr/share/man/*", "usr/share/info/*", "usr/share/locale/*", "usr/share/i18n/*", "var/log/*", "var/cache/debconf/*-old",
		"tmp/*", "var/tmp/*", "run/*", "dev/*"} {
		matches, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			return err
		}
		for _, match := range matches {
			if err := os.RemoveAll(match); err != nil {
				return err
			}
		}
	}
	part := filepath.Join(b.work, "debian.tar")
	if err := job.Command(ctx, "tar", "-C", root, "--one-file-system", "-cf", part, "."); err != nil {
		return err
	}
	return os.Rename(part, archive)
}

// unmount takes away what an interrupted debootstrap left mounted, before
// anything below root is removed.
func unmount(root string) error {
	for _, dir := range []string{"sys", "proc"} {
		at := filepath.Join(root, dir)
		entries, err := os.ReadDir(at)
		if err != nil || len(entries) == 0 {
			continue // not mounted
		}
		//nolint:noctx // it must also happen after ctx has ended
		if err := job.Run(exec.Command("umount", at), nil); err != nil {
			return fmt.Errorf("%s is still mounted: %w", at, err)
		}
	}
	return nil
}

// installDebootstrap installs debootstrap where it is missing and available.
func installDebootstrap(ctx context.Context) error {
	if _, err := exec.LookPath("debootstrap"); err == nil {
		return nil
	}
	if _, err := exec.LookPath("apt-get"); err != nil {
		return fmt.Errorf("%w (there is neither debootstrap nor apt-get)", errNoDebootstrap)
	}
	install := func() error {
		cmd := exec.CommandContext(ctx, "apt-get", "install", "-y", "--no-install-recommends", "debootstrap")
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		return job.Run(cmd, nil)
	}
	if install() == nil {
		return nil
	}
	// The lists of packages may be old, or absent as in a fresh container.
	if err := job.Command(ctx, "apt-get", "update"); err != nil {
		return fmt.Errorf("installing debootstrap: %w", err)
	}
	if err := install(); err != nil {
		return fmt.Errorf("installing debootstrap: %w", err)
	}
	return nil
}
