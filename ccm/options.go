package ccm

import (
	"net/http"

	typedcoordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/apicall"
)

// Option changes how New builds a Cloud.
type Option func(*Cloud)

// WithClock makes all timers and caches of the provider use c. The default is the wall clock.
func WithClock(c clock.WithTicker) Option { return func(cloud *Cloud) { cloud.clock = c } }

// WithRoundTripper makes the API client send its requests through rt. rt sees each attempt,
// including retries. The default is http.DefaultTransport.
func WithRoundTripper(rt http.RoundTripper) Option {
	return func(cloud *Cloud) { cloud.roundTripper = rt }
}

// WithEventRecorder sends events to r, also before Initialize.
func WithEventRecorder(r record.EventRecorder) Option {
	return func(cloud *Cloud) { cloud.events.Sink = r }
}

// WithJitter replaces the random factor, around 1, of the delays between retries.
func WithJitter(j func() float64) Option { return func(cloud *Cloud) { cloud.jitter = j } }

// WithLeaderLease makes the provider check before a write that this process holds the leader election
// Lease. leases should be the client that renews the Lease; it must at least be allowed to read it.
func WithLeaderLease(leases typedcoordinationv1.LeaseInterface, name string) Option {
	return func(c *Cloud) {
		c.election = apicall.NewLeaderFence(leases, name)
	}
}
