package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// MachineSet keeps a number of equal Machines.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:subresource:scale:specpath=.spec.replicas,statuspath=.status.replicas,selectorpath=.status.selector
// +kubebuilder:resource:shortName=ms
// +kubebuilder:printcolumn:name="Desired",type=integer,JSONPath=".spec.replicas"
// +kubebuilder:printcolumn:name="Current",type=integer,JSONPath=".status.replicas"
// +kubebuilder:printcolumn:name="Ready",type=integer,JSONPath=".status.readyReplicas"
// +kubebuilder:printcolumn:name="Available",type=integer,JSONPath=".status.availableReplicas"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=".metadata.creationTimestamp"
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 57",message="the names of Machines begin with the name: at most 57 characters"
type MachineSet struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   MachineSetSpec   `json:"spec,omitempty"`
	Status MachineSetStatus `json:"status,omitempty"`
}

// MachineSetSpec is what a MachineSet should be.
//
// +kubebuilder:validation:XValidation:rule="self.selector.matchLabels.all(k, has(self.template.metadata.labels) && k in self.template.metadata.labels && self.template.metadata.labels[k] == self.selector.matchLabels[k])",message="template.metadata.labels must contain selector.matchLabels"
type MachineSetSpec struct {
	// Replicas is the number of Machines. Default: 1.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=0
	Replicas *int32 `json:"replicas,omitempty"`
	// Selector selects the Machines.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="selector must not change"
	Selector LabelSelector `json:"selector"`
	// Template is what the Machines look like.
	Template MachineTemplate `json:"template"`
	// MinReadySeconds is how long a Node must have been ready before its Machine counts as available. Default: 0.
	// +optional
	// +kubebuilder:validation:Minimum=0
	MinReadySeconds int32 `json:"minReadySeconds,omitempty"`
	// DeletePolicy says which Machines are deleted first when there are too many, after those that do not work: Newest,
	// Oldest or Random. Default: Newest.
	// +optional
	// +kubebuilder:default=Newest
	// +kubebuilder:validation:Enum=Newest;Oldest;Random
	DeletePolicy DeletePolicy `json:"deletePolicy,omitempty"`
	// HealthCheck says when a Machine is replaced.
	// +optional
	HealthCheck HealthCheck `json:"healthCheck,omitempty"`
}

// DeletePolicy says which Machines are deleted first.
type DeletePolicy string

// The policies of deletion.
const (
	DeleteNewest DeletePolicy = "Newest"
	DeleteOldest DeletePolicy = "Oldest"
	DeleteRandom DeletePolicy = "Random"
)

// LabelSelector selects objects that have all the labels.
type LabelSelector struct {
	// +kubebuilder:validation:MinProperties=1
	// +kubebuilder:validation:MaxProperties=20
	MatchLabels map[string]string `json:"matchLabels"`
}

// MachineTemplate is what Machines look like.
type MachineTemplate struct {
	// +optional
	// +kubebuilder:default={}
	Metadata ObjectMeta  `json:"metadata,omitempty"`
	Spec     MachineSpec `json:"spec"`
}

// HealthCheck says when a Machine is replaced: it is deleted, and the MachineSet makes another one.
type HealthCheck struct {
	// NodeStartupTimeout is how long a new Machine may have no Node that is ready. Default: 20m. Zero switches this off. While Machines
	// are replaced that never had a Node, each has twice the time of the last one, up to eight times this.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s')",message="must be a duration, such as 10m or 1h30m"
	NodeStartupTimeout *metav1.Duration `json:"nodeStartupTimeout,omitempty"`
	// UnhealthyTimeout is how long a Node may be not ready. Default: 5m. Zero switches this off.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s')",message="must be a duration, such as 10m or 1h30m"
	UnhealthyTimeout *metav1.Duration `json:"unhealthyTimeout,omitempty"`
	// MaxUnhealthy is a number or a percentage. While more Machines of the MachineSet are unhealthy, none is replaced:
	// something else is wrong then. At least one may always be unhealthy. Default: 40%.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:Pattern=`^[0-9]+%?$`
	MaxUnhealthy *intstr.IntOrString `json:"maxUnhealthy,omitempty"`
}

// MachineSetStatus is what a MachineSet is.
type MachineSetStatus struct {
	// Replicas is the number of Machines that are not being deleted.
	// +optional
	Replicas int32 `json:"replicas"`
	// ReadyReplicas is the number of Machines whose Node is ready.
	// +optional
	ReadyReplicas int32 `json:"readyReplicas"`
	// AvailableReplicas is the number of Machines whose Node has been ready for MinReadySeconds.
	// +optional
	AvailableReplicas int32 `json:"availableReplicas"`
	// FailedStarts is the number of Machines that were replaced without ever having had a Node, since all were ready.
	// +optional
	FailedStarts int32 `json:"failedStarts,omitempty"`
	// Selector is the selector as a text, for the scale subresource.
	// +optional
	Selector string `json:"selector,omitempty"`
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}

// MachineSetList is a list of MachineSets.
//
// +kubebuilder:object:root=true
type MachineSetList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []MachineSet `json:"items"`
}
