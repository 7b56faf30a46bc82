package ccm

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/record"
)

// Reasons of the events that the provider puts on Services, beside those of the service
// controller. They say why a Service is pending or what was done to its load balancer.
const (
	// EventInvalidSettings: an annotation, or the Service itself, asks for what cannot be had.
	// Nothing was changed.
	EventInvalidSettings = "InvalidSettings"
	// EventUnknownAnnotation: an annotation with our prefix that does not exist was ignored.
	EventUnknownAnnotation = "UnknownAnnotation"
	// EventIgnoredSetting: a field of the Service that Hetzner load balancers cannot honour.
	EventIgnoredSetting = "IgnoredSetting"
	// EventCreating and EventCreated frame the creation of a load balancer.
	EventCreating = "CreatingCloudLoadBalancer"
	EventCreated  = "CreatedCloudLoadBalancer"
	// EventAdopted: a load balancer that existed under the wanted name is used.
	EventAdopted = "AdoptedCloudLoadBalancer"
	// EventUpdated: operations were sent to make the load balancer what it should be.
	EventUpdated = "UpdatedCloudLoadBalancer"
	// EventPending: an action of the cloud still runs, or something is locked by one.
	EventPending = "CloudLoadBalancerPending"
	// EventNotAdoptable: the wanted name is taken by a load balancer of another Service.
	EventNotAdoptable = "CloudLoadBalancerOwnedByAnother"
	// EventImmutable: location and network zone of a load balancer cannot change.
	EventImmutable = "LocationCannotChange"
	// EventSkippedNodes: nodes that cannot be targets, and why.
	EventSkippedNodes = "NodesSkipped"
	// EventProtected: the load balancer is protected against deletion.
	EventProtected = "CloudLoadBalancerProtected"
	// EventCertificate: a managed certificate is being issued, or its issuance failed.
	EventCertificate = "ManagedCertificate"
	// EventDuplicate: a second load balancer carried the Service's ownership label.
	EventDuplicate = "DuplicateCloudLoadBalancerDeleted"
	// EventRepaired: a load balancer or route was changed behind the CCM's back and put right.
	EventRepaired = "CloudLoadBalancerRepaired"
)

// eventRecorder records events once the cloud is initialized and drops them before.
type eventRecorder struct{ recorder record.EventRecorder }

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
