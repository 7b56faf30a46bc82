// Package framework gives the specs a Kubernetes cluster, a cloud with the cluster's nodes as its servers, and a cloud-controller-manager.
//
// All specs of a process share a [Suite]. One spec works with an [Env], in groups. On the embedded cluster, each spec has its cloud, nodes
// and CCM processes; on other clusters, specs share them.
package framework

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/cloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/framework/cluster"
)

// Suite is shared by all specs of one process.
type Suite struct {
	// Kind is the kind of cluster that the specs run on.
	Kind    ClusterKind
	Cluster *cluster.Cluster
	// CCM is the cloud-controller-manager to test.
	CCM CCMDescription
	// CCMBinary is the path of the cloud-controller-manager's binary.
	CCMBinary string
	// Kubeconfig is the path of the CCM's own access to the cluster, with the rights of the service account in its
	// manifest. Kubeconfig, CCMBinary and Deployment are set on the embedded cluster only.
	Kubeconfig string
	// Deployment is that of the CCM's manifest. Its pods do not run on the embedded cluster.
	Deployment appsv1.Deployment
	// Out is the folder for logs and coverage.
	Out string
	// Process is the number of the parallel process, from 1. Each has its own part of the loopback network.
	Process int
	specs   int
	// shared is the cluster that all specs share, nil on the embedded one.
	shared *Shared
	// lastRequest is the number of the latest known request in a shared cloud.
	lastRequest uint64
	// temporary says that Out is a temporary folder.
	temporary bool
}

// QuietTime returns how long the cloud must stay unchanged before the CCM counts as idle.
func (s *Suite) QuietTime() time.Duration {
	if s.Kind == Existing {
		return Quiet
	}
	return cmp.Or(s.CCM.Quiet.Duration, Quiet)
}

// simulated reports whether the cloud remembers requests and can be made to misbehave.
func (s *Suite) simulated() bool {
	if s.shared == nil {
		return true
	}
	_, ok := cloud.As[cloud.Faulty](s.shared.Cloud)
	return ok
}

// Environment variables of the suite. scripts/e2e.sh sets them.
const (
	// EnvBinary is the path of the CCM's program. Without it, the CCM's description says which it is.
	EnvBinary = "E2E_CCM"
	// EnvOut is the folder for logs and coverage. Without it the suite uses a temporary one.
	EnvOut = "E2E_OUT"
	// EnvOffset is added to the number of the parallel process, so that several runs on one host do not share
	// loopback addresses. A host has room for 16 processes.
	EnvOffset = "E2E_OFFSET"
	// EnvDelay delays each start of the CCM on the embedded cluster by a whole number of seconds. It finds specs that look at the CCM's
	// work too early.
	EnvDelay = "E2E_CCM_DELAY"
)

// Prepare does the common work of all processes, once and before they start their suites: it checks the CCM's file and program, so that a
// mistake ends the run with one error. On a kind cluster it also has the CCM run there, and waits until all nodes are usable.
func Prepare(ctx context.Context) error {
	ccm, err := LoadCCM()
	if err != nil {
		return err
	}
	if err := checkDelay(os.Getenv(EnvDelay), CurrentKind()); err != nil {
		return err
	}
	if _, err := ccm.driver(); err != nil {
		return fmt.Errorf("the CCM %s: %w", ccm.Name, err)
	}
	switch CurrentKind() {
	case Embedded:
		return prepareEmbedded(ctx, ccm)
	case KindCluster:
		driver, err := ccm.kindDriver()
		if err != nil {
			return err
		}
		return driver.PrepareKind(ctx, ccm)
	}
	return nil
}

// prepareEmbedded finds the programs of the embedded cluster, and builds a CCM from its source if the description names one.
func prepareEmbedded(ctx context.Context, ccm CCMDescription) error {
	path := cmp.Or(os.Getenv(EnvBinary), ccm.Binary)
	if path == "" && ccm.Source == "" {
		return fmt.Errorf("the CCM %s cannot run on the embedded cluster without a program: write its path as binary, or the folder of "+
			"its main package as source", ccm.Name)
	}
	if path != "" {
		if err := checkBinary(path); err != nil {
			return err
		}
	}
	if _, err := ccm.manifest(); err != nil {
		return err
	}
	if _, err := cluster.FindPrograms(); err != nil {
		return err
	}
	if path == "" {
		return ccm.build(ctx)
	}
	return nil
}

// checkDelay returns the mistake in a value of EnvDelay, or nil.
func checkDelay(delay string, kind ClusterKind) error {
	if delay == "" {
		return nil
	}
	if _, err := strconv.ParseUint(delay, 10, 16); err != nil {
		return fmt.Errorf("%s=%s: must be a whole number of seconds, such as 2", EnvDelay, delay)
	}
	if kind != Embedded {
		return fmt.Errorf("%s=%s: works with %s=%s only", EnvDelay, delay, EnvCluster, Embedded)
	}
	return nil
}

