package fakecloud

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
)

// metrics returns a server's metrics at the cloud's present.
func (b balanced) metrics(t *testing.T, s *hcloud.Server) map[string]float64 {
	t.Helper()
	now, _ := b.Now(t.Context())
	now = now.Truncate(time.Second)
	m, _, err := b.client.Server.GetMetrics(t.Context(), s, hcloud.ServerGetMetricsOpts{
		Types: []hcloud.ServerMetricType{hcloud.ServerMetricCPU, hcloud.ServerMetricDisk, hcloud.ServerMetricNetwork},
		Start: now, End: now.Add(time.Second), Step: 1,
	})
	check(t, err)
	out := map[string]float64{}
	for name, values := range m.TimeSeries {
		if len(values) != 1 {
			t.Fatalf("%s has %d values", name, len(values))
		}
		if out[name], err = strconv.ParseFloat(values[0].Value, 64); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// awaitTrafficOf steps the cloud's clock until all metrics of a server's network are positive. It sends
// traffic before each step.
func (b balanced) awaitTrafficOf(t *testing.T, s *hcloud.Server, send func()) {
	t.Helper()
	for {
		m := b.metrics(t, s)
		if !slices.ContainsFunc(networkSeries, func(series string) bool { return m[series] == 0 }) {
			return
		}
		send()
		check(t, b.Step(t.Context(), time.Second))
		if t.Context().Err() != nil {
			t.Fatalf("metrics of the network are %v, want them positive", m)
		}
	}
}

func (b balanced) balance(t *testing.T, name string, network *hcloud.Network,
	targets ...hcloud.LoadBalancerCreateOptsTarget) *hcloud.LoadBalancer {
	t.Helper()
	result, _, err := b.client.LoadBalancer.Create(t.Context(), hcloud.LoadBalancerCreateOpts{
		Name: name, LoadBalancerType: &hcloud.LoadBalancerType{Name: "lb11"}, Location: &hcloud.Location{Name: "fsn1"}, Network: network,
		Targets: targets, Services: []hcloud.LoadBalancerCreateOptsService{{
			Protocol: hcloud.LoadBalancerServiceProtocolTCP, ListenPort: new(8080), DestinationPort: new(80),
		}},
	})
	check(t, err)
	return result.LoadBalancer
}

func target(s *hcloud.Server, private bool) hcloud.LoadBalancerCreateOptsTarget {
	return hcloud.LoadBalancerCreateOptsTarget{
		Type: hcloud.LoadBalancerTargetTypeServer, Server: hcloud.LoadBalancerCreateOptsTargetServer{Server: s}, UsePrivateIP: &private,
	}
}

// awaitAnswer steps the cloud's clock until a load balancer forwards to a healthy target.
func (b balanced) awaitAnswer(t *testing.T, lb *hcloud.LoadBalancer, want string) {
	t.Helper()
	url := fmt.Sprintf("http://%s/", net.JoinHostPort(lb.PublicNet.IPv4.IP.String(), "8080"))
	for b.get(t.Context(), t, url) != want {
		check(t, b.Step(t.Context(), time.Second))
		if t.Context().Err() != nil {
			t.Fatalf("no answer %s", want)
		}
	}
}

var networkSeries = []string{"network.0.bandwidth.in", "network.0.bandwidth.out", "network.0.pps.in", "network.0.pps.out"}

func TestTrafficToAPrivateAddressDoesNotCount(t *testing.T) {
	t.Parallel()
	b := newBalanced(t)
	check(t, b.SetSpeed(t.Context(), 0))
	network, _, err := b.client.Network.Create(t.Context(), hcloud.NetworkCreateOpts{
		Name: "n", IPRange: ipNet("10.0.0.0/16"), Subnets: []hcloud.NetworkSubnet{{
			Type: hcloud.NetworkSubnetTypeCloud, NetworkZone: hcloud.NetworkZoneEUCentral, IPRange: ipNet("10.0.1.0/24"),
		}},
	})
	check(t, err)
	private, public := b.server(t, "web-0"), b.server(t, "web-1")
	if _, _, err := b.client.Server.AttachToNetwork(t.Context(), private, hcloud.ServerAttachToNetworkOpts{
		Network: network, IP: net.ParseIP(privateBackend),
	}); err != nil {
		t.Fatal(err)
	}
	inside := b.balance(t, "inside", network, target(private, true))
	outside := b.balance(t, "outside", nil, target(public, false))
	b.awaitAnswer(t, inside, "200 web-0")
	b.awaitTrafficOf(t, public, func() { // it could have counted
		b.awaitAnswer(t, inside, "200 web-0")
		b.awaitAnswer(t, outside, "200 web-1")
	})
	m := b.metrics(t, private)
	for _, series := range networkSeries {
		if m[series] != 0 {
			t.Errorf("%s is %v", series, m[series])
		}
	}
}

func ipNet(s string) *net.IPNet {
	p := netip.MustParsePrefix(s)
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
