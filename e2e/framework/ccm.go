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

// CCM is a cloud-controller-manager in a process of its own.
type CCM struct {
	*cluster.Process
	env  *Env
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
// spec.
func (e *Env) StartCCM(_ context.Context, o CCMOptions) *CCM {
	GinkgoHelper()
	e.mu.Lock()
	number := len(e.ccms) + 1
	e.mu.Unlock()
	c := &CCM{env: e, name: fmt.Sprintf("spec-%03d-ccm-%d", e.specs, number)}
	args := []string{
		"--kubeconfig=" + e.Suite.Kubeconfig,
		"--cloud-provider=ccm-from-scratch",
		"--cluster-name=e2e",
		"--cluster-cidr=" + e.Cluster.PodCIDR.String(),
		"--allocate-node-cidrs=true",
		"--configure-cloud-routes=true",
		fmt.Sprintf("--leader-elect=%t", o.LeaderElect),
		"--secure-port=0",
		"--webhook-secure-port=0",
		// Shorter than a cluster's, so that specs do not wait for periods.
		"--node-monitor-period=1s",
		"--node-status-update-frequency=2s",
		"--concurrent-service-syncs=3",
		"--min-resync-period=10m",
		"--kube-api-qps=200", "--kube-api-burst=400",
		"--v=2",
	}
	if o.LeaderElect {
		args = append(args, "--leader-elect-lease-duration=4s", "--leader-elect-renew-deadline=3s", "--leader-elect-retry-period=1s")
	}
	if info, err := os.Stat(filepath.Join(e.Cluster.LogDir, c.name+".log")); err == nil {
		c.logFrom = info.Size()
	}
	p, err := e.Cluster.Run(cluster.Command{
		Name: c.name, Path: e.Suite.CCM, Args: append(args, o.Args...), Env: e.ccmEnv(o.Env),
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

// Log returns what the CCM has printed so far, without its flags.
func (c *CCM) Log() string {
	GinkgoHelper()
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
		// What is noticed late on purpose is noticed soon here.
		"HCLOUD_INSTANCES_CACHE_TTL": "500ms",
		"HCLOUD_RESYNC_INTERVAL":     "3s",
		"HCLOUD_REQUEST_TIMEOUT":     "2s",
		// The shortest that the API allows.
		"HCLOUD_LOAD_BALANCERS_LOCATION":              Location,
		"HCLOUD_LOAD_BALANCERS_HEALTH_CHECK_INTERVAL": "3s",
		"HCLOUD_LOAD_BALANCERS_HEALTH_CHECK_TIMEOUT":  "2s",
		"HCLOUD_LOAD_BALANCERS_HEALTH_CHECK_RETRIES":  "1",
	}
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
