// Command image builds a container image FROM scratch that holds one static Go program, as a file for
// `docker load`, `podman load` or `kind load image-archive`. It needs neither a container engine nor
// a registry. It builds for any architecture that Go knows. With GOFLAGS=-trimpath, the same source gives
// the same file, whatever its folder is. For several architectures the file is an archive of an OCI image
// layout with one index. `skopeo copy --all` puts it into a registry. Its time is that of SOURCE_DATE_EPOCH.
//
//	go run ./scripts/image -package ./fakecloud/cmd/fakecloud -tag fakecloud:dev -o fakecloud.tar
package main

import (
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing/fstest"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/ccm-from-scratch/ccm-from-scratch/kind/wholefile"
	"github.com/ccm-from-scratch/ccm-from-scratch/scripts/image/oci"
)

// user is who the program runs as: the number that distroless images use for "nonroot".
const user = "65532"

// job is the work that the command line asks for.
type job struct {
	pkg, tag, out string
	arches        []string
	config        v1.Config
	bills         string // the program cyclonedx-gomod; none: no bills of materials
	created       time.Time
}

func main() {
	j := job{created: created(), config: v1.Config{Labels: map[string]string{}, ExposedPorts: map[string]struct{}{}}}
	flag.StringVar(&j.pkg, "package", "", "main `package` to build")
	flag.StringVar(&j.tag, "tag", "", "`name:tag` of the image")
	flag.StringVar(&j.out, "o", "", "`file` to write")
	flag.StringVar(&j.bills, "bills", "", "the `program` cyclonedx-gomod writes the modules of the programs, as CycloneDX, beside the file")
	each := func(name, usage string, take func(string)) {
		flag.Func(name, usage+"; may be repeated", func(s string) error { take(s); return nil })
	}
	each("arch", "architecture, as `GOARCH` (default this machine's). With several, the file is an OCI archive with an index",
		func(s string) { j.arches = append(j.arches, s) })
	each("env", "`NAME=value` in the image's environment", func(s string) { j.config.Env = append(j.config.Env, s) })
	each("expose", "`port` that the program listens on", func(s string) { j.config.ExposedPorts[s+"/tcp"] = struct{}{} })
	each("label", "`name=value`", func(s string) {
		name, value, _ := strings.Cut(s, "=")
		j.config.Labels[name] = value
	})
	health := flag.String("health", "", "the program's `argument` for a health check")
	flag.Parse()
	if j.pkg == "" || j.tag == "" || j.out == "" || flag.NArg() > 0 {
		fmt.Fprintln(os.Stderr, "usage: image -package ./path/to/main -tag name:tag -o file.tar [flags]; -h lists them")
		os.Exit(1)
	}
	if *health != "" {
		j.config.Healthcheck = &v1.HealthConfig{
			Test: []string{"CMD", "/" + j.program(), *health}, Interval: 10 * time.Second, Timeout: 5 * time.Second,
			StartPeriod: 5 * time.Second, Retries: 3,
		}
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

// program returns the name of the program.
func (j *job) program() string { return path.Base(filepath.ToSlash(j.pkg)) }

// run builds the program in a folder for each architecture and writes the image.
func (j *job) run(ctx context.Context, folder string) (err error) {
	tag, err := name.NewTag(j.tag)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "image-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if len(j.arches) == 0 {
		j.arches = []string{runtime.GOARCH}
	}
	index := mutate.Annotations(empty.Index, j.config.Labels).(v1.ImageIndex)
	for _, arch := range j.arches {
		img, err := j.image(ctx, folder, filepath.Join(dir, j.program()+"-"+arch), arch)
		if err != nil {
			return err
		}
		if len(j.arches) == 1 {
			return wholefile.Replace(j.out, 0o644, func(w io.Writer) error { return tarball.Write(tag, img, w) })
		}
		config, err := img.ConfigFile()
		if err != nil {
			return err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{Platform: config.Platform()}})
	}
	whole, err := layout.Write(filepath.Join(dir, "layout"), empty.Index)
	if err != nil {
		return err
	}
	// The name is kept where containerd looks for it, and where the specification says.
	names := map[string]string{"io.containerd.image.name": j.tag, "org.opencontainers.image.ref.name": j.tag}
	if err := whole.AppendIndex(index, layout.WithAnnotations(names)); err != nil {
		return err
	}
	files, written := fstest.MapFS{}, os.DirFS(filepath.Join(dir, "layout")) // without the owners and times of this machine
	err = fs.WalkDir(written, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			files[path] = j.file(fs.ModeDir|0o755, nil)
			return err
		}
		content, err := fs.ReadFile(written, path)
		files[path] = j.file(0o644, content)
		return err
	})
	if err != nil {
		return err
	}
	return wholefile.Replace(j.out, 0o644, func(w io.Writer) error { return oci.Archive(w, files) })
}

