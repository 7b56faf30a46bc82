package fakecloud

import "github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/hypervisor"

// AttachHypervisor attaches a hypervisor, which from now on says how the actions of servers'
// machines end: see package hypervisor. It returns an error for options that are wrong, and
// hypervisor.ErrClosed when the cloud is closed.
func (c *Cloud) AttachHypervisor(o hypervisor.Options) (hypervisor.Session, error) {
	h, err := c.cloud.AttachHypervisor(o)
	if err != nil {
		return nil, err
	}
	return hypervisor.Local(h), nil
}
