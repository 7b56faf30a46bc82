package image

import (
	"bytes"
	"context"
	"debug/elf"
	"encoding/binary"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// elfFile makes a 64-bit ELF file that asks for a loader, unless it is empty, and
// for libraries, and can do nothing else.
func elfFile(t *testing.T, loader string, libraries ...string) []byte {
	t.Helper()
	names := []byte{0}
	var dynamic bytes.Buffer
	put := func(tag elf.DynTag, value int) {
		_ = binary.Write(&dynamic, binary.LittleEndian, elf.Dyn64{Tag: int64(tag), Val: uint64(value)})
	}
	for _, library := range libraries {
		put(elf.DT_NEEDED, len(names))
		names = append(append(names, library...), 0)
	}
	put(elf.DT_NULL, 0)
	interp := append([]byte(loader), 0)
	const headers = 64 + 56
	atNames := headers + len(interp)
	atDynamic := atNames + len(names)
	atSections := atDynamic + dynamic.Len()
	header := elf.Header64{
		Ident: [16]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)},
		Type:  uint16(elf.ET_DYN), Machine: uint16(elf.EM_X86_64), Version: uint32(elf.EV_CURRENT),
		Phoff: 64, Shoff: uint64(atSections), Ehsize: 64, Phentsize: 56, Phnum: 1, Shentsize: 64, Shnum: 3, Shstrndx: 1,
	}
	segment := elf.Prog64{Type: uint32(elf.PT_INTERP), Off: headers, Filesz: uint64(len(interp))}
	if loader == "" {
		segment.Type = uint32(elf.PT_NOTE)
		segment.Filesz = 0
	}
	var out bytes.Buffer
	for _, part := range []any{
		header, segment, interp, names, dynamic.Bytes(), elf.Section64{},
		elf.Section64{Type: uint32(elf.SHT_STRTAB), Off: uint64(atNames), Size: uint64(len(names))},
		elf.Section64{Type: uint32(elf.SHT_DYNAMIC), Off: uint64(atDynamic), Size: uint64(dynamic.Len()), Link: 1, Entsize: 16},
	} {
		if err := binary.Write(&out, binary.LittleEndian, part); err != nil {
			t.Fatal(err)
		}
	}
	return out.Bytes()
}

// iptablesTree is a Debian as far as kube-proxy needs one.
func iptablesTree(t *testing.T) *tree {
	t.Helper()
	tr := newTree()
	const lib = "usr/lib/x86_64-linux-gnu/"
	for name, data := range map[string][]byte{
		"usr/sbin/xtables-nft-multi":       elfFile(t, "/lib64/ld.so.2", "libxtables.so.12", "libc.so.6"),
		"usr/sbin/nft":                     elfFile(t, "/lib64/ld.so.2", "libc.so.6"),
		"usr/sbin/conntrack":               elfFile(t, "/lib64/ld.so.2", "libc.so.6"),
		"usr/bin/kmod":                     elfFile(t, "/lib64/ld.so.2", "libc.so.6"),
		"usr/bin/other":                    elfFile(t, "", "libother.so.1"),
		lib + "xtables/libxt_statistic.so": elfFile(t, "", "libm.so.6"),
		lib + "libxtables.so.12.7.0":       elfFile(t, "", "libc.so.6"),
		lib + "libm.so.6":                  elfFile(t, "", "libc.so.6"),
		lib + "libc.so.6":                  elfFile(t, "", "ld.so.2"),
		lib + "ld.so.2":                    elfFile(t, ""),
		lib + "libother.so.1":              elfFile(t, ""),
	} {
		if err := tr.put(name, 0o755, data); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(tr.symlink("libxtables.so.12.7.0", lib+"libxtables.so.12"), tr.symlink("usr/lib", "lib"),
		tr.symlink("/lib/x86_64-linux-gnu/ld.so.2", "usr/lib64/ld.so.2"), tr.symlink("usr/lib64", "lib64")); err != nil {
		t.Fatal(err)
	}
	return tr
}

func TestKubeProxyGetsWhatItsExtensionsNeed(t *testing.T) {
	t.Parallel()
	debian, image := iptablesTree(t), newTree()
	if err := userland(image, debian); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"/lib64/ld.so.2", "/lib/x86_64-linux-gnu/libxtables.so.12", "/lib/x86_64-linux-gnu/libm.so.6",
		"/usr/sbin/iptables-restore", "/sbin/ip6tables", "/usr/sbin/modprobe", "/usr/lib/x86_64-linux-gnu/xtables/libxt_statistic.so"} {
		if _, _, err := image.file(name); err != nil {
			t.Error(err)
		}
	}
	for _, name := range []string{"usr/bin/other", "usr/lib/x86_64-linux-gnu/libother.so.1"} {
		if _, ok := image.entries[name]; ok {
			t.Errorf("%s is there and not needed", name)
		}
	}
	if err := debian.remove("usr/lib/x86_64-linux-gnu/libm.so.6"); err != nil {
		t.Fatal(err)
	}
	if err := userland(newTree(), debian); err == nil || !strings.Contains(err.Error(), "libm.so.6") {
		t.Errorf("got %v, want that a library is missing", err)
	}
	if err := debian.remove("usr/lib/x86_64-linux-gnu/xtables"); err != nil {
		t.Fatal(err)
	}
	if err := userland(newTree(), debian); err == nil || !strings.Contains(err.Error(), "extensions") {
		t.Errorf("got %v, want that the extensions are missing", err)
	}
}

