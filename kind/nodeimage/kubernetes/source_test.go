package kubernetes

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/mod/modfile"
)

func TestTheCheckoutNamesOneKubernetesRelease(t *testing.T) {
	t.Parallel()
	source, err := FindSource(checkout)
	if err != nil {
		t.Fatal(err)
	}
	// Kubernetes 1.X.Y publishes its libraries as 0.X.Y.
	libraries := "v0." + strings.TrimPrefix(source.Kubernetes, "v1.")
	check := func(path string, module string, version string) {
		if version != libraries {
			t.Errorf("%s has %s at %s; Kubernetes %s goes with %s", path, module, version, source.Kubernetes, libraries)
		}
	}
	nested := filepath.Join(source.Dir, "go.mod")
	for _, replace := range parse(t, nested).Replace {
		check(nested, replace.Old.Path, replace.New.Version)
	}
	root := filepath.Join(checkout, "go.mod")
	for _, require := range parse(t, root).Require {
		switch require.Mod.Path {
		case "k8s.io/client-go", "k8s.io/cloud-provider", "k8s.io/component-base":
			check(root, require.Mod.Path, require.Mod.Version)
		}
	}
}

func parse(t *testing.T, path string) *modfile.File {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	file, err := modfile.Parse(path, data, nil)
	if err != nil {
		t.Fatal(err)
	}
	return file
}

func TestOutsideACheckoutThereIsNoSource(t *testing.T) {
	t.Parallel()
	if _, err := FindSource(t.TempDir()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v, want that it does not exist", err)
	}
}

func TestASourceMustNameReleases(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, "go.mod", "module example.com/m\n\nrequire k8s.io/kubernetes v1.37.1\n")
	if _, err := ReadSource(dir); err == nil || !strings.Contains(err.Error(), "etcd") {
		t.Errorf("got %v, want an error that names etcd", err)
	}
	write(t, dir, "go.mod", "module example.com/m\n\nrequire (\n\tk8s.io/kubernetes v1.37.1\n\tgo.etcd.io/etcd/server/v3 v3.7.0\n)\n")
	source, err := ReadSource(dir)
	if want := (Source{Dir: dir, Kubernetes: "v1.37.1", Etcd: "v3.7.0"}); err != nil || source != want {
		t.Errorf("got %+v, %v, want %+v", source, err, want)
	}
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	// A process that a parallel test starts meanwhile would hold the file open for writing, so that it could not be run.
	syscall.ForkLock.RLock()
	err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755)
	syscall.ForkLock.RUnlock()
	if err != nil {
		t.Fatal(err)
	}
}

func TestTheKeyCoversWhatDecidesTheResult(t *testing.T) {
	t.Parallel()
	linux := Platform{OS: "linux", Arch: "amd64"}
	files := map[string]string{"go.mod": "module m\n", "go.sum": "sum\n", "main.go": "package main\n", "main_test.go": "package main\n"}
	key := func(change func(files map[string]string, source *Source), goVersion string, platform Platform) string {
		dir := t.TempDir()
		mine := map[string]string{}
		maps.Copy(mine, files)
		source := Source{Dir: dir, Kubernetes: "v1.37.1", Etcd: "v3.7.0"}
		if change != nil {
			change(mine, &source)
		}
		for name, text := range mine {
			write(t, dir, name, text)
		}
		got, err := source.Key(goVersion, platform)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	set := func(name, text string) func(map[string]string, *Source) {
		return func(files map[string]string, _ *Source) { files[name] = text }
	}
	first := key(nil, "go1.26.8", linux)
	if !strings.HasPrefix(first, "v1.37.1-") {
		t.Errorf("the key %s does not begin with the release", first)
	}
	for name, test := range map[string]struct {
		got  string
		same bool
	}{
		"nothing, in another folder": {key(nil, "go1.26.8", linux), true},
		"a test":                     {key(set("main_test.go", "package other\n"), "go1.26.8", linux), true},
		"a file that is not built":   {key(set("README.md", "text"), "go1.26.8", linux), true},
		"line endings":               {key(set("main.go", "package main\r\n"), "go1.26.8", linux), true},
		"a source file":              {key(set("main.go", "package main\n\n"), "go1.26.8", linux), false},
		"one more source file":       {key(set("more.go", "package main\n"), "go1.26.8", linux), false},
		"text moved between files": {key(func(f map[string]string, _ *Source) { f["go.mod"], f["go.sum"] = "module m\nsum\n", "" },
			"go1.26.8", linux), false},
		"go.mod":                 {key(set("go.mod", "module n\n"), "go1.26.8", linux), false},
		"go.sum":                 {key(set("go.sum", "other\n"), "go1.26.8", linux), false},
		"Go's release":           {key(nil, "go1.26.9", linux), false},
		"the platform":           {key(nil, "go1.26.8", Platform{OS: "linux", Arch: "arm64"}), false},
		"flags (by the release)": {key(func(_ map[string]string, s *Source) { s.Kubernetes = "v1.37.2" }, "go1.26.8", linux), false},
	} {
		if (test.got == first) != test.same {
			t.Errorf("a change of %s: key %s after %s, same must be %t", name, test.got, first, test.same)
		}
	}
}

func TestNodeProgramsExistOnLinuxOnly(t *testing.T) {
	t.Parallel()
	for system, want := range map[string]string{
		"linux":  "etcd kube-apiserver kube-controller-manager kube-proxy kube-scheduler kubeadm kubectl kubelet",
		"darwin": "etcd kube-apiserver kube-controller-manager kube-scheduler kubectl",
	} {
		if got := strings.Join(Platform{OS: system, Arch: "arm64"}.Commands(), " "); got != want {
			t.Errorf("%s: got %s, want %s", system, got, want)
		}
	}
}
