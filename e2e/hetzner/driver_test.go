package hetzner_test

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/cloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/cloud/cloudtest"
	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/hetzner"
)

func TestDriver(t *testing.T) {
	t.Parallel()
	cloudtest.Run(t, hetzner.Driver{}, cloudtest.Config{CreateLoadBalancer: createLoadBalancer, ListServers: listServers})
}

// client returns a client of a cloud with a User-Agent. It retries nothing.
func client(c cloud.Cloud, userAgent string) *hcloud.Client {
	env := c.CCM().Env
	return hcloud.NewClient(hcloud.WithEndpoint(env["HCLOUD_ENDPOINT"]), hcloud.WithToken(env["HCLOUD_TOKEN"]),
		hcloud.WithApplication(userAgent, "1"), hcloud.WithRetryOpts(hcloud.RetryOpts{MaxRetries: 0}))
}

func listServers(ctx context.Context, c cloud.Cloud, userAgent string) error {
	_, err := client(c, userAgent).Server.All(ctx)
	return err
}

func createLoadBalancer(ctx context.Context, c cloud.Cloud, name string, port, nodePort uint16, servers ...cloud.Server) error {
	api, listen, to, interval := client(c, cloudtest.UserAgent), int(port), int(nodePort), 3*time.Second
	opts := hcloud.LoadBalancerCreateOpts{
		Name: name, LoadBalancerType: &hcloud.LoadBalancerType{Name: "lb11"}, Location: &hcloud.Location{Name: hetzner.Location},
		Services: []hcloud.LoadBalancerCreateOptsService{{
			Protocol: hcloud.LoadBalancerServiceProtocolTCP, ListenPort: &listen, DestinationPort: &to,
			HealthCheck: &hcloud.LoadBalancerCreateOptsServiceHealthCheck{Protocol: hcloud.LoadBalancerServiceProtocolTCP, Port: &to,
				Interval: &interval},
		}},
	}
	for _, s := range servers {
		id, err := strconv.ParseInt(s.ID, 10, 64)
		if err != nil {
			return fmt.Errorf("server %s: %w", s.Name, err)
		}
		opts.Targets = append(opts.Targets, hcloud.LoadBalancerCreateOptsTarget{
			Type: hcloud.LoadBalancerTargetTypeServer, Server: hcloud.LoadBalancerCreateOptsTargetServer{Server: &hcloud.Server{ID: id}}})
	}
	result, _, err := api.LoadBalancer.Create(ctx, opts)
	if err != nil {
		return err
	}
	return api.Action.WaitFor(ctx, result.Action)
}
