package loadbalancer

import (
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/event"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/inventory"
)

// Evidence returns what the load balancers of a test know of Nodes and Services.
func (l *Controller) Evidence() *inventory.Evidence { return l.evidence }

// Events returns the recorder of a test's load balancers.
func (l *Controller) Events() *event.Recorder { return l.events }
