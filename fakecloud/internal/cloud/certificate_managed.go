package cloud

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/dns"
)

// The terms of managed certificates (those of Let's Encrypt), and the times of renewal.
const (
	managedValidity     = 90 * 24 * time.Hour
	managedBackdating   = time.Hour
	managedRenewal      = 30 * 24 * time.Hour // before the certificate expires
	managedScheduling   = 24 * time.Hour      // before the renewal
	maxManagedDomains   = 100
	maxDomainNameLength = 253
)

// stagingLabel asks for a certificate of the issuer's staging environment. The production CCM uses it in its tests. Certificates of the two
// environments may be for the same domains: a choice, the document does not know the label.
const stagingLabel = "HC-Use-Staging-CA"

// CreateManagedCertificate is the input of POST /certificates for the type managed.
type CreateManagedCertificate struct {
	Name        string
	Labels      map[string]string
	DomainNames []string
}

// CreateManagedCertificate starts to issue a certificate for some domains. Load balancers can use it
// when the action has succeeded. If the action fails, the certificate stays and shows the error until
// it is retried or deleted.
// Errors: invalid_input, uniqueness_error (of the name, or of the set of domains: terraform-provider-hcloud #822),
// resource_limit_exceeded.
func (p Project) CreateManagedCertificate(in CreateManagedCertificate) (c *Certificate, action int64, st *State, err error) {
	domains, err := checkDomains(in.DomainNames)
	if err != nil {
		return nil, 0, nil, err
	}
	st, err = p.update(func(tx *Tx) error {
		meta, err := tx.newCertificate(in.Name, in.Labels)
		if err != nil {
			return err
		}
		set := slices.Sorted(slices.Values(domains))
		err = tx.requireNew(CertificateManaged, "certificate with exact set of domains already exists", func(c *Certificate) bool {
			return slices.Equal(slices.Sorted(slices.Values(c.DomainNames)), set) && c.Labels[stagingLabel] == in.Labels[stagingLabel]
		})
		if err != nil {
			return err
		}
		c = &Certificate{
			Meta: meta, Type: CertificateManaged, DomainNames: domains,
			Issuance: IssuancePending, Renewal: RenewalUnavailable,
		}
		tx.Certificates.Put(c)
		action = tx.issue(c, "create_certificate")
		return nil
	})
	return c, action, st, err
}

// RetryCertificate retries a failed issuance or renewal.
// Errors: not_found, locked, unsupported_error (it is not managed, or nothing has failed).
func (p Project) RetryCertificate(id int64) (action int64, st *State, err error) {
	st, err = onFree(p, inCertificates, id, func(tx *Tx, c *Certificate) error {
		if c.Issuance != IssuanceFailed && c.Renewal != RenewalFailed {
			return ErrUnsupported("certificate not retryable")
		}
		action = tx.issue(c, "issue_certificate")
		return nil
	})
	return action, st, err
}

// issue starts the action that issues or renews a certificate.
func (tx *Tx) issue(c *Certificate, command string) int64 {
	id := c.ID
	tx.Certificates.Update(id, func(c *Certificate) {
		c.ErrorCode, c.ErrorText = "", ""
		if c.Issuance == IssuanceCompleted {
			c.Renewal = RenewalPending
		} else {
			c.Issuance = IssuancePending
		}
	})
	return tx.Start(ActionSpec{Command: command, Resources: []Ref{c.Ref()}, Does: issuance{id}}).ID
}

type issuance struct{ Certificate int64 }

func (e issuance) try(tx *Tx) error { return tx.signManaged(e.Certificate) }

func (e issuance) failed(tx *Tx, failure *Error) {
	tx.Certificates.Update(e.Certificate, func(c *Certificate) {
		c.Attempts++
		c.ErrorCode, c.ErrorText = failure.Code, failure.Message
		if c.Issuance == IssuanceCompleted {
			c.Renewal = RenewalFailed
		} else {
			c.Issuance = IssuanceFailed
		}
	})
}

// signManaged is the effect of issuing: a new key and a new certificate. It fails if a domain asks for a failure, or if one of
// the project's zones is against it.
func (tx *Tx) signManaged(id int64) error {
	c, err := Find(&tx.Certificates, id)
	if err != nil {
		return err
	}
	for _, d := range c.DomainNames {
		problem := tx.issuanceProblem(d)
		if f, ok := IssuanceFailure(d); ok && f.applies(c) {
			problem = f.Code
		}
		if problem != "" {
			return &Error{Code: problem, Status: 422, Message: fmt.Sprintf("%s: %s", d, issuanceErrors[problem])}
		}
	}
	issued, err := tx.cloud.ca.issue(c, tx.now)
	if err != nil {
		return err
	}
	tx.Certificates.Update(id, func(c *Certificate) {
		c.Attempts++
		// As in the real API, the renewal of a new certificate is unavailable: the CLI shows it.
		c.Issuance, c.Renewal = IssuanceCompleted, RenewalUnavailable
		c.Certificate, c.PrivateKey = issued.chainPEM, issued.keyPEM
		domains := c.DomainNames
		c.describe(issued.leaf)
		c.DomainNames = domains // in the order of the request
	})
	renewal := renewalDue{id, fingerprint(issued.leaf.Raw)}
	due := issued.leaf.NotAfter.Add(-managedRenewal).Sub(tx.now)
	tx.schedule(due-managedScheduling, renewalScheduled(renewal))
	tx.schedule(due, renewal)
	return nil
}

