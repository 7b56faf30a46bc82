package cloud

import (
	"errors"
	"net/netip"
	"reflect"
	"slices"
	"testing"
	"time"

	testclock "k8s.io/utils/clock/testing"
)

var lbTypes = []*LoadBalancerType{
	{ID: 1, Name: "small", MaxServices: 2, MaxTargets: 2, MaxAssignedCertificates: 1},
	{ID: 2, Name: "big", MaxServices: 10, MaxTargets: 50, MaxAssignedCertificates: 10},
}

// lbCloud returns a project whose actions take a second. It has a network "net" like networkCloud.
func lbCloud(t *testing.T, change ...func(*Options)) (Project, *Network, *testclock.FakeClock) {
	t.Helper()
	o := Options{Catalogue: &Catalogue{
		Locations: []*Location{
			{ID: 1, Name: "fsn1", NetworkZone: "eu-central"}, {ID: 2, Name: "nbg1", NetworkZone: "eu-central"},
			{ID: 4, Name: "ash", NetworkZone: "us-east"},
		},
		LoadBalancerTypes: lbTypes,
	}}
	for _, f := range change {
		f(&o)
	}
	p, clk := serverCloud(t, o)
	return p, lbNetwork(t, p, "net", "10.0"), clk
}

func lbNetwork(t *testing.T, p Project, name, prefix string) *Network {
	t.Helper()
	n, _, err := p.CreateNetwork(CreateNetwork{Name: name, IPRange: netip.MustParsePrefix(prefix + ".0.0/16"), Subnets: []Subnet{
		{Type: SubnetCloud, IPRange: netip.MustParsePrefix(prefix + ".1.0/24"), NetworkZone: "eu-central"},
	}})
	check(t, err)
	return n
}

// must runs a write that cannot fail.
func must(t *testing.T, p Project, fn func(*Tx)) {
	t.Helper()
	if _, err := p.update(func(tx *Tx) error { fn(tx); return nil }); err != nil {
		t.Fatal(err)
	}
}

// lbServer stores a running server with an IPv4 and an IPv6 address, in the given networks.
func lbServer(t *testing.T, p Project, name string, labels map[string]string, networks ...*Network) *Server {
	t.Helper()
	var s *Server
	must(t, p, func(tx *Tx) {
		l, _ := tx.Catalogue.Location("fsn1")
		v4, err4 := tx.TakeIPv4()
		v6, err6 := tx.TakeIPv6()
		check(t, errors.Join(err4, err6))
		s = &Server{Meta: tx.NewMeta(name, labels), Status: ServerRunning, Location: l}
		for _, ip := range []*PrimaryIP{
			{Meta: tx.NewMeta(name+"-4", nil), Type: IPv4, IP: netip.PrefixFrom(v4, 32), Location: l, Assignee: s.Ref()},
			{Meta: tx.NewMeta(name+"-6", nil), Type: IPv6, IP: v6, Location: l, Assignee: s.Ref()},
		} {
			tx.PrimaryIPs.Put(ip)
		}
		s.PublicIPv4, s.PublicIPv6 = s.ID+1, s.ID+2
		tx.Servers.Put(s)
		tx.refreshTargets(s.ID)
		for _, n := range networks {
			check(t, tx.joinNetwork(Join{Member: s.Ref(), Zone: "eu-central", Network: n.ID}))
			tx.joined(s.Ref(), n.ID)
		}
	})
	return server(t, p, s.ID)
}

func getLB(t *testing.T, p Project, id int64) *LoadBalancer {
	t.Helper()
	lb, ok := p.View().LoadBalancers.Get(id)
	if !ok {
		t.Fatalf("load balancer %d is gone", id)
	}
	return lb
}

func publicIPv4(p Project, s *Server) netip.Addr {
	ip, _ := p.View().PrimaryIPs.Get(s.PublicIPv4)
	return ip.IP.Addr()
}

// newLB creates a load balancer and steps the clock to the end of the create action. The default location
// is fsn1, the default type "big".
func newLB(t *testing.T, p Project, clk *testclock.FakeClock, in CreateLoadBalancer) *LoadBalancer {
	t.Helper()
	lb, action, _, err := p.CreateLoadBalancer(lbDefaults(in))
	check(t, err)
	ended(t, p, clk, action, "")
	return getLB(t, p, lb.ID)
}

func lbDefaults(in CreateLoadBalancer) CreateLoadBalancer {
	if in.Name == "" {
		in.Name = "lb"
	}
	if in.Type == "" {
		in.Type = "big"
	}
	if in.Location == "" && in.NetworkZone == "" {
		in.Location = "fsn1"
	}
	return in
}

