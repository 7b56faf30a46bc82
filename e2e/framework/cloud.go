package framework

import (
	"context"
	"crypto/x509"
	"fmt"
	"net"
	"strings"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/journal"
)

// Cloud is the cloud that the spec works with.
type Cloud struct {
	// Client is a client of the cloud for the spec itself. The journal tells it from the CCM by its User-Agent.
	Client *hcloud.Client
	// Network is the cluster's private network. That of a spec's own cloud is 10.0.0.0/8 with the subnet
	// 10.0.0.0/24.
	Network *hcloud.Network
	// Journal has the requests that a simulated cloud got since the spec began. A real one has none.
	Journal Journal
	// Faults make a simulated cloud misbehave.
	Faults Faults
	// Fake is the simulated cloud of a spec with the label OwnCloud, nil on a shared cluster.
	Fake *fakecloud.Cloud

	env *Env
}

// Simulated reports whether the cloud keeps a journal and can be made to misbehave. Elsewhere the requests are
// unknown, and specs look at what the cloud has.
func (cl *Cloud) Simulated() bool { return cl.env.suite.simulated() }

// Unique makes a name for something in the cloud that no other spec uses.
func (cl *Cloud) Unique(name string) string {
	return name + strings.TrimPrefix(cl.env.Services.Namespace, "spec")
}

// Roots returns the authorities that have signed the certificates that the cloud manages. If nil, they are the
// machine's own.
func (cl *Cloud) Roots(ctx context.Context) *x509.CertPool {
	GinkgoHelper()
	return cl.env.setup.roots(ctx)
}

// Certificates returns the cloud's certificates, as far as they concern the spec: those that it has created, and
// those of its Services.
func (cl *Cloud) Certificates(ctx context.Context) []*hcloud.Certificate {
	GinkgoHelper()
	all, err := cl.Client.Certificate.All(ctx)
	Expect(err).NotTo(HaveOccurred())
	return cl.env.setup.ownCertificates(ctx, all)
}

// UploadCertificate creates a certificate as a person would, without the CCM.
func (cl *Cloud) UploadCertificate(ctx context.Context, opts hcloud.CertificateCreateOpts) *hcloud.Certificate {
	GinkgoHelper()
	opts.Labels = tagged(opts.Labels)
	uploaded, _, err := cl.Client.Certificate.Create(ctx, opts)
	Expect(err).NotTo(HaveOccurred())
	cl.env.created.addCertificate(uploaded.ID)
	return uploaded
}

func (cl *Cloud) createNetwork(ctx context.Context) {
	GinkgoHelper()
	var err error
	cl.Network, _, err = cl.Client.Network.Create(ctx, hcloud.NetworkCreateOpts{
		Name: "cluster", IPRange: IPNet("10.0.0.0/8"),
		Subnets: []hcloud.NetworkSubnet{{
			Type: hcloud.NetworkSubnetTypeCloud, IPRange: IPNet("10.0.0.0/24"), NetworkZone: NetworkZone,
		}},
	})
	Expect(err).NotTo(HaveOccurred())
}

// Wait waits until actions have succeeded.
func (cl *Cloud) Wait(ctx context.Context, actions ...*hcloud.Action) {
	GinkgoHelper()
	Expect(cl.Client.Action.WaitFor(ctx, actions...)).To(Succeed())
}

// Do waits for the action that a call has started: Started(ctx)(client.Server.Poweroff(…)).
func (cl *Cloud) Do(ctx context.Context) func(*hcloud.Action, *hcloud.Response, error) {
	return func(a *hcloud.Action, _ *hcloud.Response, err error) {
		GinkgoHelper()
		Expect(err).NotTo(HaveOccurred())
		cl.Wait(ctx, a)
	}
}

// ExpectNothingOfServices fails if the cloud has anything that is made for Services.
func (cl *Cloud) ExpectNothingOfServices(ctx context.Context) {
	GinkgoHelper()
	Expect(cl.env.LoadBalancers.List(ctx)).To(BeEmpty(), "load balancers are left")
	Expect(cl.Certificates(ctx)).To(BeEmpty(), "certificates are left")
}

func (cl *Cloud) journalText(filter journal.Filter) string {
	var b strings.Builder
	for _, entry := range cl.Journal.Entries(filter) {
		fmt.Fprintf(&b, "%s %-6s %s%s → %d %s %s %s\n", entry.Time.Format("15:04:05.000"), entry.Method, entry.Path,
			query(entry.Query), entry.Status, entry.ErrorCode, entry.Fault, shortClient(entry.Client))
	}
	return b.String()
}

func query(q string) string {
	if q == "" {
		return ""
	}
	return "?" + q
}

func shortClient(userAgent string) string {
	name, _, _ := strings.Cut(userAgent, "/")
	return name
}

// IPNet parses a network in CIDR notation.
func IPNet(s string) *net.IPNet {
	_, n, err := net.ParseCIDR(s)
	Expect(err).NotTo(HaveOccurred())
	return n
}
