package image

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// containerdConfig is where kind's files have containerd's configuration.
const containerdConfig = "etc/containerd/config.toml"

// defaultStorage is the StorageClass that kind applies to a new cluster from the
// node's /kind/manifests. kind's own has Rancher's provisioner, which is an
// image from a registry; this one has none.
const defaultStorage = `apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata:
  name: standard
  annotations:
    storageclass.kubernetes.io/is-default-class: "true"
provisioner: kubernetes.io/no-provisioner
volumeBindingMode: WaitForFirstConsumer
reclaimPolicy: Delete
`

// defaultCNI is the manifest that kind applies unless a cluster's configuration
// says disableDefaultCNI. kindnetd is an image from a registry, so there is none.
const defaultCNI = `apiVersion: v1
kind: ConfigMap
metadata:
  name: no-default-cni
  namespace: kube-system
data:
  why: "this node image has no kindnetd: use disableDefaultCNI and install a network"
`

// fillNode makes a Debian tree a node. kindFiles is the folder images/base/files
// of kind's module, store a containerd root folder that holds the images.
func (b *build) fillNode(ctx context.Context, t *tree, kindFiles, store string) error {
	for _, step := range []func() error{
		func() error { return kindsOwn(t, kindFiles) },
		func() error { return trimSystemd(t) },
		func() error { return b.installPrograms(ctx, t) },
		func() error { return t.putDir("var/lib/containerd", store) },
		func() error { return t.put("kind/version", 0o644, []byte(b.version)) },
		func() error { return t.put("kind/manifests/default-storage.yaml", 0o644, []byte(defaultStorage)) },
		func() error { return t.put("kind/manifests/default-cni.yaml", 0o644, []byte(defaultCNI)) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// kindsOwn copies kind's files, with the modes of kind's images/base/Dockerfile:
// a Go module keeps none.
func kindsOwn(t *tree, kindFiles string) error {
	count := 0
	err := filepath.WalkDir(kindFiles, func(at string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		below, err := filepath.Rel(kindFiles, at)
		if err != nil {
			return err
		}
		name := filepath.ToSlash(below)
		mode := int64(0o644)
		if strings.HasPrefix(name, "usr/local/bin/") || strings.HasPrefix(name, "kind/bin/") {
			mode = 0o755
		}
		count++
		// Read, not referred to: they are small, and the module cache is read-only.
		data, err := os.ReadFile(at)
		if err != nil {
			return err
		}
		return t.put(name, mode, data)
	})
	if err != nil {
		return fmt.Errorf("kind's files: %w", err)
	}
	for _, name := range []string{"usr/local/bin/entrypoint", containerdConfig, "etc/systemd/system/kubelet.service"} {
		if _, _, err := t.file(name); err != nil {
			return fmt.Errorf("kind's files are %d, but not those that were expected: %w", count, err)
		}
	}
	return nil
}

// trimSystemd takes away the services that make no sense in a container, and
// enables those of a node: the RUN lines of kind's images/base/Dockerfile.
func trimSystemd(t *tree) error {
	for _, pattern := range []string{
		"/lib/systemd/system/sysinit.target.wants/systemd-tmpfiles-setup.service",
		"/lib/systemd/system/multi-user.target.wants/*",
		"/etc/systemd/system/*.wants/*",
		"/lib/systemd/system/local-fs.target.wants/*",
		"/lib/systemd/system/sockets.target.wants/*udev*",
		"/lib/systemd/system/sockets.target.wants/*initctl*",
		"/lib/systemd/system/basic.target.wants/*",
	} {
		if err := t.remove(pattern); err != nil {
			return err
		}
	}
	journald, err := t.read("/etc/systemd/journald.conf")
	if err != nil {
		return err
	}
	if err := t.put("/etc/systemd/journald.conf", 0o644, append(journald, "ReadKMsg=no\n"...)); err != nil {
		return err
	}
	if err := t.symlink("/usr/lib/systemd/systemd", "/sbin/init"); err != nil {
		return err
	}
	// It registers things for the whole kernel, not for a container.
	if err := t.symlink("/dev/null", "/etc/systemd/system/systemd-binfmt.service"); err != nil {
		return err
	}
	for _, unit := range []string{"kubelet.service", "containerd.service", "undo-mount-hacks.service"} {
		if err := enable(t, unit); err != nil {
			return err
		}
	}
	// An empty file is filled by the entrypoint, per node.
	return t.put("/etc/machine-id", 0o444, nil)
}

// enable does what `systemctl enable` does with a unit of /etc/systemd/system.
func enable(t *tree, unit string) error {
	at := "/etc/systemd/system/" + unit
	text, err := t.read(at)
	if err != nil {
		return err
	}
	var targets []string
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), "WantedBy="); ok {
			targets = append(targets, strings.Fields(value)...)
		}
	}
	if len(targets) == 0 {
		return fmt.Errorf("%s: nothing wants it, so it cannot be enabled", at)
	}
	for _, target := range targets {
		if err := t.symlink(at, path.Join("/etc/systemd/system", target+".wants", unit)); err != nil {
			return err
		}
	}
	return nil
}

