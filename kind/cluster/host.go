package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"sigs.k8s.io/kind/pkg/exec"
)

// host is what matters of the computer that Docker runs on.
type host struct {
	CgroupVersion   string // "1" or "2"
	Driver          string // Docker's storage driver
	SecurityOptions []string
	mtu             string // of Docker's default network, if it was chosen
}

// optionMTU is the option of a Docker network for its MTU. A network does not
// inherit the MTU of the default network. An administrator chose that one
// because packets of 1500 bytes would not get out.
const optionMTU = "com.docker.network.driver.mtu"

// inspectHost asks Docker.
func inspectHost(ctx context.Context) (host, error) {
	var h host
	out, err := docker(ctx, "info", "--format", "{{json .}}")
	if err != nil {
		return h, err
	}
	if err := json.Unmarshal([]byte(out), &h); err != nil {
		return h, fmt.Errorf("docker info: %w", err)
	}
	if h.mtu, err = docker(ctx, "network", "inspect", "bridge", "--format", `{{index .Options "`+optionMTU+`"}}`); err != nil {
		h.mtu = "" // a Docker without its default network
	}
	return h, nil
}

// snapshotterVariable selects the snapshotter of kind's containerds.
const snapshotterVariable = "KIND_EXPERIMENTAL_CONTAINERD_SNAPSHOTTER"

// snapshotter returns the snapshotter for nodes' containerd, or "" to leave it to
// the image's entry point.
//
// That looks at the file system of the image, and on a Docker that uses
// fuse-overlayfs takes the same. But containerd's folder lies in a volume, on a
// file system of the host, where the kernel's own overlayfs works, is faster,
// and needs no program that a built node image does not have.
func (h host) snapshotter() string {
	if chosen := os.Getenv(snapshotterVariable); chosen != "" {
		return chosen
	}
	rootless := strings.Contains(strings.Join(h.SecurityOptions, ","), "name=rootless")
	if h.Driver == "fuse-overlayfs" && !rootless {
		return "overlayfs"
	}
	return ""
}

// explain adds the end of the failed command's output, and advice, to an error of kind.
func explain(err error) error {
	var failed *exec.RunError
	if !errors.As(err, &failed) {
		return err
	}
	const last = 12
	lines := strings.Split(strings.TrimSpace(string(failed.Output)), "\n")
	said := strings.Join(lines[max(0, len(lines)-last):], "\n")
	return fmt.Errorf("%w\n%s%s", err, said, hint(said))
}

// inotifyHint returns advice if the host allows too few inotify instances. The containerd of a node without one does not see
// its CNI configuration, and nothing says why the node is not Ready.
func inotifyHint(proc string) string {
	text, err := os.ReadFile(filepath.Join(proc, "sys", "fs", "inotify", "max_user_instances"))
	limit, bad := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || bad != nil || limit >= 512 {
		return ""
	}
	return fmt.Sprintf(" (fs.inotify.max_user_instances is %d, enough for about %d nodes in all: sysctl "+
		"fs.inotify.max_user_instances=1024, "+
		"or run the command through scripts/with-docker.sh as root)", limit, limit/15)
}
