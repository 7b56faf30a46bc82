package image

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/mod/modfile"
)

// module is a nested module below modules/ that programs are built from. Their
// go.mod pins them exactly; the packages to build are its tools, as go.mod
// names them, or its own.
type module struct {
	dir      string
	requires string   // path of the module whose version matters to a person
	packages []string // for go build; "tool" is Go's name of all tools of go.mod
	tags     string
	version  string // variable that the program keeps its version in
	versionV bool   // with the "v" in front
}

var modules = []module{
	{dir: "cni", requires: "github.com/containernetworking/plugins", packages: []string{"tool"}},
	{
		dir: "containerd", requires: "github.com/containerd/containerd/v2", packages: []string{"tool", "./preload"},
		// Snapshotters that kind does not use, as in kind's own build.
		tags: "no_aufs,no_zfs,no_btrfs,no_devmapper", version: "github.com/containerd/containerd/v2/version.Version",
	},
	{dir: "coredns", requires: "github.com/coredns/coredns", packages: []string{"."}},
	{
		dir: "crictl", requires: "sigs.k8s.io/cri-tools", packages: []string{"tool"},
		version: "sigs.k8s.io/cri-tools/pkg/version.Version", versionV: true,
	},
}

// pinned returns the version that the module's go.mod, in folder root, pins.
func (m module) pinned(root string) (string, error) {
	path := filepath.Join(root, m.dir, "go.mod")
	data, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	file, err := modfile.Parse(path, data, nil)
	if err != nil {
		return "", err
	}
	for _, r := range file.Require {
		if r.Mod.Path == m.requires {
			return r.Mod.Version, nil
		}
	}
	return "", fmt.Errorf("%s does not require %s", path, m.requires)
}

// args returns the arguments of the go command that builds the module's programs
// into dir, static. They are built without -trimpath: so Go compiles the standard library once for them and for the
// other programs of this repository.
func (m module) args(version, dir string) []string {
	linker := "-s -w"
	if m.version != "" {
		if !m.versionV {
			version = strings.TrimPrefix(version, "v")
		}
		linker += " -X " + m.version + "=" + version
	}
	args := []string{"build", "-v", "-mod=readonly", "-buildvcs=false", "-tags=" + m.tags, "-ldflags=" + linker,
		"-o", dir + string(filepath.Separator)}
	return append(args, m.packages...)
}

// build builds the module's programs into dir.
func (m module) build(ctx context.Context, b *build, version string) error {
	return b.progress.Go(ctx, b.Root, filepath.Join(b.modules, m.dir), "compiling "+m.dir+" "+version, "linux", b.Arch,
		m.args(version, b.programs)...)
}
