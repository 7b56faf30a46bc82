package cluster

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// uninitialized is the taint of a Node that waits for a CCM.
const uninitialized = "node.cloudprovider.kubernetes.io/uninitialized"

// inventory lists the objects in Docker that belong to the cluster, and all volumes: their names do not
// tell the owner.
func inventory(t *testing.T, cluster string) (own, volumes []string) {
	t.Helper()
	list := func(args ...string) []string {
		out, err := docker(t.Context(), args...)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Fields(out)
	}
	own = append(list("ps", "--all", "--format", "{{.Names}}", "--filter", "name="+cluster),
		list("network", "ls", "--format", "{{.Name}}", "--filter", "name="+cluster)...)
	return own, list("volume", "ls", "--quiet")
}

// volumesOf returns the volumes that the containers use.
func volumesOf(t *testing.T, names []string) []string {
	t.Helper()
	out, err := docker(t.Context(),
		append([]string{"inspect", "--format", `{{range .Mounts}}{{if eq .Type "volume"}}{{println .Name}}{{end}}{{end}}`}, names...)...)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(out)
}

// routes returns the node's routes, each in a line.
func routes(ctx context.Context, node string) string {
	out, err := onNode(ctx, node, "ip", "-4", "route")
	if err != nil {
		return err.Error()
	}
	return out
}

