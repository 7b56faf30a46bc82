// Package scale measures the cold start of the CCM in large clusters (make bench-ccm): its program, with the arguments of
// its manifest, on an embedded control plane and a simulated cloud. It has no code but this test.
//
// Not modelled: kubelets. The Nodes are Ready, and nothing changes them but the CCM.
package scale

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"math"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	cloudproviderapi "k8s.io/cloud-provider/api"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/deploy"
	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/framework/cluster"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/fault"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/journal"
	"github.com/ccm-from-scratch/ccm-from-scratch/kind/build"
)

var table = flag.Bool("table", false, "measure the table of ccm/README.md")

// latency is the time that the cloud takes to answer, as in ccm/internal/proof/budget.
const latency = 30 * time.Millisecond

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
	cloud := newCloud(t, n)
	plane := newCluster(t, programs, n)
	initialised := awaitInitialised(t, plane, n)
	metrics := freeAddress(t)
	start := time.Now()
	process, err := plane.Run(cluster.Command{
		Name: "ccm", Path: program, Args: append(manifestArgs(t), "--kubeconfig="+plane.Kubeconfig, "--secure-port=0"),
		Env: []string{"HCLOUD_ENDPOINT=" + cloud.Endpoint(), "HCLOUD_TOKEN=" + cloud.Token(), "HCLOUD_METRICS_ADDRESS=" + metrics},
	})
	must(t, err)
	select {
	case <-initialised:
	case <-process.Done():
		log, _ := os.ReadFile(process.LogPath())
		t.Fatalf("the CCM has ended: %v\n%s", process.Err(), log[max(0, len(log)-2000):])
	}
	took := time.Since(start)
	cpu, peak := usage(t, process.PID())
	kube := requestsToKubernetes(t, metrics)
	all, err := cloud.Journal().Entries(t.Context(), journal.Filter{Client: ccm.ProviderName})
	must(t, err)
	_, _ = fmt.Fprintf(os.Stderr, "| %d | %.1f s | %d | %d | %.1f s | %d MiB |\n", n, took.Seconds(), len(all), kube, cpu.Seconds(),
		peak>>20)
}

// newCloud returns a cloud with n servers and the limits of the real one.
func newCloud(t *testing.T, n int) *fakecloud.Cloud {
	cloud := fakecloud.New(fakecloud.Options{})
	t.Cleanup(cloud.Close)
	_, err := cloud.Start(t.Context(), "")
	must(t, err)
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
	_, err = cloud.Faults().Add(t.Context(), fault.Rule{Effect: fault.Latency(latency)})
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
		if _, err := plane.Client.CoreV1().Nodes().Create(t.Context(), newNode(i, plane.Version), metav1.CreateOptions{}); err != nil {
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
func newNode(i int, version string) *corev1.Node {
	name, podRange := nodeName(i), fmt.Sprintf("10.%d.%d.0/24", 128+i>>8, i&255)
	capacity := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("8Gi"),
		corev1.ResourceEphemeralStorage: resource.MustParse("80Gi"), corev1.ResourcePods: resource.MustParse("110")}
	labels := map[string]string{corev1.LabelHostname: name}
	for _, prefix := range []string{"", "beta."} {
		labels[prefix+corev1.LabelOSStable], labels[prefix+corev1.LabelArchStable] = "linux", runtime.GOARCH
	}
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels,
			Annotations: map[string]string{"volumes.kubernetes.io/controller-managed-attach-detach": "true"}},
		Spec: corev1.NodeSpec{PodCIDR: podRange, PodCIDRs: []string{podRange},
			Taints: []corev1.Taint{{Key: cloudproviderapi.TaintExternalCloudProvider, Value: "true",
				Effect: corev1.TaintEffectNoSchedule}}},
		Status: corev1.NodeStatus{Capacity: capacity, Allocatable: capacity,
			Addresses: []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: name}},
			NodeInfo: corev1.NodeSystemInfo{KubeletVersion: version, OperatingSystem: "linux", Architecture: runtime.GOARCH,
				OSImage: "Ubuntu 24.04 LTS"}},
	}
	now := metav1.Now()
	for kind, status := range map[corev1.NodeConditionType]corev1.ConditionStatus{
		corev1.NodeReady: corev1.ConditionTrue, corev1.NodeMemoryPressure: corev1.ConditionFalse,
		corev1.NodeDiskPressure: corev1.ConditionFalse, corev1.NodePIDPressure: corev1.ConditionFalse,
	} {
		node.Status.Conditions = append(node.Status.Conditions, corev1.NodeCondition{Type: kind, Status: status, LastHeartbeatTime: now,
			LastTransitionTime: now,
			Reason:             "KubeletIsFine", Message: "kubelet says in a sentence that all is well"})
	}
	for image := range 50 { // as many as kubelet reports
		repository := fmt.Sprintf("registry.example.org/team/program-%d", image)
		node.Status.Images = append(node.Status.Images, corev1.ContainerImage{SizeBytes: 100 << 20,
			Names: []string{fmt.Sprintf("%s@sha256:%064x", repository, image), repository + ":v1.2.3"}})
	}
	return node
}