func (j *job) file(mode fs.FileMode, content []byte) *fstest.MapFile {
	return &fstest.MapFile{Data: content, Mode: mode, ModTime: j.created}
}

// image builds the program for an architecture, and returns its image.
func (j *job) image(ctx context.Context, folder, binary, arch string) (v1.Image, error) {
	// The libraries of Kubernetes report the revision in the metric kubernetes_build_info.
	revision := cmp.Or(j.config.Labels["org.opencontainers.image.revision"], "unknown")
	build := exec.CommandContext(ctx, "go", "build", "-v", "-ldflags=-s -w -X k8s.io/component-base/version.gitCommit="+revision,
		"-o", binary, j.pkg)
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch)
	build.Dir, build.Stdout, build.Stderr = folder, os.Stderr, os.Stderr
	if err := build.Run(); err != nil {
		return nil, fmt.Errorf("go build %s for %s: %w", j.pkg, arch, err)
	}
	if j.bills != "" {
		if err := j.bill(ctx, binary, strings.TrimSuffix(j.out, ".tar")+"."+arch+".cdx.json"); err != nil {
			return nil, err
		}
	}
	content, err := os.ReadFile(binary)
	if err != nil {
		return nil, err
	}
	config := v1.ConfigFile{Created: v1.Time{Time: j.created}, Architecture: arch, Config: j.config}
	config.Config.User, config.Config.Entrypoint, config.Config.WorkingDir = user+":"+user, []string{"/" + j.program()}, "/tmp"
	if arch == "arm64" {
		config.Variant = "v8"
	}
	level := gzip.BestCompression
	if len(j.arches) == 1 { // it is loaded on the same machine
		level = gzip.BestSpeed
	}
	const passwd = "root:x:0:0:root:/:/sbin/nologin\nnonroot:x:" + user + ":" + user + ":nonroot:/tmp:/sbin/nologin\n"
	return oci.Image(config, fstest.MapFS{
		"etc":        j.file(fs.ModeDir|0o755, nil),
		"etc/group":  j.file(0o644, []byte("root:x:0:\nnonroot:x:"+user+":\n")),
		"etc/passwd": j.file(0o644, []byte(passwd)),
		"tmp":        j.file(fs.ModeDir|fs.ModeSticky|0o777, nil),
		j.program():  j.file(0o755, content),
	}, level)
}

// bill writes the bill of materials of a program: the modules that the linker put into it. The image holds nothing else.
func (j *job) bill(ctx context.Context, binary, file string) error {
	version := j.tag[strings.LastIndex(j.tag, ":")+1:] // the program does not know it if it is of another module of this repository
	cmd := exec.CommandContext(ctx, j.bills, "bin", "-json", "-std", "-short-purls", "-noserial", "-notimestamp",
		"-version", version, binary)
	cmd.Stderr = os.Stderr
	text, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("%s: %w", j.bills, err)
	}
	var bill map[string]any
	if err := json.Unmarshal(text, &bill); err != nil {
		return fmt.Errorf("%s: %w", j.bills, err)
	}
	// The digest of cyclonedx-gomod depends on the machine that compiled it.
	delete(bill["metadata"].(map[string]any)["tools"].([]any)[0].(map[string]any), "hashes")
	if text, err = json.MarshalIndent(bill, "", " "); err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o644)
}

// created returns the time of the source.
func created() time.Time {
	seconds, _ := strconv.ParseInt(os.Getenv("SOURCE_DATE_EPOCH"), 10, 64) // 0 without
	return time.Unix(seconds, 0).UTC()
}
