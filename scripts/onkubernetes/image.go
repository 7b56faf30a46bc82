package main

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
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
	// user runs the pieces.
	user = 65532
	// programs is the folder of the image with what is compiled, and source that with the files of the checkout.
	programs = "/programs"
	source   = "/source"
)

// layer is the file system of the image, which has no other.
type layer struct {
	tar  *tar.Writer
	file *os.File
	has  map[string]bool
	err  error
}

func newLayer(folder string) (*layer, error) {
	file, err := os.Create(filepath.Join(folder, "layer.tar"))
	if err != nil {
		return nil, err
	}
	l := &layer{tar: tar.NewWriter(file), file: file, has: map[string]bool{}}
	l.write("/tmp/", nil, 0o1777)
	l.write("/etc/passwd", fmt.Appendf(nil, "tests:x:%d:%d::/tmp:/bin/sh\n", user, user), 0o644)
	return l, nil
}

// write puts a file into the image, or an empty folder whose name ends with a slash. close returns the first error.
func (l *layer) write(path string, content []byte, mode int64) {
	if l.err != nil || l.has[path] {
		return
	}
	l.has[path] = true
	h := &tar.Header{Name: path[1:], Mode: mode, Size: int64(len(content)), Typeflag: tar.TypeReg}
	if strings.HasSuffix(path, "/") {
		h.Typeflag = tar.TypeDir
	}
	if l.err = l.tar.WriteHeader(h); l.err == nil {
		_, l.err = l.tar.Write(content)
	}
}

// copy puts a file of this machine into the image. A link to a file in its folder stays one, so that the image has the file once.
func (l *layer) copy(from, to string) {
	if target, err := os.Readlink(from); err == nil && filepath.Base(target) == target && l.err == nil {
		l.copy(filepath.Join(filepath.Dir(from), target), filepath.Join(filepath.Dir(to), target))
		l.err = cmp.Or(l.err, l.tar.WriteHeader(&tar.Header{Name: to[1:], Linkname: target, Typeflag: tar.TypeSymlink, Mode: 0o777}))
		return
	}
	content, err := os.ReadFile(from)
	info, err2 := os.Stat(from)
	if err = errors.Join(err, err2); err != nil {
		l.err = cmp.Or(l.err, err)
		return
	}
	l.write(to, content, int64(info.Mode().Perm()|0o444))
}

// compile puts a program into the image. The arguments are those of go: build or test -c, flags, and the package at the end.
func (l *layer) compile(ctx context.Context, to string, args ...string) {
	if l.err != nil {
		return
	}
	out := filepath.Join(filepath.Dir(l.file.Name()), "program")
	pkg := args[len(args)-1]
	args = append(append([]string{"compiling " + filepath.Base(to), "go"}, args[:len(args)-1]...), "-o", out, pkg)
	cmd := exec.CommandContext(ctx, "scripts/progress.sh", args...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux")
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	if l.err = cmd.Run(); l.err == nil {
		l.copy(out, to)
	}
}

// checkout puts the files that git knows into the image: tests read some.
func (l *layer) checkout(ctx context.Context) {
	out, err := exec.CommandContext(ctx, "git", "ls-files", "-z").Output()
	l.err = cmp.Or(l.err, err)
	for path := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00"), "\x00") {
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			l.copy(path, source+"/"+path)
		}
	}
}

// library matches a line of ldd: the file of a library, or of what loads them.
var library = regexp.MustCompile(`(/\S+) \(0x`)

// tools puts programs of this machine into the image, with the libraries that they need. They are taken from here, since an image of a
// distribution could not be pulled everywhere.
func (l *layer) tools(ctx context.Context, names ...string) {
	if runtime.GOOS != "linux" {
		l.err = cmp.Or(l.err, errors.New("the specs need a shell in their image, which is that of this machine: run this on Linux"))
		return
	}
	for _, tool := range names {
		path, err := exec.LookPath(tool)
		if err != nil {
			l.err = cmp.Or(l.err, err)
			return
		}
		l.copy(path, "/bin/"+tool)
		out, _ := exec.CommandContext(ctx, "ldd", path).Output() // it fails for a program that needs no library
		for _, found := range library.FindAllStringSubmatch(string(out), -1) {
			l.copy(found[1], found[1])
		}
	}
}

