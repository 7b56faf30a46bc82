package image

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ccm-from-scratch/ccm-from-scratch/kind/nodeimage/job"
	"github.com/ccm-from-scratch/ccm-from-scratch/kind/nodeimage/kubernetes"
)

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

// machine fakes a Docker that knows images by name, a compiler, and debootstrap. Debian is there, unless that has a script. It returns
// the options of a build, and a function that returns the commands of Docker. A script is the beginning of the program of its name.
func machine(t *testing.T, scripts map[string]string) (o Options, told func() string) {
	t.Helper()
	dir := t.TempDir()
	known, log := filepath.Join(dir, "known"), filepath.Join(dir, "log")
	program(t, dir, "docker", scripts["docker"]+`
echo "$*" >>`+log+`
case "$1 $2" in
"image inspect") grep -qxF "$3" `+known+` ;;
"image rm") grep -vxF "$3" `+known+` >`+known+`.new; mv `+known+`.new `+known+` ;;
"build --network=none") tag=${3#--tag=} && echo "$tag" >>`+known+` ;;
"save --output") echo "$4" >"$3" ;;
"load --quiet") cat "$4" >>`+known+` ;;
esac`)
	compiler, err := exec.LookPath("go")
	if err != nil {
		t.Fatal(err)
	}
	// Its version, settings and modules are the true ones. scripts/need.sh asks for the first two.
	program(t, dir, "go", `[ "$1" = build ] || exec `+compiler+` "$@"; `+scripts["go"])
	program(t, dir, "debootstrap", scripts["debootstrap"]+`
for root; do :; done; mkdir -p "$root"`)
	if scripts["debootstrap"] != "" && os.Geteuid() != 0 {
		t.Skip("only root installs a Debian into a folder")
	}
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	root, err := filepath.Abs(filepath.Join("..", "..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	o = Options{Root: root, CacheDir: t.TempDir(), Progress: &job.Progress{},
		kubernetes: kubernetes.Assets{Version: "v1.2.3", Dir: filepath.Join(t.TempDir(), "v1.2.3-0123")}}
	if err := os.Mkdir(o.kubernetes.Dir, 0o755); err != nil {
		t.Fatal(err)
	}
	program(t, o.kubernetes.Dir, "kubernetes", "")
	if scripts["debootstrap"] == "" {
		program(t, o.CacheDir, debianArchive(nodePackages), "")
	}
	return o, func() string {
		data, err := os.ReadFile(log)
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
}

func TestAnImageIsBuiltOnceAndLoadedWhenDockerLostIt(t *testing.T) {
	o, told := machine(t, nil)
	var both sync.WaitGroup
	var names [2]string
	var errs [2]error
	for i := range names {
		both.Go(func() { names[i], errs[i] = EnsureNode(t.Context(), o) })
	}
	both.Wait()
	if err := errors.Join(errs[:]...); err != nil || names[0] != names[1] || !strings.HasPrefix(names[0], repository+":v1.2.3-") {
		t.Fatal(names, err)
	}
	if entries, err := filepath.Glob(filepath.Join(o.CacheDir, "*")); err != nil || len(entries) != 3 {
		t.Errorf("the cache has %v, want the image, Debian and a lock: %v", entries, err)
	}
	if err := job.Command(t.Context(), "docker", "image", "rm", names[0]); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if name, err := EnsureNode(t.Context(), o); err != nil || name != names[0] {
			t.Error(name, err)
		}
	}
	for command, want := range map[string]int{"build ": 1, "save ": 1, "load ": 1} {
		if got := strings.Count("\n"+told(), "\n"+command); got != want {
			t.Errorf("%d times %s, want %d:\n%s", got, command, want, told())
		}
	}
}

func TestOldImagesAreForgotten(t *testing.T) {
	o, told := machine(t, nil)
	for i, name := range []string{"v1.2.3-young", "v1.2.3-middle", "v1.2.3-old"} {
		archive, at := filepath.Join(o.CacheDir, name+".tar"), time.Now().Add(-time.Duration(i+1)*time.Hour)
		if err := errors.Join(os.WriteFile(archive, nil, 0o600), os.Chtimes(archive, at, at)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := EnsureNode(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"v1.2.3-young": true, "v1.2.3-middle": true, "v1.2.3-old": false} {
		_, err := os.Stat(filepath.Join(o.CacheDir, name+".tar"))
		if (err == nil) != want || strings.Contains(told(), "image rm "+repository+":"+name) == want {
			t.Errorf("%s: %v\n%s", name, err, told())
		}
	}
}

func TestDebianIsInstalledWhileTheProgramsCompile(t *testing.T) {
	dir := t.TempDir()
	meets := func(own, other string) string {
		return "touch " + filepath.Join(dir, own) + "; i=0; until [ -e " + filepath.Join(dir, other) + " ]; do " +
			"i=$((i+1)); [ $i -lt 300 ] || { echo " + own + " runs alone >&2; exit 1; }; sleep 0.1; done; "
	}
	o, _ := machine(t, map[string]string{"go": meets("go", "debootstrap"), "debootstrap": meets("debootstrap", "go")})
	if _, err := EnsureNode(t.Context(), o); err != nil {
		t.Error(err)
	}
}

func TestAFailedBuildEndsWithItsReasonAndLeavesNothing(t *testing.T) {
	for program, scripts := range map[string]map[string]string{
		"debootstrap": {"debootstrap": "echo the reason >&2; exit 1", "go": "sleep 1000"},
		"docker":      {"docker": `[ "$1" != build ] || { echo the reason >&2; exit 1; }`},
		"docker save": {"docker": `[ "$1" != save ] || { touch "$3"; echo the reason >&2; exit 1; }`},
	} {
		t.Run(program, func(t *testing.T) {
			o, _ := machine(t, scripts)
			_, err := EnsureNode(t.Context(), o)
			if err == nil || !strings.Contains(err.Error(), "\nthe reason") {
				t.Errorf("got %v", err)
			}
			if left, err := filepath.Glob(filepath.Join(o.CacheDir, "[vw]*")); err != nil || left != nil {
				t.Errorf("the cache has %v, %v", left, err)
			}
		})
	}
}

func TestTheKeyCoversWhatDecidesTheImage(t *testing.T) {
	t.Parallel()
	o := Options{Root: t.TempDir(), kubernetes: kubernetes.Assets{Version: "v1.2.3", Dir: "/cache/one"}}
	write := func(name, text string) {
		t.Helper()
		at := filepath.Join(o.Root, "kind", "nodeimage", name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.WriteFile(at, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	seen := map[string]string{}
	check := func(what, kind, goVersion string, isNew bool) {
		t.Helper()
		key, err := o.key(kind, goVersion)
		if err != nil || !strings.HasPrefix(key, "v1.2.3-") {
			t.Fatalf("%s, %v", key, err)
		}
		if other, ok := seen[key]; ok == isNew {
			t.Errorf("%s: another key is %v, want %v (%s)", what, !ok, isNew, other)
		}
		seen[key] = what
	}
	for _, name := range []string{"image/a.go", "node/Dockerfile", "modules/node/go.mod"} {
		write(name, "one")
	}
	check("the first", "v0.1.0", "go1", true)
	check("another kind", "v0.2.0", "go1", true)
	check("another Go", "v0.1.0", "go2", true)
	for _, name := range []string{"image/a.go", "node/Dockerfile", "modules/node/go.mod", "modules/node/pause/main.go"} {
		write(name, "two")
		check("another "+name, "v0.1.0", "go1", true)
	}
	o.kubernetes.Dir = "/cache/two"
	check("another Kubernetes", "v0.1.0", "go1", true)
	write("image/a_test.go", "package main")
	check("a test", "v0.1.0", "go1", false)
}