func TestUnitsAreEnabledAsTheySay(t *testing.T) {
	t.Parallel()
	tr := newTree()
	if err := errors.Join(
		tr.put("etc/systemd/system/a.service", 0o644, []byte("[Install]\nWantedBy=multi-user.target x.target\n")),
		tr.put("etc/systemd/system/b.service", 0o644, []byte("[Service]\n"))); err != nil {
		t.Fatal(err)
	}
	if err := enable(tr, "a.service"); err != nil {
		t.Fatal(err)
	}
	for _, target := range []string{"multi-user.target", "x.target"} {
		if e := tr.entries["etc/systemd/system/"+target+".wants/a.service"]; e == nil || e.Linkname != "/etc/systemd/system/a.service" {
			t.Errorf("%s does not want it: %+v", target, e)
		}
	}
	if err := enable(tr, "b.service"); err == nil {
		t.Error("a unit that nothing wants was enabled")
	}
	if err := enable(tr, "c.service"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

func TestTheRuntimeSpecificationGetsKindsHook(t *testing.T) {
	t.Parallel()
	const huge = "18446744073709551615" // more than a float64 holds
	got, err := baseSpec([]byte(`{"process":{"rlimits":[{"type":"RLIMIT_NOFILE"}],"args":["sh"]},"hooks":{"createContainer":[{"path":"/a"}]},"x":` + huge + `}`))
	if err != nil {
		t.Fatal(err)
	}
	var spec struct {
		Process map[string]any
		Hooks   struct{ CreateContainer []struct{ Path string } }
	}
	if err := json.Unmarshal(got, &spec); err != nil {
		t.Fatal(err)
	}
	if _, ok := spec.Process["rlimits"]; ok || len(spec.Process) != 1 || len(spec.Hooks.CreateContainer) != 2 ||
		spec.Hooks.CreateContainer[1].Path != "/kind/bin/mount-product-files.sh" || !strings.Contains(string(got), huge) {
		t.Errorf("%s", got)
	}
	if got, err = baseSpec([]byte(`{"process":{}}`)); err != nil || !strings.Contains(string(got), "mount-product-files.sh") {
		t.Errorf("%s, %v", got, err)
	}
	for _, bad := range []string{"", "{}", "no"} {
		if _, err := baseSpec([]byte(bad)); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}

// program writes a shell script as a program.
func program(t *testing.T, dir, name, script string) {
	t.Helper()
	// A process that a parallel test starts meanwhile would hold the file open for writing, so that it could not be run.
	syscall.ForkLock.RLock()
	err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+script), 0o755)
	syscall.ForkLock.RUnlock()
	if err != nil {
		t.Fatal(err)
	}
}

// modulesDir is where the nested modules are, seen from this package.
const modulesDir = "../modules"

func TestKubeadmSaysWhichImagesThereMustBe(t *testing.T) {
	t.Parallel()
	coredns, err := modules[slices.IndexFunc(modules, func(m module) bool { return m.dir == "coredns" })].pinned(modulesDir)
	if err != nil {
		t.Fatal(err)
	}
	list := func(coredns string, names ...string) string {
		var text strings.Builder
		for _, name := range append(names, "coredns/coredns:"+coredns, "pause:3.99") {
			text.WriteString("echo registry.k8s.io/" + name + "\n")
		}
		return text.String()
	}
	all := []string{"kube-apiserver:v1.2.3", "kube-controller-manager:v1.2.3", "kube-scheduler:v1.2.3", "kube-proxy:v1.2.3", "etcd:3.7.0-0"}
	const config = "  sandbox_image = \"registry.k8s.io/pause:3.10\"\n"
	for name, test := range map[string]struct{ kubeadm, config, want string }{
		"all well":         {list(coredns, all...), config, ""},
		"no etcd":          {list(coredns, all[:4]...), config, "no image of etcd"},
		"another CoreDNS":  {list("v9.9.9", all...), config, "asks for CoreDNS v9.9.9"},
		"no sandbox image": {list(coredns, all...), "", "sandbox_image"},
		"a broken kubeadm": {"exit 1", config, "asking kubeadm"},
		"no tag":           {"echo name", config, "without a tag"},
	} {
		dir := t.TempDir()
		program(t, dir, "kubeadm", test.kubeadm)
		b := &build{Source: Source{Kubernetes: dir}, version: "v1.2.3", modules: modulesDir}
		got, err := b.components(context.Background(), newTree(), []byte(test.config))
		if test.want != "" {
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%s: got %v", name, err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, c := range got {
			names = append(names, c.names...)
		}
		// Both kind's containerd and kubeadm must find their pause.
		for _, want := range []string{"registry.k8s.io/pause:3.10", "registry.k8s.io/pause:3.99", "registry.k8s.io/etcd:3.7.0-0",
			"registry.k8s.io/coredns/coredns:" + coredns} {
			if !slices.Contains(names, want) {
				t.Errorf("there is no %s in %v", want, names)
			}
		}
	}
}

func TestModulesPinWhatTheyBuild(t *testing.T) {
	t.Parallel()
	for _, m := range modules {
		version, err := m.pinned(modulesDir)
		if err != nil {
			t.Error(err)
			continue
		}
		args := strings.Join(m.args(version, "/out"), " ")
		for _, want := range []string{"-mod=readonly", "-buildvcs=false", "-o /out/"} {
			if !strings.Contains(args, want) {
				t.Errorf("%s is built without %s: %s", m.dir, want, args)
			}
		}
		if m.version != "" && !strings.Contains(args, m.version+"="+strings.TrimPrefix(version, "v")) &&
			!strings.Contains(args, m.version+"="+version) {
			t.Errorf("%s does not learn its version: %s", m.dir, args)
		}
	}
	if _, err := (module{dir: "cni", requires: "example.org/none"}).pinned(modulesDir); err == nil {
		t.Error("a module that is not required has a version")
	}
}

func TestTheKeyCoversWhatDecidesTheImage(t *testing.T) {
	t.Parallel()
	root, kubernetes := t.TempDir(), t.TempDir()
	dir := filepath.Join(root, "kind", "nodeimage", "modules", "x")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	write := func(at, text string) {
		t.Helper()
		if err := os.WriteFile(at, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	program(t, kubernetes, "kubeadm", "echo v1.2.3")
	program(t, kubernetes, kubernetesProgram, "one")
	write(filepath.Join(dir, "go.sum"), "one")
	s := Source{Root: root, Kubernetes: kubernetes, Arch: runtime.GOARCH}
	kind := kindModule{Version: "v0.1.0"}
	key := func(s Source, kind kindModule, goVersion string) string {
		t.Helper()
		key, err := s.key(t.Context(), kind, goVersion)
		if err != nil || !strings.HasPrefix(key, "v1.2.3-") {
			t.Fatalf("%s, %v", key, err)
		}
		return key
	}
	seen := map[string]string{key(s, kind, "go1"): "the first"}
	expectNew := func(what, key string) {
		t.Helper()
		if other, ok := seen[key]; ok {
			t.Errorf("%s makes the key of %s", what, other)
		}
		seen[key] = what
	}
	expectNew("another kind", key(s, kindModule{Version: "v0.2.0"}, "go1"))
	expectNew("another Go", key(s, kind, "go2"))
	expectNew("another architecture", key(Source{Root: root, Kubernetes: kubernetes, Arch: "riscv64"}, kind, "go1"))
	write(filepath.Join(dir, "go.sum"), "two")
	expectNew("another checksum", key(s, kind, "go1"))
	write(filepath.Join(dir, "main.go"), "package main")
	expectNew("another source", key(s, kind, "go1"))
	program(t, kubernetes, kubernetesProgram, "two")
	last := key(s, kind, "go1")
	expectNew("another Kubernetes", last)
	write(filepath.Join(dir, "main_test.go"), "package main")
	write(filepath.Join(dir, "README.md"), "x")
	if key(s, kind, "go1") != last {
		t.Error("a test or a text makes another image")
	}
}
