//go:build sim

package sim

import (
	"maps"
	"slices"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/plan"
)

// This file says whose settings a shared load balancer has. When its owner goes, those of the load balancer as a whole stay, until
// the heir has the same.

// commonNames are the annotations about a load balancer as a whole that Services here have.
var commonNames = []string{"type", "algorithm-type", "disable-public-network", "use-private-ip", "private-ipv4", "labels",
	"delete-protection", "keep-on-delete"}

func commonOf(annotations map[string]string) map[string]string {
	values := map[string]string{}
	for _, name := range commonNames {
		if value, set := annotations[prefix+name]; set {
			values[name] = value
		}
	}
	return values
}

// seen remembers the settings of a Service: which of the last ones the CCM has read when the Service goes, is not known.
func (g *guard) seen(s *corev1.Service) {
	all := g.settings[string(s.UID)]
	if len(all) == 0 || !maps.Equal(all[len(all)-1], s.Annotations) {
		g.settings[string(s.UID)] = append(all[max(0, len(all)-2):], maps.Clone(s.Annotations))
	}
}

// ownerChanges is called when a load balancer has another owner. If it had one before, its settings stay.
func (g *guard) ownerChanges(before, after *hcloud.LoadBalancer) {
	was := before.Labels[uidLabel]
	if after.Labels[uidLabel] == "" {
		g.ended[after.ID] = time.Now()
	}
	if heir := g.serviceByUID(after.Labels[uidLabel]); heir != nil {
		for _, port := range plan.RecordOf(before).Guests[string(heir.UID)] {
			g.allow(heir, port) // the guest's port was public
		}
	}
	switch {
	case was == "":
		delete(g.settingsFrom, after.ID)
		if _, known := g.low[after.ID]; known {
			g.noteLow(after, false) // of what has changed while it had no owner, no note was taken
		}
	case g.settingsFrom[after.ID] == "" || g.decides(was, after):
		g.settingsFrom[after.ID] = was
	}
}

// settled is called when all is quiet. An owner with the settings of the former one has decided by now, also about what it changes later.
func (g *guard) settled() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for id, from := range g.settingsFrom {
		lb := g.lbs[id]
		if lb == nil {
			continue
		}
		s := g.serviceByUID(lb.Labels[uidLabel])
		if s != nil && !slices.ContainsFunc(g.settings[from], func(other map[string]string) bool {
			return !maps.Equal(commonOf(s.Annotations), commonOf(other))
		}) {
			delete(g.settingsFrom, id)
		}
	}
}

// decides reports whether the settings of the Service are those of the load balancer.
func (g *guard) decides(uid string, lb *hcloud.LoadBalancer) bool {
	from := g.settingsFrom[lb.ID]
	if from == "" || from == uid || len(g.settings[uid]) == 0 {
		return true
	}
	for _, own := range g.settings[uid] {
		if slices.ContainsFunc(g.settings[from], func(other map[string]string) bool { return maps.Equal(commonOf(own), commonOf(other)) }) {
			return true
		}
	}
	return false
}

// served returns the Service with the settings that it has on its load balancer: all that are possible, the most probable last.
func (g *guard) asServed(s *corev1.Service, lb *hcloud.LoadBalancer) (all []*corev1.Service) {
	from := g.settingsFrom[lb.ID]
	if s == nil || from == "" || from == string(s.UID) || len(g.settings[from]) == 0 {
		return []*corev1.Service{s}
	}
	for _, annotations := range g.settings[from] {
		one := s.DeepCopy()
		for _, name := range commonNames {
			delete(one.Annotations, prefix+name)
		}
		for name, value := range commonOf(annotations) {
			metav1.SetMetaDataAnnotation(&one.ObjectMeta, prefix+name, value)
		}
		if isPrivate(s) && !isPrivate(one) { // it contradicts the former owner, so that the public interface stays as it is
			all = append(all, one.DeepCopy())
			metav1.SetMetaDataAnnotation(&all[len(all)-1].ObjectMeta, prefix+"disable-public-network", "true")
		}
		all = append(all, one)
	}
	if g.decides(string(s.UID), lb) {
		all = append(all, s)
	}
	return all
}

// contradicts reports whether the Service has settings that those of the load balancer do not have.
func (g *guard) contradicts(s *corev1.Service, lb *hcloud.LoadBalancer) bool {
	owner := g.serviceByUID(lb.Labels[uidLabel])
	if owner == nil {
		return false
	}
	own := commonOf(s.Annotations)
	return slices.ContainsFunc(g.asServed(owner, lb), func(served *corev1.Service) bool {
		theirs := commonOf(served.Annotations)
		maps.DeleteFunc(theirs, func(name, _ string) bool { _, has := own[name]; return !has })
		return !maps.Equal(own, theirs)
	})
}
