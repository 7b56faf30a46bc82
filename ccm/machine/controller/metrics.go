package controller

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/machine/v1alpha1"
)

// metricsInterval is the time between two updates of the metrics.
const metricsInterval = 15 * time.Second

var machinesByPhase = prometheus.NewGaugeVec(prometheus.GaugeOpts{
	Name: "machine_controller_machines", Help: "Number of Machines, by provider, type of the instance and phase.",
}, []string{"provider", "size", "phase"})

var orphans = prometheus.NewGauge(prometheus.GaugeOpts{
	Name: "machine_controller_servers_orphaned", Help: "Nodes whose Machine is gone. Their servers cost money, and nothing deletes them.",
})

func init() { metrics.Registry.MustRegister(machinesByPhase, orphans) }

// metricsUpdater sets the metrics about Machines from time to time, in the process that leads.
type metricsUpdater struct {
	*common
	orphaned map[types.UID]bool // Nodes without their Machine at the last look
}

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
	return u.showOrphans(ctx, list.Items)
}

// showOrphans reports Nodes whose Machine is gone: a person has removed its finalizer, or Kubernetes has an older state. Machines and
// Nodes are listed one after the other, so two looks must show them. A server that has never become a Node is not seen: nothing tells it
// from one of another cluster in the same project.
func (u *metricsUpdater) showOrphans(ctx context.Context, machines []v1alpha1.Machine) error {
	var nodes corev1.NodeList
	if err := u.List(ctx, &nodes); err != nil {
		return err
	}
	known := map[string]bool{}
	for i := range machines {
		known[client.ObjectKeyFromObject(&machines[i]).String()] = true
	}
	before, count := u.orphaned, 0
	u.orphaned = map[types.UID]bool{}
	for i := range nodes.Items {
		node := &nodes.Items[i]
		name := node.Annotations[annotationMachine]
		if name == "" || known[name] {
			continue
		}
		told, seen := before[node.UID]
		if u.orphaned[node.UID] = seen; !seen {
			continue
		}
		if count++; !told {
			u.events.Eventf(node, nil, corev1.EventTypeWarning, "Orphaned", "Look", "Machine %s is gone, and its server %s is not: "+
				"delete the server, or remove the annotation %s to keep it", name, node.Spec.ProviderID, annotationMachine)
		}
	}
	orphans.Set(float64(count))
	return nil
}
