package fakecloud

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/dataplane"
)

// balanced is a cloud with a data plane whose servers are web servers on this machine.
type balanced struct {
	*Cloud
	client *hcloud.Client
	web    *http.Client
}

// privateBackend is another address of the first web server, for a test that gives it to a server.
const privateBackend = "10.0.1.9"

func newBalanced(t *testing.T) balanced {
	t.Helper()
	backends := map[netip.Addr]string{}
	c := New(Options{
		PublicIPv4: netip.MustParsePrefix("198.18.0.0/15"),
		DataPlane: &DataPlaneOptions{Resolver: func(target dataplane.Target, _ uint16) (string, error) {
			if at, ok := backends[target.Address]; ok {
				return at, nil
			}
			return "", fmt.Errorf("no server at %s", target.Address)
		}},
	})
	t.Cleanup(c.Close)
	b := balanced{Cloud: c, client: c.Client()}
	b.web = &http.Client{Transport: &http.Transport{DialContext: c.DataPlane().DialContext, DisableKeepAlives: true}}
	for i := range 2 {
		l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
		check(t, err)
		s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = fmt.Fprintf(w, "web-%d", i)
		})}
		go func() { _ = s.Serve(l) }()
		t.Cleanup(func() { _ = s.Close() })
		// The cloud gives out public addresses in order, from the second of the range.
		backends[netip.MustParseAddr(fmt.Sprintf("198.18.0.%d", i+1))] = l.Addr().String()
		if i == 0 {
			backends[netip.MustParseAddr(privateBackend)] = l.Addr().String()
		}
	}
	return b
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (b balanced) server(t *testing.T, name string) *hcloud.Server {
	t.Helper()
	result, _, err := b.client.Server.Create(t.Context(), hcloud.ServerCreateOpts{
		Name: name, ServerType: &hcloud.ServerType{Name: "cx23"}, Image: &hcloud.Image{Name: "debian-13"},
		Location: &hcloud.Location{Name: "fsn1"}, Labels: map[string]string{"role": "web"},
	})
	check(t, err)
	return result.Server
}

// health returns the statuses of the targets that label selectors select.
func (b balanced) health(t *testing.T, lb *hcloud.LoadBalancer) string {
	t.Helper()
	got, _, err := b.client.LoadBalancer.GetByID(t.Context(), lb.ID)
	check(t, err)
	var have []string
	for _, target := range got.Targets {
		for _, nested := range target.Targets {
			for _, h := range nested.HealthStatus {
				have = append(have, string(h.Status))
			}
		}
	}
	return strings.Join(have, " ")
}

// awaitHealth steps the cloud's clock until the targets have the wanted statuses.
func (b balanced) awaitHealth(t *testing.T, lb *hcloud.LoadBalancer, want string) {
	t.Helper()
	for {
		have := b.health(t, lb)
		if have == want {
			return
		}
		check(t, b.Step(t.Context(), time.Second))
		if t.Context().Err() != nil {
			t.Fatalf("health %s, want %s", have, want)
		}
	}
}

func (b balanced) get(ctx context.Context, t *testing.T, url string) string {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	check(t, err)
	resp, err := b.web.Do(r)
	if err != nil {
		return err.Error()
	}
	defer func() { _ = resp.Body.Close() }()
	body, _ := io.ReadAll(resp.Body)
	return fmt.Sprintf("%d %s", resp.StatusCode, body)
}

// hasMetrics fails unless /metrics has the health and the traffic of a load balancer with two healthy targets and one unhealthy one.
func (b balanced) hasMetrics(t *testing.T, lb *hcloud.LoadBalancer) {
	t.Helper()
	metrics, err := b.ask(t.Context(), "/metrics")
	check(t, err)
	for _, want := range []string{
		`targets\{listen_port="8080",load_balancer="%d",name="lb",status="healthy"\} 2`,
		`targets\{listen_port="8080",load_balancer="%d",name="lb",status="unhealthy"\} 1`,
		`open_connections\{load_balancer="%d"\} \d`, `connections_total\{load_balancer="%d"\} [1-9]`, `requests_total\{load_balancer="%d"\} [1-9]`,
		`target_taken_total\{address="198[^"]*",load_balancer="%d",server="\d+"\} [1-9]`,
		`target_open\{address="198[^"]*",load_balancer="%d",server="\d+"\} 0`,
		`bytes_total\{direction="in",load_balancer="%d"\} [1-9]`, `bytes_total\{direction="out",load_balancer="%d"\} [1-9]`,
	} {
		want = "(?m)^fakecloud_load_balancer_" + fmt.Sprintf(want, lb.ID)
		if !regexp.MustCompile(want).Match(metrics) {
			t.Errorf("the metrics lack %s", want)
		}
	}
	dashboard, err := os.ReadFile("grafana.json")
	check(t, err)
	for _, name := range regexp.MustCompile(`fakecloud_load_balancer_[a-z_]+`).FindAll(dashboard, -1) {
		if !bytes.Contains(metrics, slices.Concat([]byte("\n"), name, []byte("{"))) {
			t.Errorf("the dashboard shows %s, which does not exist", name)
		}
	}
}