// awaitInitialised returns a channel that is closed when n Nodes are initialised.
func awaitInitialised(t *testing.T, plane *cluster.Cluster, n int) <-chan struct{} {
	config := rest.CopyConfig(plane.RESTConfig)
	config.ContentType = kruntime.ContentTypeProtobuf // costs the host that is measured less than JSON
	client, err := kubernetes.NewForConfig(config)
	must(t, err)
	ctx, stop := context.WithCancel(t.Context())
	all, seen := make(chan struct{}), map[string]bool{}
	look := func(obj any) {
		if node, ok := obj.(*corev1.Node); ok && !seen[node.Name] && isInitialised(node) {
			if seen[node.Name] = true; len(seen) == n {
				close(all)
			}
		}
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	_, err = factory.Core().V1().Nodes().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: look,
		UpdateFunc: func(_, obj any) { look(obj) }})
	must(t, err)
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	t.Cleanup(func() { stop(); factory.Shutdown() })
	return all
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
		if o.GetKind() == "Deployment" {
			var d appsv1.Deployment
			must(t, kruntime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &d))
			return d.Spec.Template.Spec.Containers[0].Args
		}
	}
	t.Fatal("the manifest has no Deployment")
	return nil
}

// usage returns the CPU time and the peak memory of a process. The system's usage of an ended process would not do: on Linux its memory
// includes that of the parent process.
func usage(t *testing.T, pid int) (cpu time.Duration, peak int64) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	must(t, err)
	_, after, _ := strings.Cut(string(stat), ") ") // the name before it may have spaces
	fields := strings.Fields(after)
	const user, system, perSecond = 11, 12, 100
	for _, field := range []int{user, system} {
		ticks, err := strconv.ParseInt(fields[field], 10, 64)
		must(t, err)
		cpu += time.Duration(ticks) * time.Second / perSecond
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	must(t, err)
	_, after, _ = strings.Cut(string(status), "VmHWM:")
	_, err = fmt.Sscanf(after, "%d kB", &peak)
	must(t, err)
	return cpu, peak << 10
}

// requestsToKubernetes returns the number of the CCM's requests to the Kubernetes API, by its own metric.
func requestsToKubernetes(t *testing.T, metrics string) int {
	resp, err := http.Get("http://" + metrics + "/metrics")
	must(t, err)
	defer func() { _ = resp.Body.Close() }()
	sum := 0.0
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		if !strings.HasPrefix(lines.Text(), "rest_client_requests_total{") {
			continue
		}
		value, err := strconv.ParseFloat(lines.Text()[strings.LastIndex(lines.Text(), " ")+1:], 64)
		must(t, err)
		sum += value
	}
	must(t, lines.Err())
	return int(math.Round(sum))
}

// freeAddress returns an address without a listener.
func freeAddress(t *testing.T) string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer func() { _ = listener.Close() }()
	return listener.Addr().String()
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
