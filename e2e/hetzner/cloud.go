package hetzner

import (
	"context"
	"crypto/x509"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/fault"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/journal"
)

// Cloud is the cloud that the spec works with.
type Cloud struct {
	// Client is a client of the cloud for the spec itself. Its User-Agent differs from the CCM's.
	Client *hcloud.Client
	// Network is the cluster's private network. That of a spec's own cloud is 10.0.0.0/8 with the subnet
	// 10.0.0.0/24.
	Network *hcloud.Network
	// Journal has the requests that a simulated cloud got since the spec began. A real one has none.
	Journal Journal
	// Faults make a simulated cloud misbehave.
	Faults Faults
	// control is how a simulated cloud is controlled, nil for a real one.
	control control
	// Fake is the simulated cloud of a spec with the label OwnCloud, nil on a shared cluster.
	Fake *fakecloud.Cloud

	env *Env
}

// control is the framework's view of a simulated cloud, whether it runs in this process (fakecloud.Cloud) or in a container
// (remote.Client).
type control interface {
	Journal() journal.Journal
	Faults() fault.Rules
	CARoots(context.Context) ([]byte, error)
}

// use makes the groups work with a simulated cloud.
func (cl *Cloud) use(simulated control) {
	cl.control, cl.Journal.of = simulated, simulated.Journal()
	cl.Faults = Faults{rules: simulated.Faults(), ccm: cl.env.CCM.CCM}
}

// Simulated reports whether the cloud keeps a journal and can be made to misbehave. Elsewhere the requests are unknown, and specs look at
// the cloud's objects.
func (cl *Cloud) Simulated() bool { return cl.control != nil }

// Restart kills the simulated cloud and returns when it answers again.
func (cl *Cloud) Restart(ctx context.Context) {
	GinkgoHelper()
	if cl.env.account.restart == nil {
		Skip("needs a cloud in a container: runs with E2E_CLUSTER=kind")
	}
	Expect(cl.env.account.restart(ctx)).To(Succeed())
}

// Roots returns the authorities that have signed the certificates that the cloud manages. If nil, they are the
// host's own.
func (cl *Cloud) Roots(ctx context.Context) *x509.CertPool {
	GinkgoHelper()
	if cl.control == nil {
		return nil
	}
	pem, err := cl.control.CARoots(ctx)
	Expect(err).NotTo(HaveOccurred())
	roots := x509.NewCertPool()
	Expect(roots.AppendCertsFromPEM(pem)).To(BeTrue(), "the cloud's authorities are not certificates")
	return roots
}

// Certificates returns the certificates that concern the spec: those that it created, and those of its Services.
func (cl *Cloud) Certificates(ctx context.Context) []*hcloud.Certificate {
	GinkgoHelper()
	all, err := cl.Client.Certificate.All(ctx)
	Expect(err).NotTo(HaveOccurred())
	own := slices.DeleteFunc(all, func(c *hcloud.Certificate) bool { return !cl.env.Owns(idOf(c.ID), cl.env.serviceOf(c.Labels)) })
	for i, c := range own {
		if !untagged(c.Labels) {
			continue
		}
		if tagged, _, err := cl.Client.Certificate.Update(ctx, c, hcloud.CertificateUpdateOpts{Labels: tagged(c.Labels)}); err == nil {
			own[i] = tagged
		}
	}
	return own
}

// UploadCertificate creates a certificate as a person would, without the CCM.
func (cl *Cloud) UploadCertificate(ctx context.Context, opts hcloud.CertificateCreateOpts) *hcloud.Certificate {
	GinkgoHelper()
	opts.Labels = tagged(opts.Labels)
	uploaded, _, err := cl.Client.Certificate.Create(ctx, opts)
	Expect(err).NotTo(HaveOccurred())
	cl.env.Created(idOf(uploaded.ID))
	return uploaded
}

// Wait waits until actions have succeeded.
func (cl *Cloud) Wait(ctx context.Context, actions ...*hcloud.Action) {
	GinkgoHelper()
	Expect(cl.Client.Action.WaitFor(ctx, actions...)).To(Succeed())
}

// Do waits until the action of a call has succeeded: Do(ctx)(client.Server.Poweroff(…)).
func (cl *Cloud) Do(ctx context.Context) func(*hcloud.Action, *hcloud.Response, error) {
	return func(a *hcloud.Action, _ *hcloud.Response, err error) {
		GinkgoHelper()
		Expect(err).NotTo(HaveOccurred())
		cl.Wait(ctx, a)
	}
}

// ExpectNothingOfServices fails if the cloud has load balancers or certificates, as far as they concern the spec.
func (cl *Cloud) ExpectNothingOfServices(ctx context.Context) {
	GinkgoHelper()
	Expect(cl.env.LoadBalancers.List(ctx)).To(BeEmpty(), "load balancers are left")
	Expect(cl.Certificates(ctx)).To(BeEmpty(), "certificates are left")
}

func (cl *Cloud) journalText(filter journal.Filter) string {
	var b strings.Builder
	for _, entry := range cl.Journal.Entries(filter) {
		fmt.Fprintf(&b, "%s %s\n", entry.Time.Format("15:04:05.000"), entryText(entry))
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

// IPNet parses a network in CIDR notation. It panics if s is anything else.
func IPNet(s string) *net.IPNet {
	p := netip.MustParsePrefix(s)
	return &net.IPNet{IP: p.Masked().Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
