package main

import (
	"bytes"
	"crypto/x509"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/spf13/cobra"
	"k8s.io/component-base/version"
	"k8s.io/klog/v2"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm"
)

// A process can have the command only once, because of its feature gates.
var theCommand = sync.OnceValue(func() *cobra.Command { return newCommand(nil) })

func TestVersionIsTheProgramsOwn(t *testing.T) {
	var out bytes.Buffer
	command := theCommand()
	command.SetArgs([]string{"--version"})
	command.SetOut(&out)
	if err := command.Execute(); err != nil {
		t.Fatal(err)
	}
	if got := out.String(); !strings.HasPrefix(got, "ccm-from-scratch "+ccm.Version()+" (k8s.io/cloud-provider v") ||
		strings.Contains(got, "$Format") {
		t.Errorf("got %s", got)
	}
	if got := version.Get().GitVersion; !strings.Contains(got, strings.TrimPrefix(ccm.Version(), "v")) || strings.Contains(got, "$Format") {
		t.Errorf("the libraries report %s", got)
	}
}

func TestTheFirstLineOfTheLogHasTheVersion(t *testing.T) {
	var log bytes.Buffer
	klog.LogToStderr(false)
	klog.SetOutput(&log)
	logStart([]string{"HCLOUD_NETWORKS=secret"})
	klog.Flush()
	klog.LogToStderr(true)
	lines := strings.Split(log.String(), "\n")
	if !strings.Contains(lines[0], `"Starting ccm-from-scratch" version="`+ccm.Version()) ||
		!strings.Contains(lines[1], "did you mean HCLOUD_NETWORK?") || strings.Contains(log.String(), "secret") {
		t.Errorf("got %s", log.String())
	}
}

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

// With the defaults of k8s.io/cloud-provider, one locked load balancer would delay all Services, and 5,000 new nodes would
// wait for 13 minutes.
func TestManyNodesAndServicesAreHandledAtOnceByDefault(t *testing.T) {
	for name, want := range map[string]string{
		"concurrent-service-syncs": "10", "concurrent-node-syncs": "10", "kube-api-qps": "100", "kube-api-burst": "200",
	} {
		if got := theCommand().Flags().Lookup(name).Value.String(); got != want {
			t.Errorf("--%s=%s, want %s", name, got, want)
		}
	}
}

func TestReadinessIsServedNextToTheMetrics(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(handler(ccm.New(ccm.Config{})))
	defer server.Close()
	for _, path := range []string{"/readyz", "/metrics"} {
		resp, err := http.Get(server.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			t.Errorf("%s: %d", path, resp.StatusCode)
		}
	}
}
