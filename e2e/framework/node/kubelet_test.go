package node

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/version"
	fakediscovery "k8s.io/client-go/discovery/fake"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"
	nodeutil "k8s.io/component-helpers/node/util"
	"k8s.io/utils/clock"
	testingclock "k8s.io/utils/clock/testing"
)

// api is a Kubernetes API in memory.
func api(objects ...runtime.Object) *fake.Clientset {
	client := fake.NewClientset(objects...)
	client.Discovery().(*fakediscovery.FakeDiscovery).FakedServerVersion = &version.Info{GitVersion: "v1.37.1"}
	return client
}

// patience bounds a wait that is short on any host.
func patience(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// begin starts a node with a quick heartbeat.
func begin(t *testing.T, client *fake.Clientset, spec Spec) *Node {
	t.Helper()
	if spec.Heartbeat == 0 {
		spec.Heartbeat = 5 * time.Millisecond
	}
	n, err := Start(t.Context(), client, spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.Stop)
	return n
}

// get returns the Node. A missing one fails the assertion.
func get(g Gomega, client *fake.Clientset, name string) *corev1.Node {
	object, err := client.CoreV1().Nodes().Get(context.Background(), name, metav1.GetOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	return object
}

func ready(g Gomega, client *fake.Clientset, name string) corev1.ConditionStatus {
	if c := condition(get(g, client, name), corev1.NodeReady); c != nil {
		return c.Status
	}
	return ""
}

func condition(n *corev1.Node, kind corev1.NodeConditionType) *corev1.NodeCondition {
	_, c := nodeutil.GetNodeCondition(&n.Status, kind)
	return c
}

func eventuallyReady(t *testing.T, g Gomega, client *fake.Clientset, name string) {
	t.Helper()
	g.Eventually(func(g Gomega) { g.Expect(ready(g, client, name)).To(Equal(corev1.ConditionTrue)) }).
		WithContext(patience(t)).Should(Succeed())
}

func TestANodeRegistersAsKubeletDoesWithAnExternalCloudProvider(t *testing.T) {
	t.Parallel()
	g, client := NewWithT(t), api()
	var created atomic.Pointer[corev1.Node]
	client.PrependReactor("create", "nodes", func(action k8stesting.Action) (bool, runtime.Object, error) {
		created.Store(action.(k8stesting.CreateAction).GetObject().(*corev1.Node).DeepCopy())
		return false, nil, nil
	})
	n := begin(t, client, Spec{Name: "a", ProviderID: "x://1"})
	g.Expect(n.AwaitRegistered(patience(t))).To(Succeed())
	node := created.Load()
	g.Expect(node.Labels).To(HaveKeyWithValue("kubernetes.io/hostname", "a"))
	g.Expect(node.Spec.ProviderID).To(Equal("x://1"))
	g.Expect(node.Spec.Taints).To(ConsistOf(corev1.Taint{
		Key: "node.cloudprovider.kubernetes.io/uninitialized", Value: "true", Effect: corev1.TaintEffectNoSchedule,
	}))
	g.Expect(node.Annotations).NotTo(HaveKey("alpha.kubernetes.io/provided-node-ip"))
	g.Expect(node.Status.Addresses).To(ConsistOf(corev1.NodeAddress{Type: corev1.NodeHostName, Address: "a"}))
	g.Expect(node.Status.Capacity.Cpu().String()).To(Equal("2"))
	g.Expect(node.Status.NodeInfo.KubeletVersion).To(Equal("v1.37.1"))
	g.Expect(condition(node, corev1.NodeReady).Status).To(Equal(corev1.ConditionFalse))
	g.Expect(condition(node, corev1.NodeNetworkUnavailable)).To(BeNil(), "kubelet has no such condition")
	eventuallyReady(t, g, client, "a")
}

func TestGivenNodeIPsAreAddressesAndAHintForTheCloudProvider(t *testing.T) {
	t.Parallel()
	g, client := NewWithT(t), api()
	n := begin(t, client, Spec{Name: "a", NetworkUnavailable: true,
		NodeIPs: []netip.Addr{netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("fd00::2")}})
	g.Expect(n.AwaitRegistered(patience(t))).To(Succeed())
	node := get(g, client, "a")
	g.Expect(node.Annotations).To(HaveKeyWithValue("alpha.kubernetes.io/provided-node-ip", "10.0.0.2,fd00::2"))
	g.Expect(node.Status.Addresses).To(HaveExactElements(
		corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: "10.0.0.2"},
		corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: "fd00::2"},
		corev1.NodeAddress{Type: corev1.NodeHostName, Address: "a"},
	))
	g.Expect(condition(node, corev1.NodeNetworkUnavailable).Status).To(Equal(corev1.ConditionTrue))
}

