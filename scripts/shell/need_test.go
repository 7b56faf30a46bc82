package shell

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

func itoa(n int) string { return strconv.Itoa(n) }

// without returns the PATH without the folders that have a program, and one folder with programs of this test in front.
func (c checkout) path(t *testing.T, without string, programs map[string]string) string {
	t.Helper()
	for name, text := range programs {
		c.write(t, "bin/"+name, "#!/bin/sh\n"+text)
	}
	folders := filepath.SplitList(os.Getenv("PATH"))
	if without != "" {
		// A folder that has other programs, too, such as /usr/bin, is replaced with links to those.
		for i, folder := range folders {
			if _, err := os.Stat(filepath.Join(folder, without)); err != nil {
				continue
			}
			folders[i] = t.TempDir()
			entries, err := os.ReadDir(folder)
			if err != nil {
				t.Fatal(err)
			}
			for _, entry := range entries {
				if entry.Name() != without {
					_ = os.Symlink(filepath.Join(folder, entry.Name()), filepath.Join(folders[i], entry.Name()))
				}
			}
		}
	}
	return "PATH=" + strings.Join(append([]string{filepath.Join(c.folder, "bin")}, folders...), ":")
}

// TestWhatIsMissingIsSaidFirst has each first command on a machine that lacks something.
func TestWhatIsMissingIsSaidFirst(t *testing.T) {
	t.Parallel()
	const old = `[ "$1" = version ] && echo go version go1.19 linux/amd64 || { echo "invalid go version '1.26.0'" >&2; exit 1; }`
	const denied = `echo "permission denied while trying to connect to the Docker daemon socket at unix:///var/run/docker.sock" >&2; exit 1`
	const stopped = `echo "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?" >&2; exit 1`
	for name, c := range map[string]struct {
		without  string
		programs map[string]string
		settings []string // without a value: not set
		script   string
		args     []string
		want     string
	}{
		"no Go": {"go", nil, nil, "gorun.sh", []string{"program"},
			"Go 1.26.0 or later is needed, and no go is in the PATH: get it at https"},
		"no Go, tests":   {"go", nil, nil, "test.sh", []string{"program"}, "Go 1.26.0 or later is needed, and no go is in the PATH"},
		"no Go, tools":   {"go", nil, nil, "tool.sh", []string{"helm"}, "Go 1.26.0 or later is needed, and no go is in the PATH"},
		"no Go, install": {"go", nil, nil, "install.sh", nil, "Go 1.26.0 or later is needed, and no go is in the PATH"},
		"an old Go": {"", map[string]string{"go": old}, nil, "gorun.sh", []string{"program"},
			"/bin/go is go version go1.19 linux/amd64: get it at"},
		"an old Go that reads go.mod": {"", map[string]string{"go": "echo go1.20.14"}, nil, "gorun.sh", []string{"program"},
			"Go 1.26.0 or later is needed"},
		"no home": {"", nil, []string{"HOME", "XDG_CACHE_HOME", "GOCACHE"}, "gorun.sh", []string{"program"}, "HOME is not set"},
		"a home that is read-only": {"", nil, []string{"HOME=/dev/null", "XDG_CACHE_HOME"}, "gorun.sh", []string{"program"},
			"/dev/null/.cache/ccm-from-scratch cannot be written"},
		"modules that are read-only": {"", nil, []string{"GOMODCACHE=/dev/null/mod"}, "gorun.sh", []string{"program"},
			"/dev/null/mod cannot be written"},
		"no Docker": {"docker", nil, nil, "up.sh", []string{"up"},
			"Docker is needed, and no docker is in the PATH: get it"},
		"a Docker that is stopped": {"", map[string]string{"docker": stopped}, nil, "up.sh", []string{"status"},
			"does not answer: start it."},
		"a Docker of others": {"", map[string]string{"docker": denied}, nil, "up.sh", []string{"down"},
			"this user may not talk to it"},
		"a Docker of others, image": {"", map[string]string{"docker": denied}, nil, "image.sh", nil, "this user may not talk to it"},
		"no image":                  {"", nil, nil, "up.sh", []string{"load"}, "no image is named"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			shells(t, func(t *testing.T, shell ...string) {
				checkout := newCheckout(t)
				path := checkout.path(t, c.without, c.programs)
				cmd := checkout.command(t.Context(), shell, c.script, c.args...)
				cmd.Env = append(cmd.Env, path)
				for _, setting := range c.settings {
					if strings.Contains(setting, "=") {
						cmd.Env = append(cmd.Env, setting)
						continue
					}
					cmd.Env = slices.DeleteFunc(cmd.Env, func(s string) bool { return strings.HasPrefix(s, setting+"=") })
				}
				out, err := cmd.CombinedOutput()
				if first, _, _ := strings.Cut(string(out), "\n"); err == nil || !strings.Contains(first, c.want) {
					t.Errorf("%v: the first line must say %q:\n%s", err, c.want, out)
				}
			})
		})
	}
}

func TestModulesThatCannotBeDownloadedAreOneSentence(t *testing.T) {
	t.Parallel()
	shells(t, func(t *testing.T, shell ...string) {
		c := newCheckout(t)
		imports := ""
		for _, name := range []string{"a", "b", "c"} {
			imports += "import _ \"example.org/" + name + "\"\n"
		}
		c.write(t, "program/main.go", "package main\n\n"+imports+"\nfunc main() {}\n")
		cmd := c.command(t.Context(), shell, "gorun.sh", "program")
		cmd.Env = append(cmd.Env, "GOPROXY=off", "GOFLAGS=-mod=mod")
		out, err := cmd.CombinedOutput()
		if err == nil || strings.Count(string(out), "module lookup disabled") != 1 ||
			!strings.Contains(string(out), "connect it to the network for the first build") {
			t.Errorf("%v: %s", err, out)
		}
	})
}

func TestInstallSaysWhereTheProgramIs(t *testing.T) {
	t.Parallel()
	shells(t, func(t *testing.T, shell ...string) {
		c := newCheckout(t)
		c.write(t, "fakecloud/cmd/fakecloud/main.go", program)
		bin := filepath.Join(c.tmp, "bin")
		install := func(path string) string {
			t.Helper()
			cmd := c.command(t.Context(), shell, "install.sh")
			cmd.Env = append(cmd.Env, "GOBIN="+bin, path)
			out, err := cmd.Output()
			if err != nil {
				t.Fatal(err)
			}
			return string(out)
		}
		line := `export PATH="$PATH:` + bin + `"`
		out := install("PATH=" + os.Getenv("PATH"))
		if !strings.HasPrefix(out, bin+"/fakecloud is installed\n") || !strings.Contains(out, line) {
			t.Errorf("outside of the PATH: %s", out)
		}
		if out := install("PATH=" + os.Getenv("PATH") + ":" + bin); out != bin+"/fakecloud is installed\n" {
			t.Errorf("in the PATH: %s", out)
		}
		out = install(c.path(t, "", map[string]string{"fakecloud": ""}) + ":" + bin)
		if !strings.Contains(out, "bin/fakecloud, which comes first") {
			t.Errorf("after another one: %s", out)
		}
		cmd := exec.CommandContext(t.Context(), shell[0], append(shell[1:len(shell):len(shell)], "-c", line+"\ncommand -v fakecloud")...)
		if out, err := cmd.Output(); err != nil || string(out) != bin+"/fakecloud\n" {
			t.Errorf("the line that it prints: %s, %v", out, err)
		}
	})
}
