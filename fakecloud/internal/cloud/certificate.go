package cloud

import (
	"slices"
	"time"
)

// Certificate is a TLS certificate that load balancers terminate HTTPS with.
type Certificate struct {
	Meta
	Type string // uploaded or managed
	// Certificate is the PEM chain; empty while a managed certificate is not issued.
	Certificate string
	// PrivateKey is the PEM key. The API never shows it; the data plane needs it.
	PrivateKey                    string
	NotValidBefore, NotValidAfter time.Time
	DomainNames                   []string
	Fingerprint                   string // SHA-256 as colon separated hex
	// Issuance, Renewal and Error are the status of a managed certificate.
	Issuance  string // pending, completed, failed
	Renewal   string // scheduled, pending, failed, unavailable
	ErrorCode Code
	ErrorText string
	UsedBy    []Ref
}

// Clone implements Object.
func (c *Certificate) Clone() *Certificate {
	d := *c
	d.DomainNames = slices.Clone(c.DomainNames)
	d.UsedBy = slices.Clone(c.UsedBy)
	return &d
}

// Ref returns the reference to the certificate.
func (c *Certificate) Ref() Ref { return Ref{KindCertificate, c.ID} }
