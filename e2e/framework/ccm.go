package framework

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/framework/cluster"
)

// CCM is a cloud-controller-manager: a process of its own on the embedded cluster, else what runs in the
// cluster's pods.
type CCM struct {
	*cluster.Process // nil if it runs in pods
	env              *Env
	// pods is where it runs, nil if it is a process, or if it is not the suite's to change.
	pods *podCCM
	name string
	// logFrom is where the process's output begins in its log file, to which an earlier run of the
	// suite may have written.
	logFrom int64
}

// CCMOptions are how one CCM differs from the usual one.
type CCMOptions struct {
	// LeaderElect makes it one of several, of which only the leader works.
	LeaderElect bool
	// Args are added to the command line.
	Args []string
	// Env is added to the environment; an empty value removes a variable.
	Env map[string]string
}

// StartCCM starts a CCM, with the command line that a cluster would use and shorter periods. It
// does not wait until it works: specs wait for what they want to see. The process ends with the
// spec. On a shared cluster, it has the CCM's pods run with these options, until the spec ends.
func (e *Env) StartCCM(ctx context.Context, o CCMOptions) *CCM {
	GinkgoHelper()
	if e.Cloud == nil {
		return e.startPodCCM(ctx, o)
	}
	e.mu.Lock()
	number := len(e.ccms) + 1
	e.mu.Unlock()
	c := &CCM{env: e, name: fmt.Sprintf("spec-%03d-ccm-%d", e.specs, number)}
	args := append([]string{
		"--kubeconfig=" + e.Suite.Kubeconfig,
		"--cloud-provider=" + e.Subject.CloudProvider,
		"--cluster-name=e2e",
		"--cluster-cidr=" + e.Cluster.PodCIDR.String(),
		"--allocate-node-cidrs=true",
		"--configure-cloud-routes=true",
		"--secure-port=0",
		"--webhook-secure-port=0",
	}, ccmArgs(o.LeaderElect)...)
	if info, err := os.Stat(filepath.Join(e.Cluster.LogDir, c.name+".log")); err == nil {
		c.logFrom = info.Size()
	}
	p, err := e.Cluster.Run(cluster.Command{
		Name: c.name, Path: e.Suite.CCM, Args: slices.Concat(args, e.Subject.Args, o.Args), Env: e.ccmEnv(o.Env),
	})
	Expect(err).NotTo(HaveOccurred())
	c.Process = p
	e.mu.Lock()
	e.ccms = append(e.ccms, c)
	e.mu.Unlock()
	DeferCleanup(func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		Expect(p.Stop(ctx)).To(Succeed())
		Expect(c.Denied()).To(BeEmpty(), "the CCM's manifest lacks RBAC rules")
	})
	return c
}

