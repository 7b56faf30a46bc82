// Command image builds a container image FROM scratch that holds one static Go program, as a file for
// `docker load`, `podman load` or `kind load image-archive`. It needs neither a container engine nor
// a registry. It builds for any architecture that Go knows. With GOFLAGS=-trimpath, the same source gives
// the same file, whatever its folder is.
//
//	go run ./scripts/image -package ./fakecloud/cmd/fakecloud -tag fakecloud:dev -o fakecloud.tar
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/ccm-from-scratch/ccm-from-scratch/kind/wholefile"
)

// list is a flag that may be repeated.
type list []string

func (l *list) String() string     { return strings.Join(*l, " ") }
func (l *list) Set(s string) error { *l = append(*l, s); return nil }

func main() {
	var im image
	var pkg, out, tag string
	var labels list
	flag.StringVar(&pkg, "package", "", "main `package` to build")
	flag.StringVar(&tag, "tag", "", "`name:tag` of the image")
	flag.StringVar(&out, "o", "", "`file` to write")
	flag.StringVar(&im.arch, "arch", runtime.GOARCH, "architecture, as `GOARCH`")
	flag.Var((*list)(&im.env), "env", "`NAME=value` in the image's environment; may be repeated")
	flag.Var((*list)(&im.ports), "expose", "`port` that the program listens on; may be repeated")
	flag.Var(&labels, "label", "`name=value`; may be repeated")
	flag.StringVar(&im.health, "health", "", "the program's `argument` for a health check")
	flag.Parse()
	err := func() error {
		// A signal ends the compiler, and what was made so far is removed.
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
		defer stop()
		if pkg == "" || tag == "" || out == "" || flag.NArg() > 0 {
			return errors.New("usage: image -package ./path/to/main -tag name:tag -o file.tar [flags]; -h lists them")
		}
		im.tag = tag
		im.labels = map[string]string{}
		for _, l := range labels {
			k, v, ok := strings.Cut(l, "=")
			if !ok {
				return fmt.Errorf("-label %q: want name=value", l)
			}
			im.labels[k] = v
		}
		return run(ctx, pkg, out, &im)
	}()
	if err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

// run builds the program and writes the image.
func run(ctx context.Context, pkg, out string, im *image) error {
	dir, err := os.MkdirTemp("", "image-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	binary := filepath.Join(dir, "program")
	cmd := exec.CommandContext(ctx, "go", "build", "-v", "-ldflags=-s -w", "-o", binary, pkg)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+im.arch)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("go build %s: %w", pkg, err)
	}
	if im.program, err = os.ReadFile(binary); err != nil {
		return err
	}
	im.name = path.Base(filepath.ToSlash(pkg))
	im.created = created()
	return wholefile.Replace(out, 0o644, im.write)
}

// created returns the time of the source: that of SOURCE_DATE_EPOCH or of the last commit.
func created() time.Time {
	text := os.Getenv("SOURCE_DATE_EPOCH")
	if text == "" {
		out, err := exec.CommandContext(context.Background(), "git", "log", "-1", "--format=%ct").Output()
		if err == nil {
			text = strings.TrimSpace(string(out))
		}
	}
	var seconds int64
	if _, err := fmt.Sscan(text, &seconds); err != nil {
		seconds = 0
	}
	return time.Unix(seconds, 0).UTC()
}
