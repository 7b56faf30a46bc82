// Package v1alpha1 holds the types Machine, MachineSet and MachineDeployment. A Machine is a wish for one server that
// becomes a Node; the other two relate to it as a ReplicaSet and a Deployment relate to a Pod. Their fields are named
// as in the Cluster API where both have them.
//
// `make generate` writes zz_generated.deepcopy.go and the CRDs in ../deploy/crds from this package.
//
// +kubebuilder:object:generate=true
// +groupName=machine.ccm-from-scratch.dev
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the group and the version of the types.
var GroupVersion = schema.GroupVersion{Group: "machine.ccm-from-scratch.dev", Version: "v1alpha1"}

// AddToScheme registers the types.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &Machine{}, &MachineList{}, &MachineSet{}, &MachineSetList{}, &MachineDeployment{},
		&MachineDeploymentList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
