package loadbalancer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	cloudapi "k8s.io/cloud-provider/api"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/apicall"
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
	// refusalHolds is how long a target that the API refuses has the last place, and keeps the address that it has. Each try to change
	// that costs it a health check.
	refusalHolds = 10 * time.Minute
)

// wait counts a Service's targets that have to leave, and remembers since when they are not fewer. known are the servers of the nodes that
// were chosen before, and fresh is the number of those without one; nil and 0 after a start, so that all seem to be new.
type wait struct {
	since   time.Time
	targets int
	known   []int64
	fresh   int
}

// waited sets in the input whether the Service's targets have waited long enough, and the servers that none waits for.
func (l *Controller) waited(uid string, in *plan.Input) {
	in.Doomed = map[int64]bool{}
	nodes, _ := l.evidence.Listers()
	for id, n := range nodeinfo.ByServer(nodes) {
		if nodeinfo.IsDoomed(n) {
			in.Doomed[id] = true
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	w := l.lingering[uid]
	in.LingerOver = w.targets > 0 && l.waiter.Clock.Since(w.since) >= maxLinger
	in.Known, in.Fresh, in.Refused = w.known, w.fresh, map[int64]bool{}
	for id, at := range l.refused[uid] {
		if l.waiter.Clock.Since(at) < refusalHolds {
			in.Refused[id] = true
		}
	}
}

// noteRefused remembers the servers that the API has refused as targets, by the error of the operations, and forgets those that it takes.
func (l *Controller) noteRefused(ctx context.Context, uid string, done []plan.Op, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	refused := l.refused[uid]
	for _, op := range done {
		if op.Kind == plan.OpAddTarget {
			delete(refused, op.Target.ServerID)
		}
	}
	for _, e := range apicall.EachError(err) {
		if part, ok := errors.AsType[*partError](e); ok && part.op.Kind == plan.OpAddTarget && isTargetRefusal(ctx, part.err) {
			if refused == nil {
				refused = map[int64]time.Time{}
				l.refused[uid] = refused
			}
			refused[part.op.Target.ServerID] = l.waiter.Clock.Now()
		}
	}
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
