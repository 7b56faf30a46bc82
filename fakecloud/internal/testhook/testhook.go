// Package testhook gives the tests of this module access to the cloud behind the public API.
package testhook

import "github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/cloud"

// Core returns the cloud behind a *fakecloud.Cloud. Package fakecloud sets it.
var Core func(fake any) *cloud.Cloud
