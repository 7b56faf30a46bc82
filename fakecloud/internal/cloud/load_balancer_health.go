package cloud

import (
	"net/netip"
	"time"
)

// The statuses of a target's health, per service (API document, health_status).
const (
	HealthUnknown   = "unknown"
	HealthHealthy   = "healthy"
	HealthUnhealthy = "unhealthy"
)

// HealthRule says where the health of load balancers' targets comes from.
type HealthRule int32

const (
	// HealthFollowsPower derives health from what the cloud knows, without a packet: a server that is
	// running answers all health checks, one that is not answers none
	// (layer4_no_connection), and an ip target always answers. A target is unknown until one interval of
	// the service's health check has passed and then healthy; it becomes unhealthy, and healthy again,
	// after as many intervals as the health check has retries. It is the default.
	HealthFollowsPower HealthRule = iota
	// HealthReported leaves targets as they are until ReportTargetHealth says otherwise. A data plane
	// that probes chooses it.
	HealthReported
)

// SetHealthRule chooses where targets' health comes from. A change takes effect on what becomes due from
// now on; what is known stays.
func (c *Cloud) SetHealthRule(r HealthRule) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.healthRule = r
	for _, d := range *c.projects.Load() {
		// It only schedules and never fails.
		_ = c.transact(d, c.Now(), nil, func(tx *Tx) error {
			var all []*LoadBalancer
			for lb := range tx.LoadBalancers.All() {
				all = append(all, lb.Clone())
			}
			for _, lb := range all {
				tx.settleHealth(lb)
				tx.LoadBalancers.Put(lb)
			}
			return nil
		})
	}
}

// HealthReport is what a health check saw of one target.
type HealthReport struct {
	// Addr is the target's address, LoadBalancerTarget.IP. Targets that share it share its health.
	Addr       netip.Addr
	ListenPort int
	Status     string // HealthUnknown, HealthHealthy or HealthUnhealthy
	// Detail says why an unhealthy target is: layer4_no_connection, layer4_timeout, layer7_timeout,
	// unexpected_http_status (with HTTPStatusCode), unexpected_http_content, unspecified. It is
	// dropped for the other statuses.
	Detail         string
	HTTPStatusCode int
}

// ReportTargetHealth sets the health of a load balancer's targets. Reports of targets, services or load
// balancers that are gone are dropped: they are on their way while things change.
func (p Project) ReportTargetHealth(lb int64, reports []HealthReport) {
	// It never fails.
	_, _ = p.update(func(tx *Tx) error {
		old, ok := tx.LoadBalancers.Get(lb)
		if !ok {
			return nil
		}
		changed := old.Clone()
		if changed.eachHealth(func(t *LoadBalancerTarget, h *TargetHealth) bool {
			before := *h
			for _, r := range reports {
				if r.Addr == t.IP && r.ListenPort == h.ListenPort {
					h.report(r)
				}
			}
			return *h != before
		}) {
			tx.LoadBalancers.Put(changed)
		}
		return nil
	})
}

func (h *TargetHealth) report(r HealthReport) {
	*h = TargetHealth{ListenPort: h.ListenPort, Status: r.Status}
	if r.Status != HealthUnhealthy {
		return
	}
	h.Detail = r.Detail
	if h.Detail == "" {
		h.Detail = "unspecified"
	}
	if h.Detail == "unexpected_http_status" {
		h.HTTPStatusCode = r.HTTPStatusCode
	}
}

// eachHealth calls f for the health of each target in each service, and returns whether any call returned
// true.
func (lb *LoadBalancer) eachHealth(f func(*LoadBalancerTarget, *TargetHealth) bool) bool {
	changed := false
	var visit func([]LoadBalancerTarget)
	visit = func(targets []LoadBalancerTarget) {
		for i := range targets {
			t := &targets[i]
			for j := range t.Health {
				if f(t, &t.Health[j]) {
					changed = true
				}
			}
			visit(t.Targets)
		}
	}
	visit(lb.Targets)
	return changed
}

// settleHealth gives every target a health for every service, and schedules what HealthFollowsPower will
// do.
func (tx *Tx) settleHealth(lb *LoadBalancer) {
	matchHealth(lb.Targets, lb.Services)
	if tx.cloud.healthRule != HealthFollowsPower {
		lb.eachHealth(func(_ *LoadBalancerTarget, h *TargetHealth) bool {
			h.next, h.due = "", time.Time{}
			return false
		})
		return
	}
	due := map[time.Time]bool{}
	lb.eachHealth(func(t *LoadBalancerTarget, h *TargetHealth) bool {
		want := tx.healthByPower(t)
		if want == h.Status {
			h.next, h.due = "", time.Time{}
			return false
		}
		if want != h.next {
			s, _ := lb.Service(h.ListenPort)
			wait := s.HealthCheck.Interval
			if h.Status != HealthUnknown || want == HealthUnhealthy {
				wait *= time.Duration(s.HealthCheck.Retries)
			}
			h.next, h.due = want, tx.now.Add(wait)
			due[h.due] = true
		}
		return false
	})
	id := lb.ID // not lb: a closure would keep a version of it in memory until it is due
	for at := range due {
		tx.schedule(at.Sub(tx.now), func(tx *Tx) { tx.healthDue(id) })
	}
}

func (tx *Tx) healthByPower(t *LoadBalancerTarget) string {
	if t.Type == "ip" {
		return HealthHealthy
	}
	if s, ok := tx.Servers.Get(t.Server); ok && s.Status == ServerRunning {
		return HealthHealthy
	}
	return HealthUnhealthy
}

// healthDue makes the statuses visible that are due.
func (tx *Tx) healthDue(id int64) {
	old, ok := tx.LoadBalancers.Get(id)
	if !ok {
		return
	}
	lb := old.Clone()
	if lb.eachHealth(func(_ *LoadBalancerTarget, h *TargetHealth) bool {
		if h.next == "" || h.due.After(tx.now) {
			return false
		}
		h.report(HealthReport{Status: h.next, Detail: "layer4_no_connection"})
		return true
	}) {
		tx.LoadBalancers.Put(lb)
	}
}

// matchHealth gives each target one entry per service, and keeps what is known.
func matchHealth(targets []LoadBalancerTarget, services []LoadBalancerService) {
	for i := range targets {
		t := &targets[i]
		if t.Type == "label_selector" {
			matchHealth(t.Targets, services)
			continue
		}
		known := t.Health
		t.Health = make([]TargetHealth, 0, len(services))
		for _, s := range services {
			h := TargetHealth{ListenPort: s.ListenPort, Status: HealthUnknown}
			for _, k := range known {
				if k.ListenPort == s.ListenPort {
					h = k
				}
			}
			t.Health = append(t.Health, h)
		}
	}
}