// StartSuite starts a control plane, or connects to the cluster that the specs share. The caller stops the suite, even after an error.
func StartSuite(ctx context.Context, process int) (*Suite, error) {
	log.SetLogger(GinkgoLogr) // of controller-runtime's client, which complains without one
	s := &Suite{Kind: CurrentKind(), Out: os.Getenv(EnvOut), CCMBinary: os.Getenv(EnvBinary)}
	current = s
	return s, s.start(ctx, process)
}

func (s *Suite) start(ctx context.Context, process int) error {
	offset, err := strconv.Atoi(cmp.Or(os.Getenv(EnvOffset), "0"))
	if err != nil {
		return fmt.Errorf("%s=%s: must be a whole number, such as 4", EnvOffset, os.Getenv(EnvOffset))
	}
	s.Process = process + offset
	if s.Out == "" {
		if s.Out, err = os.MkdirTemp("", "ccm-from-scratch-e2e-"); err != nil {
			return err
		}
		s.temporary = true
	}
	if err := os.MkdirAll(filepath.Join(s.Out, "coverage"), 0o755); err != nil {
		return err
	}
	if s.CCM, err = LoadCCM(); err != nil {
		return err
	}
	switch s.Kind {
	case Embedded:
		return s.startEmbedded(ctx, process)
	case KindCluster:
		var driver KindDriver
		if driver, err = s.CCM.kindDriver(); err == nil {
			s.shared, err = driver.OpenKind(ctx, s.CCM)
		}
	case Existing:
		s.shared, err = s.openExisting(ctx)
	default:
		return fmt.Errorf("%s=%s: must be one of %s, %s, %s", EnvCluster, s.Kind, KindCluster, Embedded, Existing)
	}
	if err != nil {
		return err
	}
	if s.Cluster, err = cluster.Existing(s.shared.Kubeconfig); err != nil {
		return err
	}
	if s.Kind == KindCluster && s.shared.Confine != nil {
		s.shared.Nodes, err = targetNodes(ctx, s.Cluster.Client)
	}
	return err
}

// startEmbedded starts a control plane for this process.
func (s *Suite) startEmbedded(ctx context.Context, process int) error {
	s.CCMBinary = cmp.Or(s.CCMBinary, s.CCM.Binary, s.CCM.built())
	started, err := s.awaitTurn(process)
	if err != nil {
		return err
	}
	defer started()
	s.Cluster, err = cluster.Start(ctx, cluster.Options{LogDir: filepath.Join(s.Out, fmt.Sprintf("control-plane-%d", process))})
	if err != nil {
		return err
	}
	return s.createCCMAccount(ctx)
}

// awaitTurn waits until this process may start its control plane. Calling end ends its turn. A start mostly computes: if all processes did
// it at once, no spec would begin before all control planes are up.
func (s *Suite) awaitTurn(process int) (end func(), err error) {
	turn := process % (2 * runtime.NumCPU())
	lock, err := os.Create(filepath.Join(s.Out, fmt.Sprintf("start-%d.lock", turn)))
	if err != nil {
		return nil, err
	}
	end = func() { _ = lock.Close() } // and with it the lock, also when the process is killed
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		end()
		return nil, fmt.Errorf("cannot lock %s: %w", lock.Name(), err)
	}
	return end, nil
}

// Stop ends the control plane, and deletes the folder for logs and coverage if it is a temporary one.
func (s *Suite) Stop() error {
	var errs []error
	if s.Cluster != nil {
		errs = append(errs, s.Cluster.Stop())
	}
	if s.temporary {
		errs = append(errs, os.RemoveAll(s.Out))
	}
	return errors.Join(errs...)
}

// built returns the path of the program that build makes.
func (s CCMDescription) built() string {
	return filepath.Join(cmp.Or(os.Getenv(EnvOut), os.TempDir()), s.Name)
}

// build compiles the program of a CCM with a Source, in its own module.
func (s CCMDescription) build(ctx context.Context) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-o", s.built(), ".")
	cmd.Dir = s.Source
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("cannot build the cloud-controller-manager in %s: %w; correct source in its description\n%s", s.Source, err,
			strings.TrimSpace(string(out)))
	}
	return nil
}

// loopback returns the /16 of 127.0.0.0/8 for a purpose of this process.
func (s *Suite) loopback(purpose int) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{127, byte(64 + 8*(s.Process%16) + purpose), 0, 0}), 16)
}

// FreeNodePort returns a node port that no Service uses: one of those that the API server gives only to a
// Service that asks for it (the first 86 of the range, KEP-3668). Each parallel process has its own.
func (s *Suite) FreeNodePort() int32 { return 30000 + int32(s.Process%86) }

// The purposes of loopback networks.
const (
	purposeServers = iota
	purposeLoadBalancers
	purposePrivateOnly
	purposeEndpoints
)
