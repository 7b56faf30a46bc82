package recording

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"
)

// keyring makes keys for those that were redacted.
type keyring struct {
	now     time.Time // of the simulation
	publics map[string]string
	pairs   map[string][2]string
}

// public returns an SSH key, the same for the same marker.
func (k *keyring) public(marker string) string {
	if k.publics[marker] == "" {
		key, _, err := ed25519.GenerateKey(rand.Reader)
		if err != nil {
			panic(fmt.Sprintf("recording: make a key: %v", err)) // the machine has no randomness
		}
		shown, err := ssh.NewPublicKey(key)
		if err != nil {
			panic(fmt.Sprintf("recording: make a key: %v", err))
		}
		k.publics[marker] = strings.TrimSpace(string(ssh.MarshalAuthorizedKey(shown)))
	}
	return k.publics[marker]
}

// pair returns a certificate for domains, and its key, as PEM. It is the same for the same domains.
func (k *keyring) pair(domains []string) (certificate, key string) {
	name := strings.Join(domains, " ")
	if pair, ok := k.pairs[name]; ok {
		return pair[0], pair[1]
	}
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(fmt.Sprintf("recording: make a key: %v", err))
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: k.now.Add(-time.Hour), NotAfter: k.now.AddDate(1, 0, 0), DNSNames: domains,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		return "", "" // a domain that no certificate can have
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		panic(fmt.Sprintf("recording: make a key: %v", err))
	}
	pair := [2]string{
		string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
		string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8})),
	}
	k.pairs[name] = pair
	return pair[0], pair[1]
}
