package cloud

import (
	"net/netip"
	"slices"
	"time"
)

// The statuses of a target's health, per service (API document, health_status).
const (
	HealthUnknown   = "unknown"
	HealthHealthy   = "healthy"
	HealthUnhealthy = "unhealthy"
)

// HealthRule is the source of the health of load balancers' targets.
type HealthRule int32

const (
	// HealthFollowsReach derives health from the state of the cloud and sends no packets. A server answers
	// all health checks while it runs, else none (layer4_no_connection). If its firewalls drop the packets of the health
	// check, it answers none, either (layer4_timeout): a client that forgets a rule finds out without a data plane, too.
	// An ip target always answers. A target is unknown at first, and becomes healthy after one interval of the service's
	// health check. All other changes take as many intervals as the health check has retries. This is the default.
	HealthFollowsReach HealthRule = iota
	// HealthReported takes health only from ReportTargetHealth. It is for a data plane that probes.
	HealthReported
)

// SetHealthRule sets the source of the health of targets. It does not change the current health.
func (c *Cloud) SetHealthRule(r HealthRule) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.healthRule = r
	for d := range c.projects.Load().Scan {
		_ = c.write(d, c.writeTime(c.Now()), nil, func(tx *Tx) error { // the function returns no error
			for lb := range tx.LoadBalancers.All() {
				tx.scheduleAllHealth(lb, 0)
			}
			return nil
		})
	}
}

// HealthReport is the result of the health checks of one target.
type HealthReport struct {
	// Server is the target's server, 0 for a target of type ip.
	Server int64
	// Addr is the target's address, LoadBalancerTarget.IP. Targets of the server that share it share its health.
	Addr       netip.Addr
	ListenPort int
	Status     string // HealthUnknown, HealthHealthy or HealthUnhealthy
	// Detail is why a target is unhealthy: layer4_no_connection, layer4_timeout, layer7_timeout,
	// unexpected_http_status (with HTTPStatusCode), unexpected_http_content, unspecified. The other
	// statuses have none.
	Detail         string
	HTTPStatusCode int
}

// ReportTargetHealth sets the health of a load balancer's targets. It drops reports about targets, services
// and load balancers that no longer exist: they may be deleted while a report is on its way.
func (p Project) ReportTargetHealth(lb int64, reports []HealthReport) {
	_, _ = p.update(func(tx *Tx) error { // the function returns no error
		old, ok := tx.LoadBalancers.Get(lb)
		if !ok {
			return nil
		}
		now := old
		for _, r := range reports {
			if changed, ok := now.withServerHealth(r.Server, &sharedTargets{}, func(t *LoadBalancerTarget, h TargetHealth) TargetHealth {
				if r.Addr == t.IP && r.ListenPort == h.ListenPort {
					h.report(r)
				}
				return h
			}); ok {
				now = changed
				tx.noteTargets(old.ID, r.Server)
			}
		}
		if now != old {
			tx.LoadBalancers.Put(now)
		}
		return nil
	})
}

