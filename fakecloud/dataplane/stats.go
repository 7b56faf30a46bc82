package dataplane

import (
	"sync"
	"sync/atomic"
	"time"
)

// rateWindow is the time over which Stats averages its rates. The value of the real load balancer is not
// published.
const rateWindow = 10 * time.Second

// Stats are the figures of one load balancer, with the names of the API's metrics. Totals count from the
// first Apply of the load balancer.
type Stats struct {
	OpenConnections      int64   // open_connections
	ConnectionsPerSecond float64 // connections_per_second
	RequestsPerSecond    float64 // requests_per_second; HTTP and HTTPS services only
	BandwidthIn          float64 // bandwidth.in, bytes per second from clients
	BandwidthOut         float64 // bandwidth.out, bytes per second to clients

	Connections int64
	Requests    int64
	BytesIn     int64
	BytesOut    int64
}

// TargetStats are the traffic of one target, over all services. Health probes do not count.
type TargetStats struct {
	// Target is the target's key.
	Target string
	// Open is the number of connections (tcp) and requests (http, https) that the target serves now or is chosen for.
	Open int64
	// Taken is the number of those that have reached the target since it was added.
	Taken int64
}

// targetStats holds the counters of a target.
type targetStats struct{ open, taken atomic.Int64 }

// stats holds the counters of a load balancer. Bytes are counted on the connection to the client, TLS
// included, like on the load balancer's network interface.
type stats struct {
	open, connections, requests, in, out atomic.Int64

	mu      sync.Mutex
	samples []sample // oldest first, at most rateWindow old except the first
}

type sample struct {
	at                             time.Time
	connections, requests, in, out int64
}

func (s *stats) now(at time.Time) sample {
	return sample{at: at, connections: s.connections.Load(), requests: s.requests.Load(), in: s.in.Load(), out: s.out.Load()}
}

// sample records the counters. It is called about once per second of the clock; a step of the clock
// causes only one call.
func (s *stats) sample(at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.samples = append(s.samples, s.now(at))
	for len(s.samples) > 1 && at.Sub(s.samples[1].at) >= rateWindow {
		s.samples = s.samples[1:]
	}
}

func (s *stats) read(at time.Time) Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now(at)
	out := Stats{
		OpenConnections: s.open.Load(),
		Connections:     now.connections,
		Requests:        now.requests,
		BytesIn:         now.in,
		BytesOut:        now.out,
	}
	if len(s.samples) == 0 {
		return out
	}
	then := s.samples[0]
	if elapsed := at.Sub(then.at).Seconds(); elapsed > 0 {
		out.ConnectionsPerSecond = float64(now.connections-then.connections) / elapsed
		out.RequestsPerSecond = float64(now.requests-then.requests) / elapsed
		out.BandwidthIn = float64(now.in-then.in) / elapsed
		out.BandwidthOut = float64(now.out-then.out) / elapsed
	}
	return out
}