func TestANodeThatExistsKeepsWhatOthersWrote(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	address := corev1.NodeAddress{Type: corev1.NodeExternalIP, Address: "192.0.2.1"}
	client := api(&corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "1"},
		Spec:       corev1.NodeSpec{ProviderID: "x://7"},
		Status: corev1.NodeStatus{
			Addresses: []corev1.NodeAddress{address},
			Conditions: []corev1.NodeCondition{
				{Type: corev1.NodeNetworkUnavailable, Status: corev1.ConditionFalse, Reason: "RouteCreated"},
				{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, Reason: "NodeStatusUnknown"},
			},
		},
	})
	begin(t, client, Spec{Name: "a"})
	eventuallyReady(t, g, client, "a")
	node := get(g, client, "a")
	g.Expect(node.Spec.Taints).To(BeEmpty(), "an initialized node does not become uninitialized")
	g.Expect(node.Spec.ProviderID).To(Equal("x://7"))
	g.Expect(node.Status.Addresses).To(ConsistOf(address))
	g.Expect(condition(node, corev1.NodeNetworkUnavailable).Reason).To(Equal("RouteCreated"))
}

func TestRegistrationIsTriedUntilTheAPIAnswers(t *testing.T) {
	t.Parallel()
	g, client := NewWithT(t), api()
	clock := testingclock.NewFakeClock(time.Now())
	var attempts atomic.Int32
	client.PrependReactor("create", "nodes", func(k8stesting.Action) (bool, runtime.Object, error) {
		if attempts.Add(1) <= 3 {
			return true, nil, errors.New("the API is away")
		}
		return false, nil, nil
	})
	n := begin(t, client, Spec{Name: "a", Clock: clock})
	for want := range int32(4) {
		g.Eventually(clock.HasWaiters).WithContext(patience(t)).Should(BeTrue())
		g.Expect(attempts.Load()).To(Equal(want), "attempts before the wait is over")
		clock.Step(registerFirst << want)
		g.Eventually(attempts.Load).WithContext(patience(t)).Should(Equal(want + 1))
	}
	g.Expect(n.AwaitRegistered(patience(t))).To(Succeed())
}

// handTicked is a clock with tickers that tick only when the test sends. Since its channel has no
// buffer, a second tick is only taken when the work that the first one caused is done.
type handTicked struct {
	*testingclock.FakeClock
	ticks chan time.Time
}

func (c handTicked) NewTicker(time.Duration) clock.Ticker { return c }
func (c handTicked) C() <-chan time.Time                  { return c.ticks }
func (c handTicked) Stop()                                {}

func TestAnUnchangedStatusIsWrittenEachFiveMinutesOnly(t *testing.T) {
	t.Parallel()
	g, client := NewWithT(t), api()
	clock := handTicked{testingclock.NewFakeClock(time.Now()), make(chan time.Time)}
	var patches atomic.Int32
	client.PrependReactor("patch", "nodes", func(k8stesting.Action) (bool, runtime.Object, error) {
		patches.Add(1)
		return false, nil, nil
	})
	n := begin(t, client, Spec{Name: "a", Clock: clock, Heartbeat: time.Second})
	g.Eventually(clock.HasWaiters).WithContext(patience(t)).Should(BeTrue())
	clock.Step(registerFirst)
	g.Eventually(patches.Load).WithContext(patience(t)).Should(Equal(int32(1)))
	g.Eventually(func() bool {
		seen := n.world.node("a")
		return seen != nil && condition(seen, corev1.NodeReady).Status == corev1.ConditionTrue
	}).WithContext(patience(t)).Should(BeTrue())

	heartbeat := func() { clock.ticks <- clock.Now() }
	heartbeat() // taken when the first report is finished
	for range 20 {
		clock.Step(time.Second)
		heartbeat()
	}
	g.Expect(patches.Load()).To(Equal(int32(1)))
	clock.Step(statusPeriod)
	heartbeat()
	heartbeat()
	g.Expect(patches.Load()).To(Equal(int32(2)))

	// The node lifecycle controller's verdict is contradicted at the next heartbeat that sees it.
	node := get(g, client, "a")
	condition(node, corev1.NodeReady).Status = corev1.ConditionUnknown
	g.Expect(client.CoreV1().Nodes().UpdateStatus(t.Context(), node, metav1.UpdateOptions{})).Error().NotTo(HaveOccurred())
	g.Eventually(func() int32 {
		heartbeat()
		return patches.Load()
	}).WithContext(patience(t)).Should(BeNumerically(">=", 3))
}

// writes counts what was sent to the API except reading.
func writes(client *fake.Clientset) int {
	return len(slices.DeleteFunc(client.Actions(), func(a k8stesting.Action) bool {
		return slices.Contains([]string{"get", "list", "watch"}, a.GetVerb())
	}))
}

func renewals(client *fake.Clientset) int {
	return len(slices.DeleteFunc(client.Actions(), func(a k8stesting.Action) bool {
		return a.GetResource().Resource != "leases" || a.GetVerb() != "update"
	}))
}

