package controller

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/util/wait"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/machine/v1alpha1"
)

// metricsInterval is the time between two updates of the metrics.
const metricsInterval = 15 * time.Second

var machinesByPhase = prometheus.NewGaugeVec(prometheus.GaugeOpts{
	Name: "machine_controller_machines", Help: "Number of Machines, by provider, type of the instance and phase.",
}, []string{"provider", "size", "phase"})

func init() { metrics.Registry.MustRegister(machinesByPhase) }

// metricsUpdater sets the metrics about Machines from time to time, in the process that leads.
type metricsUpdater struct{ *common }

// Start runs until the context ends.
func (u *metricsUpdater) Start(ctx context.Context) error {
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		if err := u.update(ctx); err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "Cannot update the metrics of Machines")
		}
	}, metricsInterval)
	return nil
}

func (u *metricsUpdater) update(ctx context.Context) error {
	var list v1alpha1.MachineList
	if err := u.List(ctx, &list); err != nil {
		return err
	}
	byProvider := map[string]v1alpha1.MachineList{}
	machinesByPhase.Reset()
	for i := range list.Items {
		m := &list.Items[i]
		name, size := m.Spec.ProviderSpec.CloudProvider, "unknown"
		p, err := u.provider(m)
		if err != nil {
			continue // its status says so
		}
		if labels, err := p.MachineMetricsLabels(m); err == nil {
			size = labels["size"]
		}
		machinesByPhase.WithLabelValues(name, size, string(m.Status.Phase)).Inc()
		byProvider[name] = v1alpha1.MachineList{Items: append(byProvider[name].Items, *m)}
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	for name, p := range u.providers {
		if err := p.SetMetricsForMachines(byProvider[name]); err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "Cannot set a provider's metrics", "provider", name)
		}
	}
	return nil
}
