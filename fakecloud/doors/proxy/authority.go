package proxy

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/crypto/cryptobyte"
	cbasn1 "golang.org/x/crypto/cryptobyte/asn1"
)

// newAuthority returns a certificate for APIHost with its key, and that of the authority that has signed it. The authority's key is
// forgotten. Both are valid for a year on the machine's clock, because clients look at that.
func newAuthority(now time.Time) (tls.Certificate, *x509.Certificate, error) {
	ca, caKey, err := sign(&x509.Certificate{
		Subject:   pkix.Name{CommonName: "fakecloud, the authority of one run"},
		NotBefore: now.Add(-time.Hour), NotAfter: now.AddDate(1, 0, 0),
		KeyUsage: x509.KeyUsageCertSign, BasicConstraintsValid: true, IsCA: true, MaxPathLenZero: true,
		PermittedDNSDomainsCritical: true, PermittedDNSDomains: []string{APIHost},
	}, nil, nil)
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	leaf, key, err := sign(&x509.Certificate{
		Subject:   pkix.Name{CommonName: APIHost},
		NotBefore: ca.NotBefore, NotAfter: ca.NotAfter,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true, DNSNames: []string{APIHost},
	}, ca, caKey)
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	return tls.Certificate{Certificate: [][]byte{leaf.Raw}, PrivateKey: key}, ca, nil
}

// sign returns a certificate for a new key, signed by its parent or, without one, by itself.
func sign(c, parent *x509.Certificate, by *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	if parent == nil {
		parent, by = c, key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, key.Public(), by) // with a random serial number
	if err != nil {
		return nil, nil, err
	}
	signed, err := x509.ParseCertificate(der)
	return signed, key, err
}

// The files that programs have to trust.
const (
	bundleFile     = "ca.pem"        // the system's authorities and ours
	authorityFile  = "authority.pem" // ours alone
	trustStoreFile = "ca.p12"        // the bundle for Java, without a password
)

// writeFiles writes the files to a new folder for this user only, and returns its path.
func writeFiles(ca *x509.Certificate) (dir string, err error) {
	own := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.Raw})
	bundle := append(systemAuthorities(), own...)
	store, err := pkcs12(bundle)
	if err == nil {
		dir, err = os.MkdirTemp("", "fakecloud-proxy-")
	}
	if err != nil {
		return "", err
	}
	for name, text := range map[string][]byte{bundleFile: bundle, authorityFile: own, trustStoreFile: store} {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, name), text, 0o600))
	}
	if err != nil {
		err = errors.Join(fmt.Errorf("write what programs have to trust: %w", err), os.RemoveAll(dir))
	}
	return dir, err
}

// systemFiles are where systems keep their authorities (Go's crypto/x509 looks at the same).
var systemFiles = []string{
	"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem", "/etc/pki/tls/cacert.pem",
	"/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", "/etc/ssl/cert.pem",
}

// systemAuthorities returns the certificates of the first of the system's files that exists, and those of SSL_CERT_FILE:
// they may be a company's.
func systemAuthorities() (all []byte) {
	if own, err := os.ReadFile(os.Getenv("SSL_CERT_FILE")); err == nil {
		all = append(bytes.TrimSpace(own), '\n')
	}
	for _, path := range systemFiles {
		if text, err := os.ReadFile(path); err == nil {
			return append(append(all, bytes.TrimSpace(text)...), '\n')
		}
	}
	return all
}

var (
	oidData    = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 7, 1}
	oidCertBag = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 12, 10, 1, 3}
	oidX509    = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 9, 22, 1}
	// oidTrusted is the attribute of a certificate that Java may trust, and oidAnyUsage its value.
	oidTrusted  = asn1.ObjectIdentifier{2, 16, 840, 1, 113894, 746875, 1, 1}
	oidAnyUsage = asn1.ObjectIdentifier{2, 5, 29, 37, 0}
)

// typed adds a type and, as an explicit element 0, a value (RFC 7292, sections 4 and 4.2.3).
func typed(b *cryptobyte.Builder, kind asn1.ObjectIdentifier, tag cbasn1.Tag, value cryptobyte.BuilderContinuation) {
	b.AddASN1ObjectIdentifier(kind)
	b.AddASN1(cbasn1.Tag(0).ContextSpecific().Constructed(), func(b *cryptobyte.Builder) { b.AddASN1(tag, value) })
}

// sequence adds a sequence.
func sequence(b *cryptobyte.Builder, f cryptobyte.BuilderContinuation) { b.AddASN1(cbasn1.SEQUENCE, f) }

// pkcs12 returns a trust store with the certificates of a PEM file. It is neither encrypted nor signed, since it has no secrets.
func pkcs12(bundle []byte) ([]byte, error) {
	bags := func(b *cryptobyte.Builder) {
		for block, rest := pem.Decode(bundle); block != nil; block, rest = pem.Decode(rest) {
			if block.Type != "CERTIFICATE" {
				continue
			}
			sequence(b, func(b *cryptobyte.Builder) {
				typed(b, oidCertBag, cbasn1.SEQUENCE, func(b *cryptobyte.Builder) {
					typed(b, oidX509, cbasn1.OCTET_STRING, func(b *cryptobyte.Builder) { b.AddBytes(block.Bytes) })
				})
				b.AddASN1(cbasn1.SET, func(b *cryptobyte.Builder) {
					sequence(b, func(b *cryptobyte.Builder) {
						b.AddASN1ObjectIdentifier(oidTrusted)
						b.AddASN1(cbasn1.SET, func(b *cryptobyte.Builder) { b.AddASN1ObjectIdentifier(oidAnyUsage) })
					})
				})
			})
		}
	}
	data := func(b *cryptobyte.Builder, f cryptobyte.BuilderContinuation) {
		sequence(b, func(b *cryptobyte.Builder) { typed(b, oidData, cbasn1.OCTET_STRING, f) })
	}
	var store cryptobyte.Builder
	sequence(&store, func(b *cryptobyte.Builder) {
		b.AddASN1Int64(3)
		data(b, func(b *cryptobyte.Builder) {
			sequence(b, func(b *cryptobyte.Builder) { data(b, func(b *cryptobyte.Builder) { sequence(b, bags) }) })
		})
	})
	return store.Bytes()
}
