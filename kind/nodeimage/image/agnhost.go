package image

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// agnhostPackages are the Debian packages whose programs Kubernetes' specs run in containers of agnhost. Upstream's image
// is an Alpine with the same programs (k8s.io/kubernetes/test/images/agnhost/Dockerfile). As this one is a Debian, it also
// serves as the image with which specs of DNS test glibc. Left out: iperf and CoreDNS, which only specs of performance run, the
// fake registry's content and the users.
var agnhostPackages = []string{"bash", "bind9-dnsutils", "curl", "iproute2", "netcat-openbsd", "procps", "socat", "wget"}

// agnhostProgram is the package of agnhost, a tool of modules/kubernetes.
const agnhostProgram = "k8s.io/kubernetes/test/images/agnhost"

// EnsureAgnhost makes sure that Docker has an image of agnhost under the name, and builds one from source if it has none: the
// program of the pods in Kubernetes' own specs.
func EnsureAgnhost(ctx context.Context, name string, o Options) error {
	if present(ctx, name) {
		return nil
	}
	b, err := o.build("")
	if err != nil {
		return err
	}
	if err := b.inWorkDir(func() error { return b.agnhost(ctx, name) }, b.cache); err != nil {
		return fmt.Errorf("building %s: %w", name, err)
	}
	return nil
}

// agnhost builds the image and hands it to Docker.
func (b *build) agnhost(ctx context.Context, name string) error {
	debian, err := b.debian(ctx, agnhostPackages)
	if err != nil {
		return err
	}
	program := filepath.Join(b.work, "agnhost")
	if err := b.progress.Go(ctx, b.Root, filepath.Join(b.modules, "kubernetes"), "compiling agnhost", "linux", b.Arch,
		"build", "-v", "-mod=readonly", "-buildvcs=false", "-ldflags=-s -w", "-o", program, agnhostProgram); err != nil {
		return err
	}
	list := exec.CommandContext(ctx, "go", "list", "-f", "{{.Dir}}", agnhostProgram)
	list.Dir, list.Env = filepath.Join(b.modules, "kubernetes"), append(os.Environ(), "GOWORK=off")
	out, err := list.Output()
	if err != nil {
		return fmt.Errorf("finding the sources of agnhost: %w", err)
	}
	source := strings.TrimSpace(string(out))
	l, err := b.layer(func(t *tree) error {
		if err := t.readTar(debian); err != nil {
			return err
		}
		if err := t.mkdir("uploads", 0o755); err != nil {
			return err
		}
		for _, name := range []string{"localhost.crt", "localhost.key"} {
			if err := t.putFile(name, 0o644, filepath.Join(source, "porter", name)); err != nil {
				return err
			}
		}
		return t.putFile("agnhost", 0o755, program)
	})
	if err != nil {
		return err
	}
	archive := filepath.Join(b.work, archiveName)
	im := &image{tags: []string{name}, arch: b.Arch, layer: l, config: containerConfig{
		Env:        []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
		Entrypoint: []string{"/agnhost"}, Cmd: []string{"pause"},
	}}
	if err := writeImages(archive, b.epoch, im); err != nil {
		return err
	}
	return load(ctx, b.progress, archive)
}
