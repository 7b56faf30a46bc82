package ccm

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

// WithLeaderLease says that this process is one of several, of which the one that holds the Lease
// works: whenever something is to be changed in the cloud the Lease must be held. The client should be
// the one that renews it, and may at least read it.
func WithLeaderLease(leases typedcoordinationv1.LeaseInterface, name string) Option {
	return func(c *Cloud) {
		c.election = &leaderFence{leases: leases, name: name}
	}
}

// errNotLeader is why a write was not sent.
var errNotLeader = errors.New("another cloud-controller-manager leads now, so nothing is changed")

// leaderFence keeps a CCM that does not lead any more from changing the cloud.
//
// client-go ends a process that has lost its lease, but only when it notices: a process that was
// frozen (a suspended machine, a starved CPU) goes on for up to the renew deadline when it wakes up,
// and undoes what its successor has done since, by caches that are as old as its sleep. So each
// write asks first whether the lease can have passed to somebody else: it cannot before its
// duration is over since its last renewal, by the clock that wrote that time, our own. Only then is
// the Lease read again; that is one request per lease duration, while something is written.
//
// Left out: a freeze between this check and the arrival of the request. The cloud would have to
// know the lease to notice that.
type leaderFence struct {
	leases typedcoordinationv1.LeaseInterface
	name   string
	clock  clock.PassiveClock
	// host begins our identity, which client-go makes up: <host name>_<random>.
	host string

	mu         sync.Mutex
	identity   string
	validUntil time.Time
}

// check returns nil if this process leads.
func (f *leaderFence) check(ctx context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.clock.Now().Round(0).Before(f.validUntil) { // without the monotonic clock, which stands still with the machine
		return nil
	}
	lease, err := f.leases.Get(ctx, f.name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("asking who leads, before anything is changed: %w", err)
	}
	spec := &lease.Spec
	if spec.HolderIdentity == nil || spec.RenewTime == nil || spec.LeaseDurationSeconds == nil {
		return errNotLeader
	}
	if f.identity == "" && strings.HasPrefix(*spec.HolderIdentity, f.host+"_") {
		f.identity = *spec.HolderIdentity
	}
	until := spec.RenewTime.Add(time.Duration(*spec.LeaseDurationSeconds) * time.Second)
	if *spec.HolderIdentity != f.identity || !f.clock.Now().Round(0).Before(until) {
		return errNotLeader
	}
	f.validUntil = until
	return nil
}
