package ccmtest

import (
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// FenceDuration is the duration of a Lease.
const FenceDuration = 15 * time.Second

// Lease returns a Lease with this holder and renewal time.
func Lease(holder string, renewed time.Time) *coordinationv1.Lease {
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "ccm"},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: &holder, AcquireTime: &metav1.MicroTime{Time: renewed}, RenewTime: &metav1.MicroTime{Time: renewed},
			LeaseDurationSeconds: ptr.To(int32(FenceDuration / time.Second)),
		},
	}
}
