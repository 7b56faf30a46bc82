package node

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"runtime"
	"strings"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/component-helpers/apimachinery/lease"
	nodeutil "k8s.io/component-helpers/node/util"
	"k8s.io/klog/v2"
)

// Times that kubelet uses when nothing is configured.
const (
	registerFirst  = 100 * time.Millisecond // wait before the first attempt, doubled after each
	registerMost   = 7 * time.Second
	statusPeriod   = 5 * time.Minute // an unchanged status is written this often
	leaseHeartbeat = 4               // heartbeats in one lease duration
)

// kubelet is one run of the kubelet program, from its start to its end.
//
// It reproduces registration, the Node's status and its Lease, the latter with kubelet's own code.
// NOT modelled: pods, volumes, images, certificates, events (NodeReady, Rebooted), pressure, and
// corrections of the labels of an existing Node.
type kubelet struct {
	spec   Spec
	client kubernetes.Interface
	world  *world
	bootID string

	lastReport time.Time // when the status was last written; zero after a start
	registered chan struct{}
	cancel     context.CancelFunc
	done       chan struct{}
}

func startKubelet(ctx context.Context, client kubernetes.Interface, world *world, spec Spec, bootID string) *kubelet {
	// The Lease's code logs each failure. Many specs make it fail.
	ctx, cancel := context.WithCancel(klog.NewContext(ctx, logr.Discard()))
	k := &kubelet{
		spec: spec, client: client, world: world, bootID: bootID,
		registered: make(chan struct{}), cancel: cancel, done: make(chan struct{}),
	}
	go func() {
		defer close(k.done)
		k.run(ctx)
	}()
	return k
}

// stop ends the run and waits until it sends nothing any more.
func (k *kubelet) stop() {
	k.cancel()
	<-k.done
}

func (k *kubelet) run(ctx context.Context) {
	leases := make(chan struct{})
	go func() { // kubelet renews from its start on, registered or not
		defer close(leases)
		k.lease().Run(ctx)
	}()
	defer func() { <-leases }()
	node, ok := k.register(ctx)
	if !ok {
		return
	}
	close(k.registered)
	ticker := k.spec.Clock.NewTicker(k.spec.Heartbeat)
	defer ticker.Stop()
	for {
		if node != nil {
			if err := k.report(ctx, node); err != nil && ctx.Err() == nil {
				k.spec.Log.Warn("kubelet cannot write the node's status", "error", err)
			}
		} else {
			k.spec.Log.Debug("kubelet has no Node object, and will not make another until it is restarted")
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
			node = k.world.node(k.spec.Name)
		}
	}
}

// lease makes the keeper of the node's Lease. The Lease belongs to the Node object, so that it is
// collected with it.
func (k *kubelet) lease() lease.Controller {
	seconds := int32(max(1, math.Ceil((leaseHeartbeat * k.spec.Heartbeat).Seconds())))
	own := func(l *coordinationv1.Lease) error {
		if len(l.OwnerReferences) > 0 {
			return nil
		}
		node := k.world.node(k.spec.Name)
		if node == nil {
			return fmt.Errorf("node %s is not registered", k.spec.Name)
		}
		l.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}}
		return nil
	}
	return lease.NewController(k.spec.Clock, k.client, k.spec.Name, seconds, nil, k.spec.Heartbeat,
		k.spec.Name, corev1.NamespaceNodeLease, own)
}

// register creates the Node or finds it, again and again until ctx ends.
func (k *kubelet) register(ctx context.Context) (node *corev1.Node, ok bool) {
	for wait := registerFirst; ; wait = min(2*wait, registerMost) {
		timer := k.spec.Clock.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil, false
		case <-timer.C():
		}
		node, err := k.client.CoreV1().Nodes().Create(ctx, k.object(ctx), metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			node, err = k.client.CoreV1().Nodes().Get(ctx, k.spec.Name, metav1.GetOptions{})
		}
		if err == nil {
			return node, true
		}
		if ctx.Err() == nil {
			k.spec.Log.Warn("kubelet cannot register", "error", err)
		}
	}
}