// installPrograms copies the programs that run on the node itself.
func (b *build) installPrograms(ctx context.Context, t *tree) error {
	for dir, programs := range map[string][]string{
		"usr/local/bin": {"containerd", "containerd-shim-runc-v2", "ctr", "crictl"},
		"opt/cni/bin":   {"host-local", "loopback", "portmap", "ptp"},
	} {
		for _, program := range programs {
			if err := t.putFile(path.Join(dir, program), 0o755, filepath.Join(b.programs, program)); err != nil {
				return err
			}
		}
	}
	if err := t.putFile("usr/bin/"+kubernetesProgram, 0o755, filepath.Join(b.Kubernetes, kubernetesProgram)); err != nil {
		return err
	}
	for _, program := range []string{"kubelet", "kubeadm", "kubectl"} {
		if err := t.symlink(kubernetesProgram, "usr/bin/"+program); err != nil {
			return err
		}
	}
	for _, dir := range []string{"etc/cni/net.d", "etc/kubernetes/manifests"} {
		if err := t.mkdir(dir, 0o755); err != nil {
			return err
		}
	}
	spec, err := exec.CommandContext(ctx, filepath.Join(b.programs, "ctr"), "oci", "spec").Output()
	if err != nil {
		return fmt.Errorf("asking ctr for containerd's default runtime specification: %w", err)
	}
	if spec, err = baseSpec(spec); err != nil {
		return err
	}
	return t.put("etc/containerd/cri-base.json", 0o644, spec)
}

// baseSpec turns containerd's default runtime specification into the one that
// kind's containerd configuration names: with the hook that hides the host's
// identity from containers, and without limits that are those of the host
// that built the image.
func baseSpec(spec []byte) ([]byte, error) {
	decoder := json.NewDecoder(bytes.NewReader(spec))
	decoder.UseNumber() // limits and device numbers are beyond what a float64 holds
	var parsed map[string]any
	if err := decoder.Decode(&parsed); err != nil {
		return nil, fmt.Errorf("containerd's default runtime specification: %w", err)
	}
	process, ok := parsed["process"].(map[string]any)
	if !ok {
		return nil, fmt.Errorf("containerd's default runtime specification has no process")
	}
	delete(process, "rlimits")
	hooks, _ := parsed["hooks"].(map[string]any)
	if hooks == nil {
		hooks = map[string]any{}
		parsed["hooks"] = hooks
	}
	create, _ := hooks["createContainer"].([]any)
	hooks["createContainer"] = append(slices.Clone(create), map[string]any{"path": "/kind/bin/mount-product-files.sh"})
	return json.MarshalIndent(parsed, "", "  ")
}
