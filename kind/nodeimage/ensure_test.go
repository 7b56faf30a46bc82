package nodeimage

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
)

// fakeDocker puts a docker first in PATH that knows images by name, in the file
// whose path it returns; those of an archive are added by `docker load`, and kind's
// own by `docker pull` if the registry can be reached. Every command is noted in
// the file log beside it.
func fakeDocker(t *testing.T, registry bool, images ...string) (known, log string) {
	t.Helper()
	dir := t.TempDir()
	known, log = filepath.Join(dir, "known"), filepath.Join(dir, "log")
	if err := os.WriteFile(known, []byte(strings.Join(images, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	reached := "echo 'lookup registry: no such host' >&2; exit 1"
	if registry {
		reached = `for name; do :; done; echo "$name" >>` + known
	}
	program(t, dir, "docker", `echo "$*" >>`+log+`
case "$1 $2" in
"image inspect") grep -qxF "$3" `+known+` ;;
"image rm") grep -vxF "$3" `+known+` >`+known+`.new; mv `+known+`.new `+known+` ;;
"pull --quiet") `+reached+` ;;
"load --quiet") tar -xOf "$4" manifest.json | sed 's/.*"RepoTags":\["\([^"]*\)".*/\1/' >>`+known+` ;;
esac`)
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	return known, log
}

// checkout makes the folder of a repository and of Kubernetes' program, so far
// that an image can be named, and options for it with a cache of its own.
func checkout(t *testing.T) Options {
	t.Helper()
	root, err := filepath.Abs(filepath.Join("..", ".."))
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

func TestKindsOwnImageIsUsedWhereDockerHasIt(t *testing.T) {
	_, log := fakeDocker(t, false, Published)
	name, err := Ensure(t.Context(), Options{})
	if err != nil || name != Published {
		t.Fatalf("%s, %v", name, err)
	}
	if strings.Contains(said(t, log), "pull") {
		t.Errorf("it was pulled again: %s", said(t, log))
	}
}

func TestKindsOwnImageIsPulledWhereARegistryAnswers(t *testing.T) {
	for _, mode := range []Mode{Auto, Pull} {
		known, _ := fakeDocker(t, true)
		o := checkout(t)
		o.Mode = mode
		name, err := Ensure(t.Context(), o)
		if err != nil || name != Published || !strings.Contains(said(t, known), Published) {
			t.Errorf("%s: %s, %v", mode, name, err)
		}
	}
}

func TestAnImageThatDockerLostIsLoadedFromTheCache(t *testing.T) {
	known, log := fakeDocker(t, false)
	o := checkout(t)
	tag := cache(t, o)
	for range 2 {
		name, err := Ensure(t.Context(), o)
		if err != nil || name != tag {
			t.Fatalf("%s, %v, want %s", name, err, tag)
		}
	}
	if !strings.Contains(said(t, known), tag) || strings.Count(said(t, log), "load") != 1 || strings.Contains(said(t, log), "pull") {
		t.Errorf("docker was told\n%s", said(t, log))
	}
}

func TestAnImageByNameMustBeThere(t *testing.T) {
	fakeDocker(t, true, "mine:1")
	if name, err := Ensure(t.Context(), Options{Mode: "mine:1"}); err != nil || name != "mine:1" {
		t.Errorf("%s, %v", name, err)
	}
	if _, err := Ensure(t.Context(), Options{Mode: "mine:2"}); err == nil || !strings.Contains(err.Error(), "no image mine:2") {
		t.Errorf("got %v", err)
	}
}

func TestWithoutARegistryPullSaysWhy(t *testing.T) {
	fakeDocker(t, false)
	if _, err := Ensure(t.Context(), Options{Mode: Pull}); err == nil || !strings.Contains(err.Error(), "no such host") {
		t.Errorf("got %v", err)
	}
}

func TestABuildNeedsACheckout(t *testing.T) {
	fakeDocker(t, false)
	t.Chdir(t.TempDir())
	if _, err := Ensure(t.Context(), Options{Mode: Build, CacheDir: t.TempDir()}); err == nil || !strings.Contains(err.Error(), "checkout") {
		t.Errorf("got %v", err)
	}
}

func TestOldImagesAreForgotten(t *testing.T) {
	known, _ := fakeDocker(t, false, repository+":old", repository+":young", repository+":third")
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
	if images := said(t, known); strings.Contains(images, ":old") || strings.Contains(images, ":third") || !strings.Contains(images, ":young") || !strings.Contains(images, tag) {
		t.Errorf("Docker has %s", images)
	}
}

func TestAnotherProcessIsWaitedFor(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lock")
	fake := clocktesting.NewFakeClock(time.Now())
	unlock, err := lock(t.Context(), path, fake, func() { t.Error("a free lock was waited for") })
	if err != nil {
		t.Fatal(err)
	}
	waiting := make(chan struct{})
	got := make(chan error, 1)
	go func() {
		unlock, err := lock(t.Context(), path, fake, func() { close(waiting) })
		if err == nil {
			unlock()
		}
		got <- err
	}()
	<-waiting
	unlock()
	for {
		fake.Step(time.Second)
		select {
		case err := <-got:
			if err != nil {
				t.Error(err)
			}
			return
		default:
			runtime.Gosched()
		}
	}
}

func TestWaitingForAnotherProcessCanBeCancelled(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lock")
	unlock, err := lock(t.Context(), path, clock.RealClock{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	ctx, cancel := context.WithCancel(t.Context())
	if _, err := lock(ctx, path, clock.RealClock{}, cancel); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestALongStepShowsThatItStillRuns(t *testing.T) {
	t.Parallel()
	fake := clocktesting.NewFakeClock(time.Now())
	var out bytes.Buffer
	p := &progress{out: &out, clock: fake}
	err := p.step("counting", func() error {
		for {
			p.mu.Lock()
			shown := strings.Contains(out.String(), "20s so far")
			p.mu.Unlock()
			if shown {
				return errors.New("lost count")
			}
			if fake.HasWaiters() {
				fake.Step(heartbeat)
			}
			runtime.Gosched()
		}
	})
	if err == nil || err.Error() != "counting: lost count" {
		t.Errorf("got %v", err)
	}
}

func TestAFailedProgramsLastWordsAreInTheError(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	program(t, dir, "fails", "i=0; while [ $i -lt 2000 ]; do echo filler; i=$((i+1)); done; echo 'the reason' >&2; exit 3")
	err := command(t.Context(), filepath.Join(dir, "fails"), "now")
	if err == nil || !strings.Contains(err.Error(), "fails now: exit status 3") || lastLine(err) != "the reason" || len(err.Error()) > 5000 {
		t.Errorf("got %v", err)
	}
	if err := command(t.Context(), "no-such-program-anywhere"); err == nil || !strings.Contains(err.Error(), "needs no-such-program-anywhere") {
		t.Errorf("got %v", err)
	}
}

func TestACancelledProgramEndsWithItsChildren(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	// A pipe that ends when the last process that holds its writing end does.
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	program(t, dir, "parent", "(trap '' TERM; echo started; sleep 1000) & wait")
	ctx, cancel := context.WithCancel(t.Context())
	cmd := exec.CommandContext(ctx, filepath.Join(dir, "parent"))
	cmd.Stdout = w
	done := make(chan error, 1)
	go func() {
		done <- run(cmd)
		_ = w.Close()
	}()
	if _, err := io.ReadFull(r, make([]byte, len("started\n"))); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := <-done; err == nil {
		t.Error("it ended well")
	}
	if rest, err := io.ReadAll(r); err != nil || len(rest) > 0 {
		t.Errorf("%q, %v", rest, err)
	}
}
