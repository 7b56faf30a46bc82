package ccm

import (
	"fmt"
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
)

// Reasons of the provider's events on Services, in addition to those of the service controller. They
// say why a Service is pending or what the provider did to its load balancer.
const (
	// EventInvalidSettings: an annotation or the Service itself has an invalid setting. No load balancer
	// was created, or the existing one keeps what it has for this setting.
	EventInvalidSettings = "InvalidSettings"
	// EventUnknownAnnotation: an unknown annotation with our prefix was ignored.
	EventUnknownAnnotation = "UnknownAnnotation"
	// EventIgnoredSetting: Hetzner load balancers do not support a field of the Service.
	EventIgnoredSetting = "IgnoredSetting"
	// EventCreating and EventCreated mark the start and the end of a load balancer's creation.
	EventCreating = "CreatingCloudLoadBalancer"
	EventCreated  = "CreatedCloudLoadBalancer"
	// EventAdopted: the Service uses an existing load balancer with the wanted name.
	EventAdopted = "AdoptedCloudLoadBalancer"
	// EventJoined: the Service shares the load balancer of another one.
	EventJoined = "JoinedCloudLoadBalancer"
	// EventPortTaken: a port of a shared load balancer belongs to another Service.
	EventPortTaken = "PortTaken"
	// EventUpdated: the load balancer was changed to its desired state.
	EventUpdated = "UpdatedCloudLoadBalancer"
	// EventPending: an action of the cloud is running, or a resource is locked by one.
	EventPending = "CloudLoadBalancerPending"
	// EventNotAdoptable: the load balancer with the wanted name belongs to another Service.
	EventNotAdoptable = "CloudLoadBalancerOwnedByAnother"
	// EventNotOwned: the load balancer with the wanted name does not belong to the Service.
	EventNotOwned = "CloudLoadBalancerNotOwned"
	// EventImmutable: the location and network zone of a load balancer cannot change.
	EventImmutable = "LocationCannotChange"
	// EventAddressImmutable: the public addresses of a load balancer cannot change.
	EventAddressImmutable = "AddressCannotChange"
	// EventSkippedNodes: some nodes cannot be targets.
	EventSkippedNodes = "NodesSkipped"
	// EventSkippedPorts: some ports cannot be forwarded.
	EventSkippedPorts = "PortsSkipped"
	// EventTypeLimit: the type of the load balancer has no room for all targets, ports or certificates.
	EventTypeLimit = "LoadBalancerTypeLimit"
	// EventProtected: the load balancer is protected against deletion.
	EventProtected = "CloudLoadBalancerProtected"
	// EventKept: the Service is gone, and its load balancer was kept.
	EventKept = "KeptCloudLoadBalancer"
	// EventCertificate: a managed certificate is being issued, or its issuance failed.
	EventCertificate = "ManagedCertificate"
	// EventSeveral: several load balancers have the Service's ownership label.
	EventSeveral = "SeveralCloudLoadBalancers"
	// EventRepaired: a load balancer was changed outside of the CCM and has been repaired.
	EventRepaired = "CloudLoadBalancerRepaired"
)

// EventDoubted is the reason of an event on a Node or a Service: the provider does not believe that a
// server or load balancer is gone. See evidence.
const EventDoubted = "CloudAnswerDoubted"

// Reasons of the provider's events on Nodes.
const (
	// EventForeignProviderID: the Node belongs to another provider, so nothing is done with it.
	EventForeignProviderID = "ForeignProviderID"
	// EventServerNotFound: the Node has no server.
	EventServerNotFound = "ServerNotFound"
	// EventNotAttached: the Node's server is not attached to the network of HCLOUD_NETWORK.
	EventNotAttached = "ServerNotAttachedToNetwork"
)

// repeatAfter is the time after which an unchanged warning about a Node, or about a field of a Service, is
// repeated. The node controllers ask about a Node every few seconds.
const repeatAfter = time.Hour

// eventRecorder records events. It drops them before the cloud is initialized.
type eventRecorder struct {
	recorder record.EventRecorder
	clock    clock.PassiveClock

	mu   sync.Mutex
	said map[string]time.Time // by object, reason and text
}

func newEventRecorder() *eventRecorder { return &eventRecorder{said: map[string]time.Time{}} }

// nodeWarning records a warning about a Node, but the same one at most once in repeatAfter.
func (e *eventRecorder) nodeWarning(node *corev1.Node, reason, format string, args ...any) {
	e.seldom(node, reason, format, args...)
}

// seldom records a warning, but the same one at most once in repeatAfter.
func (e *eventRecorder) seldom(obj metav1.Object, reason, format string, args ...any) {
	about, ok := obj.(runtime.Object)
	if !ok {
		return // every object of the API is one
	}
	key := obj.GetNamespace() + "/" + obj.GetName() + "/" + reason + "/" + fmt.Sprintf(format, args...)
	e.mu.Lock()
	now := e.clock.Now()
	maps.DeleteFunc(e.said, func(_ string, at time.Time) bool { return now.Sub(at) >= repeatAfter })
	_, said := e.said[key]
	if !said && e.recorder != nil {
		e.said[key] = now
	}
	e.mu.Unlock()
	if !said {
		e.warning(about, reason, format, args...)
	}
}

func (e *eventRecorder) normal(obj runtime.Object, reason, format string, args ...any) {
	e.event(obj, corev1.EventTypeNormal, reason, format, args...)
}

func (e *eventRecorder) warning(obj runtime.Object, reason, format string, args ...any) {
	e.event(obj, corev1.EventTypeWarning, reason, format, args...)
}

func (e *eventRecorder) event(obj runtime.Object, kind, reason, format string, args ...any) {
	if e.recorder != nil {
		e.recorder.Eventf(obj, kind, reason, format, args...)
	}
}
