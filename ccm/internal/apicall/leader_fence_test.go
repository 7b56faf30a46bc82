package apicall

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/ccmtest"
)

func TestOnlyTheLeaderWrites(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	for name, tc := range map[string]struct {
		first time.Duration         // time between the election and the first write
		slept time.Duration         // time between the election and the second one
		then  *coordinationv1.Lease // the Lease after that time
		write bool                  // the second write is allowed
		reads int                   // reads of the Lease after the first one
	}{
		"without a read before the lease can expire": {0, ccmtest.FenceDuration - time.Second, ccmtest.Lease("host_other", start), true, 0},
		"after renewing the lease":                   {0, time.Minute, ccmtest.Lease("host_me", start.Add(time.Minute)), true, 1},
		"not after losing the lease":                 {0, time.Minute, ccmtest.Lease("host_other", start.Add(time.Minute)), false, 1},
		"not after the lease has expired":            {0, time.Minute, ccmtest.Lease("host_me", start.Add(45*time.Second)), false, 1},
		"not without a leader": {0, time.Minute, func() *coordinationv1.Lease {
			l := ccmtest.Lease("", start)
			l.Spec.HolderIdentity = nil
			return l
		}(), false, 1},
		// A Lease is valid from its renewal on, not from when it was read: another process may take it earlier than that.
		"not longer than from its renewal on": {ccmtest.FenceDuration - time.Second, ccmtest.FenceDuration,
			ccmtest.Lease("host_other", start.Add(ccmtest.FenceDuration)), false, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			clk := clocktesting.NewFakePassiveClock(start.Add(tc.first))
			kube := fake.NewClientset(ccmtest.Lease("host_me", start))
			leases := kube.CoordinationV1().Leases("kube-system")
			f := &LeaderFence{leases: leases, name: "ccm", clock: clk, host: "host", since: start}
			if err := f.Check(t.Context()); err != nil {
				t.Fatal(err)
			}
			if _, err := leases.Update(t.Context(), tc.then, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
			clk.SetTime(start.Add(tc.slept))
			kube.ClearActions()
			if err := f.Check(t.Context()); (err == nil) != tc.write || err != nil && !errors.Is(err, ErrNotLeader) {
				t.Errorf("got %v, want write allowed %t", err, tc.write)
			}
			if n := len(kube.Actions()); n != tc.reads {
				t.Errorf("%d requests to Kubernetes, want %d", n, tc.reads)
			}
		})
	}
}

func TestALeaseOfAnotherMachineIsForeign(t *testing.T) {
	t.Parallel()
	now := time.Now()
	f := &LeaderFence{leases: fake.NewClientset(ccmtest.Lease("elsewhere_x", now)).CoordinationV1().Leases("kube-system"), name: "ccm",
		clock: clocktesting.NewFakePassiveClock(now), host: "host", since: now}
	if err := f.Check(t.Context()); !errors.Is(err, ErrNotLeader) {
		t.Error(err)
	}
}

// Two processes on one machine have the same host name. The process did not see its own Lease when it began to lead.
func TestASuccessorOnTheSameMachineIsForeign(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	for name, tc := range map[string]struct {
		acquired time.Time
		want     error
	}{
		"its own Lease":     {start.Add(-time.Second), nil},
		"the successor's":   {start.Add(20 * time.Second), ErrNotLeader},
		"without this time": {time.Time{}, ErrNotLeader},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			clk := clocktesting.NewFakePassiveClock(start)
			kube := fake.NewClientset()
			f := &LeaderFence{leases: kube.CoordinationV1().Leases("kube-system"), name: "ccm", clock: clk, host: "host", since: start}
			if err := f.Check(t.Context()); err == nil {
				t.Fatal("the first look must fail")
			}
			clk.SetTime(start.Add(30 * time.Second))
			l := ccmtest.Lease("host_other", start.Add(29*time.Second))
			if l.Spec.AcquireTime = nil; !tc.acquired.IsZero() {
				l.Spec.AcquireTime = &metav1.MicroTime{Time: tc.acquired}
			}
			if _, err := f.leases.Create(t.Context(), l, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			if err := f.Check(t.Context()); !errors.Is(err, tc.want) {
				t.Errorf("got %v, want %v", err, tc.want)
			}
		})
	}
}

func TestWithoutTheLeaseOnlyReadsAreSent(t *testing.T) {
	t.Parallel()
	api := ccmtest.NewAPI(t, func(w http.ResponseWriter, _ *http.Request) {
		ccmtest.Reply(w, http.StatusOK, `{"load_balancers": []}`)
	})
	fence := &LeaderFence{name: "ccm", host: "here", identity: "here_me"}
	cloud, clk := clientOf(api, NewTokenSource("secret", ""), fence.Check)
	fence.leases, fence.clock = fake.NewClientset(ccmtest.Lease("host_other", clk.Now())).CoordinationV1().Leases("kube-system"), clk
	if _, err := cloud.client.LoadBalancer.All(t.Context()); err != nil {
		t.Error(err)
	}
	_, _, err := cloud.client.LoadBalancer.DeleteWithResult(context.WithoutCancel(t.Context()), &hcloud.LoadBalancer{ID: 1})
	if !errors.Is(err, ErrNotLeader) {
		t.Errorf("%v, want %v", err, ErrNotLeader)
	}
	for _, c := range api.Recorded() {
		if c.Method != http.MethodGet {
			t.Errorf("%s was sent", c.Method)
		}
	}
}
