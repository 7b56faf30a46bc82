package hetzner

import (
	"context"
	"maps"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/cloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/framework"
	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/framework/node"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/journal"
)

// Annotation is the prefix of the CCM's annotations.
const Annotation = "load-balancer.hetzner.cloud/"

// Env is a framework.Env with the cloud, servers, load balancers and routes in the terms of Hetzner's API.
type Env struct {
	*framework.Env
	// Cloud is the cloud, with its requests and its faults.
	Cloud Cloud
	// CCM is the cloud-controller-manager under test, with its requests.
	CCM CCM
	// Nodes are the cluster's nodes.
	Nodes Nodes
	// Servers are the cloud's servers. Each becomes a node.
	Servers Servers
	// LoadBalancers are the cloud's load balancers, as far as they concern the spec.
	LoadBalancers LoadBalancers
	// Routes are the routes of the cluster's network.
	Routes Routes
	// Machines are the Machines of the machine controller.
	Machines Machines

	account *account
}

// Options are a spec's special needs: those of framework.Options, and the cloud's.
type Options struct {
	// Actions is how long the cloud's actions take. If empty, 20ms: long enough to be noticed.
	Actions string
	// RateLimit is the cloud's limit in requests per hour. If 0, requests are not limited.
	RateLimit int
	// CCM, NoCCM, Spec and Pods are those of framework.Options.
	CCM   map[string]string
	NoCCM bool
	Spec  func(node.Server) (node.Spec, bool)
	Pods  func(*appsv1.DaemonSet)
}

// NewEnv makes an Env for the running spec, as framework.NewEnv does.
func NewEnv(ctx context.Context, o Options) *Env {
	GinkgoHelper()
	framework.SkipUnlessDriver(framework.DefaultDriver)
	generic := framework.Options{CCM: o.CCM, NoCCM: o.NoCCM, Spec: o.Spec, Pods: o.Pods}
	if o.Actions != "" || o.RateLimit != 0 {
		generic.Cloud = o
	}
	e := &Env{Env: framework.NewEnv(ctx, generic)}
	e.account = e.Env.Cloud.(*account)
	e.CCM.CCM = &e.Env.CCM
	e.CCM.env, e.Cloud.env, e.Machines.env = e, e, e
	e.Nodes.Nodes, e.Routes.Routes = e.Env.Nodes, e.Env.Routes
	e.Nodes.env, e.Servers.env, e.LoadBalancers.env, e.Routes.env = e, e, e, e
	e.Cloud.Client, e.Cloud.Network, e.Cloud.Fake = e.account.Client, e.account.Network, e.account.fake
	if e.account.control != nil {
		e.Cloud.use(e.account.control)
	}
	e.AlsoOwns(e.certificateIDs)
	if e.Shared() != nil {
		e.Cloud.Journal.since = e.Cloud.Journal.Last()
		DeferCleanup(e.unprotect)
		e.OnRemove(e.removeCertificates)
	}
	DeferCleanup(e.report)
	return e
}

// serviceOf returns the UID of the Service that the owner label names.
func (e *Env) serviceOf(labels map[string]string) types.UID {
	return types.UID(labels[e.account.OwnerLabel])
}

// unprotect lets the CCM delete the spec's load balancers.
func (e *Env) unprotect(ctx context.Context) {
	off := hcloud.LoadBalancerChangeProtectionOpts{Delete: new(bool)}
	for _, lb := range e.LoadBalancers.List(ctx) {
		if lb.Protection.Delete {
			e.Cloud.Do(ctx)(e.Cloud.Client.LoadBalancer.ChangeProtection(ctx, lb, off))
		}
	}
}

func (e *Env) certificateIDs(ctx context.Context) (ids []string) {
	for _, c := range e.Cloud.Certificates(ctx) {
		ids = append(ids, idOf(c.ID))
	}
	return ids
}

// removeCertificates removes the spec's certificates. The load balancers that used them must be gone.
func (e *Env) removeCertificates(ctx context.Context) {
	for _, c := range e.Cloud.Certificates(ctx) {
		if _, err := e.Cloud.Client.Certificate.Delete(ctx, c); !hcloud.IsError(err, hcloud.ErrorCodeNotFound) {
			Expect(err).NotTo(HaveOccurred())
		}
	}
}

// report adds the requests of all clients to the report of a failed spec.
func (e *Env) report() {
	if CurrentSpecReport().Failed() && e.Cloud.Simulated() {
		AddReportEntry("requests to the cloud", ReportEntryVisibilityFailureOrVerbose, e.Cloud.journalText(journal.Filter{}))
	}
}

// CCM is the cloud-controller-manager under test.
type CCM struct {
	*framework.CCM
	env *Env
}

// AwaitRequests waits for n more of the CCM's requests that the filter selects.
func (c CCM) AwaitRequests(ctx context.Context, n int, filter journal.Filter) {
	GinkgoHelper()
	filter.Client = framework.Current().CCM.UserAgent
	before := c.env.Cloud.Journal.Count(filter)
	Eventually(func() int { return c.env.Cloud.Journal.Count(filter) - before }).WithContext(ctx).Should(BeNumerically(">=", n))
}

// tagged returns labels for something that a spec creates in the cloud, with the run's name.
func tagged(labels map[string]string) map[string]string {
	tagged := maps.Clone(labels)
	if tagged == nil {
		tagged = map[string]string{}
	}
	tagged[cloud.LabelRun] = framework.RunName()
	return tagged
}

// untagged reports whether an object of the CCM still needs the run's name, so that it is found after a crash
// of the suite. Only an existing cloud outlives the run.
func untagged(labels map[string]string) bool {
	return framework.CurrentKind() == framework.Existing && labels[cloud.LabelRun] != framework.RunName()
}
