// Package scale measures the cold start of the CCM in large clusters (make bench-ccm): its program, with the arguments of
// its manifest, on an embedded control plane and a simulated cloud. It has no code but this test.
//
// Not modelled: kubelets. The Nodes are Ready, and nothing changes them but the CCM.
package scale

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
	"k8s.io/client-go/util/workqueue"
	cloudproviderapi "k8s.io/cloud-provider/api"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/deploy"
	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/framework/cluster"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/fakecloudtest"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/fault"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/journal"
	"github.com/ccm-from-scratch/ccm-from-scratch/kind/build"
)

var table = flag.Bool("table", false, "measure the table of ccm/README.md")

const (
	// latency is the time that the cloud takes to answer, as in ccm/internal/proof/budget.
	latency = 30 * time.Millisecond
	// metrics is where the CCM serves its metrics.
	metrics = "127.12.34.56:9102"
)

func TestColdStart(t *testing.T) {
	if !*table {
		t.Skip("measures nothing that is checked: make bench-ccm")
	}
	if runtime.GOOS != "linux" {
		t.Skip("CPU time and memory of the CCM are read from /proc: run it on Linux")
	}
	programs, err := cluster.FindPrograms()
	must(t, err)
	program := os.Getenv("E2E_CCM") // as for make e2e: to compare two versions
	if program == "" {
		program = filepath.Join(t.TempDir(), "ccm")
		_, err = build.Go(t.Context(), os.Stderr, "compiling the CCM", "build", "-v", "-o", program, build.Module+
			"/ccm/cmd/ccm-from-scratch")
		must(t, err)
	}
	_, _ = fmt.Fprint(os.Stderr, "\n| nodes | time | requests to the cloud | to Kubernetes | CPU time | peak memory "+
		"|\n|--:|--:|--:|--:|--:|--:|\n")
	for _, n := range []int{100, 1000, 5000} {
		t.Run(fmt.Sprint(n), func(t *testing.T) { coldStart(t, programs, program, n) })
	}
}

// coldStart starts the CCM in a cluster with n new Nodes, waits until all are initialised, and prints the CCM's time, memory and requests.
func coldStart(t *testing.T, programs, program string, n int) {
	cloud, plane := newCloud(t, n), newCluster(t, programs, n)
	start := time.Now()
	process, err := plane.Run(cluster.Command{
		Name: "ccm", Path: program, Args: append(manifestArgs(t), "--kubeconfig="+plane.Kubeconfig, "--secure-port=0"),
		Env: []string{"HCLOUD_ENDPOINT=" + cloud.Endpoint(), "HCLOUD_TOKEN=" + cloud.Token(), "HCLOUD_METRICS_ADDRESS=" + metrics},
	})
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-process.Done(); cancel() }()
	if err := awaitInitialised(ctx, plane, n); err != nil {
		log, _ := os.ReadFile(process.LogPath())
		t.Fatalf("%v: %v\n%s", err, process.Err(), log[max(0, len(log)-2000):])
	}
	took := time.Since(start)
	response, err := http.Get("http://" + metrics + "/metrics")
	must(t, err)
	text, err := io.ReadAll(response.Body)
	must(t, err)
	must(t, response.Body.Close())
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", process.PID()))
	must(t, err)
	_, after, _ := strings.Cut(string(status), "VmHWM:")
	var peak int64 // in KiB
	_, err = fmt.Sscan(after, &peak)
	must(t, err)
	all, err := cloud.Journal().Entries(t.Context(), journal.Filter{Client: ccm.ProviderName})
	must(t, err)
	_, _ = fmt.Fprintf(os.Stderr, "| %d | %.1f s | %d | %.0f | %.1f s | %d MiB |\n", n, took.Seconds(), len(all),
		sum(t, text, "rest_client_requests_total{"), sum(t, text, "process_cpu_seconds_total "), peak>>10)
}

// newCloud returns a cloud with n servers and the limits of the real one.
func newCloud(t *testing.T, n int) *fakecloud.Cloud {
	cloud := fakecloudtest.New(t)
	client := cloud.Client(hcloud.WithApplication("bench", "1"))
	for i := range n {
		_, _, err := client.Server.Create(t.Context(),
			hcloud.ServerCreateOpts{Name: nodeName(i), ServerType: &hcloud.ServerType{Name: "cx23"},
				Image: &hcloud.Image{Name: "ubuntu-24.04"}, Location: &hcloud.Location{Name: "fsn1"},
				Labels: map[string]string{"cluster": "ours"}})
		must(t, err)
	}
	must(t, cloud.SetProfile(t.Context(), "realistic"))
	must(t, cloud.SetRateLimit(t.Context(), fakecloud.RealRateLimit))
	_, err := cloud.Faults().Add(t.Context(), fault.Rule{Effect: fault.Latency(latency)})
	must(t, err)
	return cloud
}

