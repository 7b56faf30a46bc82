package loadbalancer_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	corelisters "k8s.io/client-go/listers/core/v1"
	k8stesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	cloudprovider "k8s.io/cloud-provider"
	cloudproviderapi "k8s.io/cloud-provider/api"
	nodeutil "k8s.io/component-helpers/node/util"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/ccmtest"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/proof/crash"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/resync"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/fault"
)

// nodeScenario is what the CCM or its successor must complete on a Node.
type nodeScenario struct {
	name string
	// prepare changes the Node that kubelet has just registered.
	prepare func(w *nodeWorld, node *corev1.Node)
	// pools are the values that the label pool may have on the way: "" stands for no label.
	pools []string
}

func nodeScenarios() []nodeScenario {
	return []nodeScenario{
		{name: "a new node", pools: []string{"", "web"}, prepare: func(*nodeWorld, *corev1.Node) {}},
		{name: "a new node whose kubelet knows the provider ID", pools: []string{"", "web"},
			prepare: func(w *nodeWorld, node *corev1.Node) { node.Spec.ProviderID = w.providerID }},
		{name: "a node whose server has changed", pools: []string{"db", "web"}, prepare: func(w *nodeWorld, node *corev1.Node) {
			node.Spec.ProviderID, node.Spec.Taints = w.providerID,
				[]corev1.Taint{{Key: "old", Value: "1", Effect: corev1.TaintEffectNoSchedule}}
			node.Labels = map[string]string{"pool": "db", corev1.LabelInstanceTypeStable: "cx13"}
			node.Annotations = map[string]string{"ccm-from-scratch/labels-from-server": "pool",
				"ccm-from-scratch/taints-from-server": "old:NoSchedule"}
			node.Status.Conditions = append(node.Status.Conditions, corev1.NodeCondition{Type: corev1.NodeNetworkUnavailable,
				Status: corev1.ConditionTrue, Reason: "NoRouteCreated"})
		}},
	}
}

// TestAnyCallMayBeTheLastOfANodesInitialization is TestAnyCallMayBeTheLast for Nodes. A call of the Kubernetes API may be the
// last one too.
func TestAnyCallMayBeTheLastOfANodesInitialization(t *testing.T) {
	t.Parallel()
	for _, s := range nodeScenarios() {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			crash.Sweep(t, 5, s.run)
		})
	}
}

// run lets one process after the other die, and then one complete the Node. It returns where this one could have died.
func (s *nodeScenario) run(t *testing.T, deaths []crash.Death) (ends []crash.End) {
	t.Helper()
	w := newNodeWorld(t, s)
	defer w.fake.Close()
	process := w.start()
	for _, d := range deaths {
		w.wire.reset(d.Call, d.After)
		for range 20 {
			if process.look() == nil && w.complete() || w.wire.isDead() {
				break
			}
			w.clock.Step(15 * time.Second)
		}
		process = w.start()
	}
	w.wire.recordEnds(&ends, w.state, w.check)
	w.finish(process, fmt.Sprintf("died at %+v", deaths))
	return ends
}

// TestAnyCallOfANodesInitializationMayFail makes each call fail once, in each way. The same process must complete the Node.
func TestAnyCallOfANodesInitializationMayFail(t *testing.T) {
	t.Parallel()
	for _, s := range nodeScenarios() {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			runs := ccmtest.Share(t, 5)
			for i, call := range s.fail(t, 0, "") {
				kinds := []string{"401 unauthorized", "404 not_found", "422 invalid_input", "429 rate_limit_exceeded", "500 server_error",
					"empty"}
				if strings.Contains(call, "/kubernetes/") {
					kinds = []string{"403 forbidden", "409 conflict", "500 internal"}
				}
				if !strings.HasPrefix(call, "GET ") {
					kinds = append(kinds, "lost")
				}
				if strings.Contains(call, "/actions/") && strings.HasPrefix(call, "POST ") {
					kinds = append(kinds, "action failed", "action hung")
				}
				for _, kind := range kinds {
					if runs() {
						s.fail(t, i+1, kind)
					}
				}
			}
		})
	}
}