// ended steps the clock to the end of an action and checks how it ended.
func ended(t *testing.T, p Project, clk *testclock.FakeClock, action int64, code Code) {
	t.Helper()
	clk.Step(time.Second)
	a, ok := p.View().Actions.Get(action)
	if !ok || a.Status == ActionRunning || a.ErrorCode != code {
		t.Fatalf("action %d: %+v, want it to end with code %q", action, a, code)
	}
}

func tcp(listen, destination int) ServiceInput {
	return ServiceInput{Protocol: new("tcp"), ListenPort: &listen, DestinationPort: &destination}
}

func serverTarget(s *Server) TargetInput { return TargetInput{Type: "server", Server: s.ID} }

func privateTarget(s *Server) TargetInput {
	return TargetInput{Type: "server", Server: s.ID, UsePrivateIP: true}
}

func selectorTarget(s string) TargetInput { return TargetInput{Type: "label_selector", Selector: s} }

func ipTarget(ip string) TargetInput { return TargetInput{Type: "ip", IP: netip.MustParseAddr(ip)} }

// putCertificate stores a certificate and returns its id.
func putCertificate(t *testing.T, p Project, name string) (id int64) {
	t.Helper()
	must(t, p, func(tx *Tx) {
		c := &Certificate{Meta: tx.NewMeta(name, nil), Type: "uploaded"}
		tx.Certificates.Put(c)
		id = c.ID
	})
	return id
}

func TestANewLoadBalancerHasAllDefaults(t *testing.T) {
	t.Parallel()
	p, _, clk := lbCloud(t)
	cert := putCertificate(t, p, "cert")
	lb := newLB(t, p, clk, CreateLoadBalancer{NetworkZone: "eu-central", Services: []ServiceInput{
		{Protocol: new("https"), HTTP: &ServiceHTTPInput{Certificates: []int64{cert, cert}},
			HealthCheck: &HealthCheckInput{Protocol: new("http")}},
		tcp(25, 2525),
		{Protocol: new("http")},
	}})
	check := func(port int) LoadBalancerHealthCheck {
		return LoadBalancerHealthCheck{Protocol: "tcp", Port: port, Interval: 15 * time.Second, Timeout: 10 * time.Second, Retries: 3}
	}
	overHTTP := check(80)
	overHTTP.Protocol = "http"
	overHTTP.HTTP = &LoadBalancerHealthCheckHTTP{Path: "/", StatusCodes: []string{"2??", "3??"}}
	http := func() *LoadBalancerHTTP {
		return &LoadBalancerHTTP{CookieName: "HCLBSTICKY", CookieLifetime: 300 * time.Second, TimeoutIdle: 50 * time.Second}
	}
	https := http()
	https.Certificates = []int64{cert}
	want := []LoadBalancerService{
		{Protocol: "tcp", ListenPort: 25, DestinationPort: 2525, HealthCheck: check(2525)},
		{Protocol: "http", ListenPort: 80, DestinationPort: 80, HTTP: http(), HealthCheck: overHTTP},
		{Protocol: "https", ListenPort: 443, DestinationPort: 80, HTTP: https, HealthCheck: overHTTP},
	}
	if !reflect.DeepEqual(lb.Services, want) {
		t.Errorf("services\n%+v\nwant\n%+v", lb.Services, want)
	}
	if lb.Algorithm != "round_robin" || !lb.PublicEnabled || lb.DeleteProtection || lb.Location.Name != "fsn1" || lb.Type.Name != "big" {
		t.Errorf("%+v", lb)
	}
	if !lb.IPv4.Addr.Is4() || lb.IPv4.PrimaryIP != 0 || lb.IPv6.PrimaryIP != 0 || lb.IPv6.Addr.As16()[15] != 1 {
		t.Errorf("addresses %+v %+v", lb.IPv4, lb.IPv6)
	}
	st := p.View()
	if got := st.PublicDNSPtr(lb.IPv4); got != DefaultDNSPtr(lb.IPv4.Addr) || got == "" {
		t.Errorf("reverse DNS of the IPv4: %q", got)
	}
	if got := st.PublicDNSPtr(lb.IPv6); got != "" {
		t.Errorf("reverse DNS of the IPv6: %q", got)
	}
	if c, _ := st.Certificates.Get(cert); !slices.Equal(c.UsedBy, []Ref{lb.Ref()}) {
		t.Errorf("certificate is used by %v", c.UsedBy)
	}
}

