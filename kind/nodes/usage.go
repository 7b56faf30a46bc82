package nodes

import (
	"context"
	"time"
)

// usageInterval is the time between two measurements, in the time of Options.Clock. A report counts for a minute: the interval is well
// below that. Measuring a node takes 0.2 seconds on two busy cores, mostly in Docker.
const usageInterval = 10 * time.Second

// meter measures the usage of containers. One goroutine uses it.
type meter struct {
	hypervisor *Hypervisor
	last       map[string]reading // by container: those of the last round
	failed     map[string]int     // by container: how often in a row it could not be measured
}

type reading struct {
	started time.Time
	Counters
}

// measure reports the usage of the servers' containers, until the context is done.
func (h *Hypervisor) measure(ctx context.Context) {
	m := meter{hypervisor: h}
	for h.wait(ctx, usageInterval) {
		m.round(ctx)
	}
}

// round measures each container that runs, one after the other, so that a slow host is not kept busy.
func (m *meter) round(ctx context.Context) {
	h := m.hypervisor
	servers := h.measurable()
	if len(servers) == 0 {
		return
	}
	containers, err := h.o.Driver.List(ctx)
	if err != nil {
		return // other users of the list report that
	}
	before, failed := m.last, m.failed
	m.last, m.failed = map[string]reading{}, map[string]int{}
	for _, c := range containers {
		server, ok := servers[c.Name]
		if !ok || !c.Running {
			continue
		}
		err := m.one(ctx, server, c, before[c.Name])
		if err == nil || ctx.Err() != nil {
			continue
		}
		m.failed[c.Name] = failed[c.Name] + 1
		// The first failure may be a container that has just been powered off, and those after the second say nothing new.
		if m.failed[c.Name] == 2 {
			h.log.Warn("cannot measure a container: its server's metrics are 0 until that works again", "container", c.Name, "server",
				server, "error", err)
		}
	}
}

// one reads the counters of a container and reports its usage since the last reading.
func (m *meter) one(ctx context.Context, server int64, c Container, before reading) error {
	h := m.hypervisor
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	now, err := h.o.Driver.Counters(ctx, c.Name)
	if err != nil {
		return err
	}
	m.last[c.Name] = reading{c.Started, now}
	if !before.started.Equal(c.Started) { // also if there is none
		return nil
	}
	u, ok := usage(before.Counters, now)
	if !ok {
		return nil
	}
	return h.o.ReportUsage(ctx, server, u)
}

// measurable returns the servers that have containers, by the container's name; none while the cloud is not there.
func (h *Hypervisor) measurable() map[string]int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	servers := map[string]int64{}
	if h.session == nil {
		return servers
	}
	for id, s := range h.servers {
		if s.container != "" {
			servers[s.container] = id
		}
	}
	return servers
}
