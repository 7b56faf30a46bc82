package program_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/cloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/cloud/cloudtest"
	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/cloud/program"
)

// TestPythonDriver checks the driver in Python as it does the one in Go.
func TestPythonDriver(t *testing.T) {
	t.Parallel()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("python3 is not installed, which the example of a driver needs")
	}
	examplecloud := filepath.Join(t.TempDir(), "examplecloud")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", examplecloud, "../example/cmd/examplecloud")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	driver := program.Driver{Path: python, Args: []string{"example_driver.py", examplecloud}}
	cloudtest.Run(t, driver, cloudtest.Config{CreateLoadBalancer: createLoadBalancer, ListServers: listServers})

	t.Run("Open is unsupported", func(t *testing.T) {
		t.Parallel()
		if _, err := driver.Open(t.Context(), cloud.Options{}); !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("got %v", err)
		}
	})
}

// call sends a request to the cloud.
func call(ctx context.Context, c cloud.Cloud, agent, method, path, body string) (text string, err error) {
	env := c.CCM().Env
	r, err := http.NewRequestWithContext(ctx, method, env["EXAMPLE_ENDPOINT"]+path, strings.NewReader(body))
	if err != nil {
		return "", err
	}
	r.Header.Set("Authorization", "Bearer "+env["EXAMPLE_TOKEN"])
	r.Header.Set("User-Agent", agent)
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return "", err
	}
	defer func() { _ = answer.Body.Close() }()
	got, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode >= 300 {
		err = fmt.Errorf("%d %s", answer.StatusCode, got)
	}
	return string(got), err
}

func listServers(ctx context.Context, c cloud.Cloud, agent string) error {
	_, err := call(ctx, c, agent, http.MethodGet, "/instances", "")
	return err
}

func createLoadBalancer(ctx context.Context, c cloud.Cloud, name string, port, nodePort uint16, servers ...cloud.Server) error {
	var backends []string
	for _, s := range servers {
		backends = append(backends, fmt.Sprintf("%s:%d", s.Addresses[0].Address, nodePort))
	}
	list, err := json.Marshal(backends)
	if err != nil {
		return err
	}
	if _, err := call(ctx, c, "test/1", http.MethodPost, "/load-balancers", fmt.Sprintf(`{"name": %q, "region": "north"}`, name)); err != nil {
		return err
	}
	_, err = call(ctx, c, "test/1", http.MethodPost, "/listeners", fmt.Sprintf(`{"load_balancer": %q, "port": %d, "backends": %s}`, name, port, list))
	return err
}