func TestTheLeaseIsRenewedWhileTheNodeHasPower(t *testing.T) {
	t.Parallel()
	g, client := NewWithT(t), api()
	n := begin(t, client, Spec{Name: "a"})
	g.Eventually(func() int { return renewals(client) }).WithContext(patience(t)).Should(BeNumerically(">=", 3))
	l, err := client.CoordinationV1().Leases("kube-node-lease").Get(t.Context(), "a", metav1.GetOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(*l.Spec.HolderIdentity).To(Equal("a"))
	g.Expect(l.OwnerReferences).To(ConsistOf(And(HaveField("Kind", "Node"), HaveField("Name", "a"))))

	n.PowerOff()
	g.Expect(n.PoweredOn()).To(BeFalse())
	g.Expect(n.AwaitRegistered(t.Context())).To(MatchError(ContainSubstring("is off")))
	silent := writes(client)
	boot := get(g, client, "a").Status.NodeInfo.BootID
	n.PowerOff()       // off stays off
	n.RestartKubelet() // a node without power runs no kubelet
	g.Expect(writes(client)).To(Equal(silent))

	before := renewals(client)
	n.PowerOn()
	n.PowerOn() // on stays on
	g.Eventually(func() int { return renewals(client) }).WithContext(patience(t)).Should(BeNumerically(">", before))
	g.Eventually(func() string { return get(g, client, "a").Status.NodeInfo.BootID }).
		WithContext(patience(t)).ShouldNot(Equal(boot), "another boot has another ID")
}

func TestADeletedNodeIsRegisteredAgainByARestartedKubeletOnly(t *testing.T) {
	t.Parallel()
	g, client := NewWithT(t), api()
	n := begin(t, client, Spec{Name: "a"})
	eventuallyReady(t, g, client, "a")
	g.Eventually(func() int { return renewals(client) }).WithContext(patience(t)).Should(BeNumerically(">", 0))
	g.Expect(client.CoreV1().Nodes().Delete(t.Context(), "a", metav1.DeleteOptions{})).To(Succeed())
	g.Eventually(func() *corev1.Node { return n.world.node("a") }).WithContext(patience(t)).Should(BeNil())
	before := renewals(client)
	g.Eventually(func() int { return renewals(client) }).WithContext(patience(t)).
		Should(BeNumerically(">", before+3), "heartbeats go on, as long as the Lease is there")
	_, err := client.CoreV1().Nodes().Get(t.Context(), "a", metav1.GetOptions{})
	g.Expect(apierrors.IsNotFound(err)).To(BeTrue())
	n.RestartKubelet()
	g.Expect(n.AwaitRegistered(patience(t))).To(Succeed())
	eventuallyReady(t, g, client, "a")
}

func TestAStoppedNodeStaysOffAndItsObjectStays(t *testing.T) {
	t.Parallel()
	g, client := NewWithT(t), api()
	n := begin(t, client, Spec{Name: "a"})
	g.Expect(n.AwaitRegistered(patience(t))).To(Succeed())
	n.Stop()
	silent := writes(client)
	n.PowerOn()
	g.Expect(n.PoweredOn()).To(BeFalse())
	g.Expect(writes(client)).To(Equal(silent))
	get(g, client, "a")
}

func TestANodeEndsWithItsContext(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	ctx, cancel := context.WithCancel(t.Context())
	n, err := Start(ctx, api(), Spec{Name: "a"})
	g.Expect(err).NotTo(HaveOccurred())
	cancel()
	g.Eventually(n.PoweredOn).WithContext(patience(t)).Should(BeFalse())
}

func TestASpecThatCannotWorkIsRefused(t *testing.T) {
	t.Parallel()
	v4, v6 := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1")
	for name, test := range map[string]struct {
		spec Spec
		want string
	}{
		"no name":         {Spec{}, "cannot name a node"},
		"capital letters": {Spec{Name: "Node"}, `"Node" cannot name a node`},
		"no address":      {Spec{Name: "a", Addresses: []netip.Addr{{}}}, "must be an address of this host"},
		"every address": {Spec{Name: "a", Addresses: []netip.Addr{netip.IPv4Unspecified()}},
			"0.0.0.0, must be an address of this host"},
		"two IPs of one family":   {Spec{Name: "a", NodeIPs: []netip.Addr{v4, v4.Next()}}, "at most one of each family"},
		"three IPs":               {Spec{Name: "a", NodeIPs: []netip.Addr{v4, v6, v6.Next()}}, "at most one of each family"},
		"a heartbeat in the past": {Spec{Name: "a", Heartbeat: -1}, "heartbeat"},
		"two mistakes":            {Spec{Name: "-", Heartbeat: -1}, "heartbeat"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n, err := Start(t.Context(), api(), test.spec)
			if err == nil || n != nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, %v; want an error that says %q", n, err, test.want)
			}
		})
	}
}