// object is the Node as kubelet creates it.
func (k *kubelet) object(ctx context.Context) *corev1.Node {
	labels := map[string]string{
		corev1.LabelHostname:    k.spec.Name,
		corev1.LabelOSStable:    "linux",
		corev1.LabelArchStable:  runtime.GOARCH,
		"beta.kubernetes.io/os": "linux", "beta.kubernetes.io/arch": runtime.GOARCH,
	}
	annotations := map[string]string{"volumes.kubernetes.io/controller-managed-attach-detach": "true"}
	addresses := []corev1.NodeAddress{}
	var ips []string
	for _, ip := range k.spec.NodeIPs {
		ips = append(ips, ip.String())
		addresses = append(addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: ip.String()})
	}
	if len(ips) > 0 {
		annotations[annotationProvidedIP] = strings.Join(ips, ",")
	}
	taint := corev1.Taint{Key: TaintUninitialized, Value: "true", Effect: corev1.TaintEffectNoSchedule}
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: k.spec.Name, Labels: labels, Annotations: annotations},
		Spec: corev1.NodeSpec{
			ProviderID: k.spec.ProviderID,
			Taints:     []corev1.Taint{taint},
		},
		Status: k.status(ctx),
	}
	addresses = append(addresses, corev1.NodeAddress{Type: corev1.NodeHostName, Address: k.spec.Name})
	node.Status.Addresses = addresses
	// At this moment the container runtime has no network yet.
	node.Status.Conditions = k.conditions(corev1.NodeStatus{}, corev1.NodeCondition{
		Type: corev1.NodeReady, Status: corev1.ConditionFalse, Reason: "KubeletNotReady",
		Message: "container runtime network not ready: cni plugin not initialized",
	})
	if k.spec.NetworkUnavailable {
		now := metav1.NewTime(k.spec.Clock.Now())
		node.Status.Conditions = append(node.Status.Conditions, corev1.NodeCondition{
			Type: corev1.NodeNetworkUnavailable, Status: corev1.ConditionTrue, Reason: "NoRouteCreated",
			Message: "Node created without a route", LastHeartbeatTime: now, LastTransitionTime: now,
		})
	}
	return node
}

// status is the Node's status as kubelet writes it, without addresses and conditions.
func (k *kubelet) status(ctx context.Context) corev1.NodeStatus {
	size := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("2"), corev1.ResourceMemory: resource.MustParse("4Gi"),
		corev1.ResourceEphemeralStorage: resource.MustParse("40Gi"), corev1.ResourcePods: resource.MustParse("110"),
	}
	return corev1.NodeStatus{
		Capacity:        size,
		Allocatable:     size,
		DaemonEndpoints: corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: 10250}},
		NodeInfo: corev1.NodeSystemInfo{
			MachineID: machineID(k.spec.Name), SystemUUID: machineID(k.spec.Name), BootID: k.bootID,
			KernelVersion: "0.0.0-simulated", OSImage: "simulated node", ContainerRuntimeVersion: "simulated://0",
			KubeletVersion: k.world.version(ctx), OperatingSystem: "linux", Architecture: runtime.GOARCH,
		},
	}
}

// machineID is the same each time a node of that name boots.
func machineID(name string) string { return "simulated-" + name }

// conditions returns the conditions that are kubelet's to write, with ready as
// the Ready condition. A condition that is as in old keeps the time of its last
// change.
func (k *kubelet) conditions(old corev1.NodeStatus, ready corev1.NodeCondition) []corev1.NodeCondition {
	now := metav1.NewTime(k.spec.Clock.Now())
	conditions := []corev1.NodeCondition{
		{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasSufficientMemory",
			Message: "kubelet has sufficient memory available"},
		{Type: corev1.NodeDiskPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasNoDiskPressure",
			Message: "kubelet has no disk pressure"},
		{Type: corev1.NodePIDPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasSufficientPID",
			Message: "kubelet has sufficient PID available"},
		ready,
	}
	for i := range conditions {
		c := &conditions[i]
		c.LastHeartbeatTime, c.LastTransitionTime = now, now
		if _, was := nodeutil.GetNodeCondition(&old, c.Type); was != nil && was.Status == c.Status {
			c.LastTransitionTime = was.LastTransitionTime
		}
	}
	return conditions
}

// report writes the status if it differs from node's, or has not been written
// since kubelet started or for long.
func (k *kubelet) report(ctx context.Context, node *corev1.Node) error {
	status := k.status(ctx)
	status.Conditions = k.conditions(node.Status, corev1.NodeCondition{
		Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", Message: "kubelet is posting ready status",
	})
	due := k.lastReport.IsZero() || k.spec.Clock.Since(k.lastReport) >= statusPeriod
	if !due && !changed(node.Status, status) {
		return nil
	}
	// A strategic merge patch merges conditions by type: those of others stay. The
	// addresses are the cloud provider's once they are set.
	patch, err := json.Marshal(map[string]any{"status": map[string]any{
		"capacity": status.Capacity, "allocatable": status.Allocatable,
		"daemonEndpoints": status.DaemonEndpoints, "nodeInfo": status.NodeInfo, "conditions": status.Conditions,
	}})
	if err != nil {
		return err
	}
	_, err = k.client.CoreV1().Nodes().Patch(ctx, node.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	if err == nil {
		k.lastReport = k.spec.Clock.Now()
	}
	return err
}

// changed compares two statuses that kubelet writes, heartbeat times aside.
func changed(was, is corev1.NodeStatus) bool {
	for _, c := range is.Conditions {
		_, old := nodeutil.GetNodeCondition(&was, c.Type)
		if old == nil || old.Status != c.Status || old.Reason != c.Reason || old.Message != c.Message {
			return true
		}
	}
	return was.NodeInfo != is.NodeInfo
}
