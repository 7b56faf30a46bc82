package cloud

import (
	"slices"
	"time"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/store"
)

// KindCertificate is the kind of certificates.
const KindCertificate store.Kind = "certificate"

// Certificate is a TLS certificate for the HTTPS services of load balancers. It is uploaded or managed.
// The cloud gets a managed certificate from a certificate authority and renews it.
//
// Reproduced: uploads are parsed and checked (chain, key, sizes). A managed certificate is pending until
// its action ends. It is valid for 90 days, and is renewed with a new key 30 days before it expires, by
// the cloud's clock. Issuance and renewal can fail with the API's codes, and can be retried. A
// certificate that a load balancer uses cannot be deleted.
//
// Left out: ACME, DNS and Let's Encrypt. The cloud's own authority ([Cloud.CARoots]) signs for any
// domain, with or without a zone, except those that ask for a failure ([IssuanceFailure]). A failed
// renewal is retried only on request, and sends no email. It is not known whether the real API refuses
// a certificate that has expired or that was uploaded before; here it is accepted.
type Certificate struct {
	store.Meta
	Type string `json:"type,omitzero"` // uploaded or managed
	// Certificate is the PEM chain; empty while a managed certificate is not issued.
	Certificate string `json:"certificate,omitzero"`
	// PrivateKey is the PEM key. The API never shows it; the data plane needs it.
	PrivateKey     string    `json:"private_key,omitzero"`
	NotValidBefore time.Time `json:"not_valid_before,omitzero"`
	NotValidAfter  time.Time `json:"not_valid_after,omitzero"`
	DomainNames    []string  `json:"domain_names,omitzero"`
	Fingerprint    string    `json:"fingerprint,omitzero"` // SHA-256 as upper-case hex with colons
	// Issuance, Renewal and Error are the status of a managed certificate.
	Issuance  string `json:"issuance,omitzero"` // pending, completed, failed
	Renewal   string `json:"renewal,omitzero"`  // scheduled, pending, failed, unavailable
	ErrorCode Code   `json:"error_code,omitzero"`
	ErrorText string `json:"error_text,omitzero"`
	UsedBy    []Ref  `json:"used_by,omitzero"`
	// Attempts counts the requests to the authority for a managed certificate.
	Attempts int `json:"attempts,omitzero"`
}

// The types of a certificate.
const (
	CertificateUploaded = "uploaded"
	CertificateManaged  = "managed"
)

// The statuses of issuance and renewal.
const (
	IssuancePending    = "pending"
	IssuanceCompleted  = "completed"
	IssuanceFailed     = "failed"
	RenewalScheduled   = "scheduled"
	RenewalPending     = "pending"
	RenewalFailed      = "failed"
	RenewalUnavailable = "unavailable"
)

// Clone implements Object.
func (c *Certificate) Clone() *Certificate {
	d := *c
	d.DomainNames = slices.Clone(c.DomainNames)
	d.UsedBy = slices.Clone(c.UsedBy)
	return &d
}

// Ref returns the reference to the certificate.
func (c *Certificate) Ref() Ref { return Ref{KindCertificate, c.ID} }

// newCertificate checks the fields that all certificates have, and returns the Meta of a new one.
// Errors: invalid_input, resource_limit_exceeded, uniqueness_error.
func (tx *Tx) newCertificate(name string, labels map[string]string) (store.Meta, error) {
	if err := checkNew(tx, &tx.Certificates, name, labels); err != nil {
		return store.Meta{}, err
	}
	return tx.NewMeta(name, labels), nil
}

// requireNew returns an error if a certificate of the type is the same as another one.
func (tx *Tx) requireNew(kind, message string, same func(*Certificate) bool) error {
	for c := range tx.Certificates.All() {
		if c.Type == kind && same(c) {
			return &Error{Code: "uniqueness_error", Status: 409, Message: message} // without details: hcloud-python #411
		}
	}
	return nil
}

// UploadCertificate is the input of POST /certificates for the type uploaded.
type UploadCertificate struct {
	Name   string
	Labels map[string]string
	// Certificate is the chain in PEM; each certificate certifies the one before it. PrivateKey is the key
	// of the first one, in PEM and not encrypted.
	Certificate, PrivateKey string
}

// UploadCertificate stores a certificate with its key.
// Errors: invalid_input, uniqueness_error (of the name, or of the certificate: terraform-provider-hcloud #409),
// resource_limit_exceeded.
func (p Project) UploadCertificate(in UploadCertificate) (*Certificate, *State, error) {
	parsed, err := parseUpload(in.Certificate, in.PrivateKey)
	if err != nil {
		return nil, nil, err
	}
	st, err := p.update(func(tx *Tx) error {
		meta, err := tx.newCertificate(in.Name, in.Labels)
		if err != nil {
			return err
		}
		err = tx.requireNew(CertificateUploaded, "certificate already exists",
			func(c *Certificate) bool { return c.Fingerprint == parsed.Fingerprint })
		if err != nil {
			return err
		}
		parsed.Meta, parsed.Type = meta, CertificateUploaded
		tx.Certificates.Put(parsed)
		return nil
	})
	return parsed, st, err
}

// UpdateCertificate changes name and labels. Errors: not_found, invalid_input, uniqueness_error.
func (p Project) UpdateCertificate(id int64, in UpdateResource) (*State, error) {
	return updateMeta(p, inCertificates, id, in)
}

// DeleteCertificate deletes a certificate. Errors: not_found, locked (it is being issued), service_error (it is used by a load
// balancer).
func (p Project) DeleteCertificate(id int64) error {
	_, err := onFree(p, inCertificates, id, func(tx *Tx, c *Certificate) error {
		if len(c.UsedBy) > 0 {
			return ErrServiceError("certificate still in use") // terraform-provider-hcloud issue 1065
		}
		tx.Certificates.Delete(id)
		return nil
	})
	return err
}
