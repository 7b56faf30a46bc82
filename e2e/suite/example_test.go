package suite_test

import (
	"testing"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/cloud/example"
	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/suite"
)

// The whole test of a repository with a cloud-controller-manager, described in ccm.yaml. It runs all specs but those of routes.
func ExampleRun() {
	TestE2E := func(t *testing.T) {
		suite.Run(t, suite.Config{
			File:   "ccm.yaml",
			Driver: example.Driver{}, // instead of yours
			Labels: "conformance && !route",
		})
	}
	_ = TestE2E
}
