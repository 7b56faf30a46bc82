package nodes

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	certutil "k8s.io/client-go/util/cert"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/hypervisor"
	"github.com/ccm-from-scratch/ccm-from-scratch/kind/cluster"
)

func TestEventsNameTheirContainer(t *testing.T) {
	t.Parallel()
	name, err := eventName([]byte(`{"status":"die","id":"4d5","Type":"container","Action":"die","Actor":{"ID":"4d5","Attributes":{"exitCode":"137","image":"i","name":"node-1"}},"time":1}`))
	if err != nil || name != "node-1" {
		t.Errorf("%q, %v", name, err)
	}
	for _, line := range []string{"", "{", `{"Type":"container"}`} {
		if _, err := eventName([]byte(line)); err == nil {
			t.Errorf("%q: no error", line)
		}
	}
}

func TestTheAddressOfAContainerIsThatOfItsServer(t *testing.T) {
	t.Parallel()
	d := &Docker{Cluster: &cluster.Cluster{Network: cluster.Network{Subnet: netip.MustParsePrefix("172.30.0.0/16")}}}
	networks := func(ips ...string) (out []hypervisor.Network) {
		for _, ip := range ips {
			out = append(out, hypervisor.Network{IP: netip.MustParseAddr(ip)})
		}
		return out
	}
	for name, c := range map[string]struct {
		guest hypervisor.Guest
		want  string // "" for none
	}{
		"private":           {hypervisor.Guest{Networks: networks("172.30.1.3")}, "172.30.1.3"},
		"in second network": {hypervisor.Guest{Networks: networks("10.0.0.2", "172.30.1.3")}, "172.30.1.3"},
		"public": {hypervisor.Guest{Networks: networks("10.0.0.2"), PublicIPv4: netip.MustParseAddr("172.30.2.1")},
			"172.30.2.1"},
		"elsewhere": {hypervisor.Guest{Networks: networks("10.0.0.2"), PublicIPv4: netip.MustParseAddr("198.18.0.1")}, ""},
		"nowhere":   {hypervisor.Guest{}, ""},
	} {
		if got, ok := d.Address(c.guest); ok != (c.want != "") || ok && got.String() != c.want {
			t.Errorf("%s: %s, %v; want %q", name, got, ok, c.want)
		}
	}
}

func TestAnAddressThatIsTakenIsNotGivenTwice(t *testing.T) {
	t.Parallel()
	a := netip.MustParseAddr("172.30.1.2")
	err, e := checkFree(a, []Container{{Name: "other", Address: a}}), (*hypervisor.Error)(nil)
	if !errors.As(err, &e) || e.Code != CodeUnavailable || !strings.Contains(e.Message, "that of the container other") {
		t.Errorf("%v", err)
	}
	if err := checkFree(a, []Container{{Name: "moving"}}); err != nil {
		t.Error(err)
	}
}

func TestPreparingUserDataIsTriedAgain(t *testing.T) {
	dir := t.TempDir()
	// The control plane answers from the third time on.
	script := `#!/bin/sh
case "$*" in
ps*) echo id ;;
inspect*) echo '[{"Name": "/node", "NetworkSettings": {"Networks": {"c": {"IPAMConfig": {"IPv4Address": "172.30.1.3"}}}}}]' ;;
*"token create"*) echo x >>` + dir + `/asked; test $(wc -l <` + dir + `/asked) -ge 3 || exit 1 ;;
*"cat /etc/kubernetes"*) cat ` + dir + `/ca.crt ;;
*"cp /dev/stdin"*) cat >` + dir + `/join.yaml ;;
esac`
	certificate, _, err := certutil.GenerateSelfSignedCertKey("node", nil, nil)
	if err := errors.Join(err, os.WriteFile(filepath.Join(dir, "ca.crt"), certificate, 0o600),
		os.WriteFile(filepath.Join(dir, "docker"), []byte(script), 0o755)); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	d := &Docker{Cluster: &cluster.Cluster{Network: cluster.Network{Name: "c"}}, RetryJoin: time.Millisecond}
	if err := d.prepareSoon(t.Context(), "node"); err != nil {
		t.Fatal(err)
	}
	if join, err := os.ReadFile(filepath.Join(dir, "join.yaml")); err != nil || !strings.Contains(string(join), "node-ip") {
		t.Errorf("the configuration: %s, %v", join, err)
	}
	if err := d.prepareSoon(t.Context(), "another"); err == nil {
		t.Error("a container that is gone is prepared")
	}
}

