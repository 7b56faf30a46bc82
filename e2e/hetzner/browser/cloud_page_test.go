package browser

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/fakecloudtest"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/journal"
)

const pictures = "../../../out/browser"

// shown is a cloud and its page in a browser.
type shown struct {
	*Page
	cloud   *fakecloud.Cloud
	client  *hcloud.Client
	control string
}

// open starts a cloud and opens its page.
func open(t *testing.T, o fakecloud.Options) *shown {
	t.Helper()
	p := Open(t, pictures) // first: without a browser, the test ends here
	cloud := fakecloudtest.NewWith(t, o)
	control, err := cloud.StartControl(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	s := &shown{Page: p, cloud: cloud, client: cloud.Client(), control: control}
	s.Go(s.control + "/")
	s.Sees("live")
	t.Cleanup(func() { s.CheckConsole(strings.TrimPrefix(s.control, "http://")) })
	return s
}

// must ends the test if a call has failed.
func (s *shown) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// order creates a server of the usual kind.
func (s *shown) order(ctx context.Context, name string) {
	s.Helper()
	_, _, err := s.client.Server.Create(ctx, hcloud.ServerCreateOpts{
		Name: name, ServerType: &hcloud.ServerType{Name: "cx23"}, Image: &hcloud.Image{Name: "debian-13"},
	})
	s.must(err)
}

// cluster creates what a Kubernetes cluster of fifteen servers has.
func (s *shown) cluster() {
	s.Helper()
	ctx := s.Context()
	_, all, _ := net.ParseCIDR("10.0.0.0/8")
	_, nodes, _ := net.ParseCIDR("10.0.0.0/16")
	fsn1 := &hcloud.Location{Name: "fsn1"}
	network, _, err := s.client.Network.Create(ctx, hcloud.NetworkCreateOpts{Name: "cluster", IPRange: all, Subnets: []hcloud.NetworkSubnet{
		{Type: hcloud.NetworkSubnetTypeCloud, IPRange: nodes, NetworkZone: hcloud.NetworkZoneEUCentral},
	}})
	s.must(err)
	firewall, _, err := s.client.Firewall.Create(ctx, hcloud.FirewallCreateOpts{Name: "ssh", Rules: []hcloud.FirewallRule{{
		Direction: hcloud.FirewallRuleDirectionIn, Protocol: hcloud.FirewallRuleProtocolTCP, Port: new("22"),
		SourceIPs: []net.IPNet{{IP: net.IPv4zero, Mask: net.CIDRMask(0, 32)}},
	}}})
	s.must(err)
	for i := range 15 {
		role := []string{"control-plane", "worker"}[min(i/3, 1)]
		server, _, err := s.client.Server.Create(ctx, hcloud.ServerCreateOpts{
			Name: fmt.Sprintf("%s-%d", role, i+1), ServerType: &hcloud.ServerType{Name: "cx23"}, Image: &hcloud.Image{Name: "debian-13"},
			Location: fsn1, Networks: []*hcloud.Network{network}, Labels: map[string]string{"role": role},
			UserData:  "#cloud-config user-data-secret",
			Firewalls: []*hcloud.ServerCreateFirewall{{Firewall: *firewall.Firewall}},
		})
		s.must(err)
		_, pods, _ := net.ParseCIDR(fmt.Sprintf("10.244.%d.0/24", i))
		route := hcloud.NetworkRoute{Destination: pods, Gateway: s.server(server.Server.Name).PrivateNet[0].IP}
		_, _, err = s.client.Network.AddRoute(ctx, network, hcloud.NetworkAddRouteOpts{Route: route})
		s.must(err)
		if i == 4 {
			_, _, err := s.client.Volume.Create(ctx, hcloud.VolumeCreateOpts{Name: "pvc-1", Size: 20, Server: server.Server})
			s.must(err)
		}
	}
	for name, role := range map[string]string{"ingress": "worker", "api": "control-plane"} {
		_, _, err := s.client.LoadBalancer.Create(ctx, hcloud.LoadBalancerCreateOpts{
			Name: name, LoadBalancerType: &hcloud.LoadBalancerType{Name: "lb11"}, Location: fsn1, Network: network,
			Targets: []hcloud.LoadBalancerCreateOptsTarget{{
				Type: hcloud.LoadBalancerTargetTypeLabelSelector, UsePrivateIP: new(true),
				LabelSelector: hcloud.LoadBalancerCreateOptsTargetLabelSelector{Selector: "role=" + role},
			}},
			Services: []hcloud.LoadBalancerCreateOptsService{{
				Protocol: hcloud.LoadBalancerServiceProtocolTCP, ListenPort: new(443), DestinationPort: new(30443),
			}},
		})
		s.must(err)
	}
	_, _, err = s.client.FloatingIP.Create(ctx, hcloud.FloatingIPCreateOpts{
		Type: hcloud.FloatingIPTypeIPv4, Name: new("egress"), Server: s.server("worker-5"),
	})
	s.must(err)
}

// server returns the server with a name.
func (s *shown) server(name string) *hcloud.Server {
	s.Helper()
	server, _, err := s.client.Server.GetByName(s.Context(), name)
	if err != nil || server == nil {
		s.Fatalf("server %s: %v, %v", name, server, err)
	}
	return server
}

func TestAnEmptyCloudSaysHowToBegin(t *testing.T) {
	s := open(t, fakecloud.Options{})
	s.Sees("The cloud is empty")
	s.Sees("export HCLOUD_ENDPOINT=" + s.cloud.Endpoint())
	s.Sees("export HCLOUD_TOKEN=" + fakecloud.DefaultToken)
	var top float64
	for _, view := range []string{"Resources", "Requests", "Actions", "Incidents", "Clock and state", "Map"} {
		s.Click(view)
		s.Sees(view)
		s.CheckLightAndDark("empty, " + view)
		if is := Eval[float64](s.Page, "document.getElementById('main').getBoundingClientRect().top"); top != 0 && is != top {
			t.Errorf("%s begins at %v, the page before it at %v: what a person looks at jumps", view, is, top)
		} else {
			top = is
		}
	}
	s.Look("empty")
}

func TestAClusterIsUnderstoodAtOneLook(t *testing.T) {
	s := open(t, fakecloud.Options{})
	s.cluster()
	s.Sees("not checked yet")
	s.Await("show that without alarm", "document.querySelectorAll('.balancer .state.unknown').length === 2")
	if err := s.cloud.Step(t.Context(), time.Minute); err != nil { // the load balancers' first health checks
		t.Fatal(err)
	}
	s.Sees("15 servers, 2 load balancers, 1 network")
	s.Await("draw all servers", "document.querySelectorAll('.server').length === 15")
	s.Await("draw a line to each target", "document.querySelectorAll('svg.lines path').length === 15")
	if behind := Eval[int](s.Page, linesBehindCards); behind != 0 {
		t.Errorf("%d lines run behind cards, and come out as stubs", behind)
	}
	s.Sees("12 of 12", "3 of 3", "tcp 443 → 30443", "egress", "⇠ 10.244.14.0/24", "20 GB", "Subnet 10.0.0.0/16", "requests/s")
	s.Look("cluster")
	s.Appear(390, 844, false)
	s.Await("fit on a phone", "document.documentElement.scrollWidth <= innerWidth")
	s.Picture("cluster-phone")
	s.Appear(1280, 900, false)

	worker := s.server("worker-5")
	s.Click("worker-5")
	s.Sees("Connected to", "load balancer ingress", "volume pvc-1", "network cluster", "firewall ssh", `"status": "running"`)
	s.Look("server")
	s.Click("POST create_server")
	s.Sees("debian-13")
	s.Sees(`"root_password": "REDACTED"`)
	s.Misses("user-data-secret")
	s.Look("request")
	Do(s.Page, "press Escape", chromedp.KeyEvent(kb.Escape))
	s.Sees("load balancer ingress") // the server again

	// What changes is shown as it changes.
	if _, _, err := s.client.Server.Poweroff(t.Context(), worker); err != nil {
		t.Fatal(err)
	}
	s.Sees(`"status": "off"`)
	s.Await("not call it healthy on its card", "document.querySelector('.chip.degraded')?.innerText === 'ingress: off, not noticed yet'")
	s.must(s.cloud.Step(t.Context(), time.Minute)) // the load balancer notices it
	s.Await("say why it is red", "document.querySelector('.chip.unhealthy')?.innerText.includes('layer4')")
	if _, _, err := s.client.Server.DeleteWithResult(t.Context(), worker); err != nil {
		t.Fatal(err)
	}
	s.Sees("(deleted)")
	s.Click("Close")
	s.Sees("14 servers")
}

// linesBehindCards counts the lines of the map that have a point in a card.
const linesBehindCards = `[...document.querySelectorAll('svg.lines path')].filter(path => {
	const {left, top} = path.ownerSVGElement.getBoundingClientRect();
	return Array.from({length: Math.floor(path.getTotalLength())}, (_, i) => path.getPointAtLength(i)).some(p =>
		[...document.querySelectorAll('[data-server]')].map(e => e.getBoundingClientRect()).some(r =>
			p.x + left > r.left + 1 && p.x + left < r.right - 1 && p.y + top > r.top + 1 && p.y + top < r.bottom - 1));
}).length`

// checkPhone fails if the statuses of a table are off the screen of a phone.
func (s *shown) checkPhone(where string) {
	s.Helper()
	s.Appear(390, 844, false)
	s.Await(where+": show the status on phones", `document.documentElement.scrollWidth <= innerWidth && [...document.querySelectorAll('th')]
		.some(e => /^(status|health)/i.test(e.innerText) && e.getBoundingClientRect().right <= innerWidth)`)
	s.Appear(1280, 900, false)
}

func TestTablesAreSearchedAndSorted(t *testing.T) {
	s := open(t, fakecloud.Options{})
	s.cluster()
	lb, _, err := s.client.LoadBalancer.GetByName(t.Context(), "api")
	s.must(err)
	_, _, err = s.client.LoadBalancer.Update(t.Context(), lb, hcloud.LoadBalancerUpdateOpts{Name: strings.Repeat("0", 32)})
	s.must(err)
	s.Click("Resources")
	s.Click("load balancers")
	s.checkPhone("load balancers")
	s.Click("servers")
	s.Look("table")
	s.checkPhone("table")
	s.Fill("Search", "role=control-plane")
	s.Await("find three", "document.querySelectorAll('tbody tr').length === 3")
	s.Fill("Search", "")
	const firstName = "document.querySelector('tbody tr td:nth-child(2)').innerText"
	s.Click("Name")
	s.Await("sort by name", firstName+" === 'control-plane-1'")
	s.Click("Name")
	s.Await("sort downwards", firstName+" === 'worker-15'")
	for _, kind := range []string{"load balancers", "networks", "volumes", "firewalls", "floating IPs", "primary IPs"} {
		s.Click(kind)
		s.Await("show "+kind, fmt.Sprintf(`document.querySelector('caption')?.innerText === %q && document.querySelector('tbody tr')`,
			kind))
	}
	s.CheckLightAndDark("tables")

	other, token, err := s.cloud.AddProject(t.Context(), "staging", "")
	if err != nil {
		t.Fatal(err)
	}
	client := hcloud.NewClient(hcloud.WithEndpoint(s.cloud.Endpoint()), hcloud.WithToken(token))
	_, _, err = client.SSHKey.Create(t.Context(), hcloud.SSHKeyCreateOpts{
		Name: "mine", PublicKey: "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA mine",
	})
	s.must(err)
	s.Await("offer the project", "[...document.querySelectorAll('#project option')].some(o => o.innerText === 'staging')")
	s.Fill("Project", fmt.Sprint(other))
	s.Click("SSH keys")
	s.Sees("mine")
	s.Await("hide other projects", "document.querySelectorAll('.kinds a').length === 1")
}

func TestRequestsAreShownLive(t *testing.T) {
	s := open(t, fakecloud.Options{})
	s.Click("Requests")
	s.Sees("No request yet")
	s.cluster()
	s.Sees("/v1/load_balancers")
	if _, _, err := s.client.Server.Create(t.Context(), hcloud.ServerCreateOpts{
		Name: "x", ServerType: &hcloud.ServerType{Name: "moon"}, Image: &hcloud.Image{Name: "debian-13"},
	}); err == nil {
		t.Fatal("a server of the type moon was created")
	}
	s.Sees("invalid_input")
	s.Look("requests")
	s.checkPhone("requests")
	Eval[chromedp.Void](s.Page, "document.querySelectorAll('.tools input[type=checkbox]')[1].click()")
	s.Await("show the error only", "document.querySelectorAll('tbody tr').length === 1")
	s.Click("POST /v1/servers")
	s.Sees("moon")
	s.Sees("server_type")
	s.Click("Close")
	Eval[chromedp.Void](s.Page, "document.querySelectorAll('.tools input[type=checkbox]')[1].click()")
	s.Fill("Operation", "create_network")
	s.Await("show one operation only", "document.querySelectorAll('tbody tr').length === 1")
	s.Click("Pause")
	s.Click("Continue")
	s.Click("Empty the journal")
	s.Sees("No request yet")
}

func TestTheClockIsStopped(t *testing.T) {
	ctx := t.Context()
	s := open(t, fakecloud.Options{Actions: "10m"})
	s.Click("Clock and state")
	s.Click("Stop")
	s.Sees("(stopped)")
	s.order(ctx, "slow")
	s.Sees("create server")
	s.Look("clock")
	before, _ := s.cloud.Now(ctx)
	s.Click("Actions")
	s.Sees("create_server")
	s.Look("actions")
	s.checkPhone("actions")
	s.Click("Clock and state")
	s.Fill("Let pass", "30m")
	s.Click("Step")
	s.Sees("30m have passed")
	if after, _ := s.cloud.Now(ctx); after.Sub(before) < 30*time.Minute {
		t.Errorf("%v have passed, want 30m", after.Sub(before))
	}
	before, _ = s.cloud.Now(ctx)
	s.Click("Step 1 minute")
	s.Sees("1m have passed")
	if after, _ := s.cloud.Now(ctx); after.Sub(before) < time.Minute {
		t.Errorf("%v have passed, want 1m", after.Sub(before))
	}
	s.Fill("Speed", "3")
	s.Click("Set the speed")
	s.Sees("the clock runs at 3")
	if speed, _ := s.cloud.Speed(ctx); speed != 3 {
		t.Errorf("speed %v, want 3", speed)
	}
	s.Click("A minute each second")
	s.Await("show the speed", "document.getElementById('time').innerText.includes('×60')")
	s.Click("Real time")
	s.Await("show real time", "!document.getElementById('time').innerText.includes('×60')") // it draws the forms anew before
	s.Fill("Actions take", "5s")
	s.Click("Set the duration")
	s.Sees("new actions take that long")
	s.Fill("Requests per hour", "100")
	s.Click("Set the rate limit")
	s.Sees("the rate limit is changed")
	if n, _ := s.cloud.RateLimit(ctx); n != 100 {
		t.Errorf("rate limit %d, want 100", n)
	}
	s.Click("Make a copy")
	s.Sees("copy 1")
	s.Go(Eval[string](s.Page, "[...document.querySelectorAll('a')].find(a => a.innerText === 'copy 1').href"))
	s.Sees("live")
	s.Sees("1 server,")
	s.Go(s.control + "/#/clock")
	s.Click("Remove copy 1")
	s.Sees("the copy is removed")
	saved := filepath.Join(t.TempDir(), "cloud.snapshot")
	text := Eval[string](s.Page, "fetch(document.querySelector('a[download]').href).then(r => r.text())")
	if err := os.WriteFile(saved, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s.Click("Reset the cloud")
	s.Sees("the cloud is empty")
	s.Click("Map")
	s.Sees("The cloud is empty")
	s.Click("Clock and state")
	Eval[chromedp.Void](s.Page, "window.confirm = question => { window.asked = question; return false; }; undefined")
	Do(s.Page, "choose the file", chromedp.SetUploadFiles(chromedp.CSS("input[type=file]"), []string{saved}))
	s.Await("ask before the cloud is replaced", "window.asked?.includes('cloud.snapshot')")
	if servers, err := s.client.Server.All(ctx); err != nil || len(servers) != 0 {
		t.Errorf("%d servers, %v: the snapshot is loaded although the answer was no", len(servers), err)
	}
	Eval[chromedp.Void](s.Page, "window.confirm = () => true; undefined")
	Do(s.Page, "choose the file again", chromedp.SetUploadFiles(chromedp.CSS("input[type=file]"), []string{saved}))
	s.Sees("cloud.snapshot is loaded")
	s.Click("Map")
	s.Sees("1 server,")
}

func TestTheKeyboardReachesEverything(t *testing.T) {
	s := open(t, fakecloud.Options{})
	s.cluster()
	s.Sees("15 servers")
	press := func(keys string) { Do(s.Page, "press a key", chromedp.KeyEvent(keys)) }
	const focused = "(document.activeElement.id || document.activeElement.innerText)"
	seen := map[string]bool{}
	for range 150 {
		press(kb.Tab)
		seen[strings.TrimSpace(Eval[string](s.Page, focused))] = true
	}
	for _, want := range []string{
		"Skip to the content", "Map", "Resources", "Requests", "Actions", "Incidents", "Clock and state", "project", "theme", "ingress",
		"control-plane-1", "worker-15",
	} {
		if !seen[want] {
			t.Errorf("Tab does not reach %q", want)
		}
	}
	Eval[chromedp.Void](s.Page, "document.querySelector('[data-server] a').focus()")
	press(kb.Enter)
	s.Await("move the focus to the details", "document.activeElement.id === 'detail'")
	s.Sees("Connected to")
	press(kb.Escape)
	s.Await("give it back", focused+" === 'control-plane-1'")
	press("/")
	s.Await("search", "document.activeElement.type === 'search'")
	press(kb.Backspace) // the test's keyboard types the slash, which a real one does not
	press("worker-7")
	s.Await("find it", "document.querySelectorAll('.server').length === 1")

	s.Click("◐")
	s.Await("be dark", "getComputedStyle(document.documentElement).colorScheme === 'dark'")
	s.Go(s.control + "/#/map")
	s.Await("stay dark", "getComputedStyle(document.documentElement).colorScheme === 'dark'")
	s.Click("◐")
	s.Await("be light", "getComputedStyle(document.documentElement).colorScheme === 'light'")
}

// TestALargeCloudIsShown logs how long the page was busy at most, for the README.
func TestALargeCloudIsShown(t *testing.T) {
	s := open(t, fakecloud.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	const servers = 10_000
	for i := range servers {
		s.order(ctx, fmt.Sprintf("server-%05d", i))
	}
	s.Sees("10,000 servers")
	s.Await("draw dots", "document.querySelectorAll('.dots .dot').length === 2000")
	s.Look("large")

	// A thousand requests a second.
	Eval[chromedp.Void](s.Page, `window.busy = 0;
		new PerformanceObserver(l => l.getEntries().forEach(e => { busy = Math.max(busy, e.duration); })).observe({type: 'longtask'})`)
	go func() {
		for tick := time.NewTicker(time.Millisecond); ctx.Err() == nil; <-tick.C {
			_, _, _ = s.client.Server.GetByID(ctx, 1000001)
		}
	}()
	s.Click("Requests")
	s.Sees("older or faster ones are not shown")
	if _, err := s.cloud.Journal().Await(ctx, journal.Filter{Method: http.MethodGet}, 3000); err != nil {
		t.Fatal(err)
	}
	s.Click("Resources")
	s.Click("servers")
	s.Await("show a page", "document.querySelectorAll('tbody tr').length === 100")
	s.Sees("1 to 100 of 10,000")
	s.Click("Next")
	s.Sees("101 to 200")
	s.Click("Back")
	s.Sees("1 to 100")
	s.Fill("Search", "server-09999")
	s.Await("find one", "document.querySelectorAll('tbody tr').length === 1")
	s.Picture("large-table")
	busy := Eval[float64](s.Page, "busy")
	n, _ := s.cloud.Journal().Count(ctx, journal.Filter{Method: http.MethodGet})
	t.Logf("with %d servers and %d reads in the journal, the page was busy for at most %.0f ms at a time", servers, n, busy)
}
