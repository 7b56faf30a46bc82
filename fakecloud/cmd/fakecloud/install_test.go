package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// page returns the blocks of a language below a heading of INSTALL.md.
func page(t *testing.T, heading, language string) (blocks []string) {
	t.Helper()
	text := must(os.ReadFile("../../INSTALL.md"))(t)
	_, section, _ := strings.Cut(string(text), "\n## "+heading+"\n")
	section, _, _ = strings.Cut(section, "\n## ")
	for _, m := range regexp.MustCompile("(?s)```"+language+"\n(.*?)```").FindAllStringSubmatch(section, -1) {
		blocks = append(blocks, m[1])
	}
	if len(blocks) == 0 {
		t.Fatalf("INSTALL.md: %q has no block of %s", heading, language)
	}
	return blocks
}

// TestThePageWorksInAShell runs the commands of the page, one after the other, in a shell that ends with the first error.
func TestThePageWorksInAShell(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("the page is for another shell")
	}
	bin := t.TempDir()
	check(t, os.Symlink(program(), filepath.Join(bin, "fakecloud")))
	script := "set -eu\n"
	commands := 0
	for line := range strings.Lines(page(t, "A shell", "console")[0]) {
		command, ok := strings.CutPrefix(line, "$ ")
		if !ok {
			t.Errorf("not a command: %s", line)
		}
		script += command
		commands++
	}
	s := newShell(t)
	cmd := exec.Command("bash", "-c", script)
	cmd.Dir = bin // where it leaves a snapshot
	cmd.Env = slices.Concat(s.command().Env, []string{"PATH=" + bin + string(os.PathListSeparator) + os.Getenv("PATH"),
		"FAKECLOUD_LISTEN=127.0.0.1:0", "FAKECLOUD_CONTROL=127.0.0.1:0"})
	out, err := cmd.CombinedOutput()
	if err != nil || commands < 14 {
		t.Fatalf("%d commands: %v\n%s", commands, err, out)
	}
	for _, say := range []string{`"name": "web-1"`, "requests         1", "POST /v1/servers 201", "runs at speed 60", "busy took 0 of 0",
		"Server type cx23 is sold out in fsn1", "\nstopped\n"} {
		if !strings.Contains(string(out), say) {
			t.Errorf("no %q in\n%s", say, out)
		}
	}
}

// The test of the page is one that runs.
func TestThePageShowsATestThatRuns(t *testing.T) {
	t.Parallel()
	text := must(os.ReadFile("../../fakecloudtest/fakecloudtest_test.go"))(t)
	if block := page(t, "Go", "go")[0]; !strings.Contains(string(text), "\n"+block) {
		t.Errorf("fakecloudtest_test.go does not have the test of INSTALL.md:\n%s", block)
	}
}
