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

// This file says whose settings a shared load balancer has. When its owner goes, those of the load balancer as a whole stay, except
// those that the heir has annotations for.

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
		for id, from := range g.inherited {
			if lb := g.lbs[id]; lb != nil && lb.Labels[uidLabel] == string(s.UID) {
				g.inherited[id] = over(from, map[string]string{}, s.Annotations) // whether the CCM records these, is not known
			}
		}
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
	if was == "" {
		delete(g.inherited, after.ID)
		if _, known := g.low[after.ID]; known {
			g.noteLow(after, false) // of what has changed while it had no owner, no note was taken
		}
		return
	}
	from := g.inherited[after.ID]
	if from == nil {
		from = []map[string]string{{}}
	}
	from = over(from, g.settings[was]...)
	g.inherited[after.ID] = over(from, append([]map[string]string{{}}, g.settings[after.Labels[uidLabel]]...)...)
}

// over returns the different settings that an owner with one of these annotations has on a load balancer that it inherits.
func over(inherited []map[string]string, annotations ...map[string]string) (all []map[string]string) {
	for _, own := range annotations {
		for _, values := range inherited {
			values = maps.Clone(values)
			maps.Copy(values, commonOf(own))
			if !slices.ContainsFunc(all, func(other map[string]string) bool { return maps.Equal(values, other) }) {
				all = append(all, values)
			}
		}
	}
	return all
}

// settled is called when all is quiet: by now the owner has recorded its settings.
func (g *guard) settled() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for id, from := range g.inherited {
		if lb := g.lbs[id]; lb != nil {
			if s := g.serviceByUID(lb.Labels[uidLabel]); s != nil {
				g.inherited[id] = over(from, s.Annotations)
			}
		}
	}
}

// served returns the Service with the settings that it has on its load balancer: all that are possible, the most probable last.
func (g *guard) asServed(s *corev1.Service, lb *hcloud.LoadBalancer) (all []*corev1.Service) {
	if s == nil || len(g.inherited[lb.ID]) == 0 || lb.Labels[uidLabel] != string(s.UID) {
		return []*corev1.Service{s}
	}
	for _, values := range over(g.inherited[lb.ID], s.Annotations) {
		one := s.DeepCopy()
		for name, value := range values {
			metav1.SetMetaDataAnnotation(&one.ObjectMeta, prefix+name, value)
		}
		all = append(all, one)
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
