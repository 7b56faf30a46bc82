package ccm

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/nodeinfo"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/plan"
	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	corev1 "k8s.io/api/core/v1"
)

// readServers finds the servers of the nodes. Of targets only the existence matters, which the load balancer itself
// proves, so that old data will do. For a new one, the cloud proves it: it refuses a target that does not exist
// (lbSync.obtainConfirmed).
func (s *lbSync) readServers(ctx context.Context) {
	nodes := s.in.Nodes
	if s.in.Settings.ServerSelector != "" {
		all, _ := s.evidence.listers()
		s.in.Excluded = plan.ExcludedBy(nodeinfo.List(all))
		nodes = slices.Concat(nodes, s.in.Excluded)
	}
	var err error
	s.in.Servers, err = s.serversOf(ctx, nodes)
	if err == nil && s.in.Current != nil {
		err = s.confirmTargets(ctx)
	}
	s.in.Unread = err != nil
	s.keep(err)
}

// serversOf returns the servers of the nodes that have one in this cluster, by data that may be calmServerAge old: a copy
// of a cluster also has the original's Nodes. With an error, some are missing.
func (l *loadBalancers) serversOf(ctx context.Context, nodes []*corev1.Node) (map[int64]*hcloud.Server, error) {
	asks := map[int64]serverAsk{}
	for _, node := range nodes {
		// A Node may be not initialized, or of another provider.
		if ask, err := askFor(node, serverAsk{maxAge: calmServerAge}); err == nil && ask.id != 0 {
			asks[ask.id] = ask
		}
	}
	return l.serversFor(ctx, slices.SortedFunc(maps.Values(asks), func(a, b serverAsk) int { return int(a.id - b.id) }))
}

// serversFor returns the servers that exist and are the cluster's. With an error, some are missing: each further question would wait for
// the same error.
func (l *loadBalancers) serversFor(ctx context.Context, asks []serverAsk) (map[int64]*hcloud.Server, error) {
	servers := map[int64]*hcloud.Server{}
	for _, ask := range asks {
		ask.likely = func() []serverAsk { return asks }
		server, err := l.servers.ByID(ctx, ask)
		if err != nil {
			return servers, fmt.Errorf("finding the server of a node: %w", err)
		}
		if server != nil && l.own.IsHere(server.Labels) {
			servers[ask.id] = server
		}
	}
	return servers, nil
}

// confirmTargets asks again for the servers that would become targets, if what is known about them is older than
// the load balancer: a server that the cloud has dropped as a target does not exist any more. Those that are targets
// exist. One that is left out may make room for another.
func (s *lbSync) confirmTargets(ctx context.Context) error {
	confirmed := map[int64]bool{}
	if s.in.Current != nil {
		for _, t := range plan.ServerTargets(s.in.Current) {
			confirmed[t.ServerID] = true
		}
	}
	for {
		plan, _ := plan.Compute(s.in)
		var asks []serverAsk
		for _, t := range plan.Targets {
			if !confirmed[t.ServerID] {
				asks = append(asks, serverAsk{id: t.ServerID, maxAge: maxLoadBalancerAge})
			}
		}
		if len(asks) == 0 {
			return nil
		}
		servers, err := s.serversFor(ctx, asks)
		for _, ask := range asks {
			confirmed[ask.id] = true
			if delete(s.in.Servers, ask.id); servers[ask.id] != nil {
				s.in.Servers[ask.id] = servers[ask.id]
			}
		}
		if err != nil {
			return err
		}
	}
}
