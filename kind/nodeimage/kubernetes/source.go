// Package kubernetes provides the programs of the Kubernetes release that this repository is tested with: taken from
// KUBEBUILDER_ASSETS, downloaded from their publishers, or built from source into a cache outside the checkout.
//
// Building works wherever the repository's own code can be built: it needs Go and a module proxy. What is built is the
// nested module modules/kubernetes, one program that is all commands. Its go.mod names the release, and nothing else does.
//
// Only Linux and macOS are supported.
package kubernetes

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/semver"
)

// Paths of the modules that the builder knows by name.
const (
	kubernetesModule = "k8s.io/kubernetes"
	etcdModule       = "go.etcd.io/etcd/server/v3"
)

// Source is the nested module that the programs are built from.
type Source struct {
	Dir        string // absolute path of the module
	Kubernetes string // release of Kubernetes, such as "v1.37.1"
	Etcd       string // release of etcd, such as "v3.7.0"
}

// FindSource reads the versions of the nested module in the checkout root.
func FindSource(root string) (Source, error) {
	return ReadSource(filepath.Join(root, "kind", "nodeimage", "modules", "kubernetes"))
}

// ReadSource reads the versions from the go.mod of the module in dir.
func ReadSource(dir string) (Source, error) {
	path := filepath.Join(dir, "go.mod")
	data, err := os.ReadFile(path)
	if err != nil {
		return Source{}, err
	}
	file, err := modfile.Parse(path, data, nil)
	if err != nil {
		return Source{}, fmt.Errorf("reading the Kubernetes version: %w", err)
	}
	source := Source{Dir: dir}
	for _, require := range file.Require {
		switch require.Mod.Path {
		case kubernetesModule:
			source.Kubernetes = require.Mod.Version
		case etcdModule:
			source.Etcd = require.Mod.Version
		}
	}
	if !semver.IsValid(source.Kubernetes) || !semver.IsValid(source.Etcd) {
		return Source{}, fmt.Errorf("%s must require %s and %s at a release", path, kubernetesModule, etcdModule)
	}
	return source, nil
}

// Platform is what programs are built for.
type Platform struct{ OS, Arch string }

// Host is the platform that the calling process runs on.
func Host() Platform { return Platform{OS: runtime.GOOS, Arch: runtime.GOARCH} }

func (p Platform) String() string { return p.OS + "/" + p.Arch }

// Commands returns the names of the programs that there are for the platform,
// sorted. What runs on nodes exists for Linux only.
func (p Platform) Commands() []string {
	names := []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl"}
	if p.OS == "linux" {
		names = append(names, "kube-proxy", "kubeadm", "kubelet")
	}
	slices.Sort(names)
	return names
}

// buildFlags returns the arguments for `go build` other than output and package.
// They are part of the cache key, so that a change here builds anew.
func (s Source) buildFlags() []string {
	minor := strings.TrimPrefix(semver.MajorMinor(s.Kubernetes), "v1.")
	linker := []string{"-s", "-w"} // stripped: 156 MB instead of 230
	// Both packages keep the version in variables that Kubernetes' own build sets
	// this way; unset, clients would meet a server that calls itself v0.0.0-master.
	for _, pkg := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
		for _, set := range [][2]string{
			{"gitVersion", s.Kubernetes}, {"gitMajor", "1"}, {"gitMinor", minor}, {"gitTreeState", "clean"},
		} {
			linker = append(linker, "-X", pkg+"."+set[0]+"="+set[1])
		}
	}
	return []string{
		"-mod=readonly", "-buildvcs=false",
		// Two of the three tags of Kubernetes' own release build. The third, notest, leaves out a few functions
		// for tests, for which Go would compile a thousand packages again that this repository's programs share.
		"-tags=selinux,grpcnotrace",
		"-ldflags=" + strings.Join(linker, " "),
	}
}

// Key names the result of a build by everything that decides it: the module's
// files, the Go release (such as "go1.26.8"), the platform and the flags. Equal keys
// mean equal programs; it is 16 hexadecimal digits behind the release's name.
func (s Source) Key(goVersion string, platform Platform) (string, error) {
	sum := sha256.New()
	add := func(label string, data []byte) {
		fmt.Fprintf(sum, "%s %d\n", label, len(data))
		sum.Write(data)
	}
	add("layout", []byte("1")) // raise when the cache folder's layout changes
	add("go", []byte(goVersion))
	add("platform", []byte(platform.String()))
	add("flags", []byte(strings.Join(s.buildFlags(), "\x00")))
	entries, err := os.ReadDir(s.Dir)
	if err != nil {
		return "", fmt.Errorf("hashing the sources of Kubernetes' program: %w", err)
	}
	for _, entry := range entries { // sorted by name; the module is one package
		name := entry.Name()
		built := strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go")
		if !built && name != "go.mod" && name != "go.sum" {
			continue
		}
		data, err := os.ReadFile(filepath.Join(s.Dir, name))
		if err != nil {
			return "", fmt.Errorf("hashing the sources of Kubernetes' program: %w", err)
		}
		add(name, bytes.ReplaceAll(data, []byte("\r\n"), []byte("\n")))
	}
	return s.Kubernetes + "-" + hex.EncodeToString(sum.Sum(nil)[:8]), nil
}