// renewalScheduled and renewalDue are due before a certificate expires. They do nothing if it was replaced.
type (
	renewalDue struct {
		Certificate int64
		Fingerprint string
	}
	renewalScheduled renewalDue
)

func (e renewalScheduled) about() Ref { return Ref{KindCertificate, e.Certificate} }

func (e renewalScheduled) due(tx *Tx) {
	if c, ok := tx.Certificates.Get(e.Certificate); ok && c.Fingerprint == e.Fingerprint {
		tx.Certificates.Update(c.ID, func(c *Certificate) { c.Renewal = RenewalScheduled })
	}
}

func (e renewalDue) about() Ref { return Ref{KindCertificate, e.Certificate} }

func (e renewalDue) due(tx *Tx) {
	if c, ok := tx.Certificates.Get(e.Certificate); ok && c.Fingerprint == e.Fingerprint {
		tx.issue(c, "issue_certificate")
	}
}

// Failure is how the issuance of a certificate for a domain fails.
type Failure struct {
	Code Code
	// With Once, only the first attempt fails. With Renewal, only renewals fail.
	Once, Renewal bool
}

func (f Failure) applies(c *Certificate) bool {
	switch {
	case f.Once:
		return c.Attempts == 0
	case f.Renewal:
		return c.Issuance == IssuanceCompleted
	}
	return true
}

// issuanceErrors are the operation specific errors of POST /certificates/{id}/actions/retry.
var issuanceErrors = map[Code]string{
	"caa_record_does_not_allow_ca":                          "CAA record does not allow certificate authority",
	"ca_dns_validation_failed":                              "Certificate Authority: DNS validation failed",
	"ca_too_many_authorizations_failed_recently":            "Certificate Authority: Too many authorizations failed recently",
	"ca_too_many_certificates_issued_for_registered_domain": "Certificate Authority: Too many certificates issued for registered domain",
	"ca_too_many_duplicate_certificates":                    "Certificate Authority: Too many duplicate certificates",
	"could_not_verify_domain_delegated_to_zone":             "Could not verify domain delegated to zone",
	"dns_zone_not_found":                                    "DNS zone not found",
	"dns_zone_is_secondary_zone":                            "DNS zone is a secondary zone",
}

// IssuanceFailure reports whether and how the issuance of a certificate for a domain fails. It fails for the domains under "invalid", since
// those do not exist (RFC 2606). The label before "invalid" may name the error code of the API, with dashes. The default is
// dns_zone_not_found:
//
//	www.ca-dns-validation-failed.invalid          fails each time
//	www.once-ca-dns-validation-failed.invalid     fails the first time; a retry succeeds
//	www.renewal-ca-dns-validation-failed.invalid  is issued; renewals fail
func IssuanceFailure(domain string) (Failure, bool) {
	name, ok := strings.CutSuffix(domain, ".invalid")
	if !ok {
		return Failure{}, false
	}
	label := name[strings.LastIndexByte(name, '.')+1:]
	f := Failure{Code: "dns_zone_not_found"}
	label, f.Once = strings.CutPrefix(label, "once-")
	if !f.Once {
		label, f.Renewal = strings.CutPrefix(label, "renewal-")
	}
	if asked := Code(strings.ReplaceAll(label, "-", "_")); issuanceErrors[asked] != "" {
		f.Code = asked
	}
	return f, true
}

// checkDomains returns the domains of a managed certificate in lower case, each once, or invalid_input.
func checkDomains(domains []string) ([]string, error) {
	var problems []string
	if len(domains) == 0 {
		problems = append(problems, "at least one domain is required")
	}
	if len(domains) > maxManagedDomains {
		problems = append(problems, fmt.Sprintf("at most %d domains are allowed", maxManagedDomains))
	}
	out := make([]string, 0, min(len(domains), maxManagedDomains))
	for _, d := range domains[:min(len(domains), maxManagedDomains)] {
		lower := strings.ToLower(d)
		if !isDomain(lower) {
			problems = append(problems, fmt.Sprintf("%q is not a domain", abbreviated(d)))
		} else if !slices.Contains(out, lower) {
			out = append(out, lower)
		}
	}
	if len(problems) > 0 {
		return nil, ErrInvalidInput(FieldError{"domain_names", problems})
	}
	return out, nil
}

// isDomain reports whether d is a name of at least two labels. The first may be "*".
func isDomain(d string) bool {
	name := strings.TrimPrefix(d, "*.")
	dot := strings.LastIndexByte(name, '.')
	if len(d) > maxDomainNameLength || dot < 0 || !dns.IsHostname(name) || name != strings.ToLower(name) {
		return false
	}
	last := name[dot+1:]
	return strings.Trim(last, "0123456789") != "" // an IPv4 address is not a domain
}
