package ccm

import (
	"errors"
	"os"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/apicall"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/ccmtest"
)

// The fence and the rest of the provider have the same clock.
func TestTheFenceHasTheClockOfTheProvider(t *testing.T) {
	t.Parallel()
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	clk := ccmtest.NewAutoClock()
	held := ccmtest.Lease(host+"_me", clk.Now())
	leases := fake.NewClientset(held).CoordinationV1().Leases("kube-system")
	cloud := New(Config{}, WithClock(clk), WithLeaderLease(leases, "ccm"))
	cloud.raiseFence()
	if err := cloud.mayWrite(t.Context()); err != nil {
		t.Errorf("as the leader: %v", err)
	}
	clk.Step(ccmtest.FenceDuration)
	if err := cloud.mayWrite(t.Context()); !errors.Is(err, apicall.ErrNotLeader) {
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
	if _, err := leases.Create(t.Context(), ccmtest.Lease(host+"_successor", clk.Now()), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := cloud.mayWrite(t.Context()); !errors.Is(err, apicall.ErrNotLeader) {
		t.Errorf("got %v, want %v", err, apicall.ErrNotLeader)
	}
}
