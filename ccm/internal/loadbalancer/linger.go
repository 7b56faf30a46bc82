package loadbalancer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	cloudapi "k8s.io/cloud-provider/api"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/apicall"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/event"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/nodeinfo"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/plan"
)

// A new target serves only after its first successful health check, 15 s later by default. If the healthy targets left earlier, few of
// them or none would serve: when another pool of nodes or another node-selector is chosen, or when a node is drained as soon as the
// next one is ready. So one leaves for each new one that is healthy. A person may exclude a node, so one also leaves after each maxLinger
// without a new healthy one. The last healthy one stays until its server no longer serves.
//
// Targets that change between public and private addresses wait likewise.

const (
	// maxLinger is how long targets that have to leave wait for another one to be healthy, before one of them leaves. The default
	// health check needs 15 s, a pod on a new node some more. The machine controller gives load balancers two minutes to let go of a
	// server.
	maxLinger = time.Minute
	// LingerPoll is the time until the next look at the health of the others. One list answers for all load balancers.
	LingerPoll = 4 * time.Second
)

// wait is that of a Service's targets that have to leave: how many there are, and since when not fewer.
type wait struct {
	since   time.Time
	targets int
}

// waited reports whether the Service's targets have waited long enough, and returns those for which they need not wait.
func (l *Controller) waited(uid string) (lingerOver bool, refused map[int64]bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	w, waits := l.lingering[uid]
	return waits && l.waiter.Clock.Since(w.since) >= maxLinger, l.refused[uid]
}

// noteRefused remembers the servers that the API has refused as targets, by the error of the operations.
func (l *Controller) noteRefused(ctx context.Context, uid string, err error) {
	refused := map[int64]bool{}
	for _, e := range apicall.EachError(err) {
		if part, ok := errors.AsType[*partError](e); ok && part.op.Kind == plan.OpAddTarget && isRefusal(ctx, part.err) {
			refused[part.op.Target.ServerID] = true
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refused[uid] = refused
}

// noteLingering remembers since when targets wait, and has the comparison look again. It reports an error if one cannot go on even
// now, because no other target is healthy.
func (s *serviceSync) noteLingering(planned *plan.LoadBalancer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w, waits := s.lingering[planned.UID]
	switch n := len(planned.Lingering) + len(planned.Waiting); {
	case n == 0:
		delete(s.lingering, planned.UID)
		return
	case !waits:
		s.tellWaiting(planned)
		fallthrough
	case n < w.targets:
		s.lingering[planned.UID] = wait{s.waiter.Clock.Now(), n}
	case s.in.LingerOver:
		s.failWaiting(planned)
		return
	}
	select {
	case s.Waits <- struct{}{}:
	default: // a look is due already
	}
}

// tellWaiting says what targets wait for.
func (s *serviceSync) tellWaiting(planned *plan.LoadBalancer) {
	if len(planned.Lingering) > 0 {
		s.events.Normal(s.svc, event.Pending,
			"Targets leave when others are healthy in their place, or one after the other, each %v: servers %s", maxLinger,
			names(planned.Lingering))
	}
	if len(planned.Waiting) > 0 {
		s.events.Normal(s.svc, event.Pending, "Targets change between public and private addresses in turns, each when the others are "+
			"healthy: servers %s", names(planned.Waiting))
	}
}

// failWaiting says why targets still wait.
func (s *serviceSync) failWaiting(planned *plan.LoadBalancer) {
	if len(planned.Lingering) > 0 {
		s.failed(fmt.Errorf("server %s stays a target although its node is not chosen: no other target is healthy; check the pods of the "+
			"Service and its other nodes", names(planned.Lingering)))
	}
	if len(planned.Waiting) > 0 {
		s.failed(fmt.Errorf("servers %s keep their kind of address: no other target is healthy with the one that the Service asks for; "+
			"check whether the nodes serve there, or change use-private-ip back", names(planned.Waiting)))
	}
}

func names(targets []plan.Target) string {
	var servers []string
	for _, t := range targets {
		servers = append(servers, strconv.FormatInt(t.ServerID, 10))
	}
	return plan.Abbreviate(servers)
}

// checkNode returns an error if the operation removes a target with a Node that has changed since the sync began: it may be chosen again.
// To remove many targets takes many seconds, and the choice of the service controller may be older still.
func (s *serviceSync) checkNode(op plan.Op) error {
	if op.Kind != plan.OpRemoveTarget || op.Undo != nil {
		return nil
	}
	lister, _ := s.evidence.Listers()
	for id, now := range nodeinfo.ByServer(lister) {
		if id != op.Target.ServerID || !nodeinfo.MayServe(now) {
			continue
		}
		i := slices.IndexFunc(s.in.Nodes, func(n *corev1.Node) bool { return n.Name == now.Name })
		if i < 0 || !maps.Equal(now.Labels, s.in.Nodes[i].Labels) {
			return cloudapi.NewRetryError(fmt.Sprintf("node %s has changed meanwhile, so the sync begins again", now.Name), time.Second)
		}
	}
	return nil
}
