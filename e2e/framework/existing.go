package framework

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
)

// EnvCloud is the cloud of an existing cluster. It must be "hcloud": a cloud with Hetzner's API at HCLOUD_ENDPOINT
// (default: the real one), with HCLOUD_TOKEN.
const EnvCloud = "E2E_CLOUD"

// EnvPodImage is the image of the pods behind Services on an existing cluster: kind/cmd/probe, where its nodes can
// pull it.
const EnvPodImage = "E2E_POD_IMAGE"

// openExisting uses the cluster of KUBECONFIG, the CCM that runs in it, and the cloud of HCLOUD_TOKEN.
func openExisting(ctx context.Context) (*sharedCluster, error) {
	var errs []error
	need := func(name, what string) string {
		value := os.Getenv(name)
		if value == "" {
			errs = append(errs, fmt.Errorf("%s is not set: %s", name, what))
		}
		return value
	}
	s := &sharedCluster{
		kubeconfig: need("KUBECONFIG", "the path of an administrator's access to the cluster"),
		token:      need("HCLOUD_TOKEN", "a token of the cloud's project that may write"),
		endpoint:   cmp.Or(os.Getenv("HCLOUD_ENDPOINT"), hcloud.Endpoint),
		network:    os.Getenv("HCLOUD_NETWORK"),
		podImage:   os.Getenv(EnvPodImage),
		dial:       new(net.Dialer).DialContext,
	}
	if cloud := need(EnvCloud, "hcloud is anything that speaks Hetzner's API"); cloud != "" && cloud != "hcloud" {
		errs = append(errs, fmt.Errorf("%s=%s: must be hcloud", EnvCloud, cloud))
	}
	if len(errs) > 0 {
		return nil, fmt.Errorf("%s=%s: %w", EnvCluster, Existing, errors.Join(errs...))
	}
	if _, err := s.client("e2e").Location.All(ctx); err != nil {
		return nil, fmt.Errorf("cannot reach the cloud at %s: %w; check HCLOUD_ENDPOINT and HCLOUD_TOKEN", s.endpoint, err)
	}
	return s, nil
}