func TestLoadBalancersThatCannotBeCreated(t *testing.T) {
	t.Parallel()
	p, n, _ := lbCloud(t)
	for name, tc := range map[string]struct {
		change func(*CreateLoadBalancer)
		want   string
	}{
		"name that ends in a space": {func(in *CreateLoadBalancer) { in.Name = "a " }, "name"},
		"unknown zone":              {func(in *CreateLoadBalancer) { in.Location, in.NetworkZone = "", "moon" }, "network_zone"},
		"no place":                  {func(in *CreateLoadBalancer) { in.Location = "" }, "location"},
		"unknown network":           {func(in *CreateLoadBalancer) { in.Network = 5 }, "network"},
		"network of another zone":   {func(in *CreateLoadBalancer) { in.Network, in.Location = n.ID, "ash" }, "no_subnet_available"},
		"a bad service": {func(in *CreateLoadBalancer) { in.Services = []ServiceInput{tcp(1, 1), {Protocol: new("tcp")}} },
			"services.1.listen_port"},
		"an unknown target": {func(in *CreateLoadBalancer) {
			in.Targets = []TargetInput{selectorTarget("a"),
				{Type: "server", Server: 1}}
		}, "targets.1.server.id"},
	} {
		t.Run(name, func(t *testing.T) {
			in := lbDefaults(CreateLoadBalancer{})
			tc.change(&in)
			before := p.View()
			_, _, _, err := p.CreateLoadBalancer(in)
			if got := codeOf(err); got != tc.want {
				t.Errorf("%v, want %s", err, tc.want)
			}
			if p.View() != before {
				t.Error("a refused request changed the state")
			}
		})
	}
}

func TestAnActionThatFailsDoesNotChangeALoadBalancer(t *testing.T) {
	t.Parallel()
	p, _, clk := lbCloud(t)
	lb := newLB(t, p, clk, CreateLoadBalancer{})
	add := did(p.WithOutcome(&ActionOutcome{Fail: true}).AddLoadBalancerService(lb.ID, tcp(80, 80)))(t)
	ended(t, p, clk, add, ActionFailedCode)
	if len(getLB(t, p, lb.ID).Services) != 0 {
		t.Error("a failed action added a service")
	}
	s := lbServer(t, p, "s", nil)
	add = did(p.AddLoadBalancerTarget(lb.ID, serverTarget(s)))(t)
	must(t, p, func(tx *Tx) { tx.removeServer(s.ID) })
	ended(t, p, clk, add, "invalid_input")
}

func TestALoadBalancerWhoseCreationFailsStaysWithoutItsNetwork(t *testing.T) {
	t.Parallel()
	p, n, clk := lbCloud(t)
	s := lbServer(t, p, "s", nil, n)
	failing := p.WithOutcome(&ActionOutcome{Fail: true})
	lb, action, _, err := failing.CreateLoadBalancer(lbDefaults(CreateLoadBalancer{
		Network: n.ID, Targets: []TargetInput{privateTarget(s)},
	}))
	check(t, err)
	if got := getLB(t, p, lb.ID).Targets; len(got) != 1 || got[0].IP != s.PrivateNets[0].IP {
		t.Errorf("targets while it is created: %+v", got)
	}
	ended(t, p, clk, action, ActionFailedCode)
	got := getLB(t, p, lb.ID)
	if len(got.PrivateNets) != 0 || len(got.Targets) != 0 || len(server(t, p, s.ID).LoadBalancers) != 0 {
		t.Errorf("%+v", got)
	}
	if m, _ := p.View().Networks.Get(n.ID); len(m.Members) != 1 {
		t.Errorf("members %+v", m.Members)
	}
}

