// Package dockershim_test tests the scripts that make kind's nodes run where the
// Docker daemon lacks CAP_SYS_RESOURCE. They are bash, so they are tested where
// there is one.
package dockershim_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// host is a computer with a docker that prints its arguments, and a /proc.
type host struct {
	path, proc string
}

// newHost makes one whose processes have these names and sets of capabilities.
func newHost(t *testing.T, processes map[string]string) host {
	t.Helper()
	if _, err := exec.LookPath("bash"); err != nil {
		t.Skip("there is no bash")
	}
	h := host{path: t.TempDir(), proc: t.TempDir()}
	write(t, filepath.Join(h.path, "docker"), "#!/bin/sh\nprintf '<%s>' \"$@\"\n")
	pid := 100
	for name, capabilities := range processes {
		pid++
		dir := filepath.Join(h.proc, "1"+strings.Repeat("0", pid-100))
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, "comm"), name+"\n")
		write(t, filepath.Join(dir, "status"), "Name:\t"+name+"\nCapBnd:\t"+capabilities+"\n")
	}
	return h
}

func write(t *testing.T, path, text string) {
	t.Helper()
	// A process that a parallel test starts meanwhile would hold the file open for writing, so that it could not be run.
	syscall.ForkLock.RLock()
	err := os.WriteFile(path, []byte(text), 0o755)
	syscall.ForkLock.RUnlock()
	if err != nil {
		t.Fatal(err)
	}
}

// run runs a script of the folder above with arguments and returns what it printed.
func (h host) run(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.Command("bash", append([]string{"../../../scripts/with-docker.sh"}, args...)...)
	cmd.Env = append(os.Environ(), "PATH="+h.path+":"+os.Getenv("PATH"), "DOCKER_SHIM_PROC="+h.proc)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v\n%s", args, err, stderr.String())
	}
	return string(out)
}

const (
	all     = "000001ffffffffff"
	without = "000001fffeffffff" // bit 24 is CAP_SYS_RESOURCE
)

func TestANormalHostsDockerIsUsedAsItIs(t *testing.T) {
	t.Parallel()
	for name, processes := range map[string]map[string]string{
		"all capabilities":               {"dockerd": all, "bash": without},
		"no daemon to be seen":           {"bash": without},
		"a process that is called alike": {"dockerd-rootless": without},
	} {
		h := newHost(t, processes)
		if got := h.run(t, "docker", "run", "--privileged", "x"); got != "<run><--privileged><x>" {
			t.Errorf("%s: %s", name, got)
		}
	}
}

func TestARestrictedDaemonIsAskedForEverythingElse(t *testing.T) {
	t.Parallel()
	h := newHost(t, map[string]string{"dockerd": without, "systemd": all})
	here, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	const instead = "<--cap-add=ALL><--cap-drop=SYS_RESOURCE><--security-opt><systempaths=unconfined><--device-cgroup-rule=a *:* " +
		"rwm><--device></dev/kmsg>"
	for _, test := range []struct{ args, want string }{
		{"run --privileged x --privileged", "<run>" + instead + "<x><--privileged>"},
		{"exec --privileged node kubeadm --privileged", "<exec><node><kubeadm><--privileged>"},
		{"run x", "<run><x>"},
		{"ps -a", "<ps><-a>"},
		{
			"run --label io.x-k8s.kind.role=worker --privileged img",
			"<run><--label><io.x-k8s.kind.role=worker>" + instead + "<--volume><" + here + "/entrypoint.sh:/docker-shim-entrypoint.sh:ro>" +
				"<--entrypoint></docker-shim-entrypoint.sh><img></usr/local/bin/entrypoint></sbin/init>",
		},
	} {
		if got := h.run(t, append([]string{"docker"}, strings.Fields(test.args)...)...); got != test.want {
			t.Errorf("docker %s:\n%s, want\n%s", test.args, got, test.want)
		}
	}
}

func TestRootRaisesTheLimitOfInotifyInstances(t *testing.T) {
	t.Parallel()
	for now, want := range map[string]string{"128": "1024", "512": "512", "8192": "8192"} {
		h := newHost(t, nil)
		limit := filepath.Join(h.proc, "sys", "fs", "inotify", "max_user_instances")
		if err := os.MkdirAll(filepath.Dir(limit), 0o755); err != nil {
			t.Fatal(err)
		}
		write(t, limit, now+"\n")
		h.run(t, "true")
		if got, err := os.ReadFile(limit); err != nil || strings.TrimSpace(string(got)) != want {
			t.Errorf("%s became %s, %v, want %s", now, got, err, want)
		}
		// A user who may not write is told, and the command runs all the same.
		if err := os.RemoveAll(limit); err != nil {
			t.Fatal(err)
		}
		if got := h.run(t, "echo", "ran"); got != "ran\n" {
			t.Error(got)
		}
	}
}

func TestTheShimHandsOverToWhatFollowsItInPATH(t *testing.T) {
	t.Parallel()
	h := newHost(t, map[string]string{"dockerd": without})
	// A docker in front of the shim that leads to it, as kind/cluster has one.
	front := t.TempDir()
	write(t, filepath.Join(front, "docker"), "#!/bin/sh\nexec \"$SHIM\" \"$@\"\n")
	shim, err := filepath.Abs("docker")
	if err != nil {
		t.Fatal(err)
	}
	if got := h.run(t, "env", "SHIM="+shim, "sh", "-c", "PATH="+front+":$PATH docker version"); got != "<version>" {
		t.Error(got)
	}
}

func TestWithoutAnotherDockerTheShimSaysSo(t *testing.T) {
	t.Parallel()
	newHost(t, nil)
	shim, err := filepath.Abs("docker")
	if err != nil {
		t.Fatal(err)
	}
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Fatal(err)
	}
	tools := t.TempDir()
	for _, tool := range []string{"dirname"} {
		at, err := exec.LookPath(tool)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(at, filepath.Join(tools, tool)); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(bash, shim, "ps")
	cmd.Env = []string{"PATH=" + filepath.Dir(shim) + ":" + tools}
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "no other docker") {
		t.Errorf("%v: %s", err, out)
	}
}
