package cluster

import (
	"encoding/json"
	"fmt"
	"time"

	"sigs.k8s.io/kind/pkg/apis/config/v1alpha4"
)

// roles of nodes, as kind names them.
const (
	roleControlPlane = string(v1alpha4.ControlPlaneRole)
	roleWorker       = string(v1alpha4.WorkerRole)
)

// nodeNames returns the names that kind gives the nodes of a cluster with one
// control plane: name-control-plane, name-worker, name-worker2, name-worker3 …
func nodeNames(cluster string, workers int) []string {
	names := []string{cluster + "-" + roleControlPlane}
	for i := 1; i <= workers; i++ {
		name := cluster + "-" + roleWorker
		if i > 1 {
			name += fmt.Sprint(i)
		}
		names = append(names, name)
	}
	return names
}

// operation is one operation of a JSON patch (RFC 6902).
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// argument is an extra argument in kubeadm's configuration.
type argument struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// externalProvider makes a kubelet wait for a CCM. kind gives each kubelet a different provider ID (the second of its arguments). A CCM
// could not replace it: providerID is immutable. If another kind has the argument elsewhere, the operation "test" fails loudly instead of
// replacing something else.
func externalProvider() []operation {
	const at = "/nodeRegistration/kubeletExtraArgs/1"
	return []operation{
		{"test", at + "/name", "provider-id"},
		{"replace", at, argument{"cloud-provider", "external"}},
	}
}

// apiPatience is how long kubeadm waits for the API server, instead of a minute. On a busy host with two cores a first start
// can take longer: every image is unpacked then.
const apiPatience = 4 * time.Minute

// patient makes kubeadm wait that long.
func patient() operation {
	return operation{"add", "/timeouts", map[string]string{"kubernetesAPICall": apiPatience.String()}}
}

// kindConfig is the cluster as kind understands it.
func (o Options) kindConfig(cgroupV1 bool) (*v1alpha4.Cluster, error) {
	config := &v1alpha4.Cluster{
		TypeMeta: v1alpha4.TypeMeta{Kind: "Cluster", APIVersion: "kind.x-k8s.io/v1alpha4"},
		Name:     o.Name,
		Networking: v1alpha4.Networking{
			IPFamily: v1alpha4.IPv4Family, DisableDefaultCNI: true,
			PodSubnet: o.PodCIDR.String(), ServiceSubnet: serviceCIDR.String(),
		},
		Nodes: []v1alpha4.Node{{Role: v1alpha4.ControlPlaneRole, Image: o.Image}},
	}
	for range o.Workers {
		config.Nodes = append(config.Nodes, v1alpha4.Node{Role: v1alpha4.WorkerRole, Image: o.Image})
	}
	patches := map[string][]operation{
		"InitConfiguration": append(externalProvider(), patient()),
		"JoinConfiguration": append(externalProvider(), patient()),
	}
	if o.NodeMonitorGracePeriod > 0 {
		patches["ClusterConfiguration"] = []operation{{"add", "/controllerManager/extraArgs/-",
			argument{"node-monitor-grace-period", o.NodeMonitorGracePeriod.Round(time.Second).String()}}}
	}
	for kind, operations := range patches {
		patch, err := json.Marshal(operations)
		if err != nil {
			return nil, err
		}
		config.KubeadmConfigPatchesJSON6902 = append(config.KubeadmConfigPatchesJSON6902,
			v1alpha4.PatchJSON6902{Group: "kubeadm.k8s.io", Version: "v1beta4", Kind: kind, Patch: string(patch)})
	}
	if settings := o.kubeletSettings(cgroupV1); settings != "" {
		// Nodes that join later take this from the cluster's ConfigMap kubelet-config.
		config.KubeadmConfigPatches = append(config.KubeadmConfigPatches,
			"apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"+settings)
	}
	return config, nil
}

// kubeletSettings returns lines of a KubeletConfiguration, "" if the defaults will do.
func (o Options) kubeletSettings(cgroupV1 bool) string {
	var settings string
	if cgroupV1 {
		settings = "failCgroupV1: false\n" // since 1.35 a kubelet refuses to run on cgroup v1 unless told
	}
	if o.NodeMonitorGracePeriod > 0 {
		// A short grace period asks for a quick recovery, too: after a restart of all nodes, containers end
		// until the API server answers, and a kubelet would let them wait for up to 5 minutes (KEP-4603).
		settings += "crashLoopBackOff:\n  maxContainerRestartPeriod: 2s\n"
	}
	if o.NodeMonitorGracePeriod > 0 && o.NodeMonitorGracePeriod < defaultLease {
		// A kubelet renews its Lease four times in its duration, and a Node that is silent for longer than the
		// grace period is NotReady: several renewals must fit.
		settings += fmt.Sprintf("nodeLeaseDurationSeconds: %d\nnodeStatusUpdateFrequency: %s\n",
			max(1, int(o.NodeMonitorGracePeriod.Seconds())), max(time.Second, o.NodeMonitorGracePeriod/4).Round(time.Second))
	}
	return settings
}

// defaultLease is the duration of a kubelet's Lease unless told.
const defaultLease = 40 * time.Second