// image returns an image with the layer.
func (l *layer) image() (v1.Image, error) {
	if err := errors.Join(l.err, l.tar.Close(), l.file.Close()); err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromFile(l.file.Name(), tarball.WithCompressionLevel(gzip.BestSpeed), tarball.WithCompressedCaching)
	if err != nil {
		return nil, err
	}
	config := &v1.ConfigFile{Architecture: runtime.GOARCH, OS: "linux", RootFS: v1.RootFS{Type: "layers"}, Config: v1.Config{
		User: fmt.Sprint(user), Env: []string{"PATH=/bin:" + programs, "HOME=/tmp"}, WorkingDir: "/tmp",
	}}
	base, err := mutate.ConfigFile(empty.Image, config)
	if err != nil {
		return nil, err
	}
	return mutate.AppendLayers(base, layer)
}

// publish puts an image where the cluster finds it, and returns its name and what removes it again: into the registry of the name that
// is given, or into the nodes of a kind cluster.
func publish(ctx context.Context, img v1.Image, given, kubeContext string, kube kubernetes.Interface) (string, func(), error) {
	if given != "" {
		tag, err := name.ParseReference(given)
		if err != nil {
			return "", nil, fmt.Errorf("IMAGE=%s: %w", given, err)
		}
		if err := remote.Write(tag, img, remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)); err != nil {
			return "", nil, fmt.Errorf("cannot push IMAGE=%s: %w: log in with `docker login`, or name another registry", given, err)
		}
		sum, err := img.Digest()
		return tag.Context().Name() + "@" + sum.String(), func() {}, err
	}
	if !strings.HasPrefix(kubeContext, "kind-") {
		return "", nil, fmt.Errorf("IMAGE is not set, and the context %s is not that of a kind cluster: set it to a name that you can "+
			"push and the cluster can pull, such as registry.example.org/team/tests", kubeContext)
	}
	return load(ctx, img, kube)
}

// load puts an image into the nodes of a kind cluster, which are containers of this machine.
func load(ctx context.Context, img v1.Image, kube kubernetes.Interface) (string, func(), error) {
	sum, err := img.ConfigName()
	if err != nil {
		return "", nil, err
	}
	tag, err := name.NewTag("localhost/ccm-from-scratch-tests:" + sum.Hex[:12])
	if err != nil {
		return "", nil, err
	}
	archive, err := os.CreateTemp("", "tests-*.tar")
	if err != nil {
		return "", nil, err
	}
	defer func() { _ = os.Remove(archive.Name()) }()
	if err := errors.Join(tarball.Write(tag, img, archive), archive.Close()); err != nil {
		return "", nil, err
	}
	nodes, err := kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return "", nil, err
	}
	inNodes := func(ctx context.Context, in string, args ...string) error {
		var errs []error
		for _, node := range nodes.Items {
			file, err := os.Open(in)
			if err != nil {
				return err
			}
			cmd := exec.CommandContext(ctx, "docker", append([]string{"exec", "-i", node.Name, "ctr", "--namespace=k8s.io", "images"},
				args...)...)
			cmd.Stdin = file
			if out, err := cmd.CombinedOutput(); err != nil {
				errs = append(errs, fmt.Errorf("the image in the node %s: %w: %s", node.Name, err, bytes.TrimSpace(out)))
			}
			_ = file.Close()
		}
		return errors.Join(errs...)
	}
	remove := func() { _ = inNodes(context.WithoutCancel(ctx), os.DevNull, "rm", tag.String()) }
	if err := inNodes(ctx, archive.Name(), "import", "--digests", "-"); err != nil {
		remove()
		return "", nil, err
	}
	return tag.String(), remove, nil
}
