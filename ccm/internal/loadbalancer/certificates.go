package loadbalancer

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	corev1 "k8s.io/api/core/v1"
	cloudapi "k8s.io/cloud-provider/api"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/event"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/plan"
)

const (
	// issuancePoll is the delay before a pending certificate is checked again.
	issuancePoll = 15 * time.Second
	// issuanceRetry is the delay before a failed issuance is repeated. The issuer limits failed orders
	// per hour.
	issuanceRetry = 5 * time.Minute
)

// certificates returns the certificates for the Service's ports. obsolete holds earlier managed
// certificates of the Service; the caller deletes them when the load balancer does not use them any
// more.
func (l *Controller) certificates(ctx context.Context, svc *corev1.Service, s *plan.Settings) (ids []int64, obsolete []*hcloud.Certificate,
	err error) {
	all, err := l.certs.Get(ctx)
	if err != nil {
		return nil, nil, err
	}
	byID := slices.SortedFunc(slices.Values(all), func(a, b *hcloud.Certificate) int { return cmp.Compare(a.ID, b.ID) })
	mine := slices.DeleteFunc(byID, func(c *hcloud.Certificate) bool {
		return c.Type != hcloud.CertificateTypeManaged || !l.own.Owns(c.Labels, string(svc.UID))
	})
	if s.CertificateType != hcloud.CertificateTypeManaged {
		ids, err = plan.ResolveCertificates(all, s.Certificates)
		return ids, mine, err
	}
	cert, err := l.managedCertificate(ctx, svc, s, mine, all)
	if err != nil {
		return nil, nil, err
	}
	obsolete = slices.DeleteFunc(mine, func(c *hcloud.Certificate) bool { return c.ID == cert.ID })
	return []int64{cert.ID}, obsolete, nil
}

// managedCertificate returns the Service's certificate for its domains, and orders one if there is
// none. It returns an error until the certificate is issued.
func (l *Controller) managedCertificate(ctx context.Context, svc *corev1.Service, s *plan.Settings, mine,
	all []*hcloud.Certificate) (*hcloud.Certificate, error) {
	candidates := slices.Clone(mine)
	for _, c := range all {
		if c.Type == hcloud.CertificateTypeManaged && l.own.Inherits(c.Labels, string(svc.UID)) { // the production CCM ordered it
			candidates = append(candidates, c)
		}
	}
	i := slices.IndexFunc(candidates, func(c *hcloud.Certificate) bool { return plan.ServesDomains(c, s) })
	if i < 0 {
		return l.orderCertificate(ctx, svc, s, candidates, all)
	}
	cert := candidates[i]
	if err := l.updateCertificate(ctx, svc, cert, s.ManagedCertificateName); err != nil {
		return nil, err
	}
	if cert.Status == nil {
		return cert, nil
	}
	switch cert.Status.Issuance {
	case hcloud.CertificateStatusTypePending:
		l.events.Normal(svc, event.Certificate, "Certificate %q (%d) for %s is being issued", cert.Name, cert.ID,
			strings.Join(cert.DomainNames, ", "))
		return nil, cloudapi.NewRetryError(fmt.Sprintf("certificate %q is being issued", cert.Name), issuancePoll)
	case hcloud.CertificateStatusTypeFailed:
		return nil, l.retryIssuance(ctx, svc, cert)
	}
	return cert, nil
}

// certificateLabels returns a copy of labels with the ownership labels of the Service's certificates.
func (l *Controller) certificateLabels(svc *corev1.Service, labels map[string]string) map[string]string {
	uid := string(svc.UID)
	result := map[string]string{}
	maps.Copy(result, labels)
	maps.Copy(result, l.own.Marks(uid))
	result[plan.LabelServiceUID], result[plan.LabelLastOwner] = uid, uid
	return result
}

