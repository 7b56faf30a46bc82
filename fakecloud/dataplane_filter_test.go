package fakecloud

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/dataplane"
)

// request sends a request over an open connection and returns the answer.
func request(t *testing.T, c net.Conn) string {
	t.Helper()
	if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: lb\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// guardedBalancer creates a load balancer for the servers with the label role=web. It listens on port 8080, sends to port
// 30080 and checks port 30081.
func (b balanced) guardedBalancer(t *testing.T) *hcloud.LoadBalancer {
	t.Helper()
	result, _, err := b.client.LoadBalancer.Create(t.Context(), hcloud.LoadBalancerCreateOpts{
		Name: "lb", LoadBalancerType: &hcloud.LoadBalancerType{Name: "lb11"}, Location: &hcloud.Location{Name: "fsn1"},
		Targets: []hcloud.LoadBalancerCreateOptsTarget{{
			Type:          hcloud.LoadBalancerTargetTypeLabelSelector,
			LabelSelector: hcloud.LoadBalancerCreateOptsTargetLabelSelector{Selector: "role=web"},
		}},
		Services: []hcloud.LoadBalancerCreateOptsService{{
			Protocol: hcloud.LoadBalancerServiceProtocolTCP, ListenPort: new(8080), DestinationPort: new(30080),
			HealthCheck: &hcloud.LoadBalancerCreateOptsServiceHealthCheck{
				Protocol: hcloud.LoadBalancerServiceProtocolTCP, Port: new(30081),
				Interval: new(15 * time.Second), Timeout: new(10 * time.Second), Retries: new(3),
			},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return result.LoadBalancer
}

// permit returns a rule that permits TCP from a network to a port or range.
func permit(t *testing.T, network, port string) hcloud.FirewallRule {
	t.Helper()
	_, n, err := net.ParseCIDR(network)
	if err != nil {
		t.Fatal(err)
	}
	return hcloud.FirewallRule{
		Direction: hcloud.FirewallRuleDirectionIn, Protocol: hcloud.FirewallRuleProtocolTCP, Port: &port, SourceIPs: []net.IPNet{*n},
	}
}

func (b balanced) label(t *testing.T, s *hcloud.Server, labels map[string]string) {
	t.Helper()
	if _, _, err := b.client.Server.Update(t.Context(), s, hcloud.ServerUpdateOpts{Labels: labels}); err != nil {
		t.Fatal(err)
	}
}

func TestFirewallsDecideWhatTheDataPlaneReaches(t *testing.T) {
	t.Parallel()
	b := newBalanced(t)
	ctx := t.Context()
	s := b.server(t, "web-0")
	lb := b.guardedBalancer(t)
	b.awaitHealth(t, lb, "healthy")
	created, _, err := b.client.Firewall.Create(ctx, hcloud.FirewallCreateOpts{Name: "f", ApplyTo: []hcloud.FirewallResource{{
		Type: hcloud.FirewallResourceTypeLabelSelector, LabelSelector: &hcloud.FirewallResourceLabelSelector{Selector: "guarded"},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	address := net.JoinHostPort(lb.PublicNet.IPv4.IP.String(), "8080")
	established, err := b.DataPlane().DialContext(ctx, "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = established.Close() }()
	if got := request(t, established); got != "web-0" { // the load balancer has connected to the server
		t.Errorf("the server answers %q", got)
	}
	label := func(labels map[string]string) { b.label(t, s, labels) }
	from := lb.PublicNet.IPv4.IP.String() + "/32"
	for _, tc := range []struct {
		what   string
		change func()
		rules  []hcloud.FirewallRule // nil to keep them
		want   string
		passes bool // whether a new connection arrives
	}{
		{"a label that applies the firewall", func() { label(map[string]string{"role": "web", "guarded": ""}) }, nil, "unhealthy", false},
		{"rules for the load balancer", nil, []hcloud.FirewallRule{permit(t, from, "30080-30081")}, "healthy", true},
		{"rules for another client", nil, []hcloud.FirewallRule{permit(t, "192.0.2.0/24", "any")}, "unhealthy", false},
		{"rules for all, but the health check only", nil, []hcloud.FirewallRule{permit(t, "0.0.0.0/0", "30081")}, "healthy", false},
		{"rules for the traffic only", nil, []hcloud.FirewallRule{permit(t, "0.0.0.0/0", "30080")}, "unhealthy", true},
		{"a label that takes the firewall away", func() { label(map[string]string{"role": "web"}) }, nil, "healthy", true},
	} {
		if tc.change != nil {
			tc.change()
		}
		if tc.rules != nil {
			if _, _, err := b.client.Firewall.SetRules(ctx, created.Firewall, hcloud.FirewallSetRulesOpts{Rules: tc.rules}); err != nil {
				t.Fatalf("%s: %v", tc.what, err)
			}
		}
		// The requests keep the connection from its idle timeout.
		b.awaitHealth(t, lb, tc.want, func() {
			if got := request(t, established); got != "web-0" {
				t.Fatalf("%s: over an established connection, the server answers %q", tc.what, got)
			}
		})
		target := dataplane.Target{Address: netip.MustParseAddr(s.PublicNet.IPv4.IP.String())}
		if got := b.DataPlane().balancers.Refusal(lb.ID, target, 30080) == ""; got != tc.passes {
			t.Errorf("%s: a new connection arrives: %t, want %t", tc.what, got, tc.passes)
		}
		if tc.want == "unhealthy" {
			if got := detailOf(t, b, lb); got != "layer4_timeout" {
				t.Errorf("%s: the target is unhealthy because of %s, want layer4_timeout", tc.what, got)
			}
		}
	}
	if got := b.get(ctx, t, "http://"+address+"/"); got != "200 web-0" {
		t.Errorf("without the firewall: %s", got)
	}
}

// detailOf returns why the first target is unhealthy.
func detailOf(t *testing.T, b balanced, lb *hcloud.LoadBalancer) string {
	t.Helper()
	got, ok := b.cloud.Projects()[0].View().LoadBalancers.Get(lb.ID)
	if !ok {
		t.Fatalf("load balancer %d is gone", lb.ID)
	}
	for target := range got.Backends() {
		return target.Health[0].Detail
	}
	return ""
}

// A server that is off serves nothing: its connections end, new ones are refused, and its health follows after as many intervals as
// the health check has retries, as without a data plane. When it runs again, it serves again.
func TestAServerThatIsOffServesNothing(t *testing.T) {
	t.Parallel()
	b := newBalanced(t)
	ctx := t.Context()
	if err := b.SetSpeed(ctx, 0); err != nil {
		t.Fatal(err)
	}
	s := b.server(t, "web-0")
	lb := b.guardedBalancer(t)
	step := func(d time.Duration, want string) {
		t.Helper()
		if err := b.Step(ctx, d); err != nil {
			t.Fatal(err)
		}
		if got := b.health(t, lb); got != want {
			t.Errorf("%v later the health is %s, want %s", d, got, want)
		}
	}
	step(0, "healthy")
	established, err := b.DataPlane().DialContext(ctx, "tcp", net.JoinHostPort(lb.PublicNet.IPv4.IP.String(), "8080"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = established.Close() }()
	request(t, established)
	if _, _, err := b.client.Server.Poweroff(ctx, s); err != nil {
		t.Fatal(err)
	}
	if n, err := io.Copy(io.Discard, established); n > 0 || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the connection continues: %d bytes, %v", n, err)
	}
	url := "http://" + net.JoinHostPort(lb.PublicNet.IPv4.IP.String(), "8080") + "/"
	if got := b.get(ctx, t, url); strings.HasPrefix(got, "200") {
		t.Errorf("the server that is off answers %q", got)
	}
	step(45*time.Second-1, "healthy")
	step(1, "unhealthy")
	if got := detailOf(t, b, lb); got != "layer4_no_connection" {
		t.Errorf("the target is unhealthy because of %s", got)
	}
	if _, _, err := b.client.Server.Poweron(ctx, s); err != nil {
		t.Fatal(err)
	}
	step(45*time.Second, "healthy")
	if got := b.get(ctx, t, url); got != "200 web-0" {
		t.Errorf("the server that is on again answers %q", got)
	}
}
