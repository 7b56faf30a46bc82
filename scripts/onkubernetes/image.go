package main

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
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
	"sigs.k8s.io/yaml"
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

// run runs a program of this machine, with the settings that compilers need to make programs of the image, and returns its output.
func (f *files) run(ctx context.Context, args ...string) string {
	if f.err != nil {
		return ""
	}
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Env, cmd.Stderr = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux"), os.Stderr
	out, err := cmd.Output()
	if err != nil {
		f.err = fmt.Errorf("%s: %w", strings.Join(args, " "), err)
	}
	return strings.TrimSpace(string(out))
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

// library matches a line of ldd: the file of a library, or of its loader.
var library = regexp.MustCompile(`(/\S+) \(0x`)

// tools puts programs of this machine into the image, with their libraries. Not every machine can pull the image of a distribution.
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
		out, _ := exec.CommandContext(ctx, "ldd", path).Output() // it fails for a program without libraries
		for _, found := range library.FindAllStringSubmatch(string(out), -1) {
			f.copy(found[1], found[1])
		}
	}
}

// compiler stands in for go in the image: it gives the programs that the specs compile, such as fakecloud.
const compiler = `#!/bin/sh
[ "$1 $2" = "build -o" ] && cp ` + programs + `/"${4##*/}" "$3"
`

func fillE2E(ctx context.Context, f *files, ccm string) {
	folder := f.run(ctx, "scripts/gorun.sh", "kind/nodeimage", "kubernetes")
	f.run(ctx, "cp", "-R", folder+"/.", filepath.Join(f.root, programs)) // a link stays one
	for _, program := range []string{
		"./ccm/cmd/machine-controller", "./fakecloud/cmd/fakecloud", "./e2e/cmd/e2e", "github.com/onsi/ginkgo/v2/ginkgo",
	} {
		f.compile(ctx, path.Base(program), "build", "-v", program)
	}
	// Ginkgo runs the suite in its folder, and specs read files of the checkout from there.
	f.compile(ctx, "../source/e2e/hetzner/specs/specs.test", "test", "-v", "-c", "./e2e/hetzner/specs")
	f.tools(ctx, "sh", "cat", "cp", "rm", "sleep")
	f.write("/bin/go", []byte(compiler))
	f.describe(ctx, ccm)
}

// describe puts a CCM into the image: its program, and in the same folders as here, its file and the files that it names.
func (f *files) describe(ctx context.Context, ccm string) {
	var d struct {
		Source, Binary, Manifest string
		DriverCommand            []string `json:"driverCommand"`
	}
	text, err := os.ReadFile(ccm)
	if err = errors.Join(f.err, err, yaml.Unmarshal(text, &d)); err != nil {
		f.err = fmt.Errorf("CCM=%s: %w", ccm, err)
		return
	}
	here := func(name string) string {
		if filepath.IsAbs(name) {
			return name
		}
		return filepath.Join(filepath.Dir(ccm), name)
	}
	if d.Source != "" {
		f.compile(ctx, "ccm", "-C", here(d.Source), "build", "-v", ".")
	} else if d.Binary != "" {
		f.copy(here(d.Binary), programs+"/ccm")
	}
	f.copy(ccm, ccm)
	for _, word := range append(d.DriverCommand, d.Manifest) {
		if word == d.Manifest && word != "" || strings.HasPrefix(word, "./") || strings.HasPrefix(word, "../") {
			f.copy(here(word), here(word))
		}
	}
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
				"E2E_CCM=" + programs + "/ccm", "E2E_MACHINE_CONTROLLER=" + programs + "/machine-controller",
			},
		},
	})
	if err != nil {
		return nil, err
	}
	return mutate.AppendLayers(base, layer)
}

// makeImage makes the image of a work and puts it where the cluster finds it: into the registry of the given name, or into the nodes of a
// kind cluster. It returns the image's name, and a function that removes it from the nodes.
func makeImage(ctx context.Context, w work, given string) (string, func(), error) {
	current, err := kubectl(ctx, nil, "config", "current-context")
	if err != nil {
		return "", nil, err
	}
	if current = strings.TrimSpace(current); given == "" && !strings.HasPrefix(current, "kind-") {
		return "", nil, fmt.Errorf("IMAGE is not set, and the context %s is not that of a kind cluster: set it to a name that you can "+
			"push and the cluster can pull, such as registry.example.org/team/tests", current)
	}
	tag, err := name.ParseReference(given)
	if given != "" && err != nil {
		return "", nil, fmt.Errorf("IMAGE=%s: %w", given, err)
	}
	folder, err := os.MkdirTemp("", "onkubernetes-")
	if err != nil {
		return "", nil, err
	}
	defer func() { _ = os.RemoveAll(folder) }()
	f := &files{root: filepath.Join(folder, "root")}
	f.err = os.MkdirAll(filepath.Join(f.root, programs), 0o755)
	f.compile(ctx, "onkubernetes", "build", "-v", "./scripts/onkubernetes")
	for file := range strings.SplitSeq(f.run(ctx, "git", "ls-files", "-z"), "\x00") { // tests read files of the checkout
		if info, err := os.Stat(file); err == nil && info.Mode().IsRegular() {
			f.copy(file, source+"/"+file)
		}
	}
	w.fill(ctx, f)
	img, err := f.image()
	if err != nil {
		return "", nil, err
	}
	sum, err := img.Digest()
	if err != nil {
		return "", nil, err
	}
	if given == "" {
		return load(ctx, img, "localhost/ccm-from-scratch-tests:"+sum.Hex[:12], filepath.Join(folder, "image.tar"))
	}
	if err := remote.Write(tag, img, remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)); err != nil {
		return "", nil, fmt.Errorf("cannot push IMAGE=%s: %w: log in with `docker login`, or name another registry", given, err)
	}
	return tag.Context().Name() + "@" + sum.String(), func() {}, nil
}

// load puts an image into the nodes of a kind cluster: containers of this machine.
func load(ctx context.Context, img v1.Image, tag, archive string) (string, func(), error) {
	named, err := name.NewTag(tag)
	if err != nil {
		return "", nil, err
	}
	nodes, failed := kubectl(ctx, nil, "get", "nodes", "--output=jsonpath={.items[*].metadata.name}")
	if err := errors.Join(failed, tarball.WriteToFile(archive, named, img)); err != nil {
		return "", nil, err
	}
	inNodes := func(ctx context.Context, command string) (err error) {
		for node := range strings.FieldsSeq(nodes) {
			script := `docker exec -i "$1" ctr --namespace=k8s.io images ` + command
			cmd := exec.CommandContext(ctx, "sh", "-c", script, "sh", node, archive, tag)
			if out, failed := cmd.CombinedOutput(); failed != nil {
				err = errors.Join(err, fmt.Errorf("in the node %s: %w: %s", node, failed, out))
			}
		}
		return err
	}
	remove := func() { _ = inNodes(context.WithoutCancel(ctx), `rm "$3"`) }
	if err := inNodes(ctx, `import --digests - <"$2"`); err != nil {
		remove()
		return "", nil, err
	}
	return tag, remove, nil
}
