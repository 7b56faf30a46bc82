package cloud

import (
	"net/netip"
	"strings"
	"testing"
	"time"
)

// healthOf shows the health of all targets in all services, as "healthy/unhealthy(detail) | …".
func healthOf(lb *LoadBalancer) string {
	var targets []string
	for t := range lb.Backends() {
		var parts []string
		for _, h := range t.Health {
			s := h.Status
			if h.Detail != "" {
				s += "(" + h.Detail + ")"
			}
			parts = append(parts, s)
		}
		targets = append(targets, strings.Join(parts, "/"))
	}
	return strings.Join(targets, " | ")
}

func TestHealthFollowsPowerWithoutADataPlane(t *testing.T) {
	t.Parallel()
	p, _, clk := lbCloud(t)
	up := lbServer(t, p, "up", map[string]string{"a": ""})
	down := lbServer(t, p, "down", nil)
	power := func(s *Server, to ServerStatus) {
		must(t, p, func(tx *Tx) {
			tx.setServerStatus(s.ID, to)
		})
	}
	power(down, ServerOff)
	quick := tcp(443, 443)
	quick.HealthCheck = &HealthCheckInput{Interval: new(3), Retries: new(2)}
	lb, _, _, err := p.CreateLoadBalancer(lbDefaults(CreateLoadBalancer{
		Services: []ServiceInput{tcp(80, 80), quick},
		Targets:  []TargetInput{selectorTarget("a"), serverTarget(down), ipTarget("203.0.113.7")},
	}))
	check(t, err)
	const dead = "unhealthy(layer4_no_connection)"
	at := time.Duration(0)
	expect := func(after time.Duration, want string) {
		t.Helper()
		clk.Step(after - at)
		at = after
		if got := healthOf(getLB(t, p, lb.ID)); got != want {
			t.Errorf("after %s:\ngot  %s\nwant %s", after, got, want)
		}
	}
	expect(2*time.Second, "unknown/unknown | unknown/unknown | unknown/unknown")
	expect(3*time.Second, "unknown/healthy | unknown/unknown | unknown/healthy")
	expect(6*time.Second, "unknown/healthy | unknown/"+dead+" | unknown/healthy")
	expect(15*time.Second, "healthy/healthy | unknown/"+dead+" | healthy/healthy")
	expect(45*time.Second, "healthy/healthy | "+dead+"/"+dead+" | healthy/healthy")

	at = 0
	power(up, ServerOff)
	power(down, ServerRunning)
	expect(5*time.Second, "healthy/healthy | "+dead+"/"+dead+" | healthy/healthy")
	expect(6*time.Second, "healthy/"+dead+" | "+dead+"/healthy | healthy/healthy")
	power(up, ServerRunning) // before the slow health check noticed
	expect(11*time.Second, "healthy/"+dead+" | "+dead+"/healthy | healthy/healthy")
	expect(12*time.Second, "healthy/healthy | "+dead+"/healthy | healthy/healthy")
	expect(time.Hour, "healthy/healthy | healthy/healthy | healthy/healthy")

	action := did(p.AddLoadBalancerService(lb.ID, tcp(81, 81)))(t)
	ended(t, p, clk, action, "")
	if got := healthOf(getLB(t, p, lb.ID)); got != "healthy/unknown/healthy | healthy/unknown/healthy | healthy/unknown/healthy" {
		t.Errorf("a new service: %s", got)
	}
	action = did(p.DeleteLoadBalancerService(lb.ID, 80))(t)
	ended(t, p, clk, action, "")
	if got := healthOf(getLB(t, p, lb.ID)); got != "unknown/healthy | unknown/healthy | unknown/healthy" {
		t.Errorf("without a service: %s", got)
	}
}

