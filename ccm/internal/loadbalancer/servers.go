package loadbalancer

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	corev1 "k8s.io/api/core/v1"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/inventory"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/nodeinfo"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/plan"
)

// readServers finds the servers of the nodes. Of targets only the existence matters, which the load balancer itself
// proves, so that old data will do. For a new one, the cloud proves it: it refuses a target that does not exist
// (serviceSync.obtainConfirmed).
func (s *serviceSync) readServers(ctx context.Context) {
	nodes := s.in.Nodes
	if s.in.Settings.ServerSelector != "" {
		all, _ := s.evidence.Listers()
		s.in.Excluded = plan.ExcludedBy(nodeinfo.List(all))
		nodes = slices.Concat(nodes, s.in.Excluded)
	}
	var err error
	s.in.Servers, err = s.serversOf(ctx, nodes)
	if err == nil && s.in.Current != nil {
		err = s.confirmTargets(ctx)
	}
	s.in.Unread = err != nil
	s.failed(err)
}

// serversOf returns the servers of the nodes that have one in this cluster, by data that may be inventory.CalmServerAge old: a copy
// of a cluster also has the original's Nodes. With an error, some are missing.
func (l *Controller) serversOf(ctx context.Context, nodes []*corev1.Node) (map[int64]*hcloud.Server, error) {
	asks := map[int64]inventory.Ask{}
	for _, node := range nodes {
		// A Node may be not initialized, or of another provider.
		if ask, err := inventory.AskFor(node, inventory.Ask{MaxAge: inventory.CalmServerAge}); err == nil && ask.ID != 0 {
			asks[ask.ID] = ask
		}
	}
	return l.serversFor(ctx, slices.SortedFunc(maps.Values(asks), func(a, b inventory.Ask) int { return int(a.ID - b.ID) }))
}

// serversFor returns the servers that exist and are the cluster's. With an error, some are missing: each further question would wait for
// the same error.
func (l *Controller) serversFor(ctx context.Context, asks []inventory.Ask) (map[int64]*hcloud.Server, error) {
	servers := map[int64]*hcloud.Server{}
	for _, ask := range asks {
		ask.Likely = func() []inventory.Ask { return asks }
		server, err := l.servers.ByID(ctx, ask)
		if err != nil {
			return servers, fmt.Errorf("finding the server of a node: %w", err)
		}
		if server != nil && l.own.IsHere(server.Labels) {
			servers[ask.ID] = server
		}
	}
	return servers, nil
}

// confirmTargets asks again for the servers that would become targets, if what is known about them is older than
// the load balancer: a server that the cloud has dropped as a target does not exist any more. Those that are targets
// exist. One that is left out may make room for another.
func (s *serviceSync) confirmTargets(ctx context.Context) error {
	confirmed := map[int64]bool{}
	if s.in.Current != nil {
		for _, t := range plan.ServerTargets(s.in.Current) {
			confirmed[t.ServerID] = true
		}
	}
	for {
		plan, _ := plan.Compute(s.in)
		var asks []inventory.Ask
		for _, t := range plan.Targets {
			if !confirmed[t.ServerID] {
				asks = append(asks, inventory.Ask{ID: t.ServerID, MaxAge: inventory.MaxLoadBalancerAge})
			}
		}
		if len(asks) == 0 {
			return nil
		}
		servers, err := s.serversFor(ctx, asks)
		for _, ask := range asks {
			confirmed[ask.ID] = true
			if delete(s.in.Servers, ask.ID); servers[ask.ID] != nil {
				s.in.Servers[ask.ID] = servers[ask.ID]
			}
		}
		if err != nil {
			return err
		}
	}
}
