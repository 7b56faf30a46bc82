package image

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	// Its module has the files of kind's nodes, which are put into the image: see findKind.
	_ "sigs.k8s.io/kind/pkg/apis/config/defaults"

	"github.com/ccm-from-scratch/ccm-from-scratch/kind/nodeimage/job"
)

// epoch is the time of every file in the image, and of the image. Nothing in it
// may depend on when it was built.
var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// build makes one image.
type build struct {
	Source
	version  string // of Kubernetes, such as "v1.37.1"
	modules  string // folder of the nested modules
	kind     kindModule
	mirror   string
	cache    string // folder for what outlives one key: Debian's file system
	work     string // folder for what does not outlive the build
	programs string // below work: what was compiled
	epoch    time.Time
	progress *job.Progress
}

// kindModule is the Go module of kind that go.mod requires.
type kindModule struct{ Version, Dir string }

// findKind asks the go command for kind's module, and downloads it if need be.
func findKind(ctx context.Context, dir string) (kindModule, error) {
	cmd := exec.CommandContext(ctx, "go", "mod", "download", "-json", "sigs.k8s.io/kind")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOFLAGS=", "GOWORK=off")
	var out bytes.Buffer
	cmd.Stdout = &out
	if err := job.Run(cmd, nil); err != nil {
		return kindModule{}, fmt.Errorf("finding kind's module: %w", err)
	}
	var found kindModule
	if err := json.Unmarshal(out.Bytes(), &found); err != nil || found.Version == "" || found.Dir == "" {
		return kindModule{}, fmt.Errorf("finding kind's module: the go command said %q, %w", out.String(), err)
	}
	return found, nil
}

// module returns the nested module in the folder of that name.
func (b *build) module(dir string) module {
	return modules[slices.IndexFunc(modules, func(m module) bool { return m.dir == dir })]
}

// kubernetesVersion asks the program which release it is.
func kubernetesVersion(ctx context.Context, dir string) (string, error) {
	out, err := exec.CommandContext(ctx, filepath.Join(dir, "kubeadm"), "version", "-o", "short").Output()
	if err != nil {
		return "", fmt.Errorf("asking kubeadm for its version: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}

// sourceFiles are this package's own files, pause and the nested modules: everything in the module's folder that decides
// what the image holds. Kubernetes is not among them: its program decides.
func sourceFiles(dir string) ([]string, error) {
	var names []string
	err := filepath.WalkDir(dir, func(at string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if slices.Contains([]string{"job", "kubernetes", "docker-shim"}, d.Name()) {
				return fs.SkipDir
			}
			return nil
		}
		if filepath.Dir(at) == dir {
			return nil // the program that calls this package, and its module
		}
		name := filepath.Base(at)
		if strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go") || name == "go.mod" || name == "go.sum" {
			names = append(names, at)
		}
		return nil
	})
	slices.Sort(names)
	return names, err
}

// key names the image by what decides its content: the sources of the builder,
// the pinned modules, Kubernetes' program itself, kind, Go and the architecture.
// Debian's packages are those of the day of the build; their names are in the
// key, their versions are not, or every update of Debian would be a new image.
func (s Source) key(ctx context.Context, kind kindModule, goVersion string) (string, error) {
	sum := sha256.New()
	version, err := kubernetesVersion(ctx, s.Kubernetes)
	if err != nil {
		return "", err
	}
	fmt.Fprintln(sum, "kind", kind.Version, "go", goVersion, "arch", s.Arch, "kubernetes", version)
	names, err := sourceFiles(s.folder())
	if err != nil {
		return "", err
	}
	for _, name := range append(names, filepath.Join(s.Kubernetes, kubernetesProgram)) {
		if err := hashFile(sum, name); err != nil {
			return "", fmt.Errorf("naming the node image by its content: %w", err)
		}
	}
	return fmt.Sprintf("%s-%x", version, sum.Sum(nil)[:8]), nil
}

// hashFile adds a file's base name, size and content.
func hashFile(w io.Writer, name string) error {
	file, err := os.Open(name)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	fmt.Fprintln(w, filepath.Base(filepath.Dir(name)), info.Name(), info.Size())
	_, err = io.Copy(w, file)
	return err
}

// make builds the image and writes it to archive, under the name tag. Debian is installed while the programs compile:
// it mostly waits for downloads, they for the processor. The first error ends both.
func (b *build) make(ctx context.Context, tag, archive string) error {
	var debian string
	both, bothCtx := errgroup.WithContext(ctx)
	both.Go(func() (err error) {
		debian, err = b.debian(bothCtx, packages)
		return err
	})
	both.Go(func() error { return b.compile(bothCtx) })
	if err := both.Wait(); err != nil {
		return err
	}
	return b.progress.Step("putting the image together", func() error { return b.assemble(ctx, debian, tag, archive) })
}

// compile builds the programs of the nested modules and pause.
func (b *build) compile(ctx context.Context) error {
	if err := os.Mkdir(b.programs, 0o755); err != nil {
		return err
	}
	for _, m := range modules {
		version, err := m.pinned(b.modules)
		if err != nil {
			return err
		}
		if err := m.build(ctx, b, version); err != nil {
			return err
		}
	}
	return b.progress.Go(ctx, b.Root, b.folder(), "compiling pause", "linux", b.Arch,
		"build", "-v", "-buildvcs=false", "-ldflags=-s -w", "-o", filepath.Join(b.programs, "pause"), "./pause")
}

// debian returns an archive with a Debian file system that has the packages, made once per list of them.
func (b *build) debian(ctx context.Context, packages []string) (string, error) {
	sum := sha256.Sum256([]byte(strings.Join(packages, ",")))
	archive := filepath.Join(b.cache, fmt.Sprintf("debian-%s-%s-%x.tar", suite, b.Arch, sum[:4]))
	if _, err := os.Stat(archive); err == nil {
		b.progress.Say("Debian %s is there from an earlier build", suite)
		return archive, nil
	}
	return archive, b.progress.Step("installing Debian "+suite+" into a folder", func() error {
		return debootstrap(ctx, b.work, b.mirror, archive, packages)
	})
}

// assemble makes the image of the compiled programs and Debian's file system.
func (b *build) assemble(ctx context.Context, debian, tag, archive string) (err error) {
	node := newTree()
	defer func() { _ = node.Close() }()
	if err := node.readTar(debian); err != nil {
		return err
	}
	kindFiles := filepath.Join(b.kind.Dir, "images", "base", "files")
	config, err := os.ReadFile(filepath.Join(kindFiles, filepath.FromSlash(containerdConfig)))
	if err != nil {
		return fmt.Errorf("kind's files: %w", err)
	}
	components, err := b.components(ctx, node, config)
	if err != nil {
		return err
	}
	store, err := b.preload(ctx, components)
	if err != nil {
		return err
	}
	if err := b.fillNode(ctx, node, kindFiles, store); err != nil {
		return err
	}
	l, err := writeLayer(node, b.work, b.epoch)
	if err != nil {
		return err
	}
	image := &image{tags: []string{tag}, arch: b.Arch, layer: l, config: containerConfig{
		// systemd looks for the first variable; it ends on this signal, not on SIGTERM.
		Env:        []string{"container=docker", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
		StopSignal: "SIGRTMIN+3",
		Entrypoint: []string{"/usr/local/bin/entrypoint", "/sbin/init"},
		Labels:     map[string]string{labelKey: "true"},
	}}
	whole := filepath.Join(b.work, archiveName)
	if err := writeImages(whole, b.epoch, image); err != nil {
		return err
	}
	return os.Rename(whole, archive)
}
