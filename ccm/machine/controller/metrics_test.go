package controller

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/machine/v1alpha1"
)

// gauges returns the values of a metric by its labels.
func gauges(t *testing.T, name string) map[string]float64 {
	t.Helper()
	families, err := metrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]float64{}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			text := ""
			for _, l := range m.GetLabel() {
				text += fmt.Sprintf("%s=%s ", l.GetName(), l.GetValue())
			}
			values[text] = m.GetGauge().GetValue()
		}
	}
	return values
}

// TestMetricsCountMachines is not parallel: all processes of a test binary share the metrics.
func TestMetricsCountMachines(t *testing.T) {
	w := newWorld(t)
	w.must(w.create(t.Context(), deployment(2, "cx23")))
	for _, step := range []struct {
		name              string
		do                func()
		machines, hetzner map[string]float64
	}{
		{"two that run", w.settle, map[string]float64{"phase=Running provider=hetzner size=cx23 ": 2},
			map[string]float64{"location=unknown size=cx23 ": 2}},
		{"of another type", func() {
			w.change(func(d *v1alpha1.MachineDeployment) {
				d.Spec.Template.Spec.ProviderSpec.CloudProviderSpec.Raw = []byte(`{"serverType":"cx33","location":"fsn1"}`)
			})
			w.settle()
		},
			map[string]float64{"phase=Running provider=hetzner size=cx33 ": 2}, map[string]float64{"location=fsn1 size=cx33 ": 2}},
		{"none", func() { w.change(func(d *v1alpha1.MachineDeployment) { d.Spec.Replicas = new(int32(0)) }); w.settle() },
			map[string]float64{}, map[string]float64{}},
	} {
		step.do()
		w.must((&metricsUpdater{common: w.process}).update(t.Context()))
		if got := gauges(t, "machine_controller_machines"); !maps.Equal(got, step.machines) {
			t.Errorf("%s: %v, want %v", step.name, got, step.machines)
		}
		if got := gauges(t, "machine_controller_hetzner_machines"); !maps.Equal(got, step.hetzner) {
			t.Errorf("%s: the provider's are %v, want %v", step.name, got, step.hetzner)
		}
	}
}

// TestAServerThatOutlivesItsMachineIsShown is not parallel: all processes of a test binary share the metrics.
func TestAServerThatOutlivesItsMachineIsShown(t *testing.T) {
	w := pool(t, 2)
	lost := &w.machines()[0]
	w.must(w.objects.Patch(t.Context(), lost, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))))
	w.must(w.objects.Delete(t.Context(), lost))
	u := &metricsUpdater{common: w.process}
	for look, want := range []float64{0, 1, 1} { // Machines and Nodes are listed one after the other
		w.must(u.update(t.Context()))
		if got := gauges(t, "machine_controller_servers_orphaned")[""]; got != want {
			t.Errorf("look %d: %v, want %v", look, got, want)
		}
	}
	var told []string
	for len(w.events.Events) > 0 {
		if e := <-w.events.Events; strings.Contains(e, "Orphaned") {
			told = append(told, e)
		}
	}
	if len(told) != 1 || !strings.Contains(told[0], lost.Name) || !strings.Contains(told[0], lost.Spec.ProviderID) {
		t.Errorf("events %q", told)
	}
	for _, node := range w.nodes() {
		w.must(w.objects.Delete(t.Context(), &node))
	}
	w.must(u.update(t.Context()))
	if got := gauges(t, "machine_controller_servers_orphaned")[""]; got != 0 {
		t.Errorf("without its Node: %v", got)
	}
}
