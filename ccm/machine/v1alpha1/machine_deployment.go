package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// MachineDeployment replaces the Machines of one MachineSet by those of another one when its template changes.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:subresource:scale:specpath=.spec.replicas,statuspath=.status.replicas,selectorpath=.status.selector
// +kubebuilder:resource:shortName=md
// +kubebuilder:printcolumn:name="Desired",type=integer,JSONPath=".spec.replicas"
// +kubebuilder:printcolumn:name="Updated",type=integer,JSONPath=".status.updatedReplicas"
// +kubebuilder:printcolumn:name="Ready",type=integer,JSONPath=".status.readyReplicas"
// +kubebuilder:printcolumn:name="Available",type=integer,JSONPath=".status.availableReplicas"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=".metadata.creationTimestamp"
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 46",message="the names of Machines begin with the name: at most 46 characters"
type MachineDeployment struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   MachineDeploymentSpec   `json:"spec,omitempty"`
	Status MachineDeploymentStatus `json:"status,omitempty"`
}

// MachineDeploymentSpec is what a MachineDeployment should be.
type MachineDeploymentSpec struct {
	// MachineSetSpec is that of the newest MachineSet. A change of its template replaces all Machines.
	MachineSetSpec `json:",inline"`
	// Strategy says how Machines are replaced.
	// +optional
	Strategy Strategy `json:"strategy,omitempty"`
	// RevisionHistoryLimit is the number of MachineSets without Machines that are kept. Default: 1.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=0
	RevisionHistoryLimit *int32 `json:"revisionHistoryLimit,omitempty"`
	// Paused stops the replacement of Machines, and scaling.
	// +optional
	Paused bool `json:"paused,omitempty"`
}

// Strategy says how Machines are replaced: new ones are made before old ones are deleted, as far as the limits allow.
//
// +kubebuilder:validation:XValidation:rule="!(has(self.maxSurge) && (self.maxSurge == 0 || self.maxSurge == '0%') && (!has(self.maxUnavailable) || self.maxUnavailable == 0 || self.maxUnavailable == '0%'))",message="maxSurge and maxUnavailable must not both be 0"
type Strategy struct {
	// MaxSurge is how many Machines more than Replicas there may be: a number, or a percentage, which is rounded up.
	// Default: 1.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:Pattern=`^[0-9]+%?$`
	MaxSurge *intstr.IntOrString `json:"maxSurge,omitempty"`
	// MaxUnavailable is how many Machines fewer than Replicas may be available: a number, or a percentage, which is
	// rounded down. Default: 0.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:Pattern=`^[0-9]+%?$`
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`
}

// The conditions of a MachineDeployment.
const (
	// ConditionAvailable reports whether at least Replicas less maxUnavailable Machines are available.
	ConditionAvailable = "Available"
	// ConditionUpdated reports whether all Machines are made from the template, and there are no others.
	ConditionUpdated = "Updated"
)

// MachineDeploymentStatus is what a MachineDeployment is.
type MachineDeploymentStatus struct {
	// Replicas is the number of Machines that are not being deleted.
	// +optional
	Replicas int32 `json:"replicas"`
	// UpdatedReplicas is the number of them that are made from the template.
	// +optional
	UpdatedReplicas int32 `json:"updatedReplicas"`
	// ReadyReplicas is the number of Machines whose Node is ready.
	// +optional
	ReadyReplicas int32 `json:"readyReplicas"`
	// AvailableReplicas is the number of Machines whose Node has been ready for MinReadySeconds.
	// +optional
	AvailableReplicas int32 `json:"availableReplicas"`
	// Selector is the selector as a text, for the scale subresource.
	// +optional
	Selector string `json:"selector,omitempty"`
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Conditions are Available and Updated.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// MachineDeploymentList is a list of MachineDeployments.
//
// +kubebuilder:object:root=true
type MachineDeploymentList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []MachineDeployment `json:"items"`
}
