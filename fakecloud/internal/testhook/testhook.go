// Package testhook gives the tests of this module, and the name server among the doors, access to the cloud behind the public API.
package testhook

import "github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/cloud"

// Core returns the cloud behind a *fakecloud.Cloud. Package fakecloud sets it.
var Core func(fake any) *cloud.Cloud