// ccmArgs are the arguments of our CCM whatever it runs in: periods shorter than a cluster's, so that specs
// do not wait for them.
func ccmArgs(leaderElect bool) []string {
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

// leaderElection are the arguments that make a CCM one of several, or the only one.
func leaderElection(on bool) []string {
	if !on {
		return []string{"--leader-elect=false"}
	}
	return []string{"--leader-elect=true", "--leader-elect-lease-duration=4s", "--leader-elect-renew-deadline=3s", "--leader-elect-retry-period=1s"}
}

// startPodCCM has the cluster run the CCM with options, one replica, or two with leader election.
func (e *Env) startPodCCM(ctx context.Context, o CCMOptions) *CCM {
	GinkgoHelper()
	pods := e.alonePods()
	s := podSettings{Env: maps.Clone(pods.usual.Env), Args: slices.Clone(pods.usual.Args), Replicas: 1}
	if s.Env == nil {
		s.Env = map[string]string{}
	}
	maps.Copy(s.Env, e.options.CCM)
	maps.Copy(s.Env, o.Env)
	if o.LeaderElect {
		s.Replicas = 2
		s.Args = append(s.Args, leaderElection(true)...) // in place of what is usual
	}
	s.Args = append(s.Args, o.Args...)
	Expect(pods.change(ctx, s)).To(Succeed())
	return &CCM{env: e, pods: pods}
}

// alonePods returns the CCM's pods for a spec that changes them.
func (e *Env) alonePods() *podCCM {
	GinkgoHelper()
	Expect(CurrentSpecReport().IsSerial).To(BeTrue(), "a spec that changes the CCM of all specs must be Alone")
	if e.site.ccm == nil {
		Skip("the CCM of this cluster is not the suite's to change")
	}
	return e.site.ccm
}

// Stop ends the CCM gently and returns when it has ended.
func (c *CCM) Stop(ctx context.Context) error {
	GinkgoHelper()
	if c.Process != nil {
		return c.Process.Stop(ctx)
	}
	s := c.env.alonePods().usual
	s.Replicas = 0
	return c.pods.change(ctx, s)
}

// Crash ends the CCM without warning, as a failing machine does. One in a pod is started again by kubelet.
func (c *CCM) Crash(ctx context.Context) {
	GinkgoHelper()
	if c.Process != nil {
		Expect(c.Kill()).To(Succeed())
		return
	}
	Expect(c.env.alonePods().kill(ctx)).To(Succeed())
}

// Log returns what the CCM has printed so far, without its flags.
func (c *CCM) Log() string {
	GinkgoHelper()
	if c.Process == nil {
		if c.pods == nil {
			Skip("needs the CCM's log, which only a CCM that the suite has started has")
		}
		text, err := c.pods.log(context.Background())
		Expect(err).NotTo(HaveOccurred())
		return withoutNoise(text)
	}
	text, err := os.ReadFile(c.LogPath())
	Expect(err).NotTo(HaveOccurred())
	return withoutNoise(string(text[c.logFrom:]))
}

// denial is how an API server says that RBAC has no rule for a request.
var denial = regexp.MustCompile(`User \\*"[^"]*" cannot [^\n]*`)

// Denied returns what the CCM was not allowed to do in the cluster, by its log. Much of it, such as an
// event that is not recorded, no spec would notice.
func (c *CCM) Denied() []string {
	GinkgoHelper()
	return denial.FindAllString(c.Log(), -1)
}

// ccmEnv returns the whole environment of a CCM.
func (e *Env) ccmEnv(extra map[string]string) []string {
	env := map[string]string{
		"PATH":            os.Getenv("PATH"),
		"HOME":            os.Getenv("HOME"),
		"GOCOVERDIR":      filepath.Join(e.Out, "coverage"),
		"HCLOUD_ENDPOINT": e.Cloud.Endpoint(),
		"HCLOUD_TOKEN":    e.Cloud.Token(),
		"HCLOUD_NETWORK":  e.Network.Name,
		// Two CCMs of one spec, or of parallel specs, cannot share the port.
		"HCLOUD_METRICS_ENABLED": "false",
	}
	maps.Copy(env, ccmSettings())
	maps.Copy(env, e.Subject.Env)
	maps.Copy(env, e.options.CCM)
	maps.Copy(env, extra)
	var list []string
	for _, k := range slices.Sorted(maps.Keys(env)) {
		if env[k] != "" {
			list = append(list, k+"="+env[k])
		}
	}
	return list
}

// ccmSettings is the environment of our CCM whatever it runs in: what is noticed late on purpose is noticed
// soon here.
func ccmSettings() map[string]string {
	return map[string]string{
		"HCLOUD_INSTANCES_CACHE_TTL": "500ms",
		"HCLOUD_RESYNC_INTERVAL":     "1s",
		"HCLOUD_REQUEST_TIMEOUT":     "2s",
		// The shortest that the API allows.
		"HCLOUD_LOAD_BALANCERS_LOCATION":              Location,
		"HCLOUD_LOAD_BALANCERS_HEALTH_CHECK_INTERVAL": "3s",
		"HCLOUD_LOAD_BALANCERS_HEALTH_CHECK_TIMEOUT":  "2s",
		"HCLOUD_LOAD_BALANCERS_HEALTH_CHECK_RETRIES":  "1",
	}
}