// newCluster returns a cluster with n Nodes.
func newCluster(t *testing.T, programs string, n int) *cluster.Cluster {
	plane, err := cluster.Start(t.Context(), cluster.Options{
		Programs: programs, PodCIDR: netip.MustParsePrefix("10.128.0.0/9"), // the default has room for 256 Nodes
		NodeMonitorGracePeriod: 24 * time.Hour, // no kubelet renews a Lease
	})
	must(t, err)
	t.Cleanup(func() { must(t, plane.Stop()) })
	workqueue.ParallelizeUntil(t.Context(), 16, n, func(i int) {
		if _, err := plane.Client.CoreV1().Nodes().Create(t.Context(), newNode(i), metav1.CreateOptions{}); err != nil {
			t.Error(err)
		}
	})
	if t.Failed() {
		t.FailNow()
	}
	return plane
}

func nodeName(i int) string { return fmt.Sprintf("node-%d", i+1) }

// newNode returns a Node that is as large as one that kubelet has registered. It has its pod range already: the CCM
// would otherwise race with the controller that gives it one.
func newNode(i int) *corev1.Node {
	name, podRange := nodeName(i), fmt.Sprintf("10.%d.%d.0/24", 128+i>>8, i&255)
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}},
		Spec: corev1.NodeSpec{PodCIDR: podRange, PodCIDRs: []string{podRange}, Taints: []corev1.Taint{
			{Key: cloudproviderapi.TaintExternalCloudProvider, Value: "true", Effect: corev1.TaintEffectNoSchedule}}},
		Status: corev1.NodeStatus{
			Addresses:  []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: name}},
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastHeartbeatTime: metav1.Now()}},
		},
	}
	for image := range 50 { // as many as kubelet reports; the rest of a Node is short
		repository := fmt.Sprintf("registry.example.org/team/program-%d", image)
		node.Status.Images = append(node.Status.Images, corev1.ContainerImage{SizeBytes: 100 << 20,
			Names: []string{fmt.Sprintf("%s@sha256:%064x", repository, image), repository + ":v1.2.3"}})
	}
	return node
}

// awaitInitialised returns when n Nodes are initialised, or the context ends.
func awaitInitialised(ctx context.Context, plane *cluster.Cluster, n int) error {
	seen := map[string]bool{}
	nodes := cache.NewListWatchFromClient(plane.Client.CoreV1().RESTClient(), "nodes", "", fields.Everything())
	_, err := watchtools.UntilWithSync(ctx, nodes, &corev1.Node{}, nil, func(e watch.Event) (bool, error) {
		if node, ok := e.Object.(*corev1.Node); ok && isInitialised(node) {
			seen[node.Name] = true
		}
		return len(seen) == n, nil
	})
	return err
}

func isInitialised(node *corev1.Node) bool {
	return node.Spec.ProviderID != "" &&
		!slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == cloudproviderapi.TaintExternalCloudProvider }) &&
		slices.ContainsFunc(node.Status.Addresses, func(a corev1.NodeAddress) bool { return a.Type == corev1.NodeExternalIP })
}

// manifestArgs returns the arguments of the CCM in its manifest, the chart's defaults.
func manifestArgs(t *testing.T) []string {
	objects, err := deploy.Objects(deploy.Manifest)
	must(t, err)
	for _, o := range objects {
		if containers, found, err := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "containers"); found {
			must(t, err)
			args, _, err := unstructured.NestedStringSlice(containers[0].(map[string]any), "args")
			must(t, err)
			return args
		}
	}
	t.Fatal("the manifest has no Deployment")
	return nil
}

// sum returns the sum of the values of a metric, by how its lines begin.
func sum(t *testing.T, metrics []byte, begin string) (sum float64) {
	for line := range strings.Lines(string(metrics)) {
		if strings.HasPrefix(line, begin) {
			var value float64
			_, err := fmt.Sscan(line[strings.LastIndex(line, " "):], &value)
			must(t, err)
			sum += value
		}
	}
	return sum
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