func TestALoadBalancerCreatedThroughTheAPIForwardsToItsTargets(t *testing.T) {
	t.Parallel()
	b := newBalanced(t)
	b.server(t, "web-0")
	b.server(t, "web-1")
	result, _, err := b.client.LoadBalancer.Create(t.Context(), hcloud.LoadBalancerCreateOpts{
		Name: "lb", LoadBalancerType: &hcloud.LoadBalancerType{Name: "lb11"}, Location: &hcloud.Location{Name: "fsn1"},
		Targets: []hcloud.LoadBalancerCreateOptsTarget{{
			Type:          hcloud.LoadBalancerTargetTypeLabelSelector,
			LabelSelector: hcloud.LoadBalancerCreateOptsTargetLabelSelector{Selector: "role=web"},
		}},
		Services: []hcloud.LoadBalancerCreateOptsService{{
			Protocol: hcloud.LoadBalancerServiceProtocolHTTP, ListenPort: new(8080), DestinationPort: new(80),
		}},
	})
	check(t, err)
	lb := result.LoadBalancer
	url := fmt.Sprintf("http://%s/", net.JoinHostPort(lb.PublicNet.IPv4.IP.String(), "8080"))
	b.awaitHealth(t, lb, "healthy healthy")
	seen := map[string]bool{}
	for range 4 {
		seen[b.get(t.Context(), t, url)] = true
	}
	if !seen["200 web-0"] || !seen["200 web-1"] || len(seen) != 2 {
		t.Errorf("answers %v", seen)
	}
	b.awaitTraffic(t, lb)

	// A third server becomes a target by its label. It is unhealthy, because no program answers for it.
	b.server(t, "web-2")
	b.awaitHealth(t, lb, "healthy healthy unhealthy")
	if got := b.get(t.Context(), t, url); !strings.HasPrefix(got, "200") {
		t.Errorf("with an unhealthy target: %s", got)
	}
	b.hasMetrics(t, lb)
	if len(b.DataPlane().Endpoints(lb.ID)) != 2 { // IPv4 and IPv6
		t.Errorf("endpoints %v", b.DataPlane().Endpoints(lb.ID))
	}

	if _, _, err := b.client.LoadBalancer.DeleteWithResult(t.Context(), lb); err != nil {
		t.Fatal(err)
	}
	b.follow(t)
	if e := b.DataPlane().Endpoints(lb.ID); len(e) > 0 {
		t.Errorf("a load balancer that was deleted listens on %v", e)
	}
}

// follow waits until the data plane has followed all changes.
func (b balanced) follow(t *testing.T) {
	t.Helper()
	check(t, b.Step(t.Context(), 0))
}

// After a snapshot was loaded, load balancers that it has listen again, and others do not listen any more.
func TestTheDataPlaneFollowsASnapshot(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	b := newBalanced(t)
	b.server(t, "web-0")
	create := func(name string) *hcloud.LoadBalancer {
		t.Helper()
		created, _, err := b.client.LoadBalancer.Create(ctx, hcloud.LoadBalancerCreateOpts{
			Name: name, LoadBalancerType: &hcloud.LoadBalancerType{Name: "lb11"}, Location: &hcloud.Location{Name: "fsn1"},
			Targets: []hcloud.LoadBalancerCreateOptsTarget{{
				Type:          hcloud.LoadBalancerTargetTypeLabelSelector,
				LabelSelector: hcloud.LoadBalancerCreateOptsTargetLabelSelector{Selector: "role=web"},
			}},
			Services: []hcloud.LoadBalancerCreateOptsService{{
				Protocol: hcloud.LoadBalancerServiceProtocolHTTP, ListenPort: new(8081), DestinationPort: new(80),
			}},
		})
		check(t, err)
		b.awaitHealth(t, created.LoadBalancer, "healthy")
		return created.LoadBalancer
	}
	saved := create("saved")
	var text bytes.Buffer
	check(t, b.Save(ctx, &text))
	later := create("later")
	if _, _, err := b.client.LoadBalancer.DeleteWithResult(ctx, saved); err != nil {
		t.Fatal(err)
	}
	check(t, b.Restore(ctx, &text))
	b.awaitHealth(t, saved, "healthy")
	url := fmt.Sprintf("http://%s/", net.JoinHostPort(saved.PublicNet.IPv4.IP.String(), "8081"))
	if got := b.get(ctx, t, url); got != "200 web-0" {
		t.Errorf("the load balancer of the snapshot answers %q", got)
	}
	b.follow(t)
	if len(b.DataPlane().Endpoints(later.ID)) > 0 {
		t.Error("the load balancer that is not in the snapshot listens still")
	}
}

// awaitTraffic waits until a load balancer has counted bytes in both directions.
func (b balanced) awaitTraffic(t *testing.T, lb *hcloud.LoadBalancer) {
	t.Helper()
	for {
		if err := b.Step(t.Context(), 5*time.Second); err != nil { // the data plane reports that often
			t.Fatal(err)
		}
		got, _, err := b.client.LoadBalancer.GetByID(t.Context(), lb.ID)
		check(t, err)
		if got.IngoingTraffic > 0 && got.OutgoingTraffic > 0 {
			return
		}
	}
}
