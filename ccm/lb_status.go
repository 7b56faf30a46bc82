package ccm

import (
	"context"
	"errors"
	"net"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	servicehelpers "k8s.io/cloud-provider/service/helpers"
	"k8s.io/klog/v2"
)

// ConditionReady is the type of the condition in a Service's status that says whether its load balancer has
// all that the Service asks for, and if not, why.
const ConditionReady = annotationPrefix + "Ready"

// maxConditionMessage is the length of the longest message: the API server refuses more than 32 KiB.
const maxConditionMessage = 1024

// setCondition writes the condition of a Service if the result of its sync has changed it.
func (l *loadBalancers) setCondition(ctx context.Context, svc *corev1.Service, err error) {
	if l.kube == nil || svc.DeletionTimestamp != nil || ctx.Err() != nil || errors.Is(err, errNotLeader) {
		return
	}
	updated := svc.DeepCopy()
	condition := readyCondition(err)
	condition.LastTransitionTime = metav1.NewTime(l.waiter.clock.Now())
	if !meta.SetStatusCondition(&updated.Status.Conditions, condition) {
		return
	}
	if _, err := servicehelpers.PatchService(l.kube.CoreV1(), svc, updated); err != nil && !apierrors.IsNotFound(err) {
		klog.ErrorS(err, "Could not write the condition of a Service; will try again", "service", klog.KObj(svc))
	}
}

// readyCondition returns the condition for the error of a sync. Its reason is that of the event about the
// error, if there is one.
func readyCondition(err error) metav1.Condition {
	if err == nil {
		return metav1.Condition{Type: ConditionReady, Status: metav1.ConditionTrue, Reason: "Ready", Message: "The load balancer has all that the Service asks for."}
	}
	c := metav1.Condition{Type: ConditionReady, Status: metav1.ConditionFalse, Reason: "SyncFailed", Message: stableError(err)}
	if len(c.Message) > maxConditionMessage {
		c.Message = c.Message[:maxConditionMessage]
	}
	for _, e := range eachError(err) {
		var invalid settingsError
		var doubt *doubtError
		switch {
		case errors.As(e, &invalid):
			c.Reason = EventInvalidSettings
			return c // what the user can correct comes first
		case errors.As(e, &doubt):
			c.Reason = EventDoubted
		case isBusy(e):
			c.Reason = EventPending
		case isRateLimit(e):
			c.Reason = "RateLimited"
		case hcloud.IsError(e, hcloud.ErrorCodeResourceLimitExceeded):
			c.Reason = "LimitReached"
		}
	}
	return c
}

// ingressStatus returns the Service's load balancer status. With a hostname the status contains only
// the hostname. With PROXY protocol the IP mode is Proxy: kube-proxy then sends traffic from inside
// the cluster to the load balancer too, instead of directly to a pod that expects the PROXY header.
func ingressStatus(lb *hcloud.LoadBalancer, s *lbSettings) *corev1.LoadBalancerStatus {
	if s.Hostname != "" {
		return &corev1.LoadBalancerStatus{Ingress: []corev1.LoadBalancerIngress{{Hostname: s.Hostname}}}
	}
	mode := corev1.LoadBalancerIPModeVIP
	if s.usesProxyProtocol() {
		mode = corev1.LoadBalancerIPModeProxy
	}
	status := &corev1.LoadBalancerStatus{}
	add := func(ip net.IP) {
		if len(ip) > 0 && !ip.IsUnspecified() {
			status.Ingress = append(status.Ingress, corev1.LoadBalancerIngress{IP: ip.String(), IPMode: &mode})
		}
	}
	if lb.PublicNet.Enabled {
		add(lb.PublicNet.IPv4.IP)
		if !s.IPv6Disabled {
			add(lb.PublicNet.IPv6.IP)
		}
	}
	if !s.DisablePrivateIngress {
		for _, n := range lb.PrivateNet {
			add(n.IP)
		}
	}
	return status
}