// updateCertificate gives a certificate the ownership labels that it lacks, and the name if one is wanted.
func (l *Controller) updateCertificate(ctx context.Context, svc *corev1.Service, cert *hcloud.Certificate, name string) error {
	labels := l.certificateLabels(svc, cert.Labels)
	if maps.Equal(labels, cert.Labels) && (name == "" || name == cert.Name) {
		return nil
	}
	l.certs.Forget()
	_, _, err := l.client.Certificate.Update(ctx, cert, hcloud.CertificateUpdateOpts{Labels: labels, Name: name})
	if hcloud.IsError(err, hcloud.ErrorCodeUniquenessError) {
		return plan.Mistake("http-managed-certificate-name", name, "is the name of another certificate: must be a free name")
	}
	if err != nil {
		return fmt.Errorf("setting name and ownership labels of certificate %d (%s): %w", cert.ID, cert.Name, err)
	}
	return nil
}

// orderCertificate orders a certificate for the Service's domains, and waits for it. mine are the Service's certificates, with those that
// the production CCM ordered for it.
func (l *Controller) orderCertificate(ctx context.Context, svc *corev1.Service, s *plan.Settings, mine,
	all []*hcloud.Certificate) (*hcloud.Certificate, error) {
	if i := slices.IndexFunc(all, func(c *hcloud.Certificate) bool {
		return c.Type == hcloud.CertificateTypeManaged && plan.ServesDomains(c, s)
	}); i >= 0 {
		return nil, plan.Mistake("http-managed-certificate-domains", strings.Join(s.ManagedCertificateDomains, ","),
			"are those of certificate %d, which does not belong to this Service: a project has one managed certificate for the same "+
				"domains; to use that certificate set http-certificates and certificate-type uploaded", all[i].ID)
	}
	name := cmp.Or(s.ManagedCertificateName, l.defaultCertificateName(svc, s))
	if i := slices.IndexFunc(all, func(c *hcloud.Certificate) bool { return c.Name == name }); i >= 0 {
		holder := all[i]
		if !slices.Contains(mine, holder) {
			return nil, plan.Mistake("http-managed-certificate-name", name, "is the name of certificate %d, which does not belong to "+
				"this Service: must be a free name; to use that certificate set http-certificates and certificate-type uploaded", holder.ID)
		}
		// The name belongs to the Service's certificate for other domains. The load balancer still uses
		// that certificate, so it gets another name, and the labels by which it is deleted later.
		l.certs.Forget()
		if _, _, err := l.client.Certificate.Update(ctx, holder, hcloud.CertificateUpdateOpts{
			Name: fmt.Sprintf("%.100s-replaced-%d", name, holder.ID), Labels: l.certificateLabels(svc, holder.Labels)}); err != nil {
			return nil, fmt.Errorf("renaming certificate %d: %w", holder.ID, err)
		}
	}
	labels := l.certificateLabels(svc, nil)
	if s.ManagedCertificateStaging {
		labels[plan.LabelStaging] = "true"
	}
	l.certs.Forget()
	result, _, err := l.client.Certificate.CreateCertificate(ctx, hcloud.CertificateCreateOpts{
		Name: name, Type: hcloud.CertificateTypeManaged, DomainNames: s.ManagedCertificateDomains, Labels: labels,
	})
	if err != nil {
		return nil, fmt.Errorf("ordering certificate %q for %s: %w", name, strings.Join(s.ManagedCertificateDomains, ", "), err)
	}
	l.events.Normal(svc, event.Certificate, "Ordered certificate %q (%d) for %s", name, result.Certificate.ID,
		strings.Join(s.ManagedCertificateDomains, ", "))
	err = l.waiter.Wait(ctx, result.Action)
	l.certs.Forget()
	if _, failed := errors.AsType[hcloud.ActionError](err); failed {
		l.issuanceIsDue(result.Certificate.ID)
		l.events.Warning(svc, event.Certificate, "Certificate %q (%d) was not issued: %v; will try again", name, result.Certificate.ID, err)
		return nil, cloudapi.NewRetryError(fmt.Sprintf("certificate %q was not issued: %v", name, err), issuanceRetry)
	}
	if err != nil {
		return nil, fmt.Errorf("waiting for certificate %q: %w", name, err)
	}
	return result.Certificate, nil
}

