package kubernetes

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ccm-from-scratch/ccm-from-scratch/kind/nodeimage/job"
)

// checkout is the repository, as seen from this package.
var checkout = func() string { dir, _ := filepath.Abs(filepath.Join("..", "..", "..")); return dir }()

// shown returns what shows progress in a buffer.
func shown(out io.Writer) *job.Progress { return &job.Progress{Out: out} }

// tiny is a module that builds in a second and passes for Kubernetes.
func tiny(t *testing.T) Options {
	t.Helper()
	dir := t.TempDir()
	write(t, dir, "go.mod", "module example.com/tiny\n\ngo 1.24\n")
	write(t, dir, "main.go", "package main\n\nfunc main() { println(); print2() }\n")
	write(t, dir, "more.go", `package main

import "os"

func print2() { _, _ = os.Stdout.WriteString("Kubernetes v9.9.9\n") }
`)
	return Options{
		Root: checkout, Source: Source{Dir: dir, Kubernetes: "v9.9.9", Etcd: "v3.0.0"}, CacheDir: filepath.Join(t.TempDir(), "cache"),
		publisher: publisher{index: "http://127.0.0.1:1/none", releases: "http://127.0.0.1:1"},
	}
}

// folders lists the folders in the cache: results and work in progress.
func folders(t *testing.T, options Options) []string {
	t.Helper()
	entries, err := os.ReadDir(options.CacheDir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	var names []string
	for _, entry := range entries {
		if entry.IsDir() {
			names = append(names, entry.Name())
		}
	}
	return names
}

func TestProgramsAreBuiltOnceAndFoundAfterwards(t *testing.T) {
	t.Setenv(EnvAssets, "")
	options := tiny(t)
	if _, err := Cached(t.Context(), options); !errors.Is(err, ErrNotCached) {
		t.Fatalf("before the build: got %v, want ErrNotCached", err)
	}
	if got := folders(t, options); got != nil {
		t.Fatalf("looking made %v", got)
	}
	var told bytes.Buffer
	options.Progress = shown(&told)
	built, err := Ensure(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(told.String(), "compiling Kubernetes v9.9.9") || !strings.Contains(told.String(), "ready after") {
		t.Errorf("a person was told %q", told.String())
	}
	told.Reset()
	again, err := Ensure(t.Context(), options)
	if err != nil || again != built {
		t.Errorf("the second time: %+v, %v; want %+v", again, err, built)
	}
	if told.Len() > 0 {
		t.Errorf("the second time said %q", told.String())
	}
	for _, name := range Host().Commands() {
		if target, err := os.Readlink(filepath.Join(built.Dir, name)); err != nil || target != program {
			t.Errorf("%s leads to %q, %v", name, target, err)
		}
	}
	write(t, options.Source.Dir, "more.go", "package main\n\nfunc print2() { println(\"Kubernetes v9.9.9\") }\n")
	if _, err := Cached(t.Context(), options); !errors.Is(err, ErrNotCached) {
		t.Errorf("after a change of the source: got %v, want ErrNotCached", err)
	}
}

func TestTwoCallersAtOnceGetOneBuild(t *testing.T) {
	t.Setenv(EnvAssets, "")
	options := tiny(t)
	var told [2]bytes.Buffer
	var errs [2]error
	var both sync.WaitGroup
	for i := range told {
		both.Go(func() {
			mine := options
			mine.Progress = shown(&told[i])
			_, errs[i] = Ensure(t.Context(), mine)
		})
	}
	both.Wait()
	if err := errors.Join(errs[:]...); err != nil {
		t.Fatal(err)
	}
	all := told[0].String() + told[1].String()
	if got := strings.Count(all, "building from source"); got != 1 {
		t.Errorf("%d builds: %q", got, all)
	}
	if got := folders(t, options); len(got) != 1 {
		t.Errorf("the cache has %v", got)
	}
}

// onWrite is a writer that calls a function.
type onWrite func()

func (f onWrite) Write(p []byte) (int, error) { f(); return len(p), nil }

func TestACancelledBuildLeavesNothing(t *testing.T) {
	t.Setenv(EnvAssets, "")
	options := tiny(t)
	ctx, cancel := context.WithCancel(t.Context())
	options.Progress = shown(onWrite(cancel)) // as the build is announced
	_, err := Ensure(ctx, options)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want Canceled", err)
	}
	if got := folders(t, options); got != nil {
		t.Errorf("the cache has %v", got)
	}
	options.Progress = nil
	if _, err := Ensure(t.Context(), options); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

func mustComplete(t *testing.T, options Options) Options {
	t.Helper()
	options, err := options.complete()
	if err != nil {
		t.Fatal(err)
	}
	return options
}

func TestAFailedBuildShowsTheCompilersWordsAndLeavesNothing(t *testing.T) {
	t.Setenv(EnvAssets, "")
	options := tiny(t)
	write(t, options.Source.Dir, "more.go", "package main\n\nfunc print2() { undefined() }\n")
	_, err := Ensure(t.Context(), options)
	if err == nil || !strings.Contains(err.Error(), "more.go:3:17: undefined: undefined") {
		t.Errorf("got %v, want the compiler's message", err)
	}
	if got := folders(t, options); got != nil {
		t.Errorf("the cache has %v", got)
	}
}

func TestAProgramOfAnotherReleaseIsRefused(t *testing.T) {
	t.Setenv(EnvAssets, "")
	options := tiny(t)
	options.Source.Kubernetes = "v9.9.8"
	_, err := Ensure(t.Context(), options)
	if err == nil || !strings.Contains(err.Error(), "says that it is v9.9.9, not v9.9.8") {
		t.Errorf("got %v, want an error about the release", err)
	}
	if got := folders(t, options); got != nil {
		t.Errorf("the cache has %v", got)
	}
}

func TestWhatAKilledBuildLeftIsRemovedAndDamageRepaired(t *testing.T) {
	t.Setenv(EnvAssets, "")
	options := tiny(t)
	assets, err := Ensure(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Remove(assets.Etcd), os.Mkdir(assets.Dir+".tmp-123", 0o700)); err != nil {
		t.Fatal(err)
	}
	if _, err := Ensure(t.Context(), options); err != nil {
		t.Fatal(err)
	}
	if got := folders(t, options); len(got) != 1 || got[0] != filepath.Base(assets.Dir) {
		t.Errorf("the cache has %v", got)
	}
}

func TestTheAssetsVariableIsHonoured(t *testing.T) {
	options := tiny(t)
	prepare := func(version string, names ...string) string {
		dir := t.TempDir()
		for _, name := range names {
			write(t, dir, name, "#!/bin/sh\necho Kubernetes "+version+"\n")
		}
		return dir
	}
	three := []string{"etcd", "kube-apiserver", "kubectl"}
	all := append(slices.Clone(three), "kube-controller-manager")
	for name, test := range map[string]struct {
		dir  string
		want string // in the error
	}{
		"a program is missing":  {prepare("v9.9.9", "etcd", "kubectl"), "kube-apiserver"},
		"another minor release": {prepare("v9.8.9", all...), "this checkout is tested with v9.9.9"},
		"not a version":         {prepare("nothing", all...), "names no version"},
		"no controller manager": {prepare("v9.9.9", three...), "kube-controller-manager"},
		"all, of another patch": {prepare("v9.9.1", all...), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(EnvAssets, test.dir)
			assets, err := Cached(t.Context(), options)
			if test.want != "" {
				if err == nil || !strings.Contains(err.Error(), test.want) {
					t.Errorf("got %v, want an error that says %q", err, test.want)
				}
				return
			}
			if err != nil || assets.Dir != test.dir || assets.Version != "v9.9.1" || filepath.Dir(assets.ControllerManager) != test.dir {
				t.Errorf("got %+v, %v", assets, err)
			}
		})
	}
}
