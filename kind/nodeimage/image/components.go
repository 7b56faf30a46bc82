package image

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/ccm-from-scratch/ccm-from-scratch/kind/nodeimage/job"
)

// kubernetesProgram is the multi-call program's name in the images.
const kubernetesProgram = "kubernetes"

// component is an image in the node's containerd.
type component struct {
	names []string // as kubeadm and containerd ask for them
	fill  func(*tree) error
	entry string
}

// wanted returns the images that the control plane needs, by the last part of
// their names ("etcd"), as this release's kubeadm asks for them. It is asked
// rather than guessed, so that a move to another release cannot forget one.
func wanted(ctx context.Context, kubeadm, version string) (map[string]string, error) {
	out, err := exec.CommandContext(ctx, kubeadm, "config", "images", "list", "--kubernetes-version", version).Output()
	if err != nil {
		return nil, fmt.Errorf("asking kubeadm for its images: %w", err)
	}
	images := map[string]string{}
	for name := range strings.Lines(string(out)) {
		name = strings.TrimSpace(name)
		base, _, ok := strings.Cut(path.Base(name), ":")
		if !ok {
			return nil, fmt.Errorf("kubeadm names an image %q without a tag", name)
		}
		images[base] = name
	}
	return images, nil
}

var sandboxImage = regexp.MustCompile(`(?m)^\s*sandbox_image\s*=\s*"([^"]+)"`)

// components returns the images to put into the node's containerd.
//
// The control plane's programs and kube-proxy are one image under five names:
// they are one program. It has the userland that kube-proxy needs.
func (b *build) components(ctx context.Context, debian *tree, containerdConfig []byte) ([]component, error) {
	images, err := wanted(ctx, filepath.Join(b.Kubernetes, "kubeadm"), b.version)
	if err != nil {
		return nil, err
	}
	sandbox := sandboxImage.FindSubmatch(containerdConfig)
	if sandbox == nil {
		return nil, fmt.Errorf("kind's containerd configuration names no sandbox_image")
	}
	pause := []string{string(sandbox[1])}
	if kubeadms := images["pause"]; kubeadms != pause[0] {
		pause = append(pause, kubeadms)
	}
	coredns, err := b.module("coredns").pinned(b.modules)
	if err != nil {
		return nil, err
	}
	if _, tag, _ := strings.Cut(path.Base(images["coredns"]), ":"); tag != coredns {
		return nil, fmt.Errorf("kubeadm %s asks for CoreDNS %s; modules/coredns/go.mod pins %s", b.version, tag, coredns)
	}
	programs := []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy", "etcd"}
	var names []string
	for _, program := range programs {
		if images[program] == "" {
			return nil, fmt.Errorf("kubeadm %s names no image of %s", b.version, program)
		}
		names = append(names, images[program])
	}
	single := func(program string) func(*tree) error {
		return func(t *tree) error { return t.putFile(program, 0o755, filepath.Join(b.programs, program)) }
	}
	return []component{
		{names, func(t *tree) error { return b.kubernetesImage(t, debian, programs) }, "/usr/local/bin/" + kubernetesProgram},
		{[]string{images["coredns"]}, single("coredns"), "/coredns"},
		{pause, single("pause"), "/pause"},
	}, nil
}

// kubernetesImage fills the image of Kubernetes' own programs.
func (b *build) kubernetesImage(t, debian *tree, programs []string) error {
	if err := userland(t, debian); err != nil {
		return fmt.Errorf("cutting kube-proxy's tools out of Debian: %w", err)
	}
	if err := t.putFile("usr/local/bin/"+kubernetesProgram, 0o755, filepath.Join(b.Kubernetes, kubernetesProgram)); err != nil {
		return err
	}
	for _, program := range programs {
		if err := t.symlink(kubernetesProgram, "usr/local/bin/"+program); err != nil {
			return err
		}
	}
	return nil
}

// userland copies what kube-proxy runs out of a Debian: iptables (its nftables
// flavour), nft, conntrack and modprobe, with their libraries and those of the
// iptables extensions, which are loaded at run time. Without the latter,
// kube-proxy's rules are refused and Services lead nowhere, without a word.
func userland(t, debian *tree) error {
	for _, dir := range []string{"bin", "sbin", "lib", "lib64"} {
		if err := t.symlink("usr/"+dir, dir); err != nil {
			return err
		}
	}
	for _, dir := range []string{"etc", "run", "usr/bin", "usr/sbin", "usr/lib", "usr/lib64"} {
		if err := t.mkdir(dir, 0o755); err != nil {
			return err
		}
	}
	if err := t.mkdir("tmp", 0o1777); err != nil {
		return err
	}
	files := []string{"usr/sbin/xtables-nft-multi", "usr/sbin/nft", "usr/sbin/conntrack", "usr/bin/kmod"}
	extensions := 0
	for name := range debian.entries {
		if path.Base(path.Dir(name)) == "xtables" && path.Ext(name) == ".so" {
			files = append(files, name)
			extensions++
		}
	}
	if extensions == 0 {
		return fmt.Errorf("there are no iptables extensions")
	}
	libraries, err := debian.libraries(files...)
	if err != nil {
		return err
	}
	for _, name := range append(files, libraries...) {
		content, e, err := debian.file(name)
		if err != nil {
			return err
		}
		copied := *e
		copied.content = content
		copied.Typeflag, copied.Linkname = '0', ""
		if err := t.add(name, &copied); err != nil {
			return err
		}
	}
	for _, name := range []string{"iptables", "iptables-save", "iptables-restore", "ip6tables", "ip6tables-save", "ip6tables-restore"} {
		if err := t.symlink("xtables-nft-multi", "usr/sbin/"+name); err != nil {
			return err
		}
	}
	return t.symlink("../bin/kmod", "usr/sbin/modprobe")
}

// preload writes the components as images and puts them into a containerd root
// folder, which it returns.
func (b *build) preload(ctx context.Context, components []component) (string, error) {
	images := make([]*image, 0, len(components))
	for _, c := range components {
		l, err := b.layer(c.fill)
		if err != nil {
			return "", fmt.Errorf("image %s: %w", c.names[0], err)
		}
		images = append(images, &image{tags: c.names, arch: b.Arch, layer: l, config: containerConfig{Entrypoint: []string{c.entry}}})
	}
	archive := filepath.Join(b.work, "components.tar")
	if err := writeImages(archive, b.epoch, images...); err != nil {
		return "", err
	}
	root := filepath.Join(b.work, "containerd")
	if err := os.Mkdir(root, 0o711); err != nil {
		return "", err
	}
	var names bytes.Buffer
	cmd := exec.CommandContext(ctx, filepath.Join(b.programs, "preload"), "--root", root, archive)
	cmd.Stdout = &names
	if err := job.Run(cmd, nil); err != nil {
		return "", err
	}
	for _, im := range images {
		for _, tag := range im.tags {
			if !strings.Contains(names.String(), tag+"\n") {
				return "", fmt.Errorf("containerd's store did not take the image %s; it has\n%s", tag, names.String())
			}
		}
	}
	return root, nil
}

// layer fills a tree and writes it as a layer.
func (b *build) layer(fill func(*tree) error) (_ layer, err error) {
	t := newTree()
	defer func() { _ = t.Close() }()
	if err := fill(t); err != nil {
		return layer{}, err
	}
	return writeLayer(t, b.work, b.epoch)
}
