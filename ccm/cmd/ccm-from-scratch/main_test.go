package main

import (
	"crypto/x509"
	"os"
	"os/exec"
	"testing"
)

// The image contains only the program, and the API uses TLS.
func TestTheProgramTrustsPublicCertificateAuthoritiesWithoutASystem(t *testing.T) {
	const child = "CCM_TEST_NO_CERTIFICATES"
	if os.Getenv(child) != "" {
		roots, err := x509.SystemCertPool()
		if err != nil || roots.Equal(x509.NewCertPool()) {
			t.Fatalf("no certificate authority is trusted: %v", err)
		}
		return
	}
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
	// crypto/x509 finds no certificates on this system.
	cmd.Env = append(os.Environ(), child+"=1", "SSL_CERT_FILE="+t.TempDir()+"/none", "SSL_CERT_DIR="+t.TempDir())
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