func TestReportedHealth(t *testing.T) {
	t.Parallel()
	p, _, clk := lbCloud(t, func(o *Options) { o.TargetHealth = HealthReported })
	s := lbServer(t, p, "s", map[string]string{"a": ""})
	lb := newLB(t, p, clk, CreateLoadBalancer{
		Services: []ServiceInput{tcp(80, 80), tcp(443, 443)},
		Targets:  []TargetInput{serverTarget(s), selectorTarget("a"), ipTarget("203.0.113.7")},
	})
	clk.Step(time.Hour)
	const unknown = "unknown/unknown | unknown/unknown | unknown/unknown"
	if got := healthOf(getLB(t, p, lb.ID)); got != unknown {
		t.Errorf("nothing was reported: %s", got)
	}
	ip := publicIPv4(p, s)
	report := func(r ...HealthReport) string {
		p.ReportTargetHealth(lb.ID, r)
		return healthOf(getLB(t, p, lb.ID))
	}
	got := report(
		HealthReport{Server: s.ID, Addr: ip, ListenPort: 80, Status: HealthHealthy, Detail: "layer4_timeout", HTTPStatusCode: 200},
		HealthReport{Server: s.ID, Addr: ip, ListenPort: 443, Status: HealthUnhealthy, Detail: "unexpected_http_status",
			HTTPStatusCode: 500},
	)
	const bad = "healthy/unhealthy(unexpected_http_status)"
	if got != bad+" | "+bad+" | unknown/unknown" {
		t.Errorf("first report: %s", got)
	}
	if h := getLB(t, p, lb.ID).Targets[0].Health; h[0].HTTPStatusCode != 0 || h[1].HTTPStatusCode != 500 {
		t.Errorf("status codes %+v", h)
	}
	before, _ := p.View().LoadBalancers.Entry(lb.ID)
	report(
		HealthReport{Server: s.ID, Addr: ip, ListenPort: 80, Status: HealthHealthy},
		HealthReport{Server: s.ID, Addr: ip, ListenPort: 9, Status: HealthHealthy},
		HealthReport{Addr: netip.MustParseAddr("203.0.113.8"), ListenPort: 80, Status: HealthHealthy},
	)
	if after, _ := p.View().LoadBalancers.Entry(lb.ID); after != before {
		t.Error("a report of the known health made a new version")
	}
	if got := report(HealthReport{Server: s.ID, Addr: ip, ListenPort: 443, Status: HealthUnhealthy,
		HTTPStatusCode: 500}); !strings.HasPrefix(got, "healthy/unhealthy(unspecified)") {
		t.Errorf("without a detail: %s", got)
	}
	p.ReportTargetHealth(5, []HealthReport{{Server: s.ID, Addr: ip, ListenPort: 80, Status: HealthHealthy}})

	p.cloud.SetHealthRule(HealthFollowsReach)
	clk.Step(45 * time.Second)
	if got := healthOf(getLB(t, p, lb.ID)); strings.Contains(got, "un") {
		t.Errorf("after the rule was changed: %s", got)
	}
	p.cloud.SetHealthRule(HealthReported)
	must(t, p, func(tx *Tx) {
		tx.Servers.Update(s.ID, func(s *Server) { s.Status = ServerOff })
		tx.refreshTargets(s.ID)
	})
	clk.Step(time.Hour)
	if got := healthOf(getLB(t, p, lb.ID)); strings.Contains(got, "un") {
		t.Errorf("after the rule was changed back: %s", got)
	}
}

func TestHealthIsUnknownAgainWhenAServersAddressChanges(t *testing.T) {
	t.Parallel()
	p, n, clk := lbCloud(t)
	s := lbServer(t, p, "s", map[string]string{"a": ""}, n)
	selector := selectorTarget("a")
	selector.UsePrivateIP = true
	lb := newLB(t, p, clk, CreateLoadBalancer{Network: n.ID, Services: []ServiceInput{tcp(80, 80)},
		Targets: []TargetInput{privateTarget(s), selector}})
	clk.Step(15 * time.Second)
	if got := healthOf(getLB(t, p, lb.ID)); got != "healthy | healthy" {
		t.Fatalf("health %s", got)
	}
	moved := netip.MustParseAddr("10.0.1.200")
	must(t, p, func(tx *Tx) {
		tx.Servers.Update(s.ID, func(s *Server) { s.PrivateNets[0].IP = moved })
		tx.refreshTargets(s.ID)
	})
	got := getLB(t, p, lb.ID)
	if healthOf(got) != "unknown | unknown" || got.Targets[0].IP != moved || firstSelected(got.Targets[1]).IP != moved {
		t.Errorf("%+v", got.Targets)
	}
}
