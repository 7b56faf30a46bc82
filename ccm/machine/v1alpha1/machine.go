package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Machine is a wish for one server that becomes a Node.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=ma
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=".status.phase"
// +kubebuilder:printcolumn:name="Node",type=string,JSONPath=".status.nodeRef.name"
// +kubebuilder:printcolumn:name="Address",type=string,JSONPath=".status.addresses[0].address"
// +kubebuilder:printcolumn:name="ProviderID",type=string,JSONPath=".spec.providerID",priority=1
// +kubebuilder:printcolumn:name="Version",type=string,JSONPath=".spec.version",priority=1
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=".status.failureMessage",priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=".metadata.creationTimestamp"
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63",message="the name becomes the server's host name: at most 63 characters"
type Machine struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   MachineSpec   `json:"spec,omitempty"`
	Status MachineStatus `json:"status,omitempty"`
}

// MachineSpec is what a Machine should be.
//
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.providerID) || has(self.providerID)",message="providerID must not be removed"
type MachineSpec struct {
	// Metadata holds labels and annotations that the Node gets.
	// +optional
	Metadata ObjectMeta `json:"metadata,omitempty"`
	// Taints are taints that the Node gets when it joins.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=50
	Taints []corev1.Taint `json:"taints,omitempty"`
	// Version is the version of Kubernetes, such as v1.37.1, for the bootstrap data. Nothing else reads it.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^v[0-9]+\.[0-9]+\.[0-9]+.*$`
	Version string `json:"version,omitempty"`
	// Bootstrap says how the server joins the cluster.
	// +optional
	Bootstrap Bootstrap `json:"bootstrap,omitempty"`
	// ProviderSpec says which cloud makes the server, and how.
	ProviderSpec ProviderSpec `json:"providerSpec"`
	// ProviderID is the provider ID of the server, which its Node has too. The controller sets it.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="providerID must not change"
	ProviderID string `json:"providerID,omitempty"`
	// NodeDrainTimeout is how long the deletion of the Machine waits for the pods of its Node. Default: 10m. Zero does
	// not evict pods at all.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s')",message="must be a duration, such as 10m or 1h30m"
	NodeDrainTimeout *metav1.Duration `json:"nodeDrainTimeout,omitempty"`
}

// ObjectMeta holds labels and annotations.
type ObjectMeta struct {
	// +optional
	// +kubebuilder:validation:MaxProperties=100
	Labels map[string]string `json:"labels,omitempty"`
	// +optional
	// +kubebuilder:validation:MaxProperties=100
	Annotations map[string]string `json:"annotations,omitempty"`
}

// Bootstrap says how a server joins the cluster.
type Bootstrap struct {
	// UserData is what the server gets as user data, such as a cloud-init configuration. It is a template in Go's
	// text/template: {{ .Name }}, {{ .Version }}, {{ .SSHPublicKeys }}, {{ .Labels }} and {{ .Taints }} are the Machine's,
	// {{ .CloudProvider }} and {{ .CloudConfig }} are what the kubelet needs to know of the cloud.
	// +optional
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:pruning:PreserveUnknownFields
	UserData ConfigValue `json:"userData,omitempty"`
}

// ProviderSpec says which cloud makes a server, and how.
//
// +kubebuilder:validation:XValidation:rule="self.cloudProvider == oldSelf.cloudProvider",message="cloudProvider must not change"
type ProviderSpec struct {
	// CloudProvider is the name of a provider, such as hetzner.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	CloudProvider string `json:"cloudProvider"`
	// CloudProviderSpec holds the settings of that provider.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	CloudProviderSpec runtime.RawExtension `json:"cloudProviderSpec,omitempty"`
	// OperatingSystem is the name of an operating system, such as ubuntu.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	OperatingSystem OperatingSystem `json:"operatingSystem,omitempty"`
	// SSHPublicKeys are keys in the format of OpenSSH's authorized_keys, for the bootstrap data.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=50
	SSHPublicKeys []string `json:"sshPublicKeys,omitempty"`
}

// OperatingSystem is the name of an operating system.
type OperatingSystem string

// The operating systems that users of machine controllers ask for. A provider knows some of them.
const (
	Ubuntu      OperatingSystem = "ubuntu"
	Debian      OperatingSystem = "debian"
	Fedora      OperatingSystem = "fedora"
	CentOS      OperatingSystem = "centos"
	RockyLinux  OperatingSystem = "rockylinux"
	AlmaLinux   OperatingSystem = "almalinux"
	OpenSUSE    OperatingSystem = "opensuse"
	Flatcar     OperatingSystem = "flatcar"
	RHEL        OperatingSystem = "rhel"
	AmazonLinux OperatingSystem = "amzn2"
)

// MachinePhase is where a Machine is in its life.
type MachinePhase string

// The phases of a Machine, as the Cluster API names them.
const (
	PhasePending      MachinePhase = "Pending"      // nothing was made yet
	PhaseProvisioning MachinePhase = "Provisioning" // the server is being made
	PhaseProvisioned  MachinePhase = "Provisioned"  // the server runs, and its Node is not there
	PhaseRunning      MachinePhase = "Running"      // the Node is there
	PhaseDeleting     MachinePhase = "Deleting"     // the Node is drained, and the server is deleted
	PhaseFailed       MachinePhase = "Failed"       // a person has to change something, or the server is gone
)

// The conditions of a Machine.
const (
	// ConditionInstanceReady reports whether the server runs.
	ConditionInstanceReady = "InstanceReady"
	// ConditionNodeReady reports whether the Node is ready.
	ConditionNodeReady = "NodeReady"
	// ConditionDrained reports whether the Node has been drained for the deletion.
	ConditionDrained = "Drained"
)

// MachineStatus is what a Machine is.
type MachineStatus struct {
	// +optional
	Phase MachinePhase `json:"phase,omitempty"`
	// NodeRef is the Node that the server has become.
	// +optional
	NodeRef *NodeReference `json:"nodeRef,omitempty"`
	// Addresses are the addresses of the server.
	// +optional
	// +listType=atomic
	Addresses []corev1.NodeAddress `json:"addresses,omitempty"`
	// FailureReason says in one word why the Machine has failed.
	// +optional
	FailureReason string `json:"failureReason,omitempty"`
	// FailureMessage says why the Machine has failed, and what a person can do.
	// +optional
	FailureMessage string `json:"failureMessage,omitempty"`
	// ObservedGeneration is the generation of the Machine that the status is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Conditions are InstanceReady, NodeReady and, for a Machine that is deleted, Drained.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// NodeReference names a Node.
type NodeReference struct {
	Name string `json:"name"`
	UID  string `json:"uid"`
}

// MachineList is a list of Machines.
//
// +kubebuilder:object:root=true
type MachineList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Machine `json:"items"`
}
