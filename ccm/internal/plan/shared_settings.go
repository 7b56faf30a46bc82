package plan

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The settings of a shared load balancer as a whole are those of its owner. Its labels record them, so that they stay when that Service
// goes: a guest that becomes the owner changes only those that it has an annotation for.

// ownSettings are the annotations, in addition to those of ports, that each Service on a load balancer has for itself, or that have
// an effect only when it is created.
var ownSettings = []string{"name", "shared", "adopt", "primary-ipv4", "primary-ipv6", "location", "network-zone", "hostname",
	"ipv6-disabled", "disable-private-ingress"}

// isCommon reports whether the annotation is about the load balancer as a whole.
func (a annotation) isCommon() bool { return !a.perPort() && !slices.Contains(ownSettings, a.Name) }

// commonSettings are the annotations about a load balancer as a whole, by name, and the Service that set them, if any.
type commonSettings struct {
	By     string            `json:"by"`
	Values map[string]string `json:"values,omitempty"`
}

// WithSharedSettings returns the Service with the settings that apply on a possibly shared load balancer. The mistakes are the annotations
// of a guest that contradict.
func WithSharedSettings(svc *corev1.Service, lb *hcloud.LoadBalancer, defaults map[string]string) (effective *corev1.Service,
	mistakes []error) {
	uid, recorded := string(svc.UID), RecordOf(lb).Common
	if recorded.By == "" || recorded.By == uid {
		return svc, nil
	}
	owns := lb.Labels[LabelServiceUID] == uid
	effective = svc.DeepCopy()
	for _, a := range Annotations {
		key := a.KeyIn(svc.Annotations)
		own, has := svc.Annotations[key]
		if !a.isCommon() || owns && has {
			continue
		}
		want, wanted := recorded.Values[a.Name]
		if has && !a.means(own, want, defaults) {
			must := "be absent"
			if allowed := cmp.Or(want, defaults[a.Name], a.Default); allowed != "" {
				must = fmt.Sprintf("be %q, or absent", allowed)
			}
			mistakes = append(mistakes, AnnotationError{Source: key, Value: own, Reason: fmt.Sprintf(
				"differs from load balancer %d (%s), which several Services share: must %s", lb.ID, lb.Name, must)})
		}
		delete(effective.Annotations, key)
		if wanted {
			metav1.SetMetaDataAnnotation(&effective.ObjectMeta, a.Key(), want)
		}
	}
	return effective, mistakes
}

// means reports whether two values of the annotation have the same effect; "": it is absent.
func (a annotation) means(v, w string, defaults map[string]string) bool {
	var one, other Settings
	for _, set := range []struct {
		s     *Settings
		value string
	}{{&one, v}, {&other, w}} {
		if value := cmp.Or(set.value, defaults[a.Name], a.Default); value != "" && a.Set(set.s, value) != nil {
			return v == w
		}
	}
	return reflect.DeepEqual(one, other)
}

// planCommonSettings returns the settings that the owner records. An heir records them for the Service that recorded them first.
func planCommonSettings(plan *LoadBalancer, in Input) commonSettings {
	recorded := RecordOf(in.Current).Common
	by := cmp.Or(recorded.By, plan.UID)
	if by == plan.UID && !plan.Shared && len(GuestsOf(in.Current)) == 0 {
		return commonSettings{}
	}
	c := commonSettings{By: by, Values: map[string]string{}}
	for _, a := range Annotations {
		value, has := in.Service.Annotations[a.KeyIn(in.Service.Annotations)]
		if in.Wrong[a.Name] {
			value, has = recorded.Values[a.Name], recorded.Values[a.Name] != ""
		}
		if has && a.isCommon() {
			c.Values[a.Name] = strings.TrimSpace(value)
		}
	}
	return c
}