// fail runs the scenario with an error of call number n, and returns the calls.
func (s *nodeScenario) fail(t *testing.T, n int, kind string) (calls []string) {
	t.Helper()
	w := newNodeWorld(t, s)
	defer w.fake.Close()
	process := w.start()
	w.wire.reset(0, false)
	at, failed := 0, ""
	w.wire.setIntercept(func(r *http.Request) *http.Response {
		if at++; at != n {
			return nil
		}
		failed = r.Method + " " + r.URL.Path
		switch kind {
		case "action failed":
			return w.injectFault(fault.FailAction("action_failed", "injected"))
		case "action hung":
			return w.injectFault(fault.HangAction())
		case "empty":
			resp := apiError(http.StatusOK, "")
			resp.Body = http.NoBody
			return resp
		case "lost":
			w.lose(r)
			return apiError(http.StatusInternalServerError, "server_error")
		}
		status, code := 0, ""
		_, err := fmt.Sscan(kind, &status, &code)
		w.must(err)
		return apiError(status, code)
	})
	w.wire.setObserve(w.check)
	_ = process.look()
	calls = w.wire.take()
	w.endFaults()
	w.finish(process, fmt.Sprintf("call %d (%s): %s", n, failed, kind))
	return calls
}

// nodeWorld is a world with Kubernetes: its calls go through the wire, like those of the cloud.
type nodeWorld struct {
	*world
	scenario   *nodeScenario
	kube       *fake.Clientset
	providerID string
	action     k8stesting.Action // the last call of Kubernetes
	wrong      []string          // what check has found
}

// newNodeWorld makes the scenario's Node node-1, whose server has labels for it, and node-2, which needs nothing.
func newNodeWorld(t *testing.T, s *nodeScenario) *nodeWorld {
	t.Helper()
	w := &nodeWorld{world: newWorld(t, "realistic", 2), scenario: s}
	w.label(serverIDs(w.nodes[:1])[0], map[string]string{"pool": "web", "dedicated": "gpu"})
	w.label(serverIDs(w.nodes[1:])[0], map[string]string{"pool": "db"})
	node := w.nodes[0].DeepCopy()
	w.providerID, node.Spec.ProviderID = node.Spec.ProviderID, ""
	node.CreationTimestamp = *w.nowPtr()
	node.Spec.PodCIDRs = []string{"10.244.1.0/24"}
	node.Spec.Taints = []corev1.Taint{{Key: cloudproviderapi.TaintExternalCloudProvider, Value: "true",
		Effect: corev1.TaintEffectNoSchedule}}
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionFalse,
		LastTransitionTime: *w.nowPtr()}}
	s.prepare(w, node)
	w.kube = fake.NewClientset(node, w.nodes[1].DeepCopy())
	w.kube.PrependReactor("*", "*", w.react)
	return w
}

// react sends a call of Kubernetes through the wire.
func (w *nodeWorld) react(action k8stesting.Action) (bool, runtime.Object, error) {
	w.action = action
	method := map[string]string{"get": "GET", "create": "POST", "update": "PUT", "patch": "PATCH", "delete": "DELETE"}[action.GetVerb()]
	path := "/kubernetes/" + action.GetResource().Resource + "/" + action.GetSubresource()
	var obj runtime.Object
	resp, err := w.wire.send(&http.Request{Method: method, URL: &url.URL{Path: path}}, func(*http.Request) (_ *http.Response, err error) {
		_, obj, err = k8stesting.ObjectReaction(w.kube.Tracker())(action)
		return nil, err
	})
	if resp != nil {
		_ = resp.Body.Close()
		err = apierrors.NewGenericServerResponse(resp.StatusCode, method, schema.GroupResource{Resource: "nodes"}, "node-1", "injected", 0,
			false)
	}
	return true, obj, err
}

// lose gives a request to its API and drops the answer.
func (w *nodeWorld) lose(r *http.Request) {
	if strings.HasPrefix(r.URL.Path, "/kubernetes/") {
		_, _, _ = k8stesting.ObjectReaction(w.kube.Tracker())(w.action)
		return
	}
	if resp, err := w.fake.Transport().RoundTrip(r); err == nil {
		_ = resp.Body.Close()
	}
}

// node returns node-1 without a call.
func (w *nodeWorld) node() *corev1.Node {
	w.t.Helper()
	obj, err := w.kube.Tracker().Get(corev1.SchemeGroupVersion.WithResource("nodes"), "", "node-1")
	if err != nil {
		w.t.Fatal(err)
	}
	return obj.(*corev1.Node).DeepCopy()
}

// nodeProcess is a CCM whose controllers look at node-1 when the test says so.
type nodeProcess struct {
	w         *nodeWorld
	known     cache.Indexer // the informer's
	instances cloudprovider.InstancesV2
	compare   *resync.Comparison
}

