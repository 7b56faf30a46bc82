package browser

import (
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/dataplane"
)

// TestTheMapShowsWhatEachTargetGets has a load balancer with a server that takes connections, one that does not, and an address outside
// of the cloud.
func TestTheMapShowsWhatEachTargetGets(t *testing.T) {
	at := map[netip.Addr]string{}
	s := open(t, fakecloud.Options{
		PublicIPv4: netip.MustParsePrefix("198.18.0.0/15"),
		DataPlane: &fakecloud.DataPlaneOptions{Resolver: func(target dataplane.Target, _ uint16) (string, error) {
			if local, ok := at[target.Address]; ok {
				return local, nil
			}
			return "", fmt.Errorf("no server at %s", target.Address)
		}},
	})
	ctx := t.Context()
	s.order(ctx, "busy")
	s.order(ctx, "idle")
	outside := netip.MustParseAddr("203.0.113.9")
	busy, _ := netip.AddrFromSlice(s.server("busy").PublicNet.IPv4.IP.To4())
	for _, address := range []netip.Addr{busy, outside} {
		at[address] = listen(t)
	}
	var targets []hcloud.LoadBalancerCreateOptsTarget
	for _, name := range []string{"busy", "idle"} {
		targets = append(targets, hcloud.LoadBalancerCreateOptsTarget{
			Type: hcloud.LoadBalancerTargetTypeServer, Server: hcloud.LoadBalancerCreateOptsTargetServer{Server: s.server(name)},
		})
	}
	targets = append(targets, hcloud.LoadBalancerCreateOptsTarget{
		Type: hcloud.LoadBalancerTargetTypeIP, IP: hcloud.LoadBalancerCreateOptsTargetIP{IP: outside.String()},
	})
	result, _, err := s.client.LoadBalancer.Create(ctx, hcloud.LoadBalancerCreateOpts{
		Name: "web", LoadBalancerType: &hcloud.LoadBalancerType{Name: "lb11"}, Location: &hcloud.Location{Name: "fsn1"}, Targets: targets,
		Services: []hcloud.LoadBalancerCreateOptsService{{
			Protocol: hcloud.LoadBalancerServiceProtocolTCP, ListenPort: new(8080), DestinationPort: new(80),
			HealthCheck: &hcloud.LoadBalancerCreateOptsServiceHealthCheck{
				Protocol: hcloud.LoadBalancerServiceProtocolTCP, Port: new(80),
				Interval: new(15 * time.Second), Timeout: new(10 * time.Second), Retries: new(1),
			},
		}},
	})
	s.must(err)
	s.Sees("2 of 3 healthy")
	s.Sees("web: layer4 no connection on 8080")

	address := net.JoinHostPort(result.LoadBalancer.PublicNet.IPv4.IP.String(), "8080")
	for range 4 { // in turns: two for each of the two that are healthy
		c, err := s.cloud.DataPlane().DialContext(ctx, "tcp", address)
		s.must(err)
		t.Cleanup(func() { _ = c.Close() })
	}
	s.Sees("web: 2 open, ")
	s.Sees("203.0.113.9: 2 open, ")
	s.Sees(" connections/s, ") // of all load balancers: the header has the API's requests
	chips := Eval[[]string](s.Page, "[...document.querySelectorAll('.chip')].map(c => c.innerText.replace(/ open,.*/, ' open'))")
	if fmt.Sprint(chips) != "[web: 2 open web: layer4 no connection on 8080]" {
		t.Errorf("the chips are %q, want two connections on busy, and why idle is not healthy", chips)
	}
	s.Await("draw one thick line", "document.querySelectorAll('svg.lines path').length === 2 && "+
		"document.querySelectorAll('svg.lines path.busy').length === 1")
	s.Await("say how many have come", "[...document.querySelectorAll('.chip')].some(c => c.title.endsWith('has sent 2 here'))")
	s.Look("targets")

	// A rate is what has come between two looks.
	for shown := false; !shown && ctx.Err() == nil; {
		c, err := s.cloud.DataPlane().DialContext(ctx, "tcp", address)
		s.must(err)
		_ = c.Close()
		shown = Eval[bool](s.Page, `[...document.querySelectorAll('.chip')].some(c => /web: \d+ open, (0\.[1-9]|[1-9])/.test(c.innerText))`)
	}
	s.Sees("web: 2 open, ") // those of the loop have ended
	Eval[chromedp.Void](s.Page, "document.querySelector('.chip').click()")
	s.Sees("load balancer")
}

// listen accepts connections, and ends those that the other side ends.
func listen(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = c.Read(make([]byte, 1)) // until it ends: the test sends nothing
				_ = c.Close()
			}()
		}
	}()
	return l.Addr().String()
}
