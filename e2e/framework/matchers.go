package framework

import (
	"time"

	"github.com/onsi/gomega"
	"github.com/onsi/gomega/gcustom"
	"github.com/onsi/gomega/types"
	corev1 "k8s.io/api/core/v1"
)

// How long specs wait for what should happen, how often they look, and for how long they watch that
// something does not happen. They are bounds for a busy machine, not expectations.
var (
	Timeout = 60 * time.Second
	Polling = 100 * time.Millisecond
	Quiet   = 6 * time.Second
)

// In a cloud that exists, the specs share the project's rate limit, 3600 requests per hour and as many at once, with
// the CCM, which may look only once a minute whether anything has changed. Gomega itself would look every 10 ms.
func init() {
	if CurrentKind() == Existing {
		Timeout, Polling, Quiet = 4*time.Minute, 2*time.Second, 70*time.Second
	}
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
	}).WithTemplate("Expected node {{.Actual.Name}} with the taints\n{{format .Actual.Spec.Taints 1}}\n{{.To}} have the taint {{.Data}}").WithTemplateData(key)
}
