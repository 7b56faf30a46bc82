package cloud

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/binary"
	"encoding/pem"
	"fmt"
	"math/big"
	"sync"
	"time"
)

// authority is the cloud's own certificate authority. Like public authorities, it has a root and an
// intermediate that issues, so that clients and the data plane handle chains of two certificates. It is
// created on first use.
//
// With a seed, all keys and signatures follow from it. Without a seed, they are random. In both cases
// the root is only for tests and must not be added to the trust store of a machine.
type authority struct {
	seed uint64
	once sync.Once
	root issuer
	sub  issuer
}

type issuer struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// issued is a certificate with its key.
type issued struct {
	leaf             *x509.Certificate
	chainPEM, keyPEM string
}

// The authority's own certificates are valid at any time that a test may set the clock to.
var (
	authorityNotBefore = time.Date(1970, 1, 1, 0, 0, 0, 0, time.UTC)
	authorityNotAfter  = time.Date(2199, 12, 31, 23, 59, 59, 0, time.UTC)
)

// CARoots returns the root of the authority that issues managed certificates, in PEM. Clients of load
// balancers must trust it.
func (c *Cloud) CARoots() []byte {
	c.ca.make()
	return encodePEM("CERTIFICATE", c.ca.root.cert.Raw)
}

// CertPool returns CARoots as a pool for a tls.Config.
func (c *Cloud) CertPool() *x509.CertPool {
	c.ca.make()
	pool := x509.NewCertPool()
	pool.AddCert(c.ca.root.cert)
	return pool
}

// make creates the authority once. It cannot fail because all inputs are constants.
func (a *authority) make() {
	a.once.Do(func() {
		template := func(serial int64, name string) *x509.Certificate {
			return &x509.Certificate{
				SerialNumber: big.NewInt(serial), Subject: pkix.Name{Organization: []string{"fakecloud"}, CommonName: name},
				NotBefore: authorityNotBefore, NotAfter: authorityNotAfter,
				IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
			}
		}
		root := template(1, "fakecloud root")
		a.root.key = a.newKey(1, 0)
		a.root.cert = a.mustSign(root, root, a.root.key, a.root.key)
		a.sub.key = a.newKey(2, 0)
		a.sub.cert = a.mustSign(template(2, "fakecloud intermediate"), a.root.cert, a.sub.key, a.root.key)
	})
}

// issue makes a new key and a certificate for the certificate's domains.
func (a *authority) issue(c *Certificate, now time.Time) (*issued, error) {
	a.make()
	notBefore := now.Add(-managedBackdating).Truncate(time.Second)
	key := a.newKey(c.ID, c.Attempts)
	serial := new(big.Int).Lsh(big.NewInt(c.ID), 32)
	leaf, err := a.sign(&x509.Certificate{
		SerialNumber: serial.Add(serial, big.NewInt(int64(c.Attempts))),
		Subject:      pkix.Name{CommonName: commonName(c.DomainNames)}, DNSNames: c.DomainNames,
		NotBefore: notBefore, NotAfter: notBefore.Add(managedValidity - time.Second),
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, a.sub.cert, key, a.sub.key)
	if err != nil {
		return nil, fmt.Errorf("issuing a certificate: %w", err)
	}
	chain := append(encodePEM("CERTIFICATE", leaf.Raw), encodePEM("CERTIFICATE", a.sub.cert.Raw)...)
	return &issued{leaf, string(chain), string(encodeKey(key))}, nil
}

// commonName is the first domain that fits into a common name (64 characters), or none.
func commonName(domains []string) string {
	name, _ := find(domains, func(d string) bool { return len(d) <= 64 })
	return name
}

func (a *authority) sign(template, parent *x509.Certificate, key, signer *ecdsa.PrivateKey) (*x509.Certificate, error) {
	random := rand.Reader
	if a.seed != 0 {
		random = nil // signatures are then deterministic (RFC 6979)
	}
	der, err := x509.CreateCertificate(random, template, parent, key.Public(), signer)
	if err != nil {
		return nil, err
	}
	return x509.ParseCertificate(der)
}

func (a *authority) mustSign(template, parent *x509.Certificate, key, signer *ecdsa.PrivateKey) *x509.Certificate {
	cert, err := a.sign(template, parent, key, signer)
	if err != nil {
		panic("cloud: certificate authority: " + err.Error())
	}
	return cert
}

// newKey returns a P-256 key. If there is a seed, the key is derived from it and the arguments.
func (a *authority) newKey(id int64, attempt int) *ecdsa.PrivateKey {
	for try := uint64(0); ; try++ {
		var scalar [32]byte
		if a.seed == 0 {
			_, _ = rand.Read(scalar[:]) // never fails
		} else {
			in := []byte("fakecloud certificate key")
			for _, v := range []uint64{a.seed, uint64(id), uint64(attempt), try} {
				in = binary.BigEndian.AppendUint64(in, v)
			}
			scalar = sha256.Sum256(in)
		}
		// One in 2^32 numbers of this size is not a valid key.
		if key, err := ecdsa.ParseRawPrivateKey(elliptic.P256(), scalar[:]); err == nil {
			return key
		}
	}
}

// encodeKey returns a key of newKey in PEM.
func encodeKey(key *ecdsa.PrivateKey) []byte {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil { // the curve is one that it knows
		panic("cloud: certificate authority: " + err.Error())
	}
	return encodePEM("PRIVATE KEY", der)
}

func encodePEM(blockType string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: blockType, Bytes: der})
}