func (h *TargetHealth) report(r HealthReport) {
	*h = TargetHealth{ListenPort: h.ListenPort, Status: r.Status, Since: h.Since}
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

// withHealth returns a copy with the health that f returns for each target; false if nothing changes.
func (lb *LoadBalancer) withHealth(f func(*LoadBalancerTarget, TargetHealth) TargetHealth) (*LoadBalancer, bool) {
	targets := slices.Clone(lb.Targets)
	changed := false
	for i := range targets {
		t := &targets[i]
		if checked, ok := t.withHealth(f); ok {
			*t, changed = *checked, true
		}
		for n := range lb.Targets[i].Targets.All() {
			if checked, ok := n.withHealth(f); ok {
				t.Targets, changed = t.Targets.with(checked), true
			}
		}
	}
	return lb.withTargets(targets), changed
}

// withServerHealth is withHealth for the targets of one server, or for those of type ip if it is 0.
func (lb *LoadBalancer) withServerHealth(server int64, shared *sharedTargets,
	f func(*LoadBalancerTarget, TargetHealth) TargetHealth) (*LoadBalancer, bool) {
	var targets []LoadBalancerTarget
	for i := range lb.Targets {
		t := &lb.Targets[i]
		selector := t.Type == "label_selector"
		if selector {
			t, _ = t.Targets.get(server)
		}
		if t == nil || t.Server != server {
			continue
		}
		checked, ok := t.withHealth(f)
		if !ok {
			continue
		}
		if targets == nil {
			targets = slices.Clone(lb.Targets)
		}
		if selector {
			targets[i].Targets = shared.add(lb, &targets[i], checked)
		} else {
			targets[i] = *checked
		}
	}
	if targets == nil {
		return nil, false
	}
	return lb.withTargets(targets), true
}

func (t *LoadBalancerTarget) withHealth(f func(*LoadBalancerTarget, TargetHealth) TargetHealth) (*LoadBalancerTarget, bool) {
	var changed *LoadBalancerTarget
	for i, h := range t.Health {
		now := f(t, h)
		if now == h {
			continue
		}
		if changed == nil {
			c := *t
			c.Health = slices.Clone(t.Health)
			changed = &c
		}
		changed.Health[i] = now
	}
	return changed, changed != nil
}

// settleHealth gives each target, from the one with number first, a health for each service, and schedules the changes of
// HealthFollowsReach.
func (tx *Tx) settleHealth(lb *LoadBalancer, first int) {
	for i := first; i < len(lb.Targets); i++ {
		t := &lb.Targets[i]
		matchHealth(t, lb.Services, tx.now)
		for n := range lb.Targets[i].Targets.All() {
			c := *n
			matchHealth(&c, lb.Services, tx.now)
			t.Targets = t.Targets.with(&c)
		}
	}
	tx.scheduleAllHealth(lb, first)
}

// dueTimes are the times of the next changes of some targets' health, each once.
type dueTimes []time.Time

// nextHealth returns the next health of a target by HealthFollowsReach, and its time; false if the target already has
// it. s is the target's server, nil if it has none.
func (st *State) nextHealth(lb *LoadBalancer, t *LoadBalancerTarget, h TargetHealth, s *Server) (next HealthReport, at time.Time, ok bool) {
	service, exists := lb.Service(h.ListenPort)
	if !exists {
		return HealthReport{}, time.Time{}, false
	}
	next, at = HealthReport{Status: HealthHealthy}, h.Since
	if detail := st.Refusal(lb, t, service.HealthCheck.Port); detail != "" {
		next.Status, next.Detail = HealthUnhealthy, detail
	}
	if next.Status == h.Status && next.Detail == h.Detail {
		return HealthReport{}, time.Time{}, false
	}
	if s != nil && s.powered.After(at) {
		at = s.powered
	}
	if s != nil && !t.UsePrivateIP && s.filtered.After(at) {
		at = s.filtered
	}
	wait := service.HealthCheck.Interval
	if h.Status != HealthUnknown || next.Status == HealthUnhealthy {
		wait *= time.Duration(service.HealthCheck.Retries)
	}
	return next, at.Add(wait), true
}

// addDue adds the times of the next changes of a target's health. s is the target's server. It adds none unless HealthFollowsReach is set.
func (tx *Tx) addDue(due *dueTimes, lb *LoadBalancer, t *LoadBalancerTarget, s *Server) {
	if tx.cloud.healthRule != HealthFollowsReach {
		return
	}
	for _, h := range t.Health {
		if _, at, ok := tx.nextHealth(lb, t, h, s); ok && !slices.ContainsFunc(*due, at.Equal) {
			*due = append(*due, at)
		}
	}
}

// followReach schedules the health of a server's targets after the server was switched on or off, or after other packets
// pass its firewalls.
func (tx *Tx) followReach(server int64) {
	s, ok := tx.Servers.Get(server)
	if !ok || !s.powered.Equal(tx.now) && !s.filtered.Equal(tx.now) {
		return
	}
	var due dueTimes
	finder := targetFinder{server: server}
	for _, id := range s.LoadBalancers {
		if lb, ok := tx.LoadBalancers.Get(id); ok {
			for t := range lb.targetsOf(&finder) {
				tx.addDue(&due, lb, t, s)
			}
		}
	}
	tx.scheduleHealth(due, server)
}

// scheduleHealth updates the health of a server's targets at the due times.
func (tx *Tx) scheduleHealth(due dueTimes, server int64) {
	for _, at := range due {
		tx.schedule(max(0, at.Sub(tx.now)), serverHealth{server})
	}
}

type serverHealth struct{ Server int64 }

func (e serverHealth) about() Ref { return Ref{KindServer, e.Server} }

func (e serverHealth) due(tx *Tx) {
	s, ok := tx.Servers.Get(e.Server)
	if !ok {
		return
	}
	var shared sharedTargets
	for _, id := range s.LoadBalancers {
		if old, ok := tx.LoadBalancers.Get(id); ok {
			if lb, ok := old.withServerHealth(e.Server, &shared, tx.healthNow(old)); ok {
				tx.LoadBalancers.Put(lb)
				tx.noteTargets(lb.ID, e.Server)
			}
		}
	}
}

// scheduleAllHealth is scheduleHealth for all targets of a load balancer from the one with number first.
func (tx *Tx) scheduleAllHealth(lb *LoadBalancer, first int) {
	var due dueTimes
	for t := range lb.withTargets(lb.Targets[first:]).Backends() {
		s, _ := tx.Servers.Get(t.Server)
		tx.addDue(&due, lb, t, s)
	}
	for _, at := range due {
		tx.schedule(max(0, at.Sub(tx.now)), allHealth{lb.ID})
	}
}

type allHealth struct{ LoadBalancer int64 }

func (e allHealth) about() Ref { return Ref{KindLoadBalancer, e.LoadBalancer} }

func (e allHealth) due(tx *Tx) {
	if old, ok := tx.LoadBalancers.Get(e.LoadBalancer); ok {
		if lb, ok := old.withHealth(tx.healthNow(old)); ok {
			tx.LoadBalancers.Put(lb)
			tx.noteSelected(lb, old.Targets)
		}
	}
}

// healthNow returns a function for withHealth that returns the health that is due by now.
func (tx *Tx) healthNow(lb *LoadBalancer) func(*LoadBalancerTarget, TargetHealth) TargetHealth {
	return func(t *LoadBalancerTarget, h TargetHealth) TargetHealth {
		if tx.cloud.healthRule != HealthFollowsReach {
			return h
		}
		s, _ := tx.Servers.Get(t.Server)
		if next, at, ok := tx.nextHealth(lb, t, h, s); ok && !at.After(tx.now) {
			h.report(next)
		}
		return h
	}
}

// matchHealth gives a target one health per service, and keeps the known ones.
func matchHealth(t *LoadBalancerTarget, services []LoadBalancerService, now time.Time) {
	if t.Type == "label_selector" {
		return
	}
	known := t.Health
	t.Health = make([]TargetHealth, 0, len(services))
	for _, s := range services {
		h := TargetHealth{ListenPort: s.ListenPort, Status: HealthUnknown, Since: now}
		for _, k := range known {
			if k.ListenPort == s.ListenPort {
				h = k
			}
		}
		t.Health = append(t.Health, h)
	}
}
