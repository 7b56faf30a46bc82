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
	"io"
	"math/big"
	"sync"
	"time"
)

// authority is the cloud's own certificate authority: a root and an intermediate that issues, as
// public authorities have, so that clients and the data plane meet chains of two. It is made when
// it is first needed.
//
// With a seed, all keys and signatures are reproducible, and known to anybody who knows the seed;
// without one they are random. Either way the root is good for tests only and does not belong into
// the trust store of a machine.
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

// The authority's own certificates are valid at whatever time a test sets the clock to.
var (
	authorityNotBefore = time.Date(1970, 1, 1, 0, 0, 0, 0, time.UTC)
	authorityNotAfter  = time.Date(2199, 12, 31, 23, 59, 59, 0, time.UTC)
)

// CARoots returns the root of the authority that issues managed certificates, in PEM. Clients of
// load balancers have to trust it.
func (c *Cloud) CARoots() []byte {
	c.ca.make()
	return encodePEM("CERTIFICATE", c.ca.root.cert.Raw)
}

// CertPool is CARoots as a pool, ready for a tls.Config.
func (c *Cloud) CertPool() *x509.CertPool {
	c.ca.make()
	pool := x509.NewCertPool()
	pool.AddCert(c.ca.root.cert)
	return pool
}

// make creates the authority, once. It cannot fail: all inputs are constants.
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
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("issuing a certificate: %w", err)
	}
	chain := append(encodePEM("CERTIFICATE", leaf.Raw), encodePEM("CERTIFICATE", a.sub.cert.Raw)...)
	return &issued{leaf, string(chain), string(encodePEM("PRIVATE KEY", der))}, nil
}

// commonName is the first domain that fits into a common name (64 characters), or none.
func commonName(domains []string) string {
	for _, d := range domains {
		if len(d) <= 64 {
			return d
		}
	}
	return ""
}

func (a *authority) sign(template, parent *x509.Certificate, key, signer *ecdsa.PrivateKey) (*x509.Certificate, error) {
	der, err := x509.CreateCertificate(a.randomness(), template, parent, key.Public(), signer)
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

// randomness is nil with a seed: signatures are then deterministic (RFC 6979).
func (a *authority) randomness() io.Reader {
	if a.seed != 0 {
		return nil
	}
	return rand.Reader
}

// newKey returns a P-256 key, derived from the seed, if there is one, and what the key is for.
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
		// One in 2^32 numbers of this size is no key.
		if key, err := ecdsa.ParseRawPrivateKey(elliptic.P256(), scalar[:]); err == nil {
			return key
		}
	}
}

func encodePEM(blockType string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: blockType, Bytes: der})
}
