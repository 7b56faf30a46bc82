package main

import (
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"sigs.k8s.io/yaml"

	"github.com/ccm-from-scratch/ccm-from-scratch/scripts/image/oci"
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

// shell runs a script with the folder as $0.
func (f *files) shell(ctx context.Context, script string, args ...string) {
	f.run(ctx, append([]string{"sh", "-euc", script, f.root}, args...)...)
}

// compile puts programs into their folder. The arguments are those of go in a folder: build or test, flags, and packages.
func (f *files) compile(ctx context.Context, folder, program string, args ...string) {
	f.run(ctx, append([]string{"scripts/progress.sh", "compiling " + cmp.Or(program, "the programs"), "go", "-C", folder, args[0],
		"-v", "-o", filepath.Join(f.root, programs) + "/" + program}, args[1:]...)...)
}

// suite puts programs of this machine into the image, with their libraries, since not every machine can pull the image of a distribution.
// In place of go, a script gives the programs that the specs compile, such as fakecloud.
const suite = `[ "$(uname)" = Linux ] || { echo "the image of the specs gets the shell of this machine: run this on Linux" >&2; exit 1; }
cp -R "$1/." "$0/programs" # a link stays one
mkdir -p "$0/bin"
for tool in sh cat cp rm sleep; do
	tool=$(command -v $tool)
	cp -L "$tool" "$0/bin"
	for library in $(ldd "$tool" | grep -o '/[^ ]* (0x' | cut -d' ' -f1); do
		mkdir -p "$0${library%/*}" && cp -L "$library" "$0$library"
	done # with its libraries
done
printf '#!/bin/sh\n[ "$1 $2" = "build -o" ] && cp /programs/"${4##*/}" "$3"\n' >"$0/bin/go" && chmod +x "$0/bin/go"`

func fillE2E(ctx context.Context, f *files, ccm string) {
	f.shell(ctx, suite, f.run(ctx, "scripts/gorun.sh", "kind/nodeimage", "kubernetes"))
	f.compile(ctx, ".", "", "build", "./ccm/cmd/machine-controller", "./fakecloud/cmd/fakecloud", "./e2e/cmd/e2e",
		"github.com/onsi/ginkgo/v2/ginkgo")
	// Ginkgo runs the suite in its folder, and specs read files of the checkout from there.
	f.compile(ctx, ".", ".."+source+"/e2e/hetzner/specs/specs.test", "test", "-c", "./e2e/hetzner/specs")
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
		f.compile(ctx, here(d.Source), "ccm", "build", ".")
	} else if d.Binary != "" {
		f.shell(ctx, `cp -L "$1" "$0/programs/ccm"`, here(d.Binary))
	}
	for i, word := range append([]string{ccm, d.Manifest}, d.DriverCommand...) {
		if i < 2 && word != "" || strings.HasPrefix(word, "./") || strings.HasPrefix(word, "../") {
			f.shell(ctx, `mkdir -p "$0${1%/*}" && cp -L "$1" "$0$1"`, here(word))
		}
	}
}

// image returns an image with the files.
func (f *files) image() (v1.Image, error) {
	return oci.Image(v1.ConfigFile{Architecture: runtime.GOARCH, Config: v1.Config{
		User: "65532", WorkingDir: source, Env: []string{
			"PATH=/bin:" + programs, "HOME=/tmp", "KUBEBUILDER_ASSETS=" + programs, "E2E_CLUSTER=embedded", "E2E_OUT=" + results,
			"E2E_CCM=" + programs + "/ccm", "E2E_MACHINE_CONTROLLER=" + programs + "/machine-controller",
		},
	}}, os.DirFS(f.root), gzip.BestSpeed)
}

// makeImage makes the image of a work and puts it where the cluster finds it: into the registry of the given name, or into the nodes of a
// kind cluster. It returns the image's name, and a function that removes it from the nodes.
func makeImage(ctx context.Context, w work, given string) (image string, remove func(), err error) {
	current, err := kubectl(ctx, "", "config", "current-context")
	if err != nil {
		return "", nil, err
	}
	if given == "" && !strings.HasPrefix(current, "kind-") {
		return "", nil, fmt.Errorf("IMAGE is not set, and the context %s is not that of a kind cluster: set it to a name that you can "+
			"push and the cluster can pull, such as registry.example.org/team/tests", strings.TrimSpace(current))
	}
	tag, err := name.NewTag(cmp.Or(given, "localhost/ccm-from-scratch-tests:"+w.env["NAME"]))
	if err != nil {
		return "", nil, fmt.Errorf("IMAGE=%s: %w", given, err)
	}
	folder, err := os.MkdirTemp("", "onkubernetes-")
	if err != nil {
		return "", nil, err
	}
	defer func() { _ = os.RemoveAll(folder) }()
	f := &files{root: filepath.Join(folder, "root")}
	// Tests read files of the checkout.
	f.shell(ctx, `mkdir -p "$0/source" "$0/programs" "$0/tmp" && git ls-files -z | tar --null -T - -cf - | tar -xf - -C "$0/source"`)
	f.compile(ctx, ".", "onkubernetes", "build", "./scripts/onkubernetes")
	w.fill(ctx, f)
	f.shell(ctx, `chmod -R a+rX "$0" && chmod 1777 "$0/tmp"`)
	img, err := f.image()
	if err = errors.Join(f.err, err); err != nil {
		return "", nil, err
	}
	if given == "" {
		err := tarball.WriteToFile(f.root+".tar", tag, img)
		remove, failed := inNodes(ctx, f.root+".tar", tag.String())
		return tag.String(), remove, errors.Join(err, failed)
	}
	if err := remote.Write(tag, img, remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)); err != nil {
		return "", nil, fmt.Errorf("cannot push IMAGE=%s: %w: log in with `docker login`, or name another registry", given, err)
	}
	sum, err := img.Digest()
	return tag.Context().Name() + "@" + sum.String(), func() {}, err
}

// inNodes puts the image of an archive into the nodes of a kind cluster: containers of this machine.
func inNodes(ctx context.Context, archive, tag string) (remove func(), err error) {
	nodes, err := kubectl(ctx, "", "get", "nodes", "--output=jsonpath={.items[*].metadata.name}")
	ctr := func(ctx context.Context, command string) error {
		script := `for node in $3; do docker exec -i "$node" ctr --namespace=k8s.io images ` + command + ` || exit; done`
		out, err := exec.CommandContext(ctx, "sh", "-c", script, "sh", archive, tag, nodes).CombinedOutput()
		if err != nil {
			err = fmt.Errorf("in the nodes %s: %w: %s", nodes, err, out)
		}
		return err
	}
	remove = func() { _ = ctr(context.WithoutCancel(ctx), `rm "$2"`) }
	if err = errors.Join(err, ctr(ctx, `import --digests - <"$1"`)); err != nil {
		remove()
	}
	return remove, err
}