// TestAClusterFromBirthToRemoval needs Docker, a node image and two minutes, so
// it runs when it is asked to:
//
//	KIND_CLUSTER_TEST=1 scripts/with-docker.sh go test -v -count=1 -run Birth ./kind/cluster
//
// KIND_CLUSTER_OFFSET (a number) chooses another subnet and name, for runs at the
// same time; NODE_IMAGE another image.
func TestAClusterFromBirthToRemoval(t *testing.T) {
	if os.Getenv("KIND_CLUSTER_TEST") == "" {
		t.Skip("KIND_CLUSTER_TEST is not set")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	defer cancel()
	offset, err := strconv.Atoi(cmp.Or(os.Getenv("KIND_CLUSTER_OFFSET"), "5"))
	if err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	mark := func(what string) {
		t.Logf("%-40s %5.1f s", what, time.Since(begin).Seconds())
		begin = time.Now()
	}
	image, err := EnsureImage(ctx, os.Getenv("NODE_IMAGE"), t.Output())
	if err != nil {
		t.Fatal(err)
	}
	mark("node image")
	name := fmt.Sprintf("kind-test-%d", offset)
	t.Cleanup(func() { _ = Delete(context.WithoutCancel(ctx), name) })
	created, err := Create(ctx, Options{Name: name, Image: image, Workers: 2, Subnet: Offset(offset),
		NodeMonitorGracePeriod: 20 * time.Second, Progress: t.Output()})
	if err != nil {
		t.Fatal(err)
	}
	mark("create, 1 control plane and 2 workers")
	c, err := Open(ctx, name)
	if err != nil {
		t.Fatal(err)
	}
	if c.Network != created.Network || c.Image != created.Image {
		t.Errorf("another process sees %+v, want %+v", c.Network, created.Network)
	}
	names := nodeNames(name, 2)
	worker, joiner := names[1], name+"-server-7"

	if err := c.Join(ctx, joiner, c.Server(7)); err != nil {
		t.Fatal(err)
	}
	mark("join one more until it is registered")
	if err := c.AwaitReady(ctx, joiner); err != nil {
		t.Fatal(err)
	}
	mark("until it is Ready")
	names = append(names, joiner)
	checkNodes(t, c, names)
	if err := c.Join(ctx, worker, c.Server(9)); err == nil {
		t.Error("a name that is taken joined")
	}
	if err := c.Join(ctx, "another", c.Server(7)); err == nil || !strings.Contains(err.Error(), "address") {
		t.Errorf("an address that is taken joined: %v", err)
	}
	checkNodes(t, c, names)

	begin = time.Now()
	if err := c.PowerOff(ctx, worker); err != nil {
		t.Fatal(err)
	}
	if err := await(ctx, "the Node is not Ready", func(ctx context.Context) error {
		node, err := c.Client.CoreV1().Nodes().Get(ctx, worker, metav1.GetOptions{})
		if err == nil && Ready(node) {
			return errors.New("it is Ready")
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	mark("power off until the Node is not Ready")
	if err := c.PowerOn(ctx, worker); err != nil {
		t.Fatal(err)
	}
	if err := c.AwaitReady(ctx, worker); err != nil {
		t.Fatal(err)
	}
	mark("power on until it is Ready")
	checkNodes(t, c, names)

	// Docker would mix up the addresses of the whole cluster in this order.
	if err := each(names, func(name string) error { return c.Shutdown(ctx, name) }); err != nil {
		t.Fatal(err)
	}
	for _, name := range slices.Backward(names) {
		if err := c.PowerOn(ctx, name); err != nil {
			t.Fatal(err)
		}
	}
	if c, err = Open(ctx, name); err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if err := c.AwaitReady(ctx, name); err != nil {
			t.Fatal(err)
		}
	}
	mark("the whole cluster stopped and started")
	checkNodes(t, c, names)

	used := volumesOf(t, names)
	if len(used) < len(names) {
		t.Errorf("%d nodes use the volumes %v", len(names), used)
	}
	if err := c.Remove(ctx, joiner); err != nil {
		t.Fatal(err)
	}
	if err := c.Remove(ctx, joiner); err != nil {
		t.Errorf("removing it again: %v", err)
	}
	if _, err := c.Client.CoreV1().Nodes().Get(ctx, joiner, metav1.GetOptions{}); err != nil {
		t.Errorf("the Node of a removed container is the CCM's to delete: %v", err)
	}
	begin = time.Now()
	if err := Delete(ctx, name); err != nil {
		t.Fatal(err)
	}
	mark("delete")
	own, volumes := inventory(t, name)
	left := slices.Concat(own, slices.DeleteFunc(used, func(v string) bool { return !slices.Contains(volumes, v) }))
	if len(left) > 0 {
		t.Errorf("this is left: %v", left)
	}
	if _, err := os.Stat(c.Kubeconfig); !os.IsNotExist(err) {
		t.Errorf("the kubeconfig is left: %v", err)
	}
	if _, err := Open(ctx, name); err == nil {
		t.Error("it can still be opened")
	}
}

// checkNodes checks that the nodes are those, Ready or about to be, at the
// addresses that were planned for them, with the routes of the plan.
func checkNodes(t *testing.T, c *Cluster, names []string) {
	t.Helper()
	ctx := t.Context()
	list, err := c.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil || len(list.Items) != len(names) {
		t.Fatalf("there are %d Nodes, want %d; %v", len(list.Items), len(names), err)
	}
	containers, err := c.Containers(ctx)
	if err != nil || len(containers) != len(names) {
		t.Fatalf("there are the containers %v, want %v; %v", containers, names, err)
	}
	for i, name := range names {
		at := slices.IndexFunc(containers, func(n NodeContainer) bool { return n.Name == name })
		if at < 0 {
			t.Errorf("there is no container %s", name)
			continue
		}
		want := c.Server(i)
		if strings.HasSuffix(name, "-server-7") {
			want = c.Server(7)
		}
		if containers[at].Address != want || !containers[at].Running {
			t.Errorf("%+v, want it to run at %s", containers[at], want)
		}
		node, err := c.Client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			t.Error(err)
			continue
		}
		if node.Spec.ProviderID != "" {
			t.Errorf("%s has a provider ID that no CCM gave it: %s", name, node.Spec.ProviderID)
		}
		tainted := false
		for _, taint := range node.Spec.Taints {
			tainted = tainted || taint.Key == uninitialized
		}
		if !tainted {
			t.Errorf("%s does not wait for a CCM: %v", name, node.Spec.Taints)
		}
		// The kubelet says where it is until a CCM does.
		if len(node.Status.Addresses) == 0 || node.Status.Addresses[0].Address != want.String() {
			t.Errorf("%s says its addresses are %v, want %s", name, node.Status.Addresses, want)
		}
		wants := []string{
			fmt.Sprintf("%s via %s", c.PodCIDR, c.Router()),
			fmt.Sprintf("%s via %s", Metadata, c.Router()),
			fmt.Sprintf("%s via %s", PublicIPv4, c.Router()),
			"unreachable " + node.Spec.PodCIDR,
			"src " + want.String(),
		}
		bounded, cancel := context.WithTimeout(ctx, time.Minute)
		if err := await(bounded, name+" has its routes", func(ctx context.Context) error {
			got := routes(ctx, name)
			if slices.ContainsFunc(wants, func(w string) bool { return !strings.Contains(got, w) }) {
				return fmt.Errorf("it has\n%s", got)
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
		cancel()
		config, err := onNode(ctx, name, "cat", "/etc/cni/net.d/10-pod-network.conflist")
		if err != nil || !bytes.Contains([]byte(config), []byte(`"subnet": "`+node.Spec.PodCIDR+`"`)) {
			t.Errorf("%s, whose pods have %s, has the CNI configuration\n%s\n%v", name, node.Spec.PodCIDR, config, err)
		}
	}
}