func TestDeletingALoadBalancerReleasesEverything(t *testing.T) {
	t.Parallel()
	p, n, clk := lbCloud(t)
	s := lbServer(t, p, "s", map[string]string{"a": "b"}, n)
	cert := putCertificate(t, p, "cert")
	lb := newLB(t, p, clk, CreateLoadBalancer{
		Network:  n.ID,
		Targets:  []TargetInput{serverTarget(s), selectorTarget("a=b")},
		Services: []ServiceInput{{Protocol: new("https"), HTTP: &ServiceHTTPInput{Certificates: []int64{cert}}}},
	})
	if got := server(t, p, s.ID).LoadBalancers; !slices.Equal(got, []int64{lb.ID}) {
		t.Errorf("the server's load balancers: %v", got)
	}
	del := did(p.WithOutcome(&ActionOutcome{Fail: true}).DeleteLoadBalancer(lb.ID, false))(t)
	if !getLB(t, p, lb.ID).Deleting {
		t.Error("not marked as being deleted")
	}
	ended(t, p, clk, del, ActionFailedCode)
	if getLB(t, p, lb.ID).Deleting {
		t.Error("still marked as being deleted")
	}
	del = did(p.DeleteLoadBalancer(lb.ID, false))(t)
	ended(t, p, clk, del, "")
	st := p.View()
	if _, ok := st.LoadBalancers.Get(lb.ID); ok {
		t.Error("still there")
	}
	if got := server(t, p, s.ID).LoadBalancers; len(got) != 0 {
		t.Errorf("the server's load balancers: %v", got)
	}
	if c, _ := st.Certificates.Get(cert); len(c.UsedBy) != 0 {
		t.Errorf("the certificate is used by %v", c.UsedBy)
	}
	if m, _ := st.Networks.Get(n.ID); len(m.Members) != 1 || m.Members[0].Ref != s.Ref() {
		t.Errorf("the network's members: %v", m.Members)
	}
	p.cloud.mu.Lock()
	defer p.cloud.mu.Unlock()
	if p.cloud.belongsToCloud(lb.IPv4.Addr) || p.cloud.belongsToCloud(lb.IPv6.Addr) {
		t.Error("the addresses are still taken")
	}
}

func TestChangingTheTypeOfALoadBalancer(t *testing.T) {
	t.Parallel()
	p, _, clk := lbCloud(t)
	for name, in := range map[string]CreateLoadBalancer{
		"too many services": {Services: []ServiceInput{tcp(1, 1), tcp(2, 2), tcp(3, 3)}},
		"too many targets":  {Targets: []TargetInput{selectorTarget("a"), selectorTarget("b"), selectorTarget("c")}},
		"too many certificates": {Services: []ServiceInput{{Protocol: new("https"), HTTP: &ServiceHTTPInput{
			Certificates: []int64{putCertificate(t, p, "1"), putCertificate(t, p, "2")},
		}}}},
	} {
		in.Name = name
		lb := newLB(t, p, clk, in)
		if _, _, err := p.ChangeLoadBalancerType(lb.ID, "small"); codeOf(err) != "invalid_load_balancer_type" {
			t.Errorf("%s: %v", name, err)
		}
	}
	lb := newLB(t, p, clk, CreateLoadBalancer{Services: []ServiceInput{tcp(1, 1), tcp(2, 2)}})
	if _, _, err := p.ChangeLoadBalancerType(lb.ID, "huge"); codeOf(err) != "load_balancer_type" {
		t.Errorf("an unknown type: %v", err)
	}
}

func TestMetricsShowTheLatestReports(t *testing.T) {
	t.Parallel()
	p, _, clk := lbCloud(t)
	lb := newLB(t, p, clk, CreateLoadBalancer{})
	start := p.cloud.Now()
	for i := range 3 {
		p.ReportLoadBalancerStats(lb.ID, LoadBalancerStats{OpenConnections: float64(i + 1), BandwidthIn: 100})
		clk.Step(10 * time.Second)
	}
	clk.Step(2 * time.Minute)
	metrics := func(from, to, step time.Duration, types ...string) map[string][]float64 {
		t.Helper()
		r, err := NewMetricRange(start.Add(from), start.Add(to), step)
		check(t, err)
		series, err := p.LoadBalancerMetrics(lb.ID, types, r)
		check(t, err)
		out := map[string][]float64{}
		for _, s := range series {
			out[s.Name] = s.Values
		}
		return out
	}
	got := metrics(-time.Second, 28*time.Second, 5*time.Second, "open_connections", "bandwidth")
	want := map[string][]float64{
		"open_connections": {0, 1, 1, 2, 2, 3}, "bandwidth.in": {0, 100, 100, 100, 100, 100}, "bandwidth.out": {0, 0, 0, 0, 0, 0},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	if _, err := p.LoadBalancerMetrics(5, nil, MetricRange{Step: time.Second}); codeOf(err) != "not_found" {
		t.Errorf("metrics of an unknown load balancer: %v", err)
	}
	p.ReportLoadBalancerStats(5, LoadBalancerStats{OpenConnections: 1})
	if len(p.cloud.loadBalancerStats.samples) != 1 {
		t.Error("figures of a load balancer that does not exist are kept")
	}
}
