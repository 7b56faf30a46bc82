package cluster

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"os/exec"
	"strings"
)

// Labels. The first two are kind's own: containers that bear them are nodes of a
// kind cluster, for kind's commands too. The third marks the cluster's network
// and every other container of the cluster; Delete removes those.
const (
	labelKindCluster = "io.x-k8s.kind.cluster"
	labelKindRole    = "io.x-k8s.kind.role"
	LabelCluster     = "ccm-from-scratch.cluster"
	labelPodCIDR     = "ccm-from-scratch.pod-cidr"
	labelImage       = "ccm-from-scratch.node-image"
)

// dockerError is a docker command that failed.
type dockerError struct {
	args []string
	said string
	err  error
}

func (e *dockerError) Unwrap() error { return e.err }

func (e *dockerError) Error() string {
	text := fmt.Sprintf("docker %s: %v", e.args[0], e.err)
	if e.said != "" {
		text += ": " + e.said
	}
	return text + hint(text)
}

// hint returns advice about an error message of Docker.
func hint(said string) string {
	for part, advice := range map[string]string{
		"unable to apply caps": "this Docker daemon cannot run privileged containers: run the command through scripts/with-docker.sh",
		"Pool overlaps": "another network uses this range: choose another subnet, or remove the other network (docker " +
			"network ls)",
		"Address already in use":     "another container has this address in the network",
		"no space left on device":    "Docker's disk is full",
		"Cannot connect to the Dock": "no Docker daemon answers: start Docker",
		"permission denied while":    "this user may not talk to Docker: sudo usermod -aG docker $USER, and log in again",
		"executable file not found":  "Docker is not installed: https://docs.docker.com/engine/install",
	} {
		if strings.Contains(said, part) {
			return " (" + advice + ")"
		}
	}
	return ""
}

// docker runs a docker command and returns its output.
func docker(ctx context.Context, args ...string) (string, error) {
	return dockerIn(ctx, nil, args...)
}

// dockerIn is docker with something on standard input.
func dockerIn(ctx context.Context, stdin io.Reader, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "docker", args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, &stdout, &stderr
	if err := cmd.Run(); err != nil {
		said := strings.TrimSpace(stderr.String())
		if said == "" {
			said = strings.TrimSpace(stdout.String())
		}
		return "", &dockerError{args: args, said: said, err: cmp.Or(ctx.Err(), err)}
	}
	return strings.TrimSpace(stdout.String()), nil
}

// onNode runs a command in a node.
func onNode(ctx context.Context, node string, args ...string) (string, error) {
	return docker(ctx, append([]string{"exec", "--privileged", node}, args...)...)
}

// onNodeIn is onNode with something on standard input.
func onNodeIn(ctx context.Context, stdin io.Reader, node string, args ...string) (string, error) {
	return dockerIn(ctx, stdin, append([]string{"exec", "--privileged", "-i", node}, args...)...)
}
