package cluster

import (
	"errors"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	kindexec "sigs.k8s.io/kind/pkg/exec"
)

// fakeDocker puts a program named docker first in PATH.
func fakeDocker(t *testing.T, script string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "docker"), []byte("#!/bin/sh\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
}

func TestNodesGetTheirAddressesWhileKindWorks(t *testing.T) {
	fakeDocker(t, `echo "$KIND_EXPERIMENTAL_DOCKER_NETWORK $KIND_EXPERIMENTAL_CONTAINERD_SNAPSHOTTER:"; printf '<%s>' "$@"`)
	t.Setenv(networkVariable, "before")
	addresses := map[string]netip.Addr{"a": netip.MustParseAddr("172.30.1.2"), "it's": netip.MustParseAddr("172.30.1.3")}
	call := func(args ...string) string {
		t.Helper()
		out, err := exec.Command("docker", args...).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return string(out)
	}
	err := withAddresses("net", "overlayfs", addresses, func() error {
		for _, test := range []struct {
			args []string
			want string
		}{
			{[]string{"run", "--name", "a", "--tty", "img"}, "<run><--ip><172.30.1.2><--name><a><--tty><img>"},
			{[]string{"run", "--label", "x y", "--name", "it's", "img"}, "<run><--ip><172.30.1.3><--label><x y><--name><it's><img>"},
			{[]string{"run", "--name", "other", "img"}, "<run><--name><other><img>"},
			{[]string{"run", "img"}, "<run><img>"},
			{[]string{"ps", "--name", "a"}, "<ps><--name><a>"},
		} {
			if got := call(test.args...); got != "net overlayfs:\n"+test.want {
				t.Errorf("docker %v: %s, want %s", test.args, got, test.want)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := call("run", "--name", "a", "img"); got != "before :\n<run><--name><a><img>" {
		t.Errorf("afterwards: %s", got)
	}
}

func TestTheErrorOfWorkIsReturnedAndTheEnvironmentRestored(t *testing.T) {
	fakeDocker(t, "exit 0")
	before, failure := os.Getenv("PATH"), errors.New("x")
	if err := withAddresses("net", "", nil, func() error { return failure }); !errors.Is(err, failure) {
		t.Errorf("got %v", err)
	}
	if os.Getenv("PATH") != before || os.Getenv(networkVariable) != "" {
		t.Errorf("PATH is %s", os.Getenv("PATH"))
	}
}

func TestDockersErrorsSayWhatToDo(t *testing.T) {
	fakeDocker(t, "echo 'Error: unable to apply caps: operation not permitted' >&2; exit 125")
	_, err := docker(t.Context(), "run", "x")
	if err == nil || !strings.Contains(err.Error(), "docker run: exit status 125: Error: unable") ||
		!strings.Contains(err.Error(), "scripts/with-docker.sh") {
		t.Errorf("got %v", err)
	}
	for said, want := range map[string]string{
		"Cannot connect to the Docker daemon at unix:///var/run/docker.sock.":   "start Docker",
		"permission denied while trying to connect to the Docker daemon socket": "usermod -aG docker",
	} {
		fakeDocker(t, "echo '"+said+"' >&2; exit 1")
		for _, ask := range []func() error{
			func() error { _, err := Look(t.Context(), "x"); return err }, func() error { _, err := Open(t.Context(), "x"); return err },
		} {
			if err := ask(); err == nil || !strings.Contains(err.Error(), want) || errors.Is(err, ErrNotFound) {
				t.Errorf("%s: got %v, want %q", said, err, want)
			}
		}
	}
	t.Setenv("PATH", t.TempDir())
	if _, err := Look(t.Context(), "x"); err == nil || !strings.Contains(err.Error(), "Docker is not installed") {
		t.Errorf("without docker: %v", err)
	}
	failed := &kindexec.RunError{Command: []string{"docker", "run"}, Output: []byte("first\n" + strings.Repeat("x\n", 50) +
		"Pool overlaps with other one\n"), Inner: err}
	text := explain(failed).Error()
	if strings.Contains(text, "first") || !strings.Contains(text, "choose another subnet") {
		t.Errorf("got %s", text)
	}
}

func TestAKindClusterOfThatNameIsLeftAlone(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	// Docker with a kind cluster that is not ours: two containers, no network.
	fakeDocker(t, `echo "$*" >> `+quote(log)+`
case "$*" in
*io.x-k8s.kind.cluster=mine*) echo id1 id2 ;;
esac`)
	if _, err := Create(t.Context(), Options{Name: "mine", Image: "img"}); err == nil ||
		!strings.Contains(err.Error(), "2 nodes of a kind cluster mine") {
		t.Errorf("got %v", err)
	}
	t.Setenv("HOME", t.TempDir())
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	if err := Delete(t.Context(), "mine"); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(data), "network ls") {
		t.Error("Docker was not asked for networks")
	}
	for _, bad := range []string{"rm", "network create"} {
		for line := range strings.Lines(string(data)) {
			if strings.HasPrefix(line, bad) {
				t.Errorf("docker was told to %s", line)
			}
		}
	}
}

func TestDeleteLeavesNothing(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	fakeDocker(t, `echo "$*" >> `+quote(log)+`
case "$*" in
"network ls"*) echo net1 ;;
*`+LabelCluster+`=mine) echo router1 ;;
*io.x-k8s.kind.cluster=mine) echo node1 node2 ;;
esac`)
	t.Setenv("HOME", t.TempDir())
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	path, err := KubeconfigPath("mine")
	if err := errors.Join(err, os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	if err := Delete(t.Context(), "mine"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("the kubeconfig is left: %v", err)
	}
	data, _ := os.ReadFile(log)
	want := "rm --force --volumes router1\nrm --force --volumes node1 node2\nnetwork rm net1\n"
	var got strings.Builder
	for line := range strings.Lines(string(data)) {
		if strings.Contains(line, "rm ") {
			got.WriteString(line)
		}
	}
	if got.String() != want {
		t.Errorf("Docker was told\n%s", data)
	}
}

// Docker still lists a container for a moment that it no longer shows.
func TestContainersAreListedWhileOneIsRemoved(t *testing.T) {
	fakeDocker(t, `case "$*" in
"ps "*) echo b a c ;;
"inspect b a c") echo '[{"Name": "/a"}]'; echo 'Error: No such object: c' >&2; exit 1 ;;
"inspect c") echo 'Error: No such object: c' >&2; exit 1 ;;
"inspect "*) echo '[{"Name": "/'$2'", "NetworkSettings": {"Networks": {"x": {"IPAMConfig": {"IPv4Address": "172.30.1.2"}}}}}]' ;;
esac`)
	found, err := (&Cluster{Network: Network{Name: "x"}}).Containers(t.Context())
	if err != nil || len(found) != 2 || found[0].Name != "a" || found[1].Name != "b" {
		t.Errorf("got %v, %v", found, err)
	}
}

func TestAMoveThatWasInterruptedIsFinished(t *testing.T) {
	c := &Cluster{Network: Network{Name: "x"}}
	for said, fails := range map[string]bool{"container 0f1 is not connected to the network x": false, "permission denied": true} {
		fakeDocker(t, `case "$*" in
"network disconnect x node") echo 'Error response from daemon: `+said+`' >&2; exit 1 ;;
"network connect --ip 172.30.1.9 x node") ;;
*) exit 2 ;;
esac`)
		if err := c.Move(t.Context(), "node", netip.MustParseAddr("172.30.1.9")); (err != nil) != fails {
			t.Errorf("%s: %v", said, err)
		}
	}
}

func TestAFailingDockerIsAnErrorNotAnEmptyList(t *testing.T) {
	for _, fails := range []string{"inspect a b", "inspect b"} {
		fakeDocker(t, `case "$*" in
"ps "*) echo a b ;;
"`+fails+`") echo 'permission denied' >&2; exit 1 ;;
*) echo 'Error: No such object: a' >&2; exit 1 ;;
esac`)
		if found, err := (&Cluster{Network: Network{Name: "x"}}).Containers(t.Context()); err == nil {
			t.Errorf("%s fails: got %v", fails, found)
		}
	}
}

func TestASubnetThatDockerUsesIsFoundBeforeAnythingIsMade(t *testing.T) {
	fakeDocker(t, `case "$1 $2" in
"network ls") echo bridge; echo other ;;
"network inspect") echo "bridge 172.17.0.0/16"; echo "other 172.30.4.0/24 172.29.0.0/16 fd00::/64" ;;
esac`)
	err := Options{Name: "x"}.CheckFree(t.Context())
	want := "KIND_SUBNET=172.30.0.0/16: Docker's network other has 172.30.4.0/24: choose another one, such as 172.28.0.0/16"
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	if err := (Options{Name: "x", Subnet: netip.MustParsePrefix("172.28.0.0/16")}).CheckFree(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestASecondClusterIsNotOpenedByAnothersNetwork(t *testing.T) {
	fakeDocker(t, "echo '<no value> <no value> <no value> 172.30.0.0/16'")
	if _, err := Open(t.Context(), "x"); !errors.Is(err, ErrNotFound) {
		t.Errorf("got %v", err)
	}
}

func TestALowLimitOfTheHostIsNamed(t *testing.T) {
	t.Parallel()
	proc := t.TempDir()
	if hint := inotifyHint(proc); hint != "" {
		t.Errorf("on a host without it: %s", hint)
	}
	dir := filepath.Join(proc, "sys", "fs", "inotify")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for limit, want := range map[string]bool{"128\n": true, "8192\n": false} {
		if err := os.WriteFile(filepath.Join(dir, "max_user_instances"), []byte(limit), 0o600); err != nil {
			t.Fatal(err)
		}
		if hint := inotifyHint(proc); strings.Contains(hint, "about 8 nodes") != want {
			t.Errorf("%s: %q", limit, hint)
		}
	}
}
