package cloud

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
)

// testCA signs certificates for uploads.
type testCA struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newTestCA(t testing.TB) testCA {
	t.Helper()
	return testCA{}.issue(t, func(c *x509.Certificate) { c.IsCA, c.KeyUsage = true, x509.KeyUsageCertSign })
}

func (ca testCA) issue(t testing.TB, change func(*x509.Certificate)) testCA {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(7), Subject: pkix.Name{CommonName: "test"}, BasicConstraintsValid: true,
		NotBefore: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), NotAfter: time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC),
	}
	if change != nil {
		change(template)
	}
	parent := ca
	if parent.cert == nil {
		parent = testCA{template, key}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent.cert, key.Public(), parent.key)
	check(t, err)
	cert, err := x509.ParseCertificate(der)
	check(t, err)
	return testCA{cert, key}
}

func (ca testCA) pem() string { return string(encodePEM("CERTIFICATE", ca.cert.Raw)) }

func (ca testCA) keyPEM(t testing.TB) string { t.Helper(); return pkcs8(t, ca.key) }

func pkcs8(t testing.TB, key any) string {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(key)
	check(t, err)
	return string(encodePEM("PRIVATE KEY", der))
}

func named(names ...string) func(*x509.Certificate) {
	return func(c *x509.Certificate) { c.DNSNames = names }
}

func certificateProject(t *testing.T, o Options) (Project, *clocktesting.FakeClock) {
	t.Helper()
	if o.Profile == nil {
		o.Profile = ProfileInstant
	}
	return serverCloud(t, o)
}

func TestAnUploadedCertificateIsDescribed(t *testing.T) {
	t.Parallel()
	p, _ := certificateProject(t, Options{})
	ca := newTestCA(t)
	leaf := ca.issue(t, named("example.com", "www.example.com"))
	chain := leaf.pem() + ca.pem()
	c := did(p.UploadCertificate(UploadCertificate{Name: "web", Certificate: chain, PrivateKey: leaf.keyPEM(t)}))(t)
	if c.Type != CertificateUploaded || c.Certificate != chain || c.PrivateKey != leaf.keyPEM(t) ||
		!c.NotValidAfter.Equal(leaf.cert.NotAfter) || !c.NotValidBefore.Equal(leaf.cert.NotBefore) ||
		!slices.Equal(c.DomainNames, []string{"example.com", "www.example.com"}) {
		t.Errorf("certificate: %+v", c)
	}
	if len(c.Fingerprint) != 32*3-1 || strings.Count(c.Fingerprint, ":") != 31 || strings.ToUpper(c.Fingerprint) != c.Fingerprint {
		t.Errorf("fingerprint: %s", c.Fingerprint)
	}
	if _, err := tls.X509KeyPair([]byte(c.Certificate), []byte(c.PrivateKey)); err != nil {
		t.Errorf("the data plane could not use it: %v", err)
	}
}

func TestAnUploadedRSAKeyHasAtLeast2048Bits(t *testing.T) {
	t.Parallel()
	p, clock := certificateProject(t, Options{})
	for bits, want := range map[int]string{1024: "certificate must use larger key size", 2048: ""} {
		key, err := rsa.GenerateKey(rand.Reader, bits)
		check(t, err)
		template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"example.com"}, NotAfter: clock.Now().Add(time.Hour)}
		der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
		check(t, err)
		_, _, err = p.UploadCertificate(UploadCertificate{
			Name: "rsa", Certificate: string(encodePEM("CERTIFICATE", der)),
			PrivateKey: string(encodePEM("RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(key))),
		})
		if codeOf(err) != want {
			t.Errorf("%d bits: %v, want %q", bits, err, want)
		}
	}
}

