package loadbalancer

import (
	"strconv"
	"time"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/event"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/plan"
)

// A new target serves only when its health check has succeeded, 15 s later by default. If all healthy targets left earlier, no
// client would be served: when another pool of nodes or another node-selector is chosen, or when a node is drained as soon as the
// next one is ready. So they leave when others are healthy on the same ports. They leave after maxLinger in any case, since to
// exclude a node is a person's right.
//
// Does not linger: a selector that targets of their own replace leaves before they are healthy.

const (
	// maxLinger is how long targets linger until another one is healthy. The default health check needs
	// 15 s, a pod on a new node some more. The machine controller waits two minutes until a server has left all load balancers.
	maxLinger = time.Minute
	// LingerPoll is the time until the next look at the health of the others. One list answers for all load balancers.
	LingerPoll = 4 * time.Second
)

// lingerOver reports whether the Service's targets have waited long enough.
func (l *Controller) lingerOver(uid string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	since, waits := l.lingering[uid]
	return waits && l.waiter.Clock.Since(since) >= maxLinger
}

// noteLingering remembers since when targets wait, and has the comparison look again.
func (s *serviceSync) noteLingering(planned *plan.LoadBalancer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, waits := s.lingering[planned.UID]
	switch {
	case len(planned.Lingering) == 0:
		delete(s.lingering, planned.UID)
		return
	case s.in.LingerOver:
		return
	case !waits:
		s.lingering[planned.UID] = s.waiter.Clock.Now()
		var servers []string
		for _, t := range planned.Lingering {
			servers = append(servers, strconv.FormatInt(t.ServerID, 10))
		}
		s.events.Normal(s.svc, event.Pending, "Targets leave when another one is healthy, at the latest after %v: servers %s", maxLinger, plan.Abbreviate(servers))
	}
	select {
	case s.Waits <- struct{}{}:
	default: // a look is due already
	}
}
