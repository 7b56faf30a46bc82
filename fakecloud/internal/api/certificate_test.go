package api_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
)

// selfSigned returns a certificate for a domain and its key, in PEM.
func selfSigned(t *testing.T, domain string) (cert, key string) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{domain}, NotBefore: today, NotAfter: today.AddDate(1, 0, 0),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, k.Public(), k)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
		string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER}))
}

func TestAClientUploadsRenamesAndDeletesACertificate(t *testing.T) {
	t.Parallel()
	w := newWire(t, fakecloud.Options{})
	client, ctx := w.cloud.Client(), t.Context()
	cert, key := selfSigned(t, "example.com")

	c, _, err := client.Certificate.Create(ctx, hcloud.CertificateCreateOpts{
		Name: "web", Type: hcloud.CertificateTypeUploaded, Certificate: cert, PrivateKey: key, Labels: map[string]string{"a": "b"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if c.Certificate != cert || c.Status != nil || c.DomainNames[0] != "example.com" || !c.NotValidBefore.Equal(today) ||
		len(c.UsedBy) != 0 {
		t.Errorf("certificate: %+v", c)
	}
	if c, _, err = client.Certificate.Update(ctx, c, hcloud.CertificateUpdateOpts{Name: "www"}); err != nil || c.Name != "www" ||
		c.Labels["a"] != "b" {
		t.Errorf("update: %+v, %v", c, err)
	}
	if _, _, err := client.Certificate.RetryIssuance(ctx, c); !hcloud.IsError(err, hcloud.ErrorCode("unsupported_error")) {
		t.Errorf("retry: %v", err)
	}
	if _, err := client.Certificate.Delete(ctx, c); err != nil {
		t.Fatal(err)
	}
	if c, _, err := client.Certificate.GetByName(ctx, "www"); err != nil || c != nil {
		t.Errorf("after delete: %v, %v", c, err)
	}
}

func TestTheAnswerToAnUploadHasANullActionAndNoKey(t *testing.T) {
	t.Parallel()
	w := newWire(t, fakecloud.Options{})
	cert, key := selfSigned(t, "example.com")
	out := w.do(http.MethodPost, "/certificates", map[string]any{"name": "web", "certificate": cert, "private_key": key},
		http.StatusCreated)
	if action, there := out["action"]; !there || action != nil {
		t.Errorf("action: %v", action)
	}
	c := out["certificate"].(map[string]any)
	if status, there := c["status"]; !there || status != nil || c["type"] != "uploaded" {
		t.Errorf("certificate: %v", c)
	}
	for field, value := range c {
		if s, ok := value.(string); ok && strings.Contains(s, "PRIVATE KEY") {
			t.Errorf("%s shows the key", field)
		}
	}
}

func TestAManagedCertificateGoesFromPendingToTrusted(t *testing.T) {
	t.Parallel()
	w := newWire(t, fakecloud.Options{Actions: "10s"})
	client, ctx := w.cloud.Client(), t.Context()

	result, _, err := client.Certificate.CreateCertificate(ctx, hcloud.CertificateCreateOpts{
		Name: "le", Type: hcloud.CertificateTypeManaged, DomainNames: []string{"example.com", "*.example.com"},
	})
	if err != nil {
		t.Fatal(err)
	}
	c := result.Certificate
	if result.Action == nil || result.Action.Status != hcloud.ActionStatusRunning || result.Action.Command != "create_certificate" ||
		c.Status.Issuance != hcloud.CertificateStatusTypePending || c.Status.Renewal != hcloud.CertificateStatusTypeUnavailable ||
		c.Certificate != "" || c.Fingerprint != "" || c.Status.Error != nil {
		t.Errorf("at first: action %+v, certificate %+v", result.Action, c)
	}
	w.clock.Step(10 * time.Second)
	if c, _, err = client.Certificate.GetByID(ctx, c.ID); err != nil {
		t.Fatal(err)
	}
	if c.Status.Issuance != hcloud.CertificateStatusTypeCompleted || c.Status.Renewal != hcloud.CertificateStatusTypeUnavailable {
		t.Errorf("status: %+v", c.Status)
	}
	block, rest := pem.Decode([]byte(c.Certificate))
	leaf, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	intermediates := x509.NewCertPool()
	if !intermediates.AppendCertsFromPEM(rest) {
		t.Fatal("no intermediate")
	}
	authority, err := w.cloud.CARoots(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(authority) {
		t.Fatal("no root")
	}
	for _, pool := range []*x509.CertPool{roots, w.cloud.CertPool()} {
		config := tls.Config{RootCAs: pool, Time: w.clock.Now}
		if _, err := leaf.Verify(x509.VerifyOptions{
			DNSName: "www.example.com", Roots: config.RootCAs, Intermediates: intermediates, CurrentTime: config.Time(),
		}); err != nil {
			t.Error(err)
		}
	}
}

func TestAFailedIssuanceShowsItsErrorAndCanBeRetried(t *testing.T) {
	t.Parallel()
	w := newWire(t, fakecloud.Options{})
	client, ctx := w.cloud.Client(), t.Context()
	result, _, err := client.Certificate.CreateCertificate(ctx, hcloud.CertificateCreateOpts{
		Name: "le", Type: hcloud.CertificateTypeManaged, DomainNames: []string{"once-ca-dns-validation-failed.invalid"},
	})
	if err != nil {
		t.Fatal(err)
	}
	c := result.Certificate
	if !c.Status.IsFailed() || c.Status.Error == nil || c.Status.Error.Code != "ca_dns_validation_failed" ||
		result.Action.ErrorCode != "ca_dns_validation_failed" {
		t.Errorf("action %+v, status %+v", result.Action, c.Status)
	}
	path := fmt.Sprintf("/certificates/%d", c.ID)
	for _, p := range []string{path, path + "/actions", "/certificates/actions",
		fmt.Sprintf("/certificates/actions/%d", result.Action.ID)} {
		w.get(p) // checked against the document
	}
	retry, _, err := client.Certificate.RetryIssuance(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	if retry.Command != "issue_certificate" || retry.Status != hcloud.ActionStatusSuccess {
		t.Errorf("retry: %+v", retry)
	}
	w.do(http.MethodPut, path, map[string]any{"labels": map[string]string{"env": "test"}}, http.StatusOK)
	if code := w.refused(http.MethodPost, path+"/actions/retry", nil, http.StatusUnprocessableEntity); code != "unsupported_error" {
		t.Errorf("retry after success: %s", code)
	}
	w.do(http.MethodPost, "/certificates", map[string]any{
		"name": "never", "type": "managed", "domain_names": []string{"www.example.invalid"},
	}, http.StatusCreated)
	actions, err := client.Certificate.Action.All(ctx, hcloud.ActionListOpts{Status: []hcloud.ActionStatus{hcloud.ActionStatusError}})
	if err != nil || len(actions) != 2 || actions[0].Resources[0].ID != c.ID {
		t.Errorf("failed actions: %v, %v", actions, err)
	}
}

func TestCertificatesAreFiltered(t *testing.T) {
	t.Parallel()
	w := newWire(t, fakecloud.Options{})
	cert, key := selfSigned(t, "example.com")
	w.do(http.MethodPost, "/certificates", map[string]any{"name": "b", "type": "uploaded", "certificate": cert, "private_key": key,
		"labels": map[string]string{"x": ""}}, http.StatusCreated)
	w.do(http.MethodPost, "/certificates", map[string]any{"name": "a", "type": "managed", "domain_names": []string{"example.com"}},
		http.StatusCreated)
	for query, want := range map[string]string{
		"":                              "b a",
		"sort=name":                     "a b",
		"sort=created:desc":             "a b",
		"type=uploaded":                 "b",
		"type=managed":                  "a",
		"type=managed&type=uploaded":    "b a",
		"type=managed&label_selector=x": "",
		"label_selector=!x":             "a",
		"name=b":                        "b",
		"name=b&type=managed":           "",
		"sort=name:desc&per_page=1":     "b",
		"name=a&name=b&sort=id&page=1":  "b a",
		"type=stolen":                   "422",
		"sort=fingerprint":              "422",
	} {
		if want == "422" {
			if code := w.refused(http.MethodGet, "/certificates?"+query, nil, http.StatusUnprocessableEntity); code != "invalid_input" {
				t.Errorf("%s: %s", query, code)
			}
			continue
		}
		if got := strings.Join(names(w.get("/certificates?"+query), "certificates"), " "); got != want {
			t.Errorf("%s: got %s, want %s", query, got, want)
		}
	}
}

func TestErrorsOfACertificateNameEachField(t *testing.T) {
	t.Parallel()
	w := newWire(t, fakecloud.Options{})
	cert, key := selfSigned(t, "example.com")
	for _, tt := range []struct {
		body   any
		fields string
	}{
		{map[string]any{}, "name"},
		{map[string]any{"name": "x"}, "certificate private_key"},
		{map[string]any{"name": "x", "certificate": nil, "private_key": key}, "certificate"},
		{map[string]any{"name": "x", "certificate": "", "private_key": ""}, "certificate private_key"},
		{map[string]any{"name": "x", "certificate": cert, "private_key": 7}, "private_key"},
		{map[string]any{"name": " ", "type": "stolen"}, "name type"},
		{map[string]any{"name": "x", "type": "managed"}, "domain_names"},
		{map[string]any{"name": "x", "type": "managed", "domain_names": []any{1}}, "domain_names.0"},
		{map[string]any{"name": "x", "type": "managed", "domain_names": []string{"example.com"},
			"labels": map[string]string{"hetzner.cloud/x": ""}}, "labels"},
	} {
		e := w.do(http.MethodPost, "/certificates", tt.body, http.StatusUnprocessableEntity)["error"].(map[string]any)
		var got []string
		for _, f := range e["details"].(map[string]any)["fields"].([]any) {
			got = append(got, f.(map[string]any)["name"].(string))
		}
		if strings.Join(got, " ") != tt.fields || e["code"] != "invalid_input" {
			t.Errorf("%v: %v", tt.body, e)
		}
	}
	if list := w.get("/certificates")["certificates"].([]any); len(list) != 0 {
		t.Errorf("created: %v", list)
	}
}
