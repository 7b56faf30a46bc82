package main

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"
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
	files := fstest.MapFS{"go.mod": {Data: []byte("module example.org/m\n\ngo 1.26\n")}, "x/x_test.go": {Data: []byte(tests)},
		"y/testdata/a": {}, "y/y_test.go": {Data: []byte(exits)}}
	if err := os.CopyFS(folder, files); err != nil {
		t.Fatal(err)
	}
	t.Chdir(folder)
	shell(t, "git init -qb main && git add . && $COMMIT && git update-ref refs/remotes/origin/main HEAD")
	return folder + "/x example.org/m/x off\n" + folder + "/y example.org/m/y off\n"
}

// shell runs a script. Its $COMMIT commits all changes.
func shell(t *testing.T, script string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sh", "-euc", script)
	cmd.Env = append(os.Environ(), "COMMIT=git -c user.name=t -c user.email=t@example.org -c commit.gpgsign=false commit -qam all")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", script, err, out)
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

func TestARoundSaysWhatFailed(t *testing.T) {
	for name, c := range map[string]struct {
		settings map[string]string
		text     string // of a file of tests
		want     string
	}{
		"short tests": {map[string]string{"PACKAGES": "x", "COUNT": "1", "SHORT": "1"}, tests,
			"TestShort of example.org/m/x: 3 of 3 times failed"},
		"a package that ends early": {map[string]string{"PACKAGES": "y/...", "COUNT": "1"}, tests,
			"TestExits of example.org/m/y: 1 of 1 times failed"},
		"tests that do not compile": {map[string]string{"PACKAGES": "x"}, "package",
			"m/x: its tests do not compile"},
		"time that is up is no failure": {map[string]string{"BUDGET": "1ns"}, tests, "0 passed, 0 failed"},
	} {
		lines := repository(t)
		if err := os.WriteFile("x/x_test.go", []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := run(t, lines, c.settings)
		if (err == nil) != (c.settings["BUDGET"] != "") || !strings.Contains(out, c.want) {
			t.Errorf("%s: %v: %s", name, err, out)
		}
	}
}

func TestOnlyWhatDiffersFromTheBaseIsRepeated(t *testing.T) {
	lines := repository(t)
	for _, step := range []struct{ do, want string }{
		{"true", "all packages, in random order"},
		{"echo changed >y/testdata/a && $COMMIT", "1 packages differ from origin/main"},
		{"git update-ref refs/remotes/origin/main HEAD", "1 packages differ from the commit before"},
		{"git tag v1.2.3 && git tag x/v1.2.4 && git update-ref -d refs/remotes/origin/main && echo changed >x/x_test.go && $COMMIT",
			"1 packages differ from the release v1.2.3"},
	} {
		shell(t, step.do)
		out, _ := run(t, lines, map[string]string{"CHANGED": "1", "BUDGET": "1ns"})
		if !strings.Contains(out, step.want) {
			t.Errorf("after %s: %s", step.do, out)
		}
	}
}
