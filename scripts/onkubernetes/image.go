package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

const (
	// programs is the folder of the image with the compiled programs, and source that with the files of the checkout.
	programs = "/programs"
	source   = "/source"
	// results is the folder into which the programs of a piece write.
	results = "/tmp/out"
)

// files is a folder with the files of the image. The methods do nothing after the first error.
type files struct {
	root string
	err  error
}

// run runs a program of this machine, with what compilers need to make programs of the image.
func (f *files) run(ctx context.Context, args ...string) {
	if f.err != nil {
		return
	}
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Env, cmd.Stdout, cmd.Stderr = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux"), os.Stderr, os.Stderr
	if err := cmd.Run(); err != nil {
		f.err = fmt.Errorf("%s: %w", strings.Join(args, " "), err)
	}
}

// compile puts a program into the image. The arguments are those of go: build or test -c, flags, and the package at the end.
func (f *files) compile(ctx context.Context, program string, args ...string) {
	last := len(args) - 1
	f.run(ctx, append(append([]string{"scripts/progress.sh", "compiling " + program, "go"}, args[:last]...), "-o",
		filepath.Join(f.root, programs, program), args[last])...)
}

// copy puts a file of this machine into the image.
func (f *files) copy(from, to string) {
	content, err := os.ReadFile(from)
	if err == nil {
		f.write(to, content)
	}
	f.err = errors.Join(f.err, err)
}

func (f *files) write(to string, content []byte) {
	to = filepath.Join(f.root, to)
	f.err = errors.Join(f.err, os.MkdirAll(filepath.Dir(to), 0o755), os.WriteFile(to, content, 0o755))
}

// checkout puts the files that git knows into the image: tests read some.
func (f *files) checkout(ctx context.Context) {
	out, err := exec.CommandContext(ctx, "git", "ls-files", "-z").Output()
	f.err = errors.Join(f.err, err)
	for path := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00"), "\x00") {
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			f.copy(path, source+"/"+path)
		}
	}
}

// library matches a line of ldd: the file of a library, or of its loader.
var library = regexp.MustCompile(`(/\S+) \(0x`)

// tools puts programs of this machine into the image, with the libraries that they need: the image of a distribution could not be pulled
// everywhere.
func (f *files) tools(ctx context.Context, names ...string) {
	if runtime.GOOS != "linux" {
		f.err = errors.Join(f.err, errors.New("the specs need a shell in their image, which is that of this machine: run this on Linux"))
		return
	}
	for _, tool := range names {
		path, err := exec.LookPath(tool)
		if err != nil {
			f.err = errors.Join(f.err, err)
			continue
		}
		f.copy(path, "/bin/"+tool)
		out, _ := exec.CommandContext(ctx, "ldd", path).Output() // it fails for a program that needs no library
		for _, found := range library.FindAllStringSubmatch(string(out), -1) {
			f.copy(found[1], found[1])
		}
	}
}

// build makes the image of a work in a folder, which must stay until the image is published.
func build(ctx context.Context, w work, folder string) (v1.Image, error) {
	f := &files{root: filepath.Join(folder, "root")}
	f.err = os.MkdirAll(filepath.Join(f.root, programs), 0o755)
	f.compile(ctx, "onkubernetes", "build", "-v", "./scripts/onkubernetes")
	f.checkout(ctx)
	w.fill(ctx, f)
	return f.image()
}

// image returns an image with the files.
func (f *files) image() (v1.Image, error) {
	archive, err := os.Create(f.root + ".tar")
	if err = errors.Join(f.err, err, os.MkdirAll(filepath.Join(f.root, "tmp"), 0o755)); err != nil {
		return nil, err
	}
	w := tar.NewWriter(archive)
	if err := errors.Join(w.AddFS(os.DirFS(f.root)), w.Close(), archive.Close()); err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromFile(archive.Name(), tarball.WithCompressionLevel(gzip.BestSpeed), tarball.WithCompressedCaching)
	if err != nil {
		return nil, err
	}
	base, err := mutate.ConfigFile(empty.Image, &v1.ConfigFile{
		Architecture: runtime.GOARCH, OS: "linux", RootFS: v1.RootFS{Type: "layers"}, Config: v1.Config{
			User: "65532", WorkingDir: source, Env: []string{
				"PATH=/bin:" + programs, "HOME=/tmp", "KUBEBUILDER_ASSETS=" + programs, "E2E_CLUSTER=embedded", "E2E_OUT=" + results,
				"CCM=" + description, "E2E_MACHINE_CONTROLLER=" + programs + "/machine-controller",
			},
		},
	})
	if err != nil {
		return nil, err
	}
	return mutate.AppendLayers(base, layer)
}

// publish puts an image where the cluster finds it: into the registry of the name that is given, or into the nodes of a kind cluster. It
// returns its name, and a function that removes it from the nodes.
func publish(ctx context.Context, img v1.Image, given, kubeContext string, kube kubernetes.Interface) (string, func(), error) {
	if given == "" && !strings.HasPrefix(kubeContext, "kind-") {
		return "", nil, fmt.Errorf("IMAGE is not set, and the context %s is not that of a kind cluster: set it to a name that you can "+
			"push and the cluster can pull, such as registry.example.org/team/tests", kubeContext)
	}
	sum, err := img.Digest()
	if err != nil {
		return "", nil, err
	}
	if given == "" {
		return load(ctx, img, "localhost/ccm-from-scratch-tests:"+sum.Hex[:12], kube)
	}
	tag, err := name.ParseReference(given)
	if err != nil {
		return "", nil, fmt.Errorf("IMAGE=%s: %w", given, err)
	}
	if err := remote.Write(tag, img, remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)); err != nil {
		return "", nil, fmt.Errorf("cannot push IMAGE=%s: %w: log in with `docker login`, or name another registry", given, err)
	}
	return tag.Context().Name() + "@" + sum.String(), func() {}, nil
}

// load puts an image into the nodes of a kind cluster, which are containers of this machine.
func load(ctx context.Context, img v1.Image, tag string, kube kubernetes.Interface) (string, func(), error) {
	named, err := name.NewTag(tag)
	if err != nil {
		return "", nil, err
	}
	nodes, err := kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return "", nil, err
	}
	inNodes := func(ctx context.Context, args ...string) (err error) {
		for _, node := range nodes.Items {
			cmd := exec.CommandContext(ctx, "docker", append([]string{"exec", "-i", node.Name, "ctr", "--namespace=k8s.io", "images"},
				args...)...)
			in, write := io.Pipe()
			go func() { _ = write.CloseWithError(tarball.Write(named, img, write)) }()
			cmd.Stdin = in
			if out, failed := cmd.CombinedOutput(); failed != nil {
				err = errors.Join(err, fmt.Errorf("the image in the node %s: %w: %s", node.Name, failed, bytes.TrimSpace(out)))
			}
			_ = in.Close()
		}
		return err
	}
	remove := func() { _ = inNodes(context.WithoutCancel(ctx), "rm", tag) }
	if err := inNodes(ctx, "import", "--digests", "-"); err != nil {
		remove()
		return "", nil, err
	}
	return tag, remove, nil
}
