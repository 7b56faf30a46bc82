//go:build sim

package sim

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/plan"
)

// This file is about a second cluster in the same project and network. It was made from a backup of the first one: its Services have
// the same UIDs, and only HCLOUD_CLUSTER_ID shows what belongs to which. Its servers are m1 and m3, and its pods have 10.245.0.0/16.

const secondID = "c"

// isSecond reports whether a server, or its Node, is of the second cluster.
func isSecond(name string) bool { return strings.HasPrefix(name, "m") }

// first returns the world that hands out the requests of both clusters.
func (w *world) first() *world {
	if w.host != nil {
		return w.host
	}
	return w
}

// isOthers reports, and remembers, whether something with these labels is the other cluster's.
func (g *guard) isOthers(resource string, id int64, labels map[string]string) bool {
	is := (labels[clusterLabel] == secondID) != (g.world.host != nil)
	if is {
		g.others[fmt.Sprintf("%s/%d", resource, id)] = true
	}
	return is
}

// startSecond makes the second cluster, with a guard of its own.
func (w *world) startSecond() *world {
	s := &world{random: w.random, kube: newKube(), arrived: w.arrived, notReady: map[string]time.Time{}, fake: w.fake, api: w.api,
		tokenFile: w.tokenFile, configured: networkName, podRange: netip.MustParsePrefix("10.245.0.0/16"), clusterID: secondID,
		processes: 1000, host: w}
	s.guard = newGuard(s)
	s.kube.written = s.guard.kubeWrite
	w.guard.mu.Lock()
	maps.Copy(s.guard.servers, w.guard.servers)
	maps.Copy(s.guard.networks, w.guard.networks)
	for _, lb := range w.guard.lbs {
		s.guard.isOthers("load_balancers", lb.ID, lb.Labels)
	}
	for _, c := range w.guard.certs {
		s.guard.isOthers("certificates", c.ID, c.Labels)
	}
	w.guard.mu.Unlock()
	s.watch()
	w.second = s
	s.addServer("m1", 0)
	s.addServer("m3", 0)
	w.pass(2*time.Minute, 0)
	s.current = s.startProcess(false)
	w.pass(time.Minute, 0)
	return s
}

// twoClusters runs the second cluster for some minutes, in which users change Services with the same UIDs in both, and one of the two
// CCMs dies. Then the second one is given up, and must leave nothing.
func (w *world) twoClusters(n, m int) {
	w.settle()
	if w.isCopied() {
		return // the copy has no ID
	}
	if w.clusterID == "" && w.crash == nil && w.guard.ok() {
		w.clusterID = "a"
		w.restart()
		w.settle()
	}
	if w.crash != nil || !w.guard.ok() || w.guard.network() == nil {
		return
	}
	// What has no owner that would do it, and nobody uses.
	w.relabel(w.clusterID, func(l labels.Set, used bool) bool {
		return l[clusterLabel] == "" && l[plan.LabelClusterUID] != "" && !used
	})
	s := w.startSecond()
	s.putService("a", managed, 1)
	s.putService("b", n%4, m)
	[]*world{w, s}[n%2].crash = &crash{in: 1 + m, after: m%2 == 0, rest: time.Duration(m) * time.Second}
	w.pass(time.Duration(n)*time.Second, 0)
	w.withService([]string{"a", "b", "c"}[m%3], func(svc *corev1.Service) {
		if len(w.guard.owned(svc)) > 0 { // else that of the second cluster might be its own: a person decides
			w.kube.deleteService(svc)
		}
	})
	s.changeNodePorts()
	w.settle()
	s.await("settles")
	for _, svc := range s.kube.services() {
		s.withService(svc.Name, s.kube.deleteService)
	}
	w.pass(time.Minute, 0)
	for _, node := range s.kube.nodes() {
		s.deleteNode(node.Name)
	}
	s.await("ends")
	if left := w.leftBySecond(); len(left) > 0 && w.guard.ok() {
		w.failNow("orphan", fmt.Sprintf("the second cluster has left %v", left))
	}
	s.current.die()
	w.second = nil
	for _, name := range []string{"m1", "m3"} {
		w.withServer(name, func(s *hcloud.Server) error { _, _, err := w.api.Server.DeleteWithResult(ctx, s); return err })
	}
}

// await lets time pass until all is quiet in the second cluster.
func (w *world) await(what string) {
	if w.crash != nil && w.crash.back.IsZero() {
		w.crash = nil // it sends too few requests to die
	}
	var err error
	for range 80 {
		w.host.pass(30*time.Second, 0)
		if err = w.guard.quiet(); err == nil && w.crash == nil || !w.host.guard.ok() {
			return
		}
	}
	w.failNow("not settled", fmt.Sprintf("40 minutes after the second cluster %s: %v", what, err))
}

// leftBySecond returns the load balancers, certificates and routes of the second cluster.
func (w *world) leftBySecond() (left []string) {
	lbs, err := w.api.LoadBalancer.All(ctx)
	must(err)
	for _, lb := range lbs {
		if lb.Labels[clusterLabel] == secondID {
			left = append(left, lb.Name)
		}
	}
	certs, err := w.api.Certificate.All(ctx)
	must(err)
	for _, c := range certs {
		if c.Labels[clusterLabel] == secondID {
			left = append(left, c.Name)
		}
	}
	if network := w.guard.network(); network != nil {
		for _, r := range network.Routes {
			if strings.HasPrefix(r.Destination.String(), "10.245.") {
				left = append(left, r.Destination.String())
			}
		}
	}
	slices.Sort(left)
	return left
}
