package framework

import (
	"time"

	"github.com/onsi/gomega"
	"github.com/onsi/gomega/gcustom"
	"github.com/onsi/gomega/types"
	corev1 "k8s.io/api/core/v1"
)

// Timeout is how long specs wait for something, Polling how often they look, and Quiet how long they watch that
// something does not happen if the CCM's file does not say. They are bounds for a busy host, not expectations.
var (
	Timeout = 60 * time.Second
	Polling = 100 * time.Millisecond
	Quiet   = 6 * time.Second
)

// In a real cloud, the specs and the CCM share the project's rate limit of 3600 requests per hour, and the CCM may
// compare only once a minute. Gomega's own defaults are a look every 10 ms for a second, or for as long as a context allows.
func init() {
	if CurrentKind() == Existing {
		Timeout, Polling, Quiet = 4*time.Minute, 2*time.Second, 70*time.Second
	}
	gomega.SetDefaultEventuallyTimeout(Timeout)
	gomega.EnforceDefaultTimeoutsWhenUsingContexts()
	gomega.SetDefaultEventuallyPollingInterval(Polling)
	gomega.SetDefaultConsistentlyPollingInterval(Polling)
}

// HaveTaint matches a node that has a taint with the key.
func HaveTaint(key string) types.GomegaMatcher {
	return gcustom.MakeMatcher(func(n *corev1.Node) (bool, error) {
		for _, t := range n.Spec.Taints {
			if t.Key == key {
				return true, nil
			}
		}
		return false, nil
	}).WithTemplate("Expected node {{.Actual.Name}} with the taints\n{{format .Actual.Spec.Taints 1}}\n{{.To}} have the taint " +
		"{{.Data}}").WithTemplateData(key)
}
