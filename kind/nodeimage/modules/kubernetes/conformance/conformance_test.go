// Package conformance holds Kubernetes' own specs of the network: those of [Feature:LoadBalancer], and those of conformance.
// It is a suite of its own instead of upstream's e2e.test, which compiles specs of storage, scheduling and more.
// scripts/conformance.sh runs it.
package conformance

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"k8s.io/kubernetes/test/e2e"
	"k8s.io/kubernetes/test/e2e/framework"
	"k8s.io/kubernetes/test/e2e/framework/config"
	"k8s.io/kubernetes/test/e2e/framework/testfiles"
	e2etestingmanifests "k8s.io/kubernetes/test/e2e/testing-manifests"
	"k8s.io/kubernetes/test/utils/image"

	// The specs.
	_ "k8s.io/kubernetes/test/e2e/common/network"
	_ "k8s.io/kubernetes/test/e2e/network"

	// What prints a namespace's events after a failure, and makes the clients of nodes.
	_ "k8s.io/kubernetes/test/e2e/framework/debug/init"
	_ "k8s.io/kubernetes/test/e2e/framework/node/init"
)

func TestMain(m *testing.M) {
	config.CopyFlags(config.Flags, flag.CommandLine)
	framework.RegisterCommonFlags(flag.CommandLine)
	framework.RegisterClusterFlags(flag.CommandLine)
	flag.Parse()
	testfiles.AddFileSource(e2etestingmanifests.GetE2ETestingManifestsFS())
	if framework.TestContext.ListImages {
		// Those of the specs that scripts/conformance.sh selects.
		fmt.Printf("%s\n%s\n", image.GetE2EImage(image.Agnhost), image.GetE2EImage(image.GlibcDnsTesting))
		return
	}
	framework.AfterReadingAllFlags(&framework.TestContext)
	os.Exit(m.Run())
}

func TestConformance(t *testing.T) { e2e.RunE2ETests(t) }
