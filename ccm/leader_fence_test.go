package ccm

import (
	"context"
	"errors"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/ccmtest"
	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
)

const fenceDuration = 15 * time.Second

// lease returns a Lease with this holder and renewal time.
func lease(holder string, renewed time.Time) *coordinationv1.Lease {
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "ccm"},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: &holder, AcquireTime: &metav1.MicroTime{Time: renewed}, RenewTime: &metav1.MicroTime{Time: renewed},
			LeaseDurationSeconds: ptr.To(int32(fenceDuration / time.Second)),
		},
	}
}

func TestOnlyTheLeaderWrites(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	for name, tc := range map[string]struct {
		slept time.Duration         // time between the election and the write
		then  *coordinationv1.Lease // the Lease after that time
		write bool                  // the write is allowed
		reads int                   // reads of the Lease after the election
	}{
		"without a read before the lease can expire": {fenceDuration - time.Second, lease("host_other", start), true, 0},
		"after renewing the lease":                   {time.Minute, lease("host_me", start.Add(time.Minute)), true, 1},
		"not after losing the lease":                 {time.Minute, lease("host_other", start.Add(time.Minute)), false, 1},
		"not after the lease has expired":            {time.Minute, lease("host_me", start.Add(45*time.Second)), false, 1},
		"not without a leader": {time.Minute, func() *coordinationv1.Lease {
			l := lease("", start)
			l.Spec.HolderIdentity = nil
			return l
		}(), false, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			clk := clocktesting.NewFakePassiveClock(start)
			kube := fake.NewClientset(lease("host_me", start))
			leases := kube.CoordinationV1().Leases("kube-system")
			f := &leaderFence{leases: leases, name: "ccm", clock: clk, host: "host", since: start}
			if err := f.check(t.Context()); err != nil {
				t.Fatal(err)
			}
			if _, err := leases.Update(t.Context(), tc.then, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
			clk.SetTime(start.Add(tc.slept))
			kube.ClearActions()
			if err := f.check(t.Context()); (err == nil) != tc.write || err != nil && !errors.Is(err, errNotLeader) {
				t.Errorf("got %v, want write allowed %t", err, tc.write)
			}
			if n := len(kube.Actions()); n != tc.reads {
				t.Errorf("%d requests to Kubernetes, want %d", n, tc.reads)
			}
		})
	}
}

// A Lease is valid from its renewal on, not from when it was read: another process may take it earlier than that.
func TestTheFenceCountsFromTheRenewal(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	clk := clocktesting.NewFakePassiveClock(start.Add(fenceDuration - time.Second))
	kube := fake.NewClientset(lease("host_me", start))
	leases := kube.CoordinationV1().Leases("kube-system")
	f := &leaderFence{leases: leases, name: "ccm", clock: clk, host: "host", since: start}
	if err := f.check(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := leases.Update(t.Context(), lease("host_other", start.Add(fenceDuration)), metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	clk.SetTime(start.Add(fenceDuration))
	if err := f.check(t.Context()); !errors.Is(err, errNotLeader) {
		t.Errorf("%v after the renewal: got %v, want %v", fenceDuration, err, errNotLeader)
	}
}

// The fence and the rest of the provider have the same clock.
func TestTheFenceHasTheClockOfTheProvider(t *testing.T) {
	t.Parallel()
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	clk := ccmtest.NewAutoClock()
	held := lease(host+"_me", clk.Now())
	leases := fake.NewClientset(held).CoordinationV1().Leases("kube-system")
	cloud := New(Config{}, WithClock(clk), WithLeaderLease(leases, "ccm"))
	cloud.raiseFence()
	if err := cloud.mayWrite(t.Context()); err != nil {
		t.Errorf("as the leader: %v", err)
	}
	clk.Step(fenceDuration)
	if err := cloud.mayWrite(t.Context()); !errors.Is(err, errNotLeader) {
		t.Errorf("after the Lease has expired: %v", err)
	}
}

// The first look fails, and then the Lease is that of a successor on this machine.
func TestASuccessorWhoseLeaseIsSeenFirstIsForeign(t *testing.T) {
	t.Parallel()
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	clk := ccmtest.NewAutoClock()
	leases := fake.NewClientset().CoordinationV1().Leases("kube-system")
	cloud := New(Config{}, WithClock(clk), WithLeaderLease(leases, "ccm"))
	cloud.raiseFence()
	clk.Step(time.Minute)
	if _, err := leases.Create(t.Context(), lease(host+"_successor", clk.Now()), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := cloud.mayWrite(t.Context()); !errors.Is(err, errNotLeader) {
		t.Errorf("got %v, want %v", err, errNotLeader)
	}
}

func TestALeaseOfAnotherMachineIsForeign(t *testing.T) {
	t.Parallel()
	now := time.Now()
	f := &leaderFence{leases: fake.NewClientset(lease("elsewhere_x", now)).CoordinationV1().Leases("kube-system"), name: "ccm",
		clock: clocktesting.NewFakePassiveClock(now), host: "host", since: now}
	if err := f.check(t.Context()); !errors.Is(err, errNotLeader) {
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
		"the successor's":   {start.Add(20 * time.Second), errNotLeader},
		"without this time": {time.Time{}, errNotLeader},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			clk := clocktesting.NewFakePassiveClock(start)
			kube := fake.NewClientset()
			f := &leaderFence{leases: kube.CoordinationV1().Leases("kube-system"), name: "ccm", clock: clk, host: "host", since: start}
			if err := f.check(t.Context()); err == nil {
				t.Fatal("the first look must fail")
			}
			clk.SetTime(start.Add(30 * time.Second))
			l := lease("host_other", start.Add(29*time.Second))
			if l.Spec.AcquireTime = nil; !tc.acquired.IsZero() {
				l.Spec.AcquireTime = &metav1.MicroTime{Time: tc.acquired}
			}
			if _, err := f.leases.Create(t.Context(), l, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			if err := f.check(t.Context()); !errors.Is(err, tc.want) {
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
	cloud, clk := cloudOf(api, Config{})
	cloud.fence.Store(&leaderFence{leases: fake.NewClientset(lease("host_other", clk.Now())).CoordinationV1().Leases("kube-system"), name: "ccm",
		clock: clk, host: "here", identity: "here_me"})
	if _, err := cloud.client.LoadBalancer.All(t.Context()); err != nil {
		t.Error(err)
	}
	_, _, err := cloud.client.LoadBalancer.DeleteWithResult(context.WithoutCancel(t.Context()), &hcloud.LoadBalancer{ID: 1})
	if !errors.Is(err, errNotLeader) {
		t.Errorf("%v, want %v", err, errNotLeader)
	}
	for _, c := range api.Recorded() {
		if c.Method != http.MethodGet {
			t.Errorf("%s was sent", c.Method)
		}
	}
}