func TestUploadsAreChecked(t *testing.T) {
	t.Parallel()
	p, _ := certificateProject(t, Options{})
	ca, other := newTestCA(t), newTestCA(t)
	leaf := ca.issue(t, named("example.com"))
	key := leaf.keyPEM(t)
	ecDER, err := x509.MarshalECPrivateKey(leaf.key)
	check(t, err)
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	check(t, err)
	_, edKey, err := ed25519.GenerateKey(rand.Reader)
	check(t, err)
	damaged := strings.Replace(ca.pem(), "A", "*", 1)
	for _, tt := range []struct {
		name, chain, key, want string
	}{
		{"leaf alone", leaf.pem(), key, ""},
		{"comments around blocks", "subject=leaf\n" + leaf.pem() + "\nissuer\n" + ca.pem() + "\n\n", key, ""},
		{"SEC 1 key after its parameters", leaf.pem(),
			"-----BEGIN EC PARAMETERS-----\nBggqhkjOPQMBBw==\n-----END EC PARAMETERS-----\n" + string(encodePEM("EC PRIVATE KEY", ecDER)),
			""},
		{"no domain names", ca.issue(t, func(c *x509.Certificate) { c.Subject.CommonName = "" }).pem(), key, "private_key"},
		{"nothing", "", "", "certificate"},
		{"no PEM", "hello", key, "certificate"},
		{"a key in the chain", leaf.pem() + key, key, "certificate"},
		{"not DER", string(encodePEM("CERTIFICATE", []byte("x"))), key, "certificate"},
		{"chain in the wrong order", ca.pem() + leaf.pem(), ca.keyPEM(t), "certificate"},
		{"chain of strangers", leaf.pem() + other.pem(), key, "certificate"},
		{"damaged second certificate", leaf.pem() + damaged, key, "certificate"},
		{"too long a chain", leaf.pem() + strings.Repeat(ca.pem(), 5), key, "certificate"},
		{"too large a chain", leaf.pem() + strings.Repeat(" ", MaxCertificateChainBytes), key, "certificate"},
		{"key of another certificate", leaf.pem(), other.keyPEM(t), "private_key"},
		{"RSA key for an ECDSA certificate", leaf.pem(), string(encodePEM("RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(rsaKey))),
			"private_key"},
		{"Ed25519 key for an ECDSA certificate", leaf.pem(), pkcs8(t, edKey), "private_key"},
		{"certificate as key", leaf.pem(), leaf.pem(), "private_key"},
		{"key that is none", leaf.pem(), string(encodePEM("PRIVATE KEY", []byte("x"))), "private_key"},
		{"encrypted key", leaf.pem(), string(encodePEM("ENCRYPTED PRIVATE KEY", []byte("x"))), "private_key"},
		{"too large a key", leaf.pem(), key + strings.Repeat("\n", MaxPrivateKeyBytes), "private_key"},
	} {
		c, _, err := p.UploadCertificate(UploadCertificate{Name: tt.name, Certificate: tt.chain, PrivateKey: tt.key})
		if got := codeOf(err); got != tt.want {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		}
		if err == nil {
			err = p.DeleteCertificate(c.ID) // the next may be the same one
		}
		if n := p.View().Certificates.Len(); n != 0 {
			t.Errorf("%s: %d certificates are left: %v", tt.name, n, err)
		}
	}
}

func TestACertificateIsThereOnlyOnce(t *testing.T) {
	t.Parallel()
	p, _ := certificateProject(t, Options{})
	ca := newTestCA(t)
	leaf := ca.issue(t, named("example.com"))
	upload := func(chain string) error {
		_, _, err := p.UploadCertificate(UploadCertificate{Name: fmt.Sprint(p.View().Certificates.Len()), Certificate: chain,
			PrivateKey: leaf.keyPEM(t)})
		return err
	}
	order := func(domains ...string) error {
		_, _, _, err := p.CreateManagedCertificate(CreateManagedCertificate{Name: fmt.Sprint(p.View().Certificates.Len()),
			DomainNames: domains})
		return err
	}
	for _, tt := range []struct {
		what, want string
		err        error
	}{
		{"an upload", "", upload(leaf.pem())},
		{"the same with another chain", "certificate already exists", upload(leaf.pem() + ca.pem())},
		{"an order for the domain of an upload", "", order("example.com")},
		{"an order for more domains", "", order("example.com", "www.example.com")},
		{"an order for the same domains", "certificate with exact set of domains already exists", order("www.example.com", "example.com")},
	} {
		if tt.want == "" {
			if tt.err != nil {
				t.Errorf("%s: %v", tt.what, tt.err)
			}
			continue
		}
		e, ok := errors.AsType[*Error](tt.err)
		if !ok || e.Code != "uniqueness_error" || e.Status != 409 || e.Message != tt.want || e.Fields != nil {
			t.Errorf("%s: %v, want %s", tt.what, tt.err, tt.want)
		}
	}
}

func TestDomainsOfManagedCertificatesAreChecked(t *testing.T) {
	t.Parallel()
	p, _ := certificateProject(t, Options{})
	many := make([]string, 101)
	for i := range many {
		many[i] = strings.Repeat("a", i%60+1) + ".example" + strings.Repeat("b", i/60) + ".com"
	}
	for _, tt := range []struct {
		domains []string
		ok      bool
	}{
		{[]string{"example.com"}, true},
		{[]string{"Example.COM", "*.example.com", "xn--bcher-kva.example"}, true},
		{many[:100], true},
		{many, false},
		{nil, false},
		{[]string{""}, false},
		{[]string{"com"}, false},
		{[]string{"10.0.0.1"}, false},
		{[]string{"a..example.com"}, false},
		{[]string{"-a.example.com"}, false},
		{[]string{"a.*.example.com"}, false},
		{[]string{"*.*.example.com"}, false},
		{[]string{"example.com."}, false},
		{[]string{strings.Repeat("a.", 127) + "com"}, false},
	} {
		if _, err := checkDomains(tt.domains); (err == nil) != tt.ok {
			t.Errorf("%.60q: %v", tt.domains, err)
		}
	}
	_, _, _, err := p.CreateManagedCertificate(CreateManagedCertificate{Name: "x", DomainNames: []string{"localhost"}})
	if codeOf(err) != "domain_names" || p.View().Certificates.Len() != 0 || p.View().Actions.Len() != 0 {
		t.Errorf("create: %v", err)
	}
}

func TestAManagedCertificateIsIssuedWhenItsActionEnds(t *testing.T) {
	t.Parallel()
	p, clock := certificateProject(t, Options{Profile: ProfileFixed(10 * time.Second)})
	c, action, st,
		err := p.CreateManagedCertificate(CreateManagedCertificate{Name: "web", DomainNames: []string{"www.example.com", "example.com"}})
	check(t, err)
	c, _ = st.Certificates.Get(c.ID)
	if c.Issuance != IssuancePending || c.Renewal != RenewalUnavailable || c.Certificate != "" || c.Fingerprint != "" ||
		!c.NotValidAfter.IsZero() {
		t.Errorf("at first: %+v", c)
	}
	if err := p.DeleteCertificate(c.ID); codeOf(err) != "locked" {
		t.Errorf("delete while pending: %v", err)
	}
	if _, _, err := p.RetryCertificate(c.ID); codeOf(err) != "locked" {
		t.Errorf("retry while pending: %v", err)
	}
	clock.Step(10 * time.Second)
	st = p.View()
	if a, _ := st.Actions.Get(action); a.Status != ActionSuccess || a.Command != "create_certificate" {
		t.Errorf("action: %+v", a)
	}
	c, _ = st.Certificates.Get(c.ID)
	if c.Issuance != IssuanceCompleted || c.Renewal != RenewalUnavailable ||
		c.NotValidAfter.Sub(c.NotValidBefore) != managedValidity-time.Second ||
		!slices.Equal(c.DomainNames, []string{"www.example.com", "example.com"}) {
		t.Errorf("issued: %+v", c)
	}
	pair, err := tls.X509KeyPair([]byte(c.Certificate), []byte(c.PrivateKey))
	if err != nil || len(pair.Certificate) != 2 {
		t.Fatalf("chain of %d, %v", len(pair.Certificate), err)
	}
	verify(t, p.Cloud(), c, "example.com", clock.Now())
}

// verify checks that a client that trusts the cloud's root accepts a certificate.
func verify(t *testing.T, c *Cloud, cert *Certificate, domain string, now time.Time) {
	t.Helper()
	chain, problem := parseChain(cert.Certificate)
	if problem != "" {
		t.Fatal(problem)
	}
	intermediates := x509.NewCertPool()
	for _, i := range chain[1:] {
		intermediates.AddCert(i)
	}
	if _, err := chain[0].Verify(x509.VerifyOptions{DNSName: domain, Roots: c.CertPool(), Intermediates: intermediates,
		CurrentTime: now}); err != nil {
		t.Errorf("a client would refuse it: %v", err)
	}
}

func TestManagedCertificatesAreRenewedBeforeTheyExpire(t *testing.T) {
	t.Parallel()
	p, clock := certificateProject(t, Options{})
	p.cloud.mu.Lock()
	p.cloud.keepActions = 2 * 365 * 24 * time.Hour // it counts them
	p.cloud.mu.Unlock()
	c, _, st, err := p.CreateManagedCertificate(CreateManagedCertificate{Name: "web", DomainNames: []string{"*.example.com"}})
	check(t, err)
	first, _ := st.Certificates.Get(c.ID)
	due := first.NotValidAfter.Add(-managedRenewal)
	clock.SetTime(due.Add(-time.Second))
	if now, _ := p.View().Certificates.Get(c.ID); now.Fingerprint != first.Fingerprint {
		t.Error("it was renewed too early")
	}
	clock.SetTime(due)
	second, _ := p.View().Certificates.Get(c.ID)
	if second.Fingerprint == first.Fingerprint || second.PrivateKey == first.PrivateKey ||
		!second.NotValidAfter.After(first.NotValidAfter) ||
		second.Renewal != RenewalUnavailable {
		t.Errorf("not renewed: %+v", second)
	}
	verify(t, p.Cloud(), second, "a.example.com", clock.Now())

	clock.Step(365 * 24 * time.Hour)
	last, _ := p.View().Certificates.Get(c.ID)
	if !last.NotValidAfter.After(clock.Now()) {
		t.Errorf("after a year it has expired: %v", last.NotValidAfter)
	}
	renewals := 0
	for e := range p.View().Actions.Of(c.Ref()) {
		if e.Value.Command == "issue_certificate" {
			renewals++
		}
	}
	if renewals < 6 || renewals > 8 {
		t.Errorf("%d renewals in about 14 months", renewals)
	}
	check(t, p.DeleteCertificate(c.ID))
	clock.Step(100 * 24 * time.Hour)
	if n := p.View().Certificates.Len(); n != 0 {
		t.Errorf("a renewal restored the deleted certificate: %d", n)
	}
}

func TestASeedMakesCertificatesReproducible(t *testing.T) {
	t.Parallel()
	issue := func(seed uint64) *Certificate {
		p, _ := certificateProject(t, Options{Seed: seed})
		c, _, st, err := p.CreateManagedCertificate(CreateManagedCertificate{Name: "web", DomainNames: []string{"example.com"}})
		check(t, err)
		c, _ = st.Certificates.Get(c.ID)
		return c
	}
	a, b, other, random1, random2 := issue(42), issue(42), issue(43), issue(0), issue(0)
	if a.Certificate != b.Certificate || a.PrivateKey != b.PrivateKey {
		t.Error("the same seed gave other certificates")
	}
	if a.PrivateKey == other.PrivateKey {
		t.Error("another seed gave the same key")
	}
	if random1.PrivateKey == random2.PrivateKey {
		t.Error("without a seed the key is not random")
	}
	c := New(Options{Seed: 42})
	defer c.Close()
	d := New(Options{Seed: 42})
	defer d.Close()
	if !bytes.Equal(c.CARoots(), d.CARoots()) {
		t.Error("the same seed gave another root")
	}
	if block, rest := pem.Decode(c.CARoots()); block == nil || len(rest) > 0 {
		t.Error("the root is not one PEM block")
	}
}

func FuzzParseUpload(f *testing.F) {
	ca := newTestCA(f)
	leaf := ca.issue(f, named("example.com"))
	f.Add(leaf.pem()+ca.pem(), leaf.keyPEM(f))
	f.Add(leaf.pem(), "-----BEGIN EC PARAMETERS-----\nBggqhkjOPQMBBw==\n-----END EC PARAMETERS-----\n")
	f.Add("-----BEGIN CERTIFICATE-----\n\n-----END CERTIFICATE-----\n",
		"-----BEGIN RSA PRIVATE KEY-----\nDEK-Info: x\n\nAAAA\n-----END RSA PRIVATE KEY-----\n")
	f.Add("", "")
	f.Fuzz(func(t *testing.T, chain, key string) {
		c, err := parseUpload(chain, key)
		if (c == nil) == (err == nil) {
			t.Fatalf("certificate %v, error %v", c, err)
		}
		if err != nil {
			if code := codeOf(err); code != "certificate" && code != "private_key" {
				t.Fatalf("error %v", err)
			}
			return
		}
		// The data plane must be able to use an accepted certificate.
		if _, err := tls.X509KeyPair([]byte(c.Certificate), []byte(c.PrivateKey)); err != nil {
			t.Fatalf("accepted, but %v", err)
		}
	})
}
