package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// tests is a file of tests. Some do not end the same each time: with one processor, they fail.
const tests = `package x

import (
	"flag"
	"runtime"
	"testing"
)

func TestSame(*testing.T) {}

func TestShort(t *testing.T) {
	if testing.Short() {
		t.Error("short")
	}
}

func TestAlone(t *testing.T) {
	if flag.Lookup("test.run").Value.String() == "^TestAlone$" {
		t.Error("alone")
	}
}

func TestDiffers(t *testing.T) {
	t.Run("it's the one", func(t *testing.T) {
		if runtime.GOMAXPROCS(0) == 1 {
			t.Error("one processor")
		}
	})
	t.Run("not this one", func(*testing.T) {})
}

func TestSkips(t *testing.T) {
	if runtime.GOMAXPROCS(0) == 2 {
		t.Skip()
	}
}
`

const exits = `package y

import (
	"os"
	"testing"
)

func TestExits(t *testing.T) { os.Exit(3) }
`

// repository makes a repository with two packages, and goes there. It returns the argument of stress.
func repository(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module example.org/m\n\ngo 1.26\n", "x/x_test.go": tests, "y/testdata/a": "", "y/y_test.go": exits,
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(folder, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(folder)
	gitRuns(t, "init", "-qb", "main")
	gitRuns(t, "add", ".")
	gitRuns(t, "commit", "-qm", "all")
	gitRuns(t, "update-ref", "refs/remotes/origin/main", "HEAD")
	return folder + "/x example.org/m/x off\n" + folder + "/y example.org/m/y off\n"
}

func gitRuns(t *testing.T, args ...string) {
	t.Helper()
	args = append([]string{"-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false"}, args...)
	if out, err := exec.CommandContext(t.Context(), "git", args...).CombinedOutput(); err != nil {
		t.Fatalf("git %v: %v: %s", args, err, out)
	}
}

func run(t *testing.T, lines string, settings map[string]string) (string, error) {
	t.Helper()
	var out strings.Builder
	err := stress(t.Context(), &out, lines, func(name string) string { return settings[name] })
	return out.String(), err
}

func TestATestThatDoesNotEndTheSameIsPrintedWithItsRate(t *testing.T) {
	lines := repository(t)
	out, err := run(t, lines, map[string]string{"PACKAGES": "./x", "COUNT": "2"})
	if err == nil || !strings.Contains(out, "stress: 4 passed, 3 failed; 2 turns of 1 of 1 packages") {
		t.Errorf("%v: %s", err, out)
	}
	for _, want := range []string{
		"TestDiffers/it's_the_one of example.org/m/x: 2 of 6 times failed, 0 times skipped\n", "one processor",
		"TestAlone of example.org/m/x: 3 of 6 times failed, 0 times skipped\n",
		"TestSkips of example.org/m/x: 0 of 6 times failed, 2 times skipped\n",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("there is no %q in %s", want, out)
		}
	}
	if strings.Contains(out, "TestSame") || strings.Contains(out, "TestDiffers of") || strings.Contains(out, "not_this") {
		t.Errorf("too much: %s", out)
	}
	command := regexp.MustCompile(`again: (.*it.s_the_one.*)`).FindStringSubmatch(out)
	if command == nil {
		t.Fatal("it must say how to repeat it")
	}
	again, err := exec.CommandContext(t.Context(), "sh", "-c", command[1]).CombinedOutput()
	if err == nil || strings.Count(string(again), "--- FAIL: TestDiffers/it's_the_one") != 20 {
		t.Errorf("%s: %v: %s", command[1], err, again)
	}
}

func TestAShortRoundRunsShortTests(t *testing.T) {
	out, _ := run(t, repository(t), map[string]string{"PACKAGES": "x", "COUNT": "1", "SHORT": "1"})
	if !strings.Contains(out, "TestShort of example.org/m/x: 3 of 3 times failed") {
		t.Error(out)
	}
}

func TestAPackageThatEndsEarlyHasFailed(t *testing.T) {
	out, err := run(t, repository(t), map[string]string{"PACKAGES": "y/...", "COUNT": "1"})
	if err == nil || !strings.Contains(out, "TestExits of example.org/m/y: 1 of 1 times failed") {
		t.Errorf("%v: %s", err, out)
	}
}

func TestTestsThatDoNotCompileHaveFailed(t *testing.T) {
	lines := repository(t)
	if err := os.WriteFile("x/x_test.go", []byte("package"), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := run(t, lines, map[string]string{"PACKAGES": "x"})
	if err == nil || !strings.Contains(out, "m/x: its tests do not compile") || !strings.Contains(out, "0 passed, 1 failed") {
		t.Errorf("%v: %s", err, out)
	}
}

func TestTimeThatIsUpIsNoFailure(t *testing.T) {
	out, err := run(t, repository(t), map[string]string{"BUDGET": "1ns"})
	if err != nil || !strings.Contains(out, "0 passed, 0 failed") {
		t.Errorf("%v: %s", err, out)
	}
}

func TestOnlyWhatDiffersFromTheBaseIsRepeated(t *testing.T) {
	lines := repository(t)
	settings := map[string]string{"CHANGED": "1", "BUDGET": "1ns"}
	out, _ := run(t, lines, settings)
	if !strings.Contains(out, "all packages, in random order") || !strings.Contains(out, "of 2 packages") {
		t.Errorf("with one commit: %s", out)
	}
	change := func(name string) {
		t.Helper()
		if err := os.WriteFile(name, []byte("changed"), 0o600); err != nil {
			t.Fatal(err)
		}
		gitRuns(t, "commit", "-qam", "changed")
	}
	change("y/testdata/a")
	out, _ = run(t, lines, settings)
	if !strings.Contains(out, "1 packages differ from origin/main") || !strings.Contains(out, "of 1 packages") {
		t.Errorf("in a branch: %s", out)
	}
	gitRuns(t, "update-ref", "refs/remotes/origin/main", "HEAD")
	if out, _ := run(t, lines, settings); !strings.Contains(out, "1 packages differ from the commit before") {
		t.Errorf("without a release: %s", out)
	}
	gitRuns(t, "tag", "v1.2.3")
	gitRuns(t, "tag", "x/v1.2.4")
	gitRuns(t, "update-ref", "-d", "refs/remotes/origin/main")
	change("x/x_test.go")
	if out, _ := run(t, lines, settings); !strings.Contains(out, "1 packages differ from the release v1.2.3") {
		t.Errorf("after a release: %s", out)
	}
}
