// Package event records events on Services and Nodes.
package event

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

// Reasons of events. The CCM's README documents them.
const (
	InvalidSettings   = "InvalidSettings"
	UnknownAnnotation = "UnknownAnnotation"
	IgnoredSetting    = "IgnoredSetting"
	Creating          = "CreatingCloudLoadBalancer"
	Created           = "CreatedCloudLoadBalancer"
	Adopted           = "AdoptedCloudLoadBalancer"
	Joined            = "JoinedCloudLoadBalancer"
	PortTaken         = "PortTaken"
	Updated           = "UpdatedCloudLoadBalancer"
	Pending           = "CloudLoadBalancerPending"
	NotAdoptable      = "CloudLoadBalancerOwnedByAnother"
	NotOwned          = "CloudLoadBalancerNotOwned"
	Immutable         = "LocationCannotChange"
	AddressImmutable  = "AddressCannotChange"
	SkippedNodes      = "NodesSkipped"
	SkippedPorts      = "PortsSkipped"
	TypeLimit         = "LoadBalancerTypeLimit"
	Protected         = "CloudLoadBalancerProtected"
	Kept              = "KeptCloudLoadBalancer"
	Orphaned          = "CloudLoadBalancerOrphaned"
	Certificate       = "ManagedCertificate"
	Several           = "SeveralCloudLoadBalancers"
	Repaired          = "CloudLoadBalancerRepaired"
	Doubted           = "CloudAnswerDoubted"
	ForeignProviderID = "ForeignProviderID"
	ServerNotFound    = "ServerNotFound"
	NotAttached       = "ServerNotAttachedToNetwork"
)

// repeatAfter is the time after which an unchanged warning about a Node, or about a field of a Service, is
// repeated. The node controllers ask about a Node every few seconds.
const repeatAfter = time.Hour

// Recorder records events. It drops them before the cloud is initialized.
type Recorder struct {
	Sink  record.EventRecorder
	Clock clock.PassiveClock

	mu   sync.Mutex
	said map[string]time.Time // by object, reason and text
}

// NewRecorder returns a recorder without a sink.
func NewRecorder() *Recorder { return &Recorder{said: map[string]time.Time{}} }

// Seldom records a warning, but the same one at most once in repeatAfter.
func (e *Recorder) Seldom(obj metav1.Object, reason, format string, args ...any) {
	about, ok := obj.(runtime.Object)
	if !ok {
		return // every object of the API is one
	}
	key := obj.GetNamespace() + "/" + obj.GetName() + "/" + reason + "/" + fmt.Sprintf(format, args...)
	e.mu.Lock()
	now := e.Clock.Now()
	maps.DeleteFunc(e.said, func(_ string, at time.Time) bool { return now.Sub(at) >= repeatAfter })
	_, said := e.said[key]
	if !said && e.Sink != nil {
		e.said[key] = now
	}
	e.mu.Unlock()
	if !said {
		e.Warning(about, reason, format, args...)
	}
}

// Normal records an event.
func (e *Recorder) Normal(obj runtime.Object, reason, format string, args ...any) {
	e.event(obj, corev1.EventTypeNormal, reason, format, args...)
}

// Warning records a warning.
func (e *Recorder) Warning(obj runtime.Object, reason, format string, args ...any) {
	e.event(obj, corev1.EventTypeWarning, reason, format, args...)
}

func (e *Recorder) event(obj runtime.Object, kind, reason, format string, args ...any) {
	if e.Sink != nil {
		e.Sink.Eventf(obj, kind, reason, format, args...)
	}
}
