package cluster

import (
	"fmt"
	"maps"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// environment guards the process's environment: kind learns only from there which network and which docker to use.
var environment sync.Mutex

// networkVariable is where kind looks for the name of its network.
const networkVariable = "KIND_EXPERIMENTAL_DOCKER_NETWORK"

// withAddresses runs work while every `docker run --name N` of this process gives the container the address of that name, and while kind
// uses the network and the snapshotter.
//
// kind has no setting for a node's address: it takes Docker's choice. That depends on the order of the containers' starts: after a restart
// of Docker, nodes would swap their addresses. kind runs "docker" from PATH; while it makes a cluster, the first docker there is a script
// that adds --ip and runs the real one.
func withAddresses(network, snapshotter string, addresses map[string]netip.Addr, work func() error) (err error) {
	actual, err := exec.LookPath("docker")
	if err != nil {
		return fmt.Errorf("no docker in PATH: %w", err)
	}
	if actual, err = filepath.Abs(actual); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "kind-docker-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := os.WriteFile(filepath.Join(dir, "docker"), []byte(addressScript(actual, addresses)), 0o700); err != nil {
		return err
	}
	environment.Lock()
	defer environment.Unlock()
	defer setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))()
	defer setenv(networkVariable, network)()
	if snapshotter != "" {
		defer setenv(snapshotterVariable, snapshotter)()
	}
	return work()
}

// addressScript returns a docker script that gives each of the named containers its address.
func addressScript(actual string, addresses map[string]netip.Addr) string {
	var cases strings.Builder
	for _, name := range slices.Sorted(maps.Keys(addresses)) {
		fmt.Fprintf(&cases, "\t\t%s) ip=%s ;;\n", quote(name), addresses[name])
	}
	return `#!/bin/sh
# Written by kind/cluster while it makes a cluster: docker, with fixed addresses for nodes.
real=` + quote(actual) + `
[ "$1" = run ] || exec "$real" "$@"
previous= ip=
for arg; do
	if [ "$previous" = --name ]; then
		case $arg in
` + cases.String() + `		esac
		break
	fi
	previous=$arg
done
[ -n "$ip" ] || exec "$real" "$@"
shift
exec "$real" run --ip "$ip" "$@"
`
}

// quote makes one word of text for a shell.
func quote(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

// setenv sets a variable and returns a function that restores it.
func setenv(name, value string) func() {
	before, had := os.LookupEnv(name)
	_ = os.Setenv(name, value)
	return func() {
		if !had {
			_ = os.Unsetenv(name)
			return
		}
		_ = os.Setenv(name, before)
	}
}
