package apicall

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typedcoordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/utils/clock"
)

// ErrNotLeader is the error of a write that was not sent.
var ErrNotLeader = errors.New("the request was not sent: another cloud-controller-manager leads now")

// LeaderFence prevents writes to the cloud by a CCM that is not the leader any more.
//
// client-go ends a process without its Lease, but not at once. A process that was frozen (a
// suspended machine, a starved CPU) continues for up to the renew deadline, with old caches, and could
// undo the changes of its successor. So each write first checks whether another process can hold the
// Lease. That is impossible until the Lease duration has passed since the last renewal; this process
// wrote the renewal time with its own clock. After that the fence reads the Lease again: at most one
// request per Lease duration.
//
// Not covered: a freeze between the check and the arrival of the request. Only the cloud could detect
// that.
type LeaderFence struct {
	leases typedcoordinationv1.LeaseInterface
	name   string
	clock  clock.PassiveClock
	// host is the start of this process's identity. client-go generates it: <host name>_<random>.
	host string
	// since is the time of the call to Raise. The process acquired the Lease before.
	since time.Time

	mu         sync.Mutex
	identity   string
	validUntil time.Time
}

// NewLeaderFence returns a fence that reads this Lease.
func NewLeaderFence(leases typedcoordinationv1.LeaseInterface, name string) *LeaderFence {
	return &LeaderFence{leases: leases, name: name}
}

// Raise tells the fence that this process, on the host, has just begun to lead.
func (f *LeaderFence) Raise(host string, clk clock.PassiveClock) {
	f.host, f.clock, f.since = host, clk, clk.Now().Round(0)
}

// Check returns nil if this process is the leader.
func (f *LeaderFence) Check(ctx context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.clock.Now().Round(0).Before(f.validUntil) { // Round(0) removes the monotonic clock, which stops while the machine is suspended
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second) // other writes wait for the mutex
	defer cancel()
	lease, err := f.leases.Get(ctx, f.name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("the request was not sent: reading the leader election Lease: %w", err)
	}
	spec := &lease.Spec
	if spec.HolderIdentity == nil || spec.RenewTime == nil || spec.LeaseDurationSeconds == nil {
		return ErrNotLeader
	}
	// A successor on the same machine has the same host name, but acquired the Lease later.
	if f.identity == "" && strings.HasPrefix(*spec.HolderIdentity, f.host+"_") && spec.AcquireTime != nil &&
		!spec.AcquireTime.After(f.since) {
		f.identity = *spec.HolderIdentity
	}
	until := spec.RenewTime.Add(time.Duration(*spec.LeaseDurationSeconds) * time.Second)
	if *spec.HolderIdentity != f.identity || !f.clock.Now().Round(0).Before(until) {
		return ErrNotLeader
	}
	f.validUntil = until
	return nil
}
