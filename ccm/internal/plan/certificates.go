package plan

import (
	"slices"
	"strconv"
	"strings"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
)

// LabelStaging requests a certificate of the issuer's staging environment. The production CCM uses
// it; the API document does not mention it.
const LabelStaging = "HC-Use-Staging-CA"

// ResolveCertificates returns the IDs of the certificates in the annotation http-certificates. An ID
// takes precedence over an equal name.
func ResolveCertificates(all []*hcloud.Certificate, refs []string) ([]int64, error) {
	var ids []int64
	var errs []error
	for _, ref := range refs {
		i := slices.IndexFunc(all, func(c *hcloud.Certificate) bool { return strconv.FormatInt(c.ID, 10) == ref })
		if i < 0 {
			i = slices.IndexFunc(all, func(c *hcloud.Certificate) bool { return c.Name == ref })
		}
		if i < 0 {
			errs = append(errs, AnnotationError{Source: AnnotationPrefix + "http-certificates", Value: ref,
				Reason: "does not exist: must be the ID or name of a certificate in the project"})
			continue
		}
		ids = append(ids, all[i].ID)
	}
	slices.Sort(ids)
	return slices.Compact(ids), InvalidSettings(errs...)
}

// ServesDomains reports whether the certificate was ordered for these domains, in any order.
func ServesDomains(c *hcloud.Certificate, s *Settings) bool {
	sorted := func(names []string) []string {
		lower := make([]string, len(names))
		for i, n := range names {
			lower[i] = strings.ToLower(n)
		}
		slices.Sort(lower)
		return slices.Compact(lower)
	}
	return slices.Equal(sorted(c.DomainNames), sorted(s.ManagedCertificateDomains)) &&
		(c.Labels[LabelStaging] == "true") == s.ManagedCertificateStaging
}

// ServesCertificates reports whether a recorded port of the Service has certificates.
func ServesCertificates(lb *hcloud.LoadBalancer, uid string) bool {
	ours := PortsOf(lb, uid)
	return slices.ContainsFunc(lb.Services, func(s hcloud.LoadBalancerService) bool {
		return ours[s.ListenPort] && len(s.HTTP.Certificates) > 0
	})
}
