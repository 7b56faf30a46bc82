// Command image builds a container image FROM scratch that holds one static Go program, as a file for
// `docker load`, `podman load` or `kind load image-archive`. It needs neither a container engine nor
// a registry. It builds for any architecture that Go knows. With GOFLAGS=-trimpath, the same source gives
// the same file, whatever its folder is. For several architectures the file is an archive of an OCI image
// layout with one index. `skopeo copy --all` puts it into a registry; the digest of the index is printed.
//
//	go run ./scripts/image -package ./fakecloud/cmd/fakecloud -tag fakecloud:dev -o fakecloud.tar
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/ccm-from-scratch/ccm-from-scratch/kind/wholefile"
)

// job is the work that the command line asks for.
type job struct {
	image  image // without architecture and program
	pkg    string
	arches []string
	out    string // file of the image
	sbom   string // beginning of the names of the bills of materials; none if empty
}

func main() {
	j := job{image: image{labels: map[string]string{}}}
	list := func(to *[]string) func(string) error {
		return func(s string) error { *to = append(*to, s); return nil }
	}
	flag.StringVar(&j.pkg, "package", "", "main `package` to build")
	flag.StringVar(&j.image.tag, "tag", "", "`name:tag` of the image")
	flag.StringVar(&j.out, "o", "", "`file` to write")
	flag.Func("arch", "architecture, as `GOARCH` (default this machine's); may be repeated: the file is then an OCI archive with an index",
		list(&j.arches))
	flag.StringVar(&j.sbom, "sbom", "", "also write the modules of the programs, as SPDX, to the files `begin`.<architecture>.spdx.json")
	flag.Func("env", "`NAME=value` in the image's environment; may be repeated", list(&j.image.env))
	flag.Func("expose", "`port` that the program listens on; may be repeated", list(&j.image.ports))
	flag.Func("label", "`name=value`; may be repeated", func(s string) (err error) {
		name, value, ok := strings.Cut(s, "=")
		if j.image.labels[name] = value; !ok {
			err = errors.New("must be name=value")
		}
		return err
	})
	flag.StringVar(&j.image.health, "health", "", "the program's `argument` for a health check")
	flag.Parse()
	if j.pkg == "" || j.image.tag == "" || j.out == "" || flag.NArg() > 0 {
		fmt.Fprintln(os.Stderr, "usage: image -package ./path/to/main -tag name:tag -o file.tar [flags]; -h lists them")
		os.Exit(1)
	}
	// A signal ends the compiler, and its files are removed.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	err := j.run(ctx, ".")
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

// run builds the program in a folder for each architecture and writes the image.
func (j *job) run(ctx context.Context, folder string) error {
	j.image.name = path.Base(filepath.ToSlash(j.pkg))
	j.image.created = created()
	var images []image
	if len(j.arches) == 0 {
		j.arches = []string{runtime.GOARCH}
	}
	for _, arch := range j.arches {
		im := j.image
		im.arch = arch
		var err error
		if im.program, err = build(ctx, folder, j.pkg, arch, cmp.Or(im.labels["org.opencontainers.image.revision"],
			"unknown")); err != nil {
			return err
		}
		if j.sbom != "" {
			text, err := im.sbom()
			if err != nil {
				return err
			}
			if err := os.WriteFile(j.sbom+"."+arch+".spdx.json", text, 0o644); err != nil {
				return err
			}
		}
		images = append(images, im)
	}
	if len(images) == 1 {
		return wholefile.Replace(j.out, 0o644, images[0].write)
	}
	return wholefile.Replace(j.out, 0o644, func(w io.Writer) error {
		sum, err := writeIndex(w, images)
		if err == nil {
			_, err = fmt.Println("index", sum)
		}
		return err
	})
}

// build returns the program of a package, for Linux. The libraries of Kubernetes report the revision in the metric
// kubernetes_build_info.
func build(ctx context.Context, folder, pkg, arch, revision string) ([]byte, error) {
	dir, err := os.MkdirTemp("", "image-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	binary := filepath.Join(dir, "program")
	cmd := exec.CommandContext(ctx, "go", "build", "-v", "-ldflags=-s -w -X k8s.io/component-base/version.gitCommit="+revision, "-o",
		binary, pkg)
	cmd.Dir = folder
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("go build %s for %s: %w", pkg, arch, err)
	}
	return os.ReadFile(binary)
}

// created returns the time of the source: that of SOURCE_DATE_EPOCH or of the last commit.
func created() time.Time {
	text := os.Getenv("SOURCE_DATE_EPOCH")
	if text == "" {
		out, _ := exec.CommandContext(context.Background(), "git", "log", "-1", "--format=%ct").Output()
		text = strings.TrimSpace(string(out))
	}
	seconds, _ := strconv.ParseInt(text, 10, 64) // 0 without a commit
	return time.Unix(seconds, 0).UTC()
}