// defaultCertificateName returns a name that is free in the project, like plan.Ownership.DefaultName.
func (l *Controller) defaultCertificateName(svc *corev1.Service, s *plan.Settings) string {
	domains := slices.Sorted(slices.Values(s.ManagedCertificateDomains))
	sum := sha256.Sum256([]byte(strings.ToLower(strings.Join(domains, ",")) + strconv.FormatBool(s.ManagedCertificateStaging)))
	name := fmt.Sprintf("ccm-%s-%x", svc.UID, sum[:4])
	if l.own.ClusterID != "" {
		name += "-" + l.own.ClusterID
	}
	return name
}

// issuanceIsDue reports whether to repeat a failed issuance now. If so it records the attempt.
func (l *Controller) issuanceIsDue(id int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.waiter.Clock.Now()
	if now.Sub(l.issuances[id]) < issuanceRetry {
		return false
	}
	l.issuances[id] = now
	return true
}

// retryIssuance repeats a failed issuance, unless the last attempt was less than issuanceRetry ago. It
// returns the reason of the failure as an error that the service controller retries.
func (l *Controller) retryIssuance(ctx context.Context, svc *corev1.Service, cert *hcloud.Certificate) error {
	reason := "the API returned no reason"
	if cert.Status.Error != nil {
		reason = fmt.Sprintf("%s (%s)", cert.Status.Error.Message, cert.Status.Error.Code)
	}
	notIssued := cloudapi.NewRetryError(fmt.Sprintf("certificate %q was not issued: %s", cert.Name, reason), issuanceRetry)
	if !l.issuanceIsDue(cert.ID) {
		return notIssued
	}
	l.events.Warning(svc, event.Certificate, "Certificate %q (%d) for %s was not issued: %s; trying again", cert.Name, cert.ID,
		strings.Join(cert.DomainNames, ", "), reason)
	l.certs.Forget()
	if _, _, err := l.client.Certificate.RetryIssuance(ctx, cert); err != nil {
		return fmt.Errorf("certificate %q was not issued: %s; requesting another attempt: %w", cert.Name, reason, err)
	}
	return notIssued
}

// deleteCertificates deletes managed certificates of a Service. The API has just listed them, so that "not found" proves nothing, and
// the next try looks for them again.
func (l *Controller) deleteCertificates(ctx context.Context, certs []*hcloud.Certificate) error {
	var errs []error
	for _, c := range certs {
		l.certs.Forget()
		if _, err := l.client.Certificate.Delete(ctx, c); err != nil {
			errs = append(errs, fmt.Errorf("deleting certificate %d (%s): %w", c.ID, c.Name, err))
		}
	}
	return errors.Join(errs...)
}

// retainCertificates makes certificates ones without an owner, as retain does with a load balancer.
func (l *Controller) retainCertificates(ctx context.Context, svc *corev1.Service, certs []*hcloud.Certificate) error {
	for _, c := range certs {
		_, _, err := l.client.Certificate.Update(ctx, c, hcloud.CertificateUpdateOpts{Labels: plan.WithoutOurs(c.Labels)})
		switch {
		case hcloud.IsError(err, hcloud.ErrorCodeNotFound):
			continue
		case err != nil:
			return fmt.Errorf("keeping certificate %d (%s): removing its ownership labels: %w", c.ID, c.Name, err)
		}
		l.events.Normal(svc, event.Kept, "Kept certificate %d (%s), which a load balancer uses that does not belong to this Service: "+
			"delete it when it is not needed any more", c.ID, c.Name)
	}
	return nil
}

// ownedCertificates fetches the managed certificates of the Service.
func (l *Controller) ownedCertificates(ctx context.Context, uid string) ([]*hcloud.Certificate, error) {
	return l.certificatesWith(ctx, plan.OwnerSelector(uid), func(labels map[string]string) bool { return l.own.Owns(labels, uid) })
}

func (l *Controller) certificatesWith(ctx context.Context, selector string, match func(map[string]string) bool) ([]*hcloud.Certificate,
	error) {
	certs, err := l.client.Certificate.AllWithOpts(ctx, hcloud.CertificateListOpts{ListOpts: hcloud.ListOpts{LabelSelector: selector}})
	if err != nil {
		return nil, fmt.Errorf("listing certificates with the label %s: %w", selector, err)
	}
	return slices.DeleteFunc(certs, func(c *hcloud.Certificate) bool {
		return c.Type != hcloud.CertificateTypeManaged || !match(c.Labels)
	}), nil
}
