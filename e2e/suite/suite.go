// Package suite runs the conformance specs in the repository of a cloud-controller-manager (CCM), as a Go test:
//
//	func TestE2E(t *testing.T) {
//		suite.Run(t, suite.Config{File: "ccm.yaml", Driver: mycloud.Driver{}})
//	}
//
// The test takes the flags of Ginkgo, such as -ginkgo.label-filter, and `go test -c` makes a program of it. Specs that a test package
// declares itself run with the others. PORTING.md says what to write; package framework explains the environment variables.
package suite

import (
	"cmp"
	"os"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/cloud"
	_ "github.com/ccm-from-scratch/ccm-from-scratch/e2e/conformance" // the specs that know no cloud
	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/framework"
)

// Config describes the CCM under test, and where it runs. Paths are relative to the folder of the test.
type Config struct {
	// File is the path of the CCM's description; CCM is the same in Go. Set one of them. The environment variable CCM names another file.
	File string
	CCM  framework.CCMDescription
	// Driver is the driver of the CCM's cloud. It may be nil if the description has a driverCommand.
	Driver cloud.Driver
	// Drivers are those that descriptions can choose by a name, for a test of several clouds.
	Drivers map[string]cloud.Driver
	// Kubeconfig is the path of an administrator's access to a cluster that runs the CCM. If it is empty, each process of the test starts a
	// control plane from the programs that framework/cluster finds. E2E_CLUSTER wins over both.
	Kubeconfig string
	// Labels is a filter such as "conformance && !route". The specs that run pass it and Ginkgo's own flag.
	Labels string
	// Manifest is the path of the manifest that deploys a CCM if the CCM's description names none.
	Manifest string
	// Name is Ginkgo's name of the run. If it is empty, it is "conformance".
	Name string
}

// Run runs the specs. It can be called once, by one test of a program.
func Run(t *testing.T, c Config) {
	t.Helper()
	if err := c.configure(); err != nil {
		t.Fatal(err)
	}
	RegisterFailHandler(Fail)
	prepare()
	suite, reporter := GinkgoConfiguration()
	suite.LabelFilter = both(suite.LabelFilter, c.Labels)
	name := cmp.Or(c.Name, "conformance")
	RunSpecs(t, name, framework.Shard(name, suite), reporter)
}

func (c Config) configure() error {
	for name, driver := range c.Drivers {
		framework.Register(name, driver)
	}
	if out := os.Getenv(framework.EnvOut); out != "" {
		absolute, err := filepath.Abs(out) // programs run in other folders
		if err != nil {
			return err
		}
		if err := os.Setenv(framework.EnvOut, absolute); err != nil {
			return err
		}
	}
	return framework.Configure(framework.Setup{
		File: c.File, CCM: c.CCM, Driver: c.Driver, Manifest: c.Manifest, Kubeconfig: c.Kubeconfig,
	})
}

// prepare declares the steps before and after all specs. The first process prepares the parts that all processes share. scripts/e2e.sh
// explains a slow start in one line; Ginkgo shows goroutines only of one that hangs.
func prepare() {
	SynchronizedBeforeSuite(func(ctx SpecContext) {
		Expect(framework.Prepare(ctx)).To(Succeed())
	}, func(ctx SpecContext) {
		s, err := framework.StartSuite(ctx, GinkgoParallelProcess())
		DeferCleanup(s.Stop)
		Expect(err).NotTo(HaveOccurred())
	}, PollProgressAfter(5*time.Minute))
	ReportAfterSuite("writes the table of all specs", func(report Report) {
		Expect(framework.WriteSummary(report)).To(Succeed())
	})
}

// both returns the label filter that is true where both are.
func both(a, b string) string {
	if a == "" || b == "" {
		return cmp.Or(a, b)
	}
	return "(" + a + ") && (" + b + ")"
}
