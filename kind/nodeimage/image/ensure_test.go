package image

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/ccm-from-scratch/ccm-from-scratch/kind/nodeimage/job"
)

// fakeDocker puts a docker first in PATH that knows images by name, in the file
// whose path it returns; those of an archive are added by `docker load`. Every command is noted in the
// file log next to it.
func fakeDocker(t *testing.T, images ...string) (known, log string) {
	t.Helper()
	dir := t.TempDir()
	known, log = filepath.Join(dir, "known"), filepath.Join(dir, "log")
	if err := os.WriteFile(known, []byte(strings.Join(images, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	program(t, dir, "docker", `echo "$*" >>`+log+`
case "$1 $2" in
"image inspect") grep -qxF "$3" `+known+` ;;
"image rm") grep -vxF "$3" `+known+` >`+known+`.new; mv `+known+`.new `+known+` ;;
"load --quiet") tar -xOf "$4" manifest.json | sed 's/.*"RepoTags":\["\([^"]*\)".*/\1/' >>`+known+` ;;
esac`)
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	return known, log
}

// checkout makes the folder of a repository and of Kubernetes' program, so far
// that an image can be named, and options for it with a cache of its own.
func checkout(t *testing.T) Options {
	t.Helper()
	root, err := filepath.Abs(filepath.Join("..", "..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	o := Options{Root: root, Kubernetes: t.TempDir(), CacheDir: t.TempDir(), Clock: clock.RealClock{}}
	program(t, o.Kubernetes, "kubeadm", "echo v1.2.3")
	program(t, o.Kubernetes, kubernetesProgram, "")
	return o
}

// cache puts an image of the options' key into their cache, and returns its name.
func cache(t *testing.T, o Options) string {
	t.Helper()
	_, key, err := o.prepare(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	tag := repository + ":" + key
	l, err := writeLayer(newTree(), t.TempDir(), epoch)
	if err != nil {
		t.Fatal(err)
	}
	var archive bytes.Buffer
	dir := filepath.Join(o.CacheDir, key)
	if err := errors.Join(writeArchive(&archive, epoch, &image{tags: []string{tag}, arch: runtime.GOARCH, layer: l}), os.Mkdir(dir, 0o755),
		os.WriteFile(filepath.Join(dir, archiveName), archive.Bytes(), 0o600)); err != nil {
		t.Fatal(err)
	}
	return tag
}

func said(t *testing.T, log string) string {
	t.Helper()
	data, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestAnImageThatDockerLostIsLoadedFromTheCache(t *testing.T) {
	known, log := fakeDocker(t)
	o := checkout(t)
	tag := cache(t, o)
	for range 2 {
		name, err := Ensure(t.Context(), o)
		if err != nil || name != tag {
			t.Fatalf("%s, %v, want %s", name, err, tag)
		}
	}
	if !strings.Contains(said(t, known), tag) || strings.Count(said(t, log), "load") != 1 {
		t.Errorf("docker was told\n%s", said(t, log))
	}
}

func TestOldImagesAreForgotten(t *testing.T) {
	known, _ := fakeDocker(t, repository+":old", repository+":young", repository+":third")
	o := checkout(t)
	now := time.Now()
	o.Clock = clocktesting.NewFakeClock(now)
	tag := cache(t, o)
	for name, age := range map[string]time.Duration{
		"old": maxAge + time.Hour, "work-1": maxAge + time.Hour, // too old
		"young": time.Hour, "young2": 2 * time.Hour, "work-2": time.Hour,
		"third": 3 * time.Hour, // too many
	} {
		dir := filepath.Join(o.CacheDir, name)
		if err := errors.Join(os.Mkdir(dir, 0o755), os.Chtimes(dir, now.Add(-age), now.Add(-age))); err != nil {
			t.Fatal(err)
		}
	}
	if name, err := Ensure(t.Context(), o); err != nil || name != tag {
		t.Fatalf("%s, %v", name, err)
	}
	for name, want := range map[string]bool{"old": false, "young": true, "young2": true, "third": false,
		"work-1": false, "work-2": true, strings.TrimPrefix(tag, repository+":"): true} {
		if _, err := os.Stat(filepath.Join(o.CacheDir, name)); (err == nil) != want {
			t.Errorf("%s: %v", name, err)
		}
	}
	if images := said(t, known); strings.Contains(images, ":old") || strings.Contains(images, ":third") ||
		!strings.Contains(images, ":young") || !strings.Contains(images, tag) {
		t.Errorf("Docker has %s", images)
	}
}

// building is a build of an empty cache that compiles with the go and installs with the debootstrap of these scripts.
func building(t *testing.T, goScript, debootstrapScript string) *build {
	t.Helper()
	dir := t.TempDir()
	compiler, err := exec.LookPath("go")
	if err != nil {
		t.Fatal(err)
	}
	// Its version and settings are the true ones: scripts/need.sh asks for them.
	program(t, dir, "go", `[ "$1" != env ] || exec `+compiler+` "$@"; `+goScript)
	program(t, dir, "debootstrap", debootstrapScript)
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	o := checkout(t)
	s := Source{Root: o.Root, Kubernetes: o.Kubernetes, Arch: runtime.GOARCH}
	b := &build{Source: s, modules: filepath.Join(s.folder(), "modules"), cache: o.CacheDir, work: t.TempDir(), epoch: epoch,
		progress: &job.Progress{}}
	b.programs = filepath.Join(b.work, "programs")
	return b
}

func TestDebianIsInstalledWhileTheProgramsCompile(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root installs a Debian into a folder")
	}
	dir := t.TempDir()
	meets := func(own, other string) string {
		return "touch " + filepath.Join(dir, own) + "; i=0; until [ -e " + filepath.Join(dir, other) + " ]; do " +
			"i=$((i+1)); [ $i -lt 300 ] || { echo " + own + " runs alone >&2; exit 1; }; sleep 0.1; done; "
	}
	b := building(t, meets("go", "debootstrap"), meets("debootstrap", "go")+"echo no Debian today >&2; exit 1")
	err := b.make(t.Context(), "tag", filepath.Join(b.work, archiveName))
	if err == nil || !strings.HasSuffix(err.Error(), "no Debian today") {
		t.Errorf("got %v", err)
	}
}

func TestAFailedInstallationOfDebianEndsTheCompilation(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root installs a Debian into a folder")
	}
	b := building(t, "sleep 1000", "echo no Debian today >&2; exit 1")
	err := b.make(t.Context(), "tag", filepath.Join(b.work, archiveName))
	if err == nil || !strings.HasSuffix(err.Error(), "no Debian today") {
		t.Errorf("got %v", err)
	}
}