// start returns a new process with empty caches.
func (w *nodeWorld) start() *nodeProcess {
	cloud := w.provider(func(c *ccm.Config) {
		c.NodeLabels = []ccm.LabelPattern{"pool"}
		c.NodeTaints = []ccm.TaintPattern{{LabelPattern: "dedicated", Effect: corev1.TaintEffectNoSchedule}}
	})
	p := &nodeProcess{w: w, known: cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})}
	cloud.Initialize(clients{w.kube}, w.t.Context().Done())
	p.instances, _ = cloud.InstancesV2()
	_, services := listers()
	p.compare = w.newComparison(cloud, w.kube, corelisters.NewNodeLister(p.known), services)
	return p
}

// inform shows the informer the Nodes as they are.
func (p *nodeProcess) inform() (node *corev1.Node) {
	node = p.w.node()
	_ = p.known.Replace([]any{node.DeepCopy(), p.w.nodes[1]}, "") // the index takes any Node
	return node
}

// look does what the node lifecycle, node and route controllers do with node-1, once.
func (p *nodeProcess) look() error {
	ctx, node := p.w.t.Context(), p.inform()
	if exists, err := p.instances.InstanceExists(ctx, node); err == nil && !exists {
		p.w.wrong = append(p.w.wrong, "the node would be deleted")
	}
	if off, err := p.instances.InstanceShutdown(ctx, node); err == nil && off {
		p.w.wrong = append(p.w.wrong, "the node would get the taint of a server that is off")
	}
	meta, err := p.instances.InstanceMetadata(ctx, node)
	if err != nil {
		return err
	}
	if err := p.initialize(ctx, meta); err != nil {
		return err
	}
	if node = p.w.node(); !slices.Equal(node.Status.Addresses, meta.NodeAddresses) {
		changed := node.DeepCopy()
		changed.Status.Addresses = meta.NodeAddresses
		if _, _, err := nodeutil.PatchNodeStatus(p.w.kube.CoreV1(), types.NodeName(node.Name), node, changed); err != nil {
			return err
		}
	}
	p.inform()
	if !p.compare.SyncRoutes(ctx) {
		return errors.New("the comparison of routes has failed")
	}
	return nil
}

// initialize writes the metadata to a Node that is not initialized, as syncNode of the node controller does.
func (p *nodeProcess) initialize(ctx context.Context, meta *cloudprovider.InstanceMetadata) error {
	node := p.w.node()
	kept := slices.DeleteFunc(slices.Clone(node.Spec.Taints),
		func(t corev1.Taint) bool { return t.Key == cloudproviderapi.TaintExternalCloudProvider })
	if len(kept) == len(node.Spec.Taints) {
		return nil
	}
	node.Spec.Taints, node.Spec.ProviderID = kept, meta.ProviderID
	if node.Labels == nil {
		node.Labels = map[string]string{}
	}
	maps.Copy(node.Labels, map[string]string{
		corev1.LabelInstanceType: meta.InstanceType, corev1.LabelInstanceTypeStable: meta.InstanceType,
		corev1.LabelFailureDomainBetaZone: meta.Zone, corev1.LabelTopologyZone: meta.Zone,
		corev1.LabelFailureDomainBetaRegion: meta.Region, corev1.LabelTopologyRegion: meta.Region,
	})
	maps.Copy(node.Labels, meta.AdditionalLabels)
	_, err := p.w.kube.CoreV1().Nodes().Update(ctx, node, metav1.UpdateOptions{})
	return err
}

// describe says what of a Node this test is about.
func describe(node *corev1.Node) string {
	labels := []string{}
	for _, l := range []string{"pool", corev1.LabelInstanceType, corev1.LabelInstanceTypeStable, corev1.LabelFailureDomainBetaZone,
		corev1.LabelTopologyZone,
		corev1.LabelFailureDomainBetaRegion, corev1.LabelTopologyRegion, "instance.hetzner.cloud/provided-by"} {
		labels = append(labels, node.Labels[l])
	}
	taints := []string{}
	for _, t := range node.Spec.Taints {
		taints = append(taints, t.ToString())
	}
	condition := "no condition"
	if _, c := nodeutil.GetNodeCondition(&node.Status, corev1.NodeNetworkUnavailable); c != nil {
		condition = fmt.Sprint(c.Status, " ", c.Reason)
	}
	return fmt.Sprint(node.Spec.ProviderID, labels, taints, condition, node.Status.Addresses)
}

