package loadbalancer

import (
	"context"
	"errors"
	"fmt"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	servicehelpers "k8s.io/cloud-provider/service/helpers"
	"k8s.io/klog/v2"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/apicall"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/event"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/plan"
)

// ConditionReady is the type of the condition in a Service's status that says whether its load balancer has
// all that the Service asks for, and if not, why.
const ConditionReady = plan.AnnotationPrefix + "Ready"

// maxConditionMessage is the length of the longest message: the API server refuses more than 32 KiB.
const maxConditionMessage = 1024

// setCondition writes the condition of a Service if the result of its sync changes it.
func (l *Controller) setCondition(ctx context.Context, svc *corev1.Service, err error) {
	if l.Kube == nil || svc.DeletionTimestamp != nil || ctx.Err() != nil || errors.Is(err, apicall.ErrNotLeader) {
		return
	}
	l.writeCondition(svc, readyCondition(err))
}

// This condition says that the load balancer of the Service is being deleted. A process that dies after the deletion tells its successor
// the ID, so that an empty list can be confirmed.
const (
	reasonDeleting  = "Deleting"
	messageDeleting = "Deleting load balancer %d."
)

// noteDeletion writes that condition.
func (l *Controller) noteDeletion(svc *corev1.Service, id int64) {
	if l.Kube != nil {
		l.writeCondition(svc, metav1.Condition{Type: ConditionReady, Status: metav1.ConditionFalse, Reason: reasonDeleting,
			Message: fmt.Sprintf(messageDeleting, id)})
	}
}

// deletionBegun returns the ID of the load balancer that a process began to delete for the Service.
func deletionBegun(svc *corev1.Service) (id int64, begun bool) {
	c := meta.FindStatusCondition(svc.Status.Conditions, ConditionReady)
	if c == nil || c.Reason != reasonDeleting {
		return 0, false
	}
	_, err := fmt.Sscanf(c.Message, messageDeleting, &id)
	return id, err == nil
}

func (l *Controller) writeCondition(svc *corev1.Service, condition metav1.Condition) {
	updated := svc.DeepCopy()
	condition.LastTransitionTime = metav1.NewTime(l.waiter.Clock.Now())
	if meta.SetStatusCondition(&updated.Status.Conditions, condition) {
		l.patchConditions(svc, updated)
	}
}

// EndCondition removes the condition of a Service that no longer has anything to do with load balancers.
func (l *Controller) EndCondition(svc *corev1.Service) {
	updated := svc.DeepCopy()
	if l.Kube == nil || plan.WantsLoadBalancer(svc) || svc.DeletionTimestamp != nil || servicehelpers.HasLBFinalizer(svc) ||
		!meta.RemoveStatusCondition(&updated.Status.Conditions, ConditionReady) {
		return
	}
	l.patchConditions(svc, updated)
}

func (l *Controller) patchConditions(svc, updated *corev1.Service) {
	if _, err := servicehelpers.PatchService(l.Kube.CoreV1(), svc, updated); err != nil && !apierrors.IsNotFound(err) {
		klog.ErrorS(err, "Could not write the condition of a Service; will try again", "service", klog.KObj(svc))
	}
}

// readyCondition returns the condition for the error of a sync. Its reason is that of the event about the
// error, if there is one.
func readyCondition(err error) metav1.Condition {
	if err == nil {
		return metav1.Condition{Type: ConditionReady, Status: metav1.ConditionTrue, Reason: "Ready",
			Message: "The load balancer has all that the Service asks for."}
	}
	c := metav1.Condition{Type: ConditionReady, Status: metav1.ConditionFalse, Reason: "SyncFailed", Message: apicall.StableText(err)}
	if len(c.Message) > maxConditionMessage {
		c.Message = c.Message[:maxConditionMessage]
	}
	for _, e := range apicall.EachError(err) {
		var invalid plan.SettingsError
		var doubt *apicall.DoubtError
		switch {
		case errors.As(e, &invalid):
			c.Reason = event.InvalidSettings
			return c // what the user can correct comes first
		case errors.As(e, &doubt):
			c.Reason = event.Doubted
		case apicall.IsBusy(e):
			c.Reason = event.Pending
		case apicall.IsRateLimit(e):
			c.Reason = "RateLimited"
		case hcloud.IsError(e, hcloud.ErrorCodeResourceLimitExceeded):
			c.Reason = "LimitReached"
		}
	}
	return c
}

// PatchStatus writes the status of a Service as the service controller does.
func PatchStatus(kube kubernetes.Interface, svc *corev1.Service, status *corev1.LoadBalancerStatus) error {
	if kube == nil || servicehelpers.LoadBalancerStatusEqual(&svc.Status.LoadBalancer, status) {
		return nil
	}
	updated := svc.DeepCopy()
	updated.Status.LoadBalancer = *status
	_, err := servicehelpers.PatchService(kube.CoreV1(), svc, updated)
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
