package doorstest_test

import (
	"bytes"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/doors/doorstest"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/journal"
)

// TestACertificateIsIssued has an authority of the ACME protocol, pebble, check a name in a zone of the cloud. The client is dehydrated,
// with a hook that knows only api.hetzner.cloud. Nothing leaves the machine.
func TestACertificateIsIssued(t *testing.T) {
	t.Parallel()
	for _, program := range []string{"pebble", "dehydrated", "curl", "openssl"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("%s is missing; apt-get install pebble dehydrated", program)
		}
	}
	cloud := fakecloud.New(fakecloud.Options{})
	defer cloud.Close()
	client := hcloud.NewClient(hcloud.WithToken(cloud.Token()), hcloud.WithHTTPClient(doorstest.HTTPClient(t, cloud)))
	_, _, err := client.Zone.Create(t.Context(), hcloud.ZoneCreateOpts{Name: "example.com", Mode: hcloud.ZoneModePrimary})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	acme := startPebble(t, write, doorstest.DNS(t, cloud))
	hook, err := filepath.Abs("testdata/hook.sh")
	if err != nil {
		t.Fatal(err)
	}
	config := write("config", fmt.Sprintf("CA=https://%s/dir\nCHALLENGETYPE=dns-01\nHOOK=%s\nBASEDIR=%s\n"+
		"CURL_OPTS='--cacert %[3]s/pebble.pem'\n", acme, hook, dir))
	for _, args := range [][]string{{"--register", "--accept-terms"}, {"--cron", "--domain", "example.com *.example.com"}} {
		cmd := exec.CommandContext(t.Context(), "dehydrated", append(args, "--config", config)...)
		cmd.Env = doorstest.Environ(t, cloud)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("dehydrated %v: %v\n%s", args, err, out)
		}
	}
	text, err := os.ReadFile(filepath.Join(dir, "certs", "example.com", "cert.pem"))
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(text)
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil || len(cert.DNSNames) != 2 || !slices.Contains(cert.DNSNames, "*.example.com") {
		t.Errorf("%+v, %v", cert, err)
	}
	for _, operation := range []string{"add_zone_rrset_records", "remove_zone_rrset_records"} {
		if n, err := cloud.Journal().Count(t.Context(), journal.Filter{Operation: operation}); err != nil || n != 2 {
			t.Errorf("%d requests of %s, %v, want 2", n, operation, err)
		}
	}
}

// startPebble starts an authority that asks a name server, and returns the address of its directory.
func startPebble(t *testing.T, write func(name, text string) string, dns string) (address string) {
	t.Helper()
	made := httptest.NewUnstartedServer(nil) // has a certificate for 127.0.0.1
	made.StartTLS()
	made.Close()
	key, err := x509.MarshalPKCS8PrivateKey(made.TLS.Certificates[0].PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address = listener.Addr().String()
	_ = listener.Close()
	config, err := json.Marshal(map[string]any{"pebble": map[string]any{
		"listenAddress": address, "managementListenAddress": "", "httpPort": 5002, "tlsPort": 5001,
		"certificate": write("pebble.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: made.Certificate().Raw}))),
		"privateKey":  write("pebble.key", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}))),
	}})
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	cmd := exec.CommandContext(t.Context(), "pebble", "-config", write("pebble.json", string(config)), "-dnsserver", dns)
	cmd.Env = append(os.Environ(), "PEBBLE_VA_NOSLEEP=1", "PEBBLE_WFE_NONCEREJECT=0")
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Log(log.String())
		}
	})
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			_ = conn.Close()
			return address
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}
