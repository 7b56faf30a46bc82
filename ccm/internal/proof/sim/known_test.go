//go:build sim

package sim

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	corev1 "k8s.io/api/core/v1"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/plan"
)

// This file is what the guard knows of the cloud.

const (
	uidLabel   = "ccm-from-scratch/service-uid"
	guestLabel = "ccm-from-scratch/guest-" // + the UID of a Service that shares the load balancer
)

// decode reads a resource of the cloud as a client would.
func decode(raw json.RawMessage, kind string) (any, error) {
	switch kind {
	case "load_balancer":
		return decodeWith(raw, hcloud.LoadBalancerFromSchema)
	case "server":
		return decodeWith(raw, hcloud.ServerFromSchema)
	case "network":
		return decodeWith(raw, hcloud.NetworkFromSchema)
	case "certificate":
		return decodeWith(raw, hcloud.CertificateFromSchema)
	case "action":
		return decodeWith(raw, hcloud.ActionFromSchema)
	}
	return nil, nil
}

func decodeWith[S, T any](raw json.RawMessage, from func(S) T) (any, error) {
	var s S
	err := json.Unmarshal(raw, &s)
	return from(s), err
}

func (g *guard) serverNamed(name string) *hcloud.Server {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, s := range g.servers {
		if s.Name == name {
			return s
		}
	}
	return nil
}

func (g *guard) server(id int64) *hcloud.Server {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.servers[id]
}

func (g *guard) allServers() []*hcloud.Server {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.SortedFunc(maps.Values(g.servers), func(a, b *hcloud.Server) int { return cmp.Compare(a.ID, b.ID) })
}

func (g *guard) loadBalancers() []*hcloud.LoadBalancer {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.sortedLBs()
}

func (g *guard) sortedLBs() []*hcloud.LoadBalancer {
	return slices.SortedFunc(maps.Values(g.lbs), func(a, b *hcloud.LoadBalancer) int { return cmp.Compare(a.ID, b.ID) })
}

// network returns the cluster's network, or nil.
func (g *guard) network() *hcloud.Network {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.networkLocked()
}

func (g *guard) networkLocked() *hcloud.Network {
	for _, n := range g.networks {
		if n.Name == networkName {
			return n
		}
	}
	return nil
}

// owned returns the load balancers with the Service's label, as their owner or as a guest.
func (g *guard) owned(s *corev1.Service) []*hcloud.LoadBalancer {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.ownedLocked(s)
}

func (g *guard) ownedLocked(s *corev1.Service) []*hcloud.LoadBalancer {
	return slices.DeleteFunc(g.sortedLBs(), func(lb *hcloud.LoadBalancer) bool {
		return lb.Labels[uidLabel] != string(s.UID) && !isGuest(lb, s)
	})
}

// ownerOf returns the Service whose label the load balancer has, or nil.
//
// Its settings are those that it has on the load balancer.
func (g *guard) ownerOf(lb *hcloud.LoadBalancer) *corev1.Service {
	all := g.asServed(g.serviceByUID(lb.Labels[uidLabel]), lb)
	return all[len(all)-1]
}

func (g *guard) serviceByUID(uid string) *corev1.Service {
	if uid == "" {
		return nil
	}
	for _, s := range g.world.kube.services() {
		if string(s.UID) == uid {
			return s
		}
	}
	return nil
}

// isGuest reports whether the Service shares the load balancer of another one.
func isGuest(lb *hcloud.LoadBalancer, s *corev1.Service) bool {
	_, is := lb.Labels[guestLabel+string(s.UID)]
	return is && lb.Labels[uidLabel] != string(s.UID)
}

// guestsOf returns the Services that share the load balancer, except for its owner.
func (g *guard) guestsOf(lb *hcloud.LoadBalancer) []*corev1.Service {
	return slices.DeleteFunc(g.world.kube.services(), func(s *corev1.Service) bool { return !isGuest(lb, s) })
}

// byGuest reports whether a guest has recorded the port.
func byGuest(lb *hcloud.LoadBalancer, port int) bool {
	all := slices.Collect(maps.Values(plan.RecordOf(lb).Guests))
	return slices.ContainsFunc(all, func(ports []int) bool { return slices.Contains(ports, port) })
}

func serverTargets(lb *hcloud.LoadBalancer) (ids []int64) {
	for _, t := range lb.Targets {
		if t.Server != nil {
			ids = append(ids, t.Server.Server.ID)
		}
	}
	slices.Sort(ids)
	return ids
}

// room returns the number of servers for which the type has room, next to the targets of others.
func room(lb *hcloud.LoadBalancer) int {
	return lb.LoadBalancerType.MaxTargets - (len(lb.Targets) - len(serverTargets(lb)))
}

// twinned reports whether the machine of a server has registered twice.
func (g *guard) twinned(id int64) bool {
	nodes := 0
	for _, n := range g.world.kube.nodes() {
		if serverIDOf(n) == id {
			nodes++
		}
	}
	return nodes > 1
}

func privateIP(s *hcloud.Server, network *hcloud.Network) string {
	for _, n := range s.PrivateNet {
		if network != nil && n.Network.ID == network.ID {
			return n.IP.String()
		}
	}
	return ""
}