// TestDockerMakesANodeOfAServer makes a node of the cluster that KIND_TEST_CLUSTER names, and removes it. Run it through
// scripts/with-docker.sh.
func TestDockerMakesANodeOfAServer(t *testing.T) {
	name := os.Getenv("KIND_TEST_CLUSTER")
	if name == "" {
		t.Skip("KIND_TEST_CLUSTER names no cluster (make up makes one)")
	}
	ctx := t.Context()
	c, err := cluster.Open(ctx, name)
	if err != nil {
		t.Fatal(err)
	}
	d := &Docker{Cluster: c}
	m := hypervisor.Guest{Server: 42, Name: name + "-test", PublicIPv4: c.Servers().Addr().Next(), UserData: `## template: jinja
#cloud-config
write_files:
- {path: /etc/greeting, content: "{{ v1.local_hostname }} at your service\n"}
runcmd:
- cat /etc/greeting
- kubeadm join --config=/kind/kubeadm.conf
`}
	for i := 100; ; i++ { // an address that is free
		if checkFree(m.PublicIPv4, mustList(t, d)) == nil {
			break
		}
		m.PublicIPv4 = c.Server(i)
	}
	events := make(chan string, 100)
	watching, stop := context.WithCancel(ctx)
	watched := make(chan error, 1)
	go func() { watched <- d.Watch(watching, func(n string) { events <- n }) }()
	await := func(name string, cond func(Container, bool) bool) {
		t.Helper()
		for n := range events {
			if n != name {
				continue
			}
			for _, c := range append(mustList(t, d), Container{Name: name}) {
				if c.Name == name && cond(c, c.Address.IsValid()) {
					return
				}
			}
		}
	}
	if first := <-events; first != "" {
		t.Errorf("%q is not the beginning", first)
	}
	t.Cleanup(func() { _ = d.Remove(context.WithoutCancel(ctx), m.Name) })
	steps := func(todo ...func() error) {
		t.Helper()
		for i, do := range todo {
			if err := do(); err != nil {
				t.Fatalf("step %d: %v", i, err)
			}
		}
	}
	start := func() error { return d.Start(ctx, m.Name) }
	kill := func() error { return d.Kill(ctx, m.Name) }
	on := func(c Container, there bool) bool { return there && c.Running && c.Server == 42 }
	off := func(c Container, there bool) bool { return there && !c.Running }
	steps(func() error { return d.Create(ctx, m) })
	await(m.Name, off)
	if err := d.Create(ctx, m); err == nil {
		t.Error("created twice")
	}
	steps(start, start)
	await(m.Name, on)
	for range 2 {
		if notes, err := d.Boot(ctx, m.Name, m); err != nil || len(notes) > 0 {
			t.Fatal(notes, err)
		}
	}
	if err := c.AwaitReady(ctx, m.Name); err != nil {
		t.Fatal(err)
	}
	if log, err := d.run(ctx, nil, m.Name, "head", "-n1", logFile); err != nil || log != m.Name+" at your service" {
		t.Errorf("%q, %v", log, err)
	}
	steps(func() error { return d.Shutdown(ctx, m.Name) })
	await(m.Name, off)
	steps(kill, start)
	await(m.Name, on)
	steps(func() error { return d.Restart(ctx, m.Name) }, kill, kill)
	await(m.Name, off)
	remove := func() error { return d.Remove(ctx, m.Name) }
	steps(remove, remove)
	await(m.Name, func(_ Container, there bool) bool { return !there })
	stop()
	if err := <-watched; err == nil {
		t.Error("watching ends without an error")
	}
	if err := c.Client.CoreV1().Nodes().Delete(ctx, m.Name, metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
}

func mustList(t *testing.T, d *Docker) []Container {
	t.Helper()
	all, err := d.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return all
}
