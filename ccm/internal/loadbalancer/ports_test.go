package loadbalancer_test

import (
	"slices"
	"testing"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/plan"
)

// One Service has ports with different protocols, each with a managed certificate of its own where it needs one.
func TestPortsHaveSettingsOfTheirOwn(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "instant", 1)
	cloud := w.provider()
	svc := newService("web", map[string]string{
		"certificate-type": "managed", "protocol.443": "https", "http-managed-certificate-domains.443": "a.example.org",
		"protocol.8443": "https", "http-managed-certificate-domains.8443": "b.example.org", "uses-proxyprotocol.5432": "true",
	}, 443, 8443, 5432)
	status := w.ensure(cloud, svc)
	if mode := status.Ingress[0].IPMode; mode == nil || *mode != "Proxy" {
		t.Errorf("the IP mode is %v", mode)
	}
	// ports returns the protocol of each port and the domains of its certificate.
	ports := func() (all []string) {
		for _, s := range w.theLoadBalancer().Services {
			text := itoa(int64(s.ListenPort)) + " " + string(s.Protocol)
			for _, c := range s.HTTP.Certificates {
				cert, _, err := w.api.Certificate.GetByID(t.Context(), c.ID)
				w.must(err)
				text += " " + cert.DomainNames[0]
			}
			if s.Proxyprotocol {
				text += " proxy"
			}
			all = append(all, text)
		}
		slices.Sort(all)
		return all
	}
	domains := func() (all []string) {
		for _, c := range w.certificates() {
			all = append(all, c.DomainNames[0])
		}
		slices.Sort(all)
		return all
	}
	expect := func(got []string, want ...string) {
		t.Helper()
		if !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	expect(ports(), "443 https a.example.org", "5432 tcp proxy", "8443 https b.example.org")

	// The domains of one port change: its certificate is replaced, and that of the other port stays.
	annotate(svc, map[string]string{"http-managed-certificate-domains.8443": "c.example.org"})
	w.ensure(cloud, svc)
	expect(ports(), "443 https a.example.org", "5432 tcp proxy", "8443 https c.example.org")
	expect(domains(), "a.example.org", "c.example.org")

	// The certificate of one port cannot be issued: the others follow the Service.
	annotate(svc, map[string]string{"http-managed-certificate-domains.443": "www.ca-dns-validation-failed.invalid",
		"protocol.8443": "http"})
	w.expectError(cloud, svc)
	expect(ports(), "443 https a.example.org", "5432 tcp proxy", "8443 http")
	if got := domains(); !slices.Contains(got, "a.example.org") {
		t.Errorf("certificates for %v", got)
	}

	// A port without HTTPS needs no certificate any more.
	delete(svc.Annotations, plan.AnnotationPrefix+"protocol.443")
	w.ensure(cloud, svc)
	expect(domains())
}