// state describes what a new process finds.
func (w *nodeWorld) state() string {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	node := w.node()
	return fmt.Sprint(describe(node), node.Annotations, w.networkRoutes(), w.fake.AwaitIdle(ended) == nil)
}

// complete reports whether node-1 has all that it must have.
func (w *nodeWorld) complete() bool { return w.missing() == "" }

// missing says how node-1 and its route differ from what they must be; "" if they do not.
func (w *nodeWorld) missing() string {
	w.t.Helper()
	server, _, err := w.api.Server.GetByID(w.t.Context(), serverIDs(w.nodes[:1])[0])
	if err != nil {
		w.t.Fatal(err)
	}
	want := fmt.Sprint(w.providerID, []string{"web", "cx23", "cx23", "fsn1", "fsn1", "eu-central", "eu-central", "cloud"},
		[]string{"dedicated=gpu:NoSchedule"}, "False RouteCreated",
		[]corev1.NodeAddress{{Type: corev1.NodeHostName, Address: "node-1"},
			{Type: corev1.NodeExternalIP, Address: server.PublicNet.IPv4.IP.String()},
			{Type: corev1.NodeExternalIP, Address: firstAddress(server)}, {Type: corev1.NodeInternalIP, Address: w.privateIP(0)}})
	if got := describe(w.node()); got != want {
		return fmt.Sprintf("the node is %s\nwant        %s", got, want)
	}
	if got, want := w.networkRoutes(), []string{"10.244.1.0/24 via " + w.privateIP(0)}; !slices.Equal(got, want) {
		return fmt.Sprintf("routes %v, want %v", got, want)
	}
	return ""
}

// firstAddress returns the first address of a server's public IPv6 network.
func firstAddress(server *hcloud.Server) string {
	ip := slices.Clone(server.PublicNet.IPv6.IP)
	ip[len(ip)-1]++
	return ip.String()
}

// check notes what must not be true of node-1 at any time.
func (w *nodeWorld) check() {
	node := w.node()
	wrong := func(format string, args ...any) {
		w.wrong = append(w.wrong, fmt.Sprintf(format, args...)+": "+describe(node))
	}
	if id := node.Spec.ProviderID; id != "" && id != w.providerID {
		wrong("the provider ID is that of another server")
	}
	if !slices.Contains(w.scenario.pools, node.Labels["pool"]) {
		wrong("the label pool is wrong")
	}
	has := func(key string) bool {
		return slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == key })
	}
	_, condition := nodeutil.GetNodeCondition(&node.Status, corev1.NodeNetworkUnavailable)
	isNew := w.scenario.pools[0] == ""
	switch {
	case isNew && has(cloudproviderapi.TaintExternalCloudProvider):
	case condition == nil || condition.Status == corev1.ConditionFalse && len(w.networkRoutes()) == 0:
		wrong("pods may run on a node that has no route")
	case isNew && (node.Labels["pool"] != "web" || !has("dedicated") || node.Spec.ProviderID == ""):
		wrong("pods may run on a node that lacks what its server says")
	}
}

// finish lets the process complete node-1, and makes sure that nothing was wrong on the way.
func (w *nodeWorld) finish(process *nodeProcess, when string) {
	w.t.Helper()
	var err error
	for range 20 {
		if err = process.look(); err == nil && w.complete() {
			break
		}
		w.clock.Step(15 * time.Second)
	}
	w.wire.setIntercept(nil)
	w.wire.setObserve(nil)
	if missing := w.missing(); missing != "" || err != nil {
		w.t.Fatalf("%s: %v\n%s", when, err, missing)
	}
	w.wire.take()
	if err := w.start().look(); err != nil {
		w.t.Fatalf("%s: a further look: %v", when, err)
	}
	if extra := writes(w.wire.take()); len(extra) > 0 {
		w.t.Fatalf("%s: a further look still writes %v", when, extra)
	}
	if len(w.wrong) > 0 {
		w.t.Fatalf("%s: %s", when, strings.Join(w.wrong, "\n"))
	}
	if events := w.eventsSoFar(); len(events) > 0 { // the server is there, and attached
		w.t.Fatalf("%s: events %v", when, events)
	}
}

// label sets the labels of a server.
func (w *world) label(id int64, labels map[string]string) {
	w.t.Helper()
	_, _, err := w.api.Server.Update(w.t.Context(), &hcloud.Server{ID: id}, hcloud.ServerUpdateOpts{Labels: labels})
	w.must(err)
}
