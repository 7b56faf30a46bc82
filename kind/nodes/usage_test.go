package nodes_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/hypervisor"
	"github.com/ccm-from-scratch/ccm-from-scratch/kind/nodes"
)

// metered is a world with a hypervisor that measures the server "node", and the reports about it.
type metered struct {
	*world
	clock  *steppingClock
	server *hcloud.Server
	log    lockedBuffer

	mu      sync.Mutex
	reports []hypervisor.Usage
}

type lockedBuffer struct {
	mu sync.Mutex
	bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.Write(p)
}

func (b *lockedBuffer) count(text string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Count(b.String(), text)
}

func newMetered(t *testing.T) *metered {
	t.Helper()
	m := &metered{world: newWorld(t), clock: newSteppingClock()}
	o := m.options()
	o.Clock, o.Logger = m.clock, slog.New(slog.NewTextHandler(&m.log, nil))
	o.ReportUsage = func(ctx context.Context, server int64, u hypervisor.Usage) error {
		err := m.cloud.ReportServerUsage(ctx, server, u)
		m.mu.Lock()
		defer m.mu.Unlock()
		if err == nil { // it is of a server that there is
			m.reports = append(m.reports, u)
		}
		return err
	}
	m.run(o)
	m.server = m.create(m.createOpts("node"))
	m.driver.awaitCall(t, "boot node")
	return m
}

// round lets the hypervisor measure once and returns when it waits again. It returns what was reported.
func (m *metered) round(c nodes.Counters, failure error) []hypervisor.Usage {
	m.Helper()
	m.driver.mu.Lock()
	m.driver.counters, m.driver.fail["counters"] = c, failure
	m.driver.mu.Unlock()
	m.clock.stepOverNextWait(m.T)
	select {
	case <-m.clock.waits:
		m.clock.waits <- struct{}{} // for the next round
	case <-m.Context().Done():
		m.Fatal(m.Context().Err())
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	out := m.reports
	m.reports = nil
	return out
}

func TestTheUsageOfAContainerIsThatOfItsServer(t *testing.T) {
	t.Parallel()
	m := newMetered(t)
	first := nodes.Counters{Uptime: 100 * time.Second, CPU: time.Second, BytesIn: 1000}
	if got := m.round(first, nil); len(got) != 0 {
		t.Errorf("reported after one reading: %+v", got)
	}
	second := nodes.Counters{
		Uptime: 110 * time.Second, CPU: 16 * time.Second, DiskReadOps: 10, DiskWriteOps: 20, DiskReadBytes: 30, DiskWriteBytes: 40,
		PacketsIn: 50, PacketsOut: 60, BytesIn: 1070, BytesOut: 80,
	}
	want := hypervisor.Usage{
		CPU: 150, DiskReadOps: 1, DiskWriteOps: 2, DiskReadBytes: 3, DiskWriteBytes: 4, PacketsIn: 5, PacketsOut: 6, BytesIn: 7,
		BytesOut: 8,
	}
	if got := m.round(second, nil); len(got) != 1 || got[0] != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	// Counters that begin again say nothing about the time before.
	if got := m.round(nodes.Counters{Uptime: 120 * time.Second, CPU: 17 * time.Second}, nil); len(got) != 0 {
		t.Errorf("reported although a counter went back: %+v", got)
	}
}

func TestAContainerThatIsOffIsNotMeasured(t *testing.T) {
	t.Parallel()
	m := newMetered(t)
	at := func(s int) nodes.Counters { return nodes.Counters{Uptime: time.Duration(s) * time.Second} }
	m.round(at(10), nil)
	m.act(m.client.Server.Poweroff(t.Context(), m.server))
	m.driver.called()
	if got := m.round(at(20), nil); len(got) != 0 || len(m.driver.called()) != 0 {
		t.Errorf("a container that is off was measured: %+v", got)
	}
	m.act(m.client.Server.Poweron(t.Context(), m.server))
	m.driver.awaitCall(t, "boot node")
	// Its counters started again, even if they are larger.
	for i, want := range []int{0, 1} {
		if got := m.round(at(30+10*i), nil); len(got) != want {
			t.Errorf("reading %d after the start: %+v, want %d reports", i, got, want)
		}
	}
	m.act(m.client.Server.Reset(t.Context(), m.server)) // off and on between two readings
	m.driver.awaitCall(t, "boot node")
	if got := m.round(at(50), nil); len(got) != 0 {
		t.Errorf("reported across a restart: %+v", got)
	}
}

func TestAContainerThatCannotBeMeasuredIsLoggedOnce(t *testing.T) {
	t.Parallel()
	m := newMetered(t)
	broken := errors.New("no such file")
	logged := func(want int) {
		t.Helper()
		if n := m.log.count("cannot measure a container"); n != want {
			t.Errorf("logged %d times, want %d", n, want)
		}
	}
	m.round(nodes.Counters{}, broken) // perhaps it is just being powered off
	logged(0)
	for range 4 {
		m.round(nodes.Counters{}, broken)
		logged(1)
	}
	m.round(nodes.Counters{Uptime: time.Second}, nil)
	for range 3 {
		m.round(nodes.Counters{}, broken)
	}
	logged(2)
}

func TestMeasuringEndsWithTheHypervisor(t *testing.T) {
	t.Parallel()
	m := newMetered(t)
	m.round(nodes.Counters{}, errors.New("no such file")) // the next failure would be logged
	m.driver.mu.Lock()
	m.driver.hang["counters"] = make(chan struct{})
	m.driver.mu.Unlock()
	m.driver.called()
	m.clock.stepOverNextWait(t)
	m.driver.awaitCall(t, "counters node")
	if err := m.stop(); err != nil {
		t.Fatal(err)
	}
	if n := m.log.count("cannot measure"); n != 0 {
		t.Error("the end is logged as a failure")
	}
}
