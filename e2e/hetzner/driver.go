// Package hetzner is the driver of Hetzner's cloud, simulated or real. Specs for that cloud use it instead of package framework: it has
// everything of framework, and the cloud in its own terms.
package hetzner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/cloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/framework"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
)

// Driver makes simulated clouds, and connects to any cloud with Hetzner's API.
type Driver struct{}

// EnvCloud is the cloud of an existing cluster. It must be "hcloud": a cloud with Hetzner's API at HCLOUD_ENDPOINT
// (default: the real one), with HCLOUD_TOKEN.
const EnvCloud = "E2E_CLOUD"

// The location and network zone of servers and load balancers, and the type of servers. On an existing cluster, E2E_LOCATION,
// E2E_NETWORK_ZONE and E2E_SERVER_TYPE set them.
var (
	Location    = cmp.Or(os.Getenv("E2E_LOCATION"), "fsn1")
	NetworkZone = cmp.Or(hcloud.NetworkZone(os.Getenv("E2E_NETWORK_ZONE")), hcloud.NetworkZoneEUCentral)
	// ServerType is available in Location.
	ServerType = cmp.Or(os.Getenv("E2E_SERVER_TYPE"), "cx23")
)

// values replace their names in braces in the descriptions of CCMs.
func values() map[string]string {
	return map[string]string{"location": Location, "networkZone": string(NetworkZone)}
}

// account is a project of a cloud with Hetzner's API, as the conformance specs see it.
type account struct {
	cloud.Options
	Client *hcloud.Client
	// Network is the cluster's private network, nil if it has none.
	Network *hcloud.Network
	// endpoint and token are the API for this host.
	endpoint, token string
	// control is how a simulated cloud is controlled, nil for a real one.
	control control
	// fake is the cloud of a spec's own, nil for one that exists.
	fake *fakecloud.Cloud
	// dial connects to an address of the cloud from outside of the cluster.
	dial func(ctx context.Context, network, address string) (net.Conn, error)
	// restart kills the cloud's program and starts it again, nil if the suite may not do so.
	restart func(context.Context) error
	// machineController reports whether the machine controller runs in the shared cluster.
	machineController bool
}

// Start implements cloud.Driver: a simulated cloud with a network.
func (Driver) Start(ctx context.Context, o cloud.Options) (cloud.Cloud, error) {
	settings, _ := o.Settings.(Options)
	a := &account{Options: o}
	a.fake = fakecloud.New(fakecloud.Options{
		Actions: cmp.Or(settings.Actions, "20ms"), RateLimit: settings.RateLimit,
		PublicIPv4:       netip.PrefixFrom(o.Servers.Addr(), o.Servers.Bits()+1), // the other half is for servers without one
		LoadBalancerIPv4: o.LoadBalancers,
		DataPlane: &fakecloud.DataPlaneOptions{
			Resolver: a.resolve, Logger: slog.New(slog.NewTextHandler(o.Log, nil)),
		},
	})
	if _, err := a.fake.Start(ctx, ""); err != nil {
		a.fake.Close()
		return nil, err
	}
	a.control, a.dial = a.fake, a.fake.DataPlane().DialContext
	a.endpoint, a.token = a.fake.Endpoint(), a.fake.Token()
	a.Client = a.fake.Client(hcloud.WithApplication("spec", "1"))
	if err := a.createNetwork(ctx); err != nil {
		a.fake.Close()
		return nil, err
	}
	return a, nil
}

func (a *account) createNetwork(ctx context.Context) (err error) {
	a.Network, _, err = a.Client.Network.Create(ctx, hcloud.NetworkCreateOpts{
		Name: "cluster", IPRange: IPNet("10.0.0.0/8"),
		Subnets: []hcloud.NetworkSubnet{{
			Type: hcloud.NetworkSubnetTypeCloud, IPRange: IPNet("10.0.0.0/24"), NetworkZone: NetworkZone,
		}},
	})
	return err
}

// Close implements cloud.Cloud.
func (a *account) Close() error {
	if a.fake != nil {
		a.fake.Close()
	}
	return nil
}

// Open implements cloud.Driver: the cloud of HCLOUD_TOKEN.
func (Driver) Open(ctx context.Context, o cloud.Options) (cloud.Cloud, error) {
	var errs []error
	need := func(name, what string) string {
		value := os.Getenv(name)
		if value == "" {
			errs = append(errs, fmt.Errorf("%s is not set: %s", name, what))
		}
		return value
	}
	token := need("HCLOUD_TOKEN", "a token of the cloud's project that may write")
	if name := need(EnvCloud, "hcloud is anything that speaks Hetzner's API"); name != "" && name != "hcloud" {
		errs = append(errs, fmt.Errorf("%s=%s: must be hcloud", EnvCloud, name))
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	a := &account{Options: o, dial: new(net.Dialer).DialContext}
	return a, a.connect(ctx, cmp.Or(os.Getenv("HCLOUD_ENDPOINT"), hcloud.Endpoint), token, os.Getenv("HCLOUD_NETWORK"))
}

// connect makes the account that of an API, with a network, "" for none.
func (a *account) connect(ctx context.Context, endpoint, token, network string) error {
	a.endpoint, a.token = endpoint, token
	a.Client = hcloud.NewClient(hcloud.WithEndpoint(endpoint), hcloud.WithToken(token), hcloud.WithApplication("spec", "1"),
		hcloud.WithPollOpts(hcloud.PollOpts{BackoffFunc: hcloud.ConstantBackoff(framework.Polling)}))
	if _, err := a.Client.Location.All(ctx); err != nil {
		return fmt.Errorf("cannot reach the cloud at %s: %w; check HCLOUD_ENDPOINT and HCLOUD_TOKEN", endpoint, err)
	}
	if network == "" {
		return nil
	}
	var err error
	if a.Network, _, err = a.Client.Network.GetByName(ctx, network); err != nil {
		return fmt.Errorf("cannot find the network %s: %w", network, err)
	}
	if a.Network == nil {
		return fmt.Errorf("the cloud has no network %s: write the name of the cluster's network", network)
	}
	return nil
}

// CCM implements cloud.Cloud.
func (a *account) CCM() cloud.CCM {
	env := map[string]string{"HCLOUD_ENDPOINT": a.endpoint, "HCLOUD_TOKEN": a.token}
	if a.Network != nil {
		env["HCLOUD_NETWORK"] = a.Network.Name
	}
	return cloud.CCM{Env: env, Values: values()}
}

// Dial implements cloud.Dialer.
func (a *account) Dial(ctx context.Context, address string) (net.Conn, error) {
	return a.dial(ctx, "tcp", address)
}

// Implements implements cloud.Partial: a real cloud has no log of requests and no faults, and a cluster may have no network.
func (a *account) Implements(optional string) bool {
	switch optional {
	case "Recorder", "Faulty":
		return a.control != nil
	case "Router":
		return a.Network != nil
	case "ServerEvents", "Dumper":
		return a.fake != nil
	}
	return true
}

var _ interface {
	cloud.Cloud
	cloud.Renamer
	cloud.Router
	cloud.Dialer
	cloud.Recorder
	cloud.Faulty
	cloud.Tagger
	cloud.Dumper
	cloud.Partial
} = &account{}
