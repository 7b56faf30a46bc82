package framework

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"

	. "github.com/onsi/ginkgo/v2"
	corev1 "k8s.io/api/core/v1"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/cloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/cloud/program"
)

// DefaultDriver is the driver if neither the CCM's file nor Setup names one.
const DefaultDriver = "hetzner"

// drivers are the known ones by the names that files of CCMs use.
var drivers = map[string]cloud.Driver{}

// Register makes a driver known by a name. The program that runs the specs calls it before they run.
func Register(name string, d cloud.Driver) { drivers[name] = d }

// driver returns the driver of the CCM's cloud.
func (s CCMDescription) driver() (cloud.Driver, error) {
	if len(s.DriverCommand) > 0 {
		return program.Driver{Path: s.DriverCommand[0], Args: s.DriverCommand[1:]}, nil
	}
	if s.Driver == "" && configured.Driver != nil {
		return configured.Driver, nil
	}
	d, ok := drivers[s.Driver]
	if !ok {
		return nil, fmt.Errorf("driver: %q: must be one of %v, or left out where suite.Config.Driver is the driver, or where "+
			"driverCommand runs one", s.Driver, slices.Sorted(maps.Keys(drivers)))
	}
	return d, nil
}

// driverName returns the name of the registered driver, "" if the driver is a program or that of Setup.
func (s CCMDescription) driverName() string {
	if len(s.DriverCommand) > 0 || s.Driver == "" && configured.Driver != nil {
		return s.Driver
	}
	return cmp.Or(s.Driver, DefaultDriver)
}

// KindDriver is a driver that can run a kind cluster on its cloud: the cluster's nodes are the cloud's servers.
type KindDriver interface {
	// PrepareKind has the CCM run in the cluster, and returns when all nodes are usable.
	PrepareKind(context.Context, CCMDescription) error
	// OpenKind connects to that cluster.
	OpenKind(context.Context, CCMDescription) (*Shared, error)
}

func (s CCMDescription) kindDriver() (KindDriver, error) {
	d, err := s.driver()
	if err != nil {
		return nil, err
	}
	k, ok := d.(KindDriver)
	if !ok {
		return nil, fmt.Errorf("driver: %q has no kind cluster: run with %s=%s", s.Driver, EnvCluster, Embedded)
	}
	return k, nil
}

// Shared is a cluster with a cloud that all specs share.
type Shared struct {
	// Kubeconfig is the path of an administrator's kubeconfig.
	Kubeconfig string
	// Cloud is the cloud that runs the nodes as its servers.
	Cloud cloud.Cloud
	// Nodes are the names of the nodes that can be targets and were there at first, if Confine makes specs use only these and their
	// own; else nil.
	Nodes []string
	// Confine makes a Service's load balancer use only these nodes.
	Confine func(service *corev1.Service, nodes []string)
	// Outside is the address of this host's connections to load balancers, as these see it; "" if it is not known.
	Outside string
	// PodImage is the image of the pods that specs put behind Services.
	PodImage string
	// HypervisorLog returns the log of the process that runs the servers as nodes. It is nil if another program runs them.
	HypervisorLog func() (string, error)
	// Exec runs a command on a node, nil if the suite may not do so.
	Exec func(ctx context.Context, node string, command ...string) error
	// CCM is the CCM that runs in the cluster, nil if the suite may not change it.
	CCM *PodCCM
}

// options describe this run to a driver.
func (s *Suite) options(settings any) cloud.Options {
	return cloud.Options{
		ProviderPrefix: s.CCM.ProviderPrefix, OwnerLabel: s.CCM.OwnerLabel, UserAgent: s.CCM.UserAgent,
		Servers: s.loopback(purposeServers), LoadBalancers: s.loopback(purposeLoadBalancers),
		Log: GinkgoWriter, Settings: settings, // the log is shown if the spec fails
	}
}

// current is the suite that StartSuite returned.
var current *Suite

// Current returns the suite of this process. It is nil while the tree of specs is built.
func Current() *Suite { return current }

// unsupportedCloud begins the reason of a skipped spec that needs an interface that the cloud's driver lacks.
const unsupportedCloud = unsupportedPrefix + "the driver of the cloud does not implement cloud."

// SkipUnlessDriver ends the running spec as unsupported if it is about another cloud than the CCM's.
func SkipUnlessDriver(name string) {
	GinkgoHelper()
	if d := current.CCM.Driver; d != name && (d != "" || len(current.CCM.DriverCommand) > 0) {
		Skip(otherCloud + name)
	}
}

// otherCloud begins the reason of a skipped spec that is about a cloud which is not the CCM's.
const otherCloud = unsupportedPrefix + "the spec is about the cloud of the driver "

// Capability returns the spec's cloud as one of the optional interfaces of package cloud. Without it, the spec ends as unsupported.
func Capability[T any](e *Env) T {
	GinkgoHelper()
	optional, ok := cloud.As[T](e.Cloud)
	if !ok {
		Skip(unsupportedCloud + reflect.TypeFor[T]().Name())
	}
	return optional
}
