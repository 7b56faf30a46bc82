package framework

import (
	"errors"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/cloud"
)

// Setup has the settings of a program for all its runs of the specs. Its only user is package suite.
type Setup struct {
	// File is the path of a file that describes the cloud-controller-manager, CCM the description itself. EnvCCM, if set, wins over both.
	File string
	CCM  CCMDescription
	// Driver is the driver if the CCM's description names none.
	Driver cloud.Driver
	// Manifest is the path of the manifest that deploys a CCM if its description names none.
	Manifest string
	// Kubeconfig is the path of an administrator's access to the cluster that the specs share. If it is set, the cluster is an existing
	// one, unless EnvCluster says otherwise.
	Kubeconfig string
}

// configured is the argument of Configure.
var configured Setup

// Configure sets the common settings of all runs of this program. It comes before the specs run.
func Configure(s Setup) error {
	if s.File != "" && s.CCM.Name != "" {
		return errors.New("the cloud-controller-manager is described twice: set either File or CCM in suite.Config")
	}
	configured = s
	return nil
}
