package environment

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/remote"
	"github.com/ccm-from-scratch/ccm-from-scratch/kind/cluster"
	"github.com/ccm-from-scratch/ccm-from-scratch/kind/nodes"
)

// Ports of the cloud in its container.
const (
	apiPort     = "4242"
	controlPort = "4243"
)

// NetworkName is the name of the cloud's network that the Docker network plays.
const NetworkName = "kind"

// cloudContainer is the name of the cloud's container.
func cloudContainer(cluster string) string { return cluster + "-cloud" }

// cloudVolume is the name of the volume that keeps the cloud when its container, Docker or the machine is started again.
func cloudVolume(cluster string) string { return cloudContainer(cluster) }

// startCloud starts the cloud's container. It is a router, so it needs NET_ADMIN, and nothing else.
func (o Options) startCloud(ctx context.Context, c *cluster.Cluster) error {
	if err := cloudProgram.load(ctx, o.CloudArchive); err != nil {
		return err
	}
	ports := map[string]uint16{apiPort: o.APIPort, controlPort: o.ControlPort}
	for name, port := range ports {
		if port == 0 {
			var err error
			if ports[name], err = freePort(ctx); err != nil {
				return err
			}
		}
	}
	args := []string{"run", "--detach", "--name", cloudContainer(c.Name), "--hostname", cloudContainer(c.Name),
		"--label", cluster.LabelCluster + "=" + c.Name, "--net", c.Name, "--ip", c.Router().String(),
		"--user=0", "--cap-drop=ALL", "--cap-add=NET_ADMIN", "--cap-add=NET_RAW", "--cap-add=NET_BIND_SERVICE",
		"--sysctl=net.ipv4.ip_forward=1",
		// A redirect would make nodes bypass the router.
		"--sysctl=net.ipv4.conf.all.send_redirects=0", "--sysctl=net.ipv4.conf.default.send_redirects=0",
		fmt.Sprintf("--publish=127.0.0.1:%d:%s", ports[apiPort], apiPort), fmt.Sprintf("--publish=127.0.0.1:%d:%s", ports[controlPort],
			controlPort),
		// In the image's environment, for its health check.
		"--env=FAKECLOUD_CONTROL=0.0.0.0:" + controlPort,
		"--volume=" + cloudVolume(c.Name) + ":/state",
		cloudProgram.image, "--listen=0.0.0.0:" + apiPort, "--state=/state",
		"--actions=" + o.Actions, fmt.Sprintf("--rate-limit=%d", o.RateLimit),
		"--data-plane-interface=eth0", "--load-balancer-ipv4=" + c.LoadBalancers().String(), "--public-ipv4=" + cluster.PublicIPv4.String(),
		"--router-interface=eth0", "--router-network=" + NetworkName, "--metadata=" + cluster.Metadata.String() + ":80",
	}
	_, err := docker(ctx, args...)
	return err
}

// freePort returns a port of this host that is free. Docker is told the number, so that it is the same after a restart.
func freePort(ctx context.Context) (uint16, error) {
	var listen net.ListenConfig
	l, err := listen.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	return l.Addr().(*net.TCPAddr).AddrPort().Port(), l.Close()
}

// RestartCloud kills the cloud's container, starts it again, and returns when the cloud answers.
func (e *Environment) RestartCloud(ctx context.Context) error {
	for _, command := range []string{"kill", "start"} {
		if _, err := docker(ctx, command, cloudContainer(e.Name)); err != nil {
			return err
		}
	}
	return e.awaitCloud(ctx)
}

// connect finds the cloud's container and fills in how to reach it.
func (e *Environment) connect(ctx context.Context) error {
	name := cloudContainer(e.Name)
	for port, url := range map[string]*string{apiPort: &e.Endpoint, controlPort: &e.Control} {
		address, err := published(ctx, name, port)
		if err != nil {
			return fmt.Errorf("%w (make up starts it): %w", ErrNoCloud, err)
		}
		*url = "http://" + address.String()
	}
	e.Endpoint += "/v1"
	e.InnerEndpoint = fmt.Sprintf("http://%s:%s/v1", e.Router(), apiPort)
	e.Token = fakecloud.DefaultToken
	e.Cloud = hcloud.NewClient(hcloud.WithEndpoint(e.Endpoint), hcloud.WithToken(e.Token), hcloud.WithApplication("kind-environment", ""),
		hcloud.WithPollOpts(hcloud.PollOpts{BackoffFunc: hcloud.ConstantBackoff(pollInterval)}))
	return nil
}

// published returns where on this host Docker has published a port of a container.
func published(ctx context.Context, container, port string) (netip.AddrPort, error) {
	out, err := docker(ctx, "port", container, port+"/tcp")
	if err != nil {
		return netip.AddrPort{}, err
	}
	address, err := netip.ParseAddrPort(strings.TrimSpace(strings.SplitN(out, "\n", 2)[0]))
	if err != nil {
		return address, fmt.Errorf("docker port %s: %w", container, err)
	}
	return address, nil
}

// pollInterval is how often a wait looks again. A wait ends with its context.
const pollInterval = 300 * time.Millisecond

// awaitCloud returns when the cloud answers. If the cloud's container exits, the error has the end of its log.
func (e *Environment) awaitCloud(ctx context.Context) error {
	return wait.PollUntilContextCancel(ctx, pollInterval, true, func(ctx context.Context) (bool, error) {
		if _, _, err := e.Cloud.Location.List(ctx, hcloud.LocationListOpts{}); err == nil {
			return true, nil
		}
		state, err := docker(ctx, "inspect", "--format", "{{.State.Running}}", cloudContainer(e.Name))
		if err == nil && state != "true" {
			// The cloud logs on stderr. docker() returns stdout only.
			_, said := run(ctx, "sh", "-c", "docker logs --tail=10 "+cloudContainer(e.Name)+" 1>&2; exit 1")
			return false, fmt.Errorf("the cloud has ended: %w", said)
		}
		return false, err
	})
}

// adopt makes a server of each node. Meanwhile actions take no time: the nodes' containers exist already.
func (o Options) adopt(ctx context.Context, e *Environment) error {
	if err := remote.New(e.Control).SetProfile(ctx, "instant"); err != nil {
		return err
	}
	containers, err := e.driver().List(ctx)
	if err != nil {
		return err
	}
	// Those that were made for a server belong to it.
	containers = slices.DeleteFunc(containers, func(c nodes.Container) bool { return c.Server != 0 })
	adopted, err := nodes.Adopt(ctx, nodes.Adoption{
		Client: e.Cloud, Network: NetworkName, IPRange: e.Subnet, Subnet: e.Cluster.Servers(),
	}, containers)
	e.CloudNetwork, e.NodeServers = adopted.Network, adopted.Servers
	if err != nil {
		return err
	}
	return remote.New(e.Control).SetProfile(ctx, o.Actions)
}
