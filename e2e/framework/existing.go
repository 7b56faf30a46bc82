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

// EnvCloud says what cloud an existing cluster runs in: "hcloud", the only one, is anything that speaks
// Hetzner's API, at HCLOUD_ENDPOINT (default: the real one), with HCLOUD_TOKEN.
const EnvCloud = "E2E_CLOUD"

// EnvPodImage names the image of the pods behind Services on an existing cluster, which its nodes can pull:
// kind/cmd/probe.
const EnvPodImage = "E2E_POD_IMAGE"

// openExisting uses the cluster that KUBECONFIG leads to, and the cloud that HCLOUD_TOKEN gives access to.
// The CCM is what runs there.
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
		journal:    noJournal{},
	}
	if cloud := need(EnvCloud, "hcloud is anything that speaks Hetzner's API"); cloud != "" && cloud != "hcloud" {
		errs = append(errs, fmt.Errorf("%s=%s: want hcloud", EnvCloud, cloud))
	}
	if len(errs) > 0 {
		return nil, fmt.Errorf("%s=%s: %w", EnvCluster, Existing, errors.Join(errs...))
	}
	if _, err := s.client("e2e").Location.All(ctx); err != nil {
		return nil, fmt.Errorf("the cloud at %s does not answer: %w", s.endpoint, err)
	}
	return s, nil
}
