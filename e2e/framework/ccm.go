package framework

import (
	"context"
	"net"
	"net/netip"
	"os"
	"regexp"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/framework/cluster"
)

// CCM is the cloud-controller-manager under test. The methods of [Replica] concern the one that was started
// last; others concern all that a spec has started.
type CCM struct {
	*Replica
	env *Env
	// start is the last start of the CCM. AwaitIdle sets it to nil once the CCM is idle.
	start *start
}

// Replica is one cloud-controller-manager: a process on the embedded cluster, else the pods of the cluster.
type Replica struct {
	*cluster.Process // nil if it runs in pods
	// pods is where it runs, nil if it is a process, or if the suite may not change it.
	pods *PodCCM
	name string
	// ccm is the CCM that the replica belongs to, nil for a machine controller.
	ccm *CCM
	// elects says that the CCM elects a leader.
	elects bool
	// logFrom is the size of the log file when the process started. The file may hold the output of an earlier run of the suite.
	logFrom int64
}

// CCMOptions are how one CCM differs from the usual one.
type CCMOptions struct {
	// LeaderElect starts the CCM with leader election: of several replicas, only the leader works.
	LeaderElect bool
	// Args are added to the command line.
	Args []string
	// Env is added to the environment. An empty value removes a variable.
	Env map[string]string
}

// Start starts a CCM without waiting for it. Specs wait for the effects that they check, and AwaitIdle waits for the CCM's first request.
// The CCM stops at the end of the spec. On a shared cluster, the CCM's pods run with these options until the spec ends.
func (c *CCM) Start(ctx context.Context, o CCMOptions) *Replica {
	GinkgoHelper()
	renewed := c.renewed(ctx)
	c.Replica = c.env.setup.startCCM(ctx, o)
	c.ccm = c
	c.noteStart(c.elects, renewed)
	return c.Replica
}

// CCMArgs are the arguments of every CCM, wherever it runs: the flags of k8s.io/cloud-provider for periods shorter
// than a cluster's, so that specs do not wait for them.
func CCMArgs(leaderElect bool) []string {
	args := []string{
		"--node-monitor-period=1s",
		"--node-status-update-frequency=2s",
		"--concurrent-service-syncs=3",
		"--min-resync-period=10m",
		"--kube-api-qps=200", "--kube-api-burst=400",
		"--v=2",
	}
	return append(args, leaderElection(leaderElect)...)
}

// leaderElection are the arguments that make a CCM one of several, or the only one. A busy host keeps these times: a leader that cannot
// renew its Lease by the deadline ends.
func leaderElection(on bool) []string {
	if !on {
		return []string{"--leader-elect=false"}
	}
	return []string{"--leader-elect=true", "--leader-elect-lease-duration=10s", "--leader-elect-renew-deadline=8s",
		"--leader-elect-retry-period=1s"}
}

// Stop ends the CCM gently and waits for its end.
func (r *Replica) Stop(ctx context.Context) error {
	GinkgoHelper()
	if r.Process != nil {
		return r.Process.Stop(ctx)
	}
	s := r.pods.alone().Usual
	s.Replicas = 0
	return r.pods.change(ctx, s)
}

// Crash ends the CCM without warning, as a failing host does. The kubelet starts one in a pod again.
func (r *Replica) Crash(ctx context.Context) {
	GinkgoHelper()
	if r.Process != nil {
		Expect(r.Kill()).To(Succeed())
	} else {
		Expect(r.pods.alone().Kill(ctx)).To(Succeed())
	}
	if r.ccm != nil {
		r.ccm.noteStart(r.elects, r.ccm.renewed(ctx))
	}
}

// Log returns the CCM's output so far, without its flags.
func (r *Replica) Log() string {
	GinkgoHelper()
	if r.Process == nil {
		if r.pods == nil {
			Skip("needs the CCM's log, which is known only of a CCM that the suite has started")
		}
		text, err := r.pods.Log(context.Background())
		Expect(err).NotTo(HaveOccurred())
		return withoutNoise(text)
	}
	text, err := os.ReadFile(r.LogPath())
	Expect(err).NotTo(HaveOccurred())
	return withoutNoise(string(text[r.logFrom:]))
}

// denial is how an API server says that RBAC has no rule for a request.
var denial = regexp.MustCompile(`User \\*"[^"]*" cannot [^\n]*`)

// Denied returns the requests that the cluster refused because the CCM lacks rights, by its log. Specs would notice few of them: an event
// that is not recorded fails no spec.
func (r *Replica) Denied() []string {
	GinkgoHelper()
	return denial.FindAllString(r.Log(), -1)
}

// ExpectEnd waits until the CCM exits by itself. It returns the exit code.
func (r *Replica) ExpectEnd(ctx context.Context) int {
	GinkgoHelper()
	Eventually(r.Done()).WithContext(ctx).Should(BeClosed(), "the process still runs")
	return r.ExitCode()
}

// UnusedAddress returns an address on this host where nothing listens, and where no other program will: that
// part of the loopback network belongs to this process.
func (c *CCM) UnusedAddress() string {
	s := c.env.suite
	b := s.loopback(purposeEndpoints).Addr().As4()
	b[2], b[3] = byte(s.specs>>8), byte(s.specs)
	return net.JoinHostPort(netip.AddrFrom4(b).String(), "8443")
}
