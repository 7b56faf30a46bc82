package cloud

import (
	"bytes"
	"crypto"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"strings"
)

// Limits of uploaded certificates (the API's changelog, 2026-02-11).
const (
	MaxPrivateKeyBytes       = 5_000
	MaxCertificateChain      = 5
	MaxCertificateChainBytes = 30_000
)

// MinRSABits is the size of the smallest RSA key of a certificate (hcloud-go #507 has the error, terraform-provider-hcloud
// #261 a size that is accepted).
const MinRSABits = 2048

// parseUpload reads a chain and its key. The error is an invalid_input with all wrong fields.
func parseUpload(chainPEM, keyPEM string) (*Certificate, error) {
	var fields []FieldError
	chain, problem := parseChain(chainPEM)
	if problem != "" {
		fields = append(fields, FieldError{"certificate", []string{problem}})
	}
	key, problem := parseKey(keyPEM)
	switch {
	case problem != "":
		fields = append(fields, FieldError{"private_key", []string{problem}})
	case len(chain) > 0 && !samePublicKey(chain[0].PublicKey, key.Public()):
		fields = append(fields, FieldError{"private_key", []string{"does not belong to the certificate"}})
	}
	if len(fields) > 0 {
		return nil, ErrInvalidInput(fields...)
	}
	if public, ok := key.Public().(*rsa.PublicKey); ok && public.N.BitLen() < MinRSABits {
		return nil, &Error{Code: "invalid_input", Status: 422, Message: "certificate must use larger key size"} // without details
	}
	c := &Certificate{Certificate: chainPEM, PrivateKey: keyPEM}
	c.describe(chain[0])
	return c, nil
}

// describe copies the contents of the certificate to the fields.
func (c *Certificate) describe(leaf *x509.Certificate) {
	c.NotValidBefore, c.NotValidAfter = leaf.NotBefore.UTC(), leaf.NotAfter.UTC()
	c.Fingerprint = fingerprint(leaf.Raw)
	c.DomainNames = leaf.DNSNames
	if len(c.DomainNames) == 0 && leaf.Subject.CommonName != "" {
		c.DomainNames = []string{leaf.Subject.CommonName}
	}
}

func fingerprint(der []byte) string {
	sum := sha256.Sum256(der)
	return strings.ReplaceAll(fmt.Sprintf("% X", sum), " ", ":")
}

// parseChain reads a chain of certificates, or returns the problem.
func parseChain(text string) (chain []*x509.Certificate, problem string) {
	if len(text) > MaxCertificateChainBytes {
		return nil, fmt.Sprintf("is larger than %d bytes", MaxCertificateChainBytes)
	}
	rest := []byte(text)
	// pem.Decode silently skips a block that it cannot read, such as a damaged certificate.
	announced := bytes.Count(rest, []byte("-----BEGIN "))
	for block, rest := pem.Decode(rest); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			return nil, fmt.Sprintf("contains a PEM block of type %q: all must be of type CERTIFICATE", abbreviated(block.Type))
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Sprintf("certificate %d of the chain cannot be read: %v", len(chain)+1, err)
		}
		chain = append(chain, cert)
	}
	switch {
	case len(chain) == 0:
		return nil, "is not a certificate in PEM format"
	case len(chain) != announced:
		return nil, "contains a damaged PEM block"
	case len(chain) > MaxCertificateChain:
		return nil, fmt.Sprintf("has more than %d certificates", MaxCertificateChain)
	}
	for i, cert := range chain[1:] {
		if chain[i].CheckSignatureFrom(cert) != nil {
			return nil, fmt.Sprintf("certificate %d of the chain does not certify the one before it", i+2)
		}
	}
	return chain, ""
}

// parseKey reads a private key (PKCS #8, PKCS #1 or SEC 1), or returns the problem.
func parseKey(text string) (key crypto.Signer, problem string) {
	const notAKey = "is not a private key in PEM format"
	if len(text) > MaxPrivateKeyBytes {
		return nil, fmt.Sprintf("is larger than %d bytes", MaxPrivateKeyBytes)
	}
	for block, rest := pem.Decode([]byte(text)); block != nil; block, rest = pem.Decode(rest) {
		if block.Type == "EC PARAMETERS" { // openssl writes the curve before the key
			continue
		}
		if strings.HasPrefix(block.Type, "ENCRYPTED") || block.Headers["DEK-Info"] != "" {
			return nil, "is encrypted"
		}
		if !strings.HasSuffix(block.Type, "PRIVATE KEY") {
			return nil, notAKey
		}
		if k, err := x509.ParsePKCS8PrivateKey(block.Bytes); err == nil {
			if signer, ok := k.(crypto.Signer); ok {
				return signer, ""
			}
			return nil, "is of a type that cannot sign"
		}
		if k, err := x509.ParsePKCS1PrivateKey(block.Bytes); err == nil {
			return k, ""
		}
		if k, err := x509.ParseECPrivateKey(block.Bytes); err == nil {
			return k, ""
		}
		return nil, notAKey
	}
	return nil, notAKey
}

func samePublicKey(a, b crypto.PublicKey) bool {
	key, ok := a.(interface{ Equal(crypto.PublicKey) bool })
	return ok && key.Equal(b)
}

func abbreviated(s string) string {
	if len(s) > 40 {
		return s[:40] + "…"
	}
	return s
}
