package hetzner

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/framework"
)

func TestServicesOfASharedClusterSelectTheNodesOfTheirSpec(t *testing.T) {
	t.Parallel()
	own, chosen := "kubernetes.io/hostname in (a,b,mine)", "pool in (edge)"
	for name, c := range map[string]struct {
		before string
		want   string
	}{
		"a new Service":                            {"", own},
		"before the spec brings a node":            {"kubernetes.io/hostname in (a,b)", own},
		"a selector that the spec has set is kept": {chosen, chosen},
	} {
		service := &corev1.Service{}
		if c.before != "" {
			service.ObjectMeta = metav1.ObjectMeta{Annotations: map[string]string{Annotation + "node-selector": c.before}}
		}
		confine(service, []string{"a", "b", "mine"})
		if got := service.Annotations[Annotation+"node-selector"]; got != c.want {
			t.Errorf("%s: the selector is %q, want %q", name, got, c.want)
		}
	}
}

func TestPodsGetTheSettingsOfTheFile(t *testing.T) {
	t.Parallel()
	got := usualPods(framework.CCMDescription{
		Env: map[string]string{"HCLOUD_LOAD_BALANCERS_LOCATION": "{location}"}, Args: []string{"--a=b"}})
	if !slices.Contains(got.Args, "--node-monitor-period=1s") || !slices.Contains(got.Args, "--a=b") ||
		got.Env["HCLOUD_LOAD_BALANCERS_LOCATION"] != Location {
		t.Errorf("in pods it has %v", got)
	}
}
