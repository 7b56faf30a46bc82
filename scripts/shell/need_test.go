package shell

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// path returns the PATH without a program, and with programs of this test in front.
func (c checkout) path(t *testing.T, without string, programs map[string]string) string {
	t.Helper()
	for name, text := range programs {
		c.write(t, "bin/"+name, "#!/bin/sh\n"+text)
	}
	folders := os.Getenv("PATH")
	if without != "" {
		others := t.TempDir() // links to all others, since a folder such as /usr/bin has more than one program
		for folder := range strings.SplitSeq(folders, ":") {
			entries, _ := os.ReadDir(folder) // one that does not exist has none
			for _, entry := range entries {
				if entry.Name() != without {
					_ = os.Symlink(filepath.Join(folder, entry.Name()), filepath.Join(others, entry.Name())) // the first one stays
				}
			}
		}
		folders = others
	}
	return "PATH=" + filepath.Join(c.folder, "bin") + ":" + folders
}

// TestWhatIsMissingIsSaidFirst has each first command on a machine that lacks something.
func TestWhatIsMissingIsSaidFirst(t *testing.T) {
	t.Parallel()
	const noGo = "Go 1.26.0 or later is needed, and no go is in the PATH"
	const old = `[ "$1" = version ] && echo go version go1.19 linux/amd64 || { echo "invalid go version '1.26.0'" >&2; exit 1; }`
	const denied = `echo "permission denied while trying to connect to the Docker daemon socket at unix:///var/run/docker.sock" >&2; exit 1`
	const stopped = `echo "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?" >&2; exit 1`
	for name, c := range map[string]struct {
		without  string
		programs map[string]string
		settings string // without a value: not set
		command  string
		want     string
	}{
		"no Go":          {"go", nil, "", "gorun.sh program", noGo + ": get it at https"},
		"no Go, tests":   {"go", nil, "", "test.sh program", noGo},
		"no Go, tools":   {"go", nil, "", "tool.sh helm", noGo},
		"no Go, install": {"go", nil, "", "install.sh", noGo},
		"no Go, sim":     {"go", nil, "", "sim-runtime.sh", noGo},
		"no Go, up":      {"go", nil, "", "up.sh status", noGo},
		"no Go, lint":    {"go", nil, "", "lint.sh", noGo},
		"an old Go": {"", map[string]string{"go": old}, "", "gorun.sh program",
			"/bin/go is go version go1.19 linux/amd64: get it at"},
		"an old Go that reads go.mod": {"", map[string]string{"go": "echo go1.20.14"}, "", "gorun.sh program",
			"Go 1.26.0 or later is needed"},
		"no home":          {"", nil, "HOME XDG_CACHE_HOME GOCACHE", "gorun.sh program", "HOME is not set"},
		"no home, modules": {"", nil, "HOME GOPATH GOMODCACHE GOCACHE=/tmp", "gorun.sh program", "HOME is not set"},
		"a home that is read-only": {"", nil, "HOME=/dev/null XDG_CACHE_HOME", "gorun.sh program",
			"/dev/null/.cache/ccm-from-scratch cannot be written"},
		"modules that are read-only": {"", nil, "GOMODCACHE=/dev/null/mod", "gorun.sh program", "/dev/null/mod cannot be written"},
		"no Docker":                  {"docker", nil, "", "up.sh up", "Docker is needed, and no docker is in the PATH: get it"},
		"a Docker that is stopped":   {"", map[string]string{"docker": stopped}, "", "up.sh status", "does not answer: start it."},
		"a Docker of others":         {"", map[string]string{"docker": denied}, "", "up.sh down", "this user may not talk to it"},
		"a Docker of others, image":  {"", map[string]string{"docker": denied}, "", "image.sh", "this user may not talk to it"},
		"no image":                   {"", nil, "", "up.sh load", "no image is named"},
		"a wrong name":               {"docker", nil, "KIND_NAME=No_Good", "up.sh", `KIND_NAME="No_Good": must be at most 40 lower-case`},
		"a wrong subnet":             {"docker", nil, "KIND_SUBNET=foo", "up.sh", "KIND_SUBNET=foo: must be an IPv4 /16, such as 172."},
		"no file of a CCM":           {"", nil, "CCM=nope.yaml", "e2e.sh", "CCM=nope.yaml: must be a file that can be read"},
		"a CCM of another cloud": {"", map[string]string{"docker": "exit 0"}, "CCM=other.yaml", "e2e.sh",
			"e2e on an embedded control plane (since its driver has no kind cluster)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			shells(t, func(t *testing.T, shell ...string) {
				checkout := newCheckout(t)
				checkout.write(t, "other.yaml", "name: other\ndriver: example\n")
				command := strings.Fields(c.command)
				if command[0] == "e2e.sh" && shell[0] != "bash" {
					t.Skip("bash runs it")
				}
				cmd := checkout.command(t.Context(), shell, command[0], command[1:]...)
				cmd.Env = append(cmd.Env, checkout.path(t, c.without, c.programs))
				for setting := range strings.FieldsSeq(c.settings) {
					if strings.Contains(setting, "=") {
						cmd.Env = append(cmd.Env, setting)
					} else {
						cmd.Env = slices.DeleteFunc(cmd.Env, func(s string) bool { return strings.HasPrefix(s, setting+"=") })
					}
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
