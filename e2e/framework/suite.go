// Package framework is what the specs stand on: a Kubernetes API, a simulated cloud whose servers
// are nodes, and a cloud-controller-manager in a process of its own.
//
// The Kubernetes API is shared by all specs of a process ([Suite]); everything else is made anew
// for each spec ([Env]), so that specs can break what they like: the cloud with its journal and
// its faults, the nodes, the CCM with its log.
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
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/framework/cluster"
	"github.com/ccm-from-scratch/ccm-from-scratch/kind/build"
)

// Suite is what all specs of one process share.
type Suite struct {
	// ClusterKind says what cluster the specs run on.
	Kind    ClusterKind
	Cluster *cluster.Cluster
	// CCM is the cloud-controller-manager to test.
	CCM CCMDescription
	// CCMBinary is the path of the cloud-controller-manager's binary.
	CCMBinary string
	// Kubeconfig is the path of the CCM's own access to the cluster: that of the service account which
	// its manifest makes. Embedded cluster only, as are CCM and Deployment.
	Kubeconfig string
	// Deployment is the one of the CCM's manifest. Its pods do not run here.
	Deployment appsv1.Deployment
	// Out is the folder for logs and coverage.
	Out string
	// Process is the number of the parallel process, from 1. Processes share the loopback
	// network, of which each has its own part.
	Process int
	specs   int
	// shared is the cluster that all specs share, nil on the embedded one.
	shared *sharedCluster
	// temporary says that nobody asked for Out.
	temporary bool
}

// simulated reports whether the cloud keeps a journal and can be made to misbehave.
func (s *Suite) simulated() bool { return s.shared == nil || s.shared.faults != nil }

// Environment variables of the suite. scripts/e2e.sh sets them.
const (
	// EnvBinary names the CCM's binary; without it the suite builds one.
	EnvBinary = "E2E_CCM"
	// EnvOut names the folder for logs and coverage; without it a temporary one.
	EnvOut = "E2E_OUT"
	// EnvOffset is added to the number of the parallel process, of which a run has PROCS and a machine
	// has room for 16, so that several runs on one machine
	// do not share loopback addresses.
	EnvOffset = "E2E_OFFSET"
)

// Prepare does what is to be done once before all processes start their suites: on a kind cluster, it has
// the CCM run there and waits until all nodes are usable.
func Prepare(ctx context.Context) error {
	if CurrentKind() != KindCluster {
		return nil
	}
	ccm, err := LoadCCM()
	if err != nil {
		return err
	}
	return prepareKind(ctx, ccm)
}

// StartSuite brings up the Kubernetes API and finds, or builds, the CCM; or, where the specs share a
// cluster, finds that. The suite that it returns has to be stopped, also if there is an error.
func StartSuite(ctx context.Context, process int) (*Suite, error) {
	s := &Suite{Kind: CurrentKind(), Out: os.Getenv(EnvOut), CCMBinary: os.Getenv(EnvBinary)}
	return s, s.start(ctx, process)
}

func (s *Suite) start(ctx context.Context, process int) error {
	offset, err := strconv.Atoi(cmp.Or(os.Getenv(EnvOffset), "0"))
	if err != nil {
		return fmt.Errorf("%s: %w", EnvOffset, err)
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
		s.shared, err = openKind(ctx, s.CCM)
	case Existing:
		s.shared, err = openExisting(ctx)
	default:
		return fmt.Errorf("%s=%s: want %s, %s or %s", EnvCluster, s.Kind, KindCluster, Embedded, Existing)
	}
	if err != nil {
		return err
	}
	s.Cluster, err = cluster.Existing(s.shared.kubeconfig)
	return err
}

// startEmbedded starts a control plane for this process.
func (s *Suite) startEmbedded(ctx context.Context, process int) error {
	s.CCMBinary = cmp.Or(s.CCMBinary, s.CCM.Binary)
	if s.CCMBinary == "" && s.CCM.Name != OurCCM().Name {
		return fmt.Errorf("%s=%s: the embedded cluster runs a program: write its path as binary", EnvCCM, os.Getenv(EnvCCM))
	}
	if s.CCMBinary == "" {
		s.CCMBinary = filepath.Join(s.Out, fmt.Sprintf("ccm-%d", process))
		if err := buildCCM(ctx, s.CCMBinary); err != nil {
			return err
		}
	}
	programs, err := build.Kubernetes(ctx, os.Stderr)
	if err != nil {
		return err
	}
	s.Cluster, err = cluster.Start(ctx, cluster.Options{
		Programs: programs, LogDir: filepath.Join(s.Out, fmt.Sprintf("control-plane-%d", process)),
	})
	if err != nil {
		return err
	}
	return s.createAccount(ctx)
}

// Stop ends the Kubernetes API, and deletes the folder for logs and coverage if EnvOut did not ask for
// one.
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

func buildCCM(ctx context.Context, to string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-cover", "-coverpkg=../ccm/...", "-o", to, "../ccm/cmd/ccm-from-scratch")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("building the CCM: %w\n%s", err, strings.TrimSpace(string(out)))
	}
	return nil
}

// loopback returns the part of 127.0.0.0/8 that belongs to a purpose of this process: a /16.
// Purposes are small numbers.
func (s *Suite) loopback(purpose int) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{127, byte(64 + 8*(s.Process%16) + purpose), 0, 0}), 16)
}

// The purposes of loopback networks.
const (
	purposeServers = iota
	purposeLoadBalancers
	purposePrivateOnly
	purposeEndpoints
)
