// Package longtest shortens long tests. With -short, they do a share of their work. With the race detector, those that look for no races
// run in a process without it.
package longtest

import (
	"bytes"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// variable sets the seed of this run.
const variable = "TEST_SEED"

var seed = sync.OnceValues(func() (uint64, error) {
	if text := os.Getenv(variable); text != "" {
		return strconv.ParseUint(text, 10, 64)
	}
	return rand.Uint64(), nil
})

// Share returns the parts of a test that this run does: all numbers below n or, with -short, some of them, which the seed chooses. A
// failure prints the seed.
func Share(t *testing.T, n, some int) []uint64 {
	t.Helper()
	s, err := seed()
	if err != nil {
		t.Fatalf("%s: %v", variable, err)
	}
	name := fnv.New64()
	_, _ = name.Write([]byte(t.Name()))
	order := rand.New(rand.NewPCG(s, name.Sum64())).Perm(n)
	if testing.Short() {
		order = order[:min(some, n)]
		t.Cleanup(func() {
			if t.Failed() {
				t.Logf("%s=%d chooses the same parts again; without -short, all run", variable, s)
			}
		})
	}
	if len(order) == 0 {
		t.Fatal("the test has no parts")
	}
	slices.Sort(order)
	chosen := make([]uint64, len(order))
	for i, part := range order {
		chosen[i] = uint64(part)
	}
	return chosen
}

// SkipRace skips a test if this process has the race detector. It must be the first line of the test: a test that calls Unraced finds it
// by that line.
func SkipRace(t *testing.T) {
	t.Helper()
	if Raced() {
		t.Skip("one goroutine does the work: Test…WithoutTheRaceDetector runs it in another process")
	}
}

var begins = regexp.MustCompile(`func (Test\w+)\(t \*testing\.T\) \{\n\tlongtest\.SkipRace\(t\)`)

// Unraced runs the tests of the current folder that begin with SkipRace, in a process without the race detector.
func Unraced(t *testing.T) {
	t.Helper()
	if !Raced() {
		t.Skip("nothing to do: this process has no race detector")
	}
	s, err := seed()
	if err != nil {
		t.Fatalf("%s: %v", variable, err)
	}
	files, err := filepath.Glob("*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		found := begins.FindAllSubmatch(text, -1)
		for _, match := range found {
			names = append(names, string(match[1]))
		}
		if len(found) != bytes.Count(text, []byte("longtest.SkipRace(")) {
			t.Errorf("%s: longtest.SkipRace must be the first line of a test", file)
		}
	}
	cmd := exec.CommandContext(t.Context(), "go", "test", "-vet=off", "-count=1", "-timeout=30m",
		fmt.Sprintf("-short=%t", testing.Short()), "-run=^("+strings.Join(names, "|")+")$")
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d", variable, s))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("go test -run='^(%s)$': %v\n%s", strings.Join(names, "|"), err, out)
	}
}

// Raced reports whether this process has the race detector.
func Raced() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}
