package example_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/cloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/cloud/cloudtest"
	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/cloud/example"
)

func TestDriver(t *testing.T) {
	t.Parallel()
	cloudtest.Run(t, example.Driver{}, cloudtest.Config{CreateLoadBalancer: createLoadBalancer, ListServers: listServers})
}

func TestAFailedSpecShowsTheCloud(t *testing.T) {
	t.Parallel()
	c, err := example.Driver{}.Start(t.Context(), cloud.Options{Servers: netip.MustParsePrefix("127.72.0.0/16"),
		LoadBalancers: netip.MustParsePrefix("127.73.0.0/16")})
	if err == nil {
		_, err = c.CreateServer(t.Context(), "node-1")
	}
	if err != nil || !strings.Contains(c.(cloud.Dumper).Dump(t.Context()), `"name": "node-1"`) {
		t.Errorf("%v, or the state lacks the server", err)
	}
}

func TestOpenSaysThatThereIsNothingToOpen(t *testing.T) {
	t.Parallel()
	if _, err := (example.Driver{}).Open(t.Context(), cloud.Options{}); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("got %v, want an error of errors.ErrUnsupported", err)
	}
}

// call sends a request as a client with a User-Agent, and decodes the answer.
func call[T any](ctx context.Context, c cloud.Cloud, agent, method, path string, body any) (out T, err error) {
	text, err := json.Marshal(body)
	if err != nil {
		return out, err
	}
	env := c.CCM().Env
	r, err := http.NewRequestWithContext(ctx, method, env["EXAMPLE_ENDPOINT"]+path, strings.NewReader(string(text)))
	if err != nil {
		return out, err
	}
	r.Header.Set("Authorization", "Bearer "+env["EXAMPLE_TOKEN"])
	r.Header.Set("User-Agent", agent)
	r.Close = true // the transport sends a request again if a connection that it has used before is cut
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return out, err
	}
	defer func() { _ = answer.Body.Close() }()
	got, err := io.ReadAll(answer.Body)
	if err != nil {
		return out, err
	}
	if answer.StatusCode >= 300 {
		return out, fmt.Errorf("%s %s: %d %s", method, path, answer.StatusCode, got)
	}
	return out, json.Unmarshal(got, &out)
}

func listServers(ctx context.Context, c cloud.Cloud, agent string) error {
	out, err := call[struct{ Instances []example.Instance }](ctx, c, agent, "GET", "/instances", nil)
	if err == nil && out.Instances == nil {
		err = errors.New("there is not a list in the answer")
	}
	return err
}

func createLoadBalancer(ctx context.Context, c cloud.Cloud, name string, port, nodePort uint16, servers ...cloud.Server) error {
	_, err := call[any](ctx, c, "test/1", "POST", "/load-balancers", map[string]any{"name": name, "region": example.Region})
	if err != nil {
		return err
	}
	backends := []netip.AddrPort{}
	for _, s := range servers {
		for _, a := range s.Addresses {
			if a.Type == corev1.NodeInternalIP {
				backends = append(backends, netip.AddrPortFrom(netip.MustParseAddr(a.Address), nodePort))
			}
		}
	}
	_, err = call[any](ctx, c, "test/1", "POST", "/listeners", map[string]any{"load_balancer": name, "port": port, "backends": backends})
	return err
}
