package fakecloud

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/plane"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/wire"
)

// lockedLog is a log for concurrent use.
type lockedLog struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lockedLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *lockedLog) has(level, text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.buf.String()) {
		if strings.Contains(line, "level="+level) && strings.Contains(line, text) {
			return true
		}
	}
	return false
}

func TestATakenPortIsReportedAndRetried(t *testing.T) {
	t.Parallel()
	var log lockedLog
	clock := clocktesting.NewFakeClock(time.Date(2026, 11, 22, 0, 0, 0, 0, time.UTC))
	c := New(Options{
		Clock: clock, LoadBalancerIPv4: netip.MustParsePrefix("127.0.0.0/30"), PublicIPv4: netip.MustParsePrefix("198.18.0.0/15"),
		DataPlane: &DataPlaneOptions{Logger: slog.New(slog.NewTextHandler(&log, nil))},
	})
	t.Cleanup(c.Close)
	result, _, err := c.Client().LoadBalancer.Create(t.Context(), hcloud.LoadBalancerCreateOpts{
		Name: "web", LoadBalancerType: &hcloud.LoadBalancerType{Name: "lb11"}, Location: &hcloud.Location{Name: "fsn1"},
	})
	check(t, err)
	other, err := new(net.ListenConfig).Listen(t.Context(), "tcp", net.JoinHostPort(result.LoadBalancer.PublicNet.IPv4.IP.String(), "0"))
	if err != nil {
		t.Skip("this machine has only one loopback address: ", err)
	}
	t.Cleanup(func() { _ = other.Close() })
	taken := other.Addr().String()
	port := other.Addr().(*net.TCPAddr).Port
	if _, _, err := c.Client().LoadBalancer.AddService(t.Context(), result.LoadBalancer, hcloud.LoadBalancerAddServiceOpts{
		Protocol: hcloud.LoadBalancerServiceProtocolTCP, ListenPort: &port, DestinationPort: &port,
	}); err != nil {
		t.Fatal(err)
	}
	await := func(what string, ok func(wire.LoadBalancerEndpoint) bool) wire.LoadBalancerEndpoint {
		t.Helper()
		for tick := time.Tick(time.Millisecond); ; {
			w := httptest.NewRecorder()
			c.ControlHandler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/load_balancer_endpoints", nil))
			var list struct {
				Endpoints []wire.LoadBalancerEndpoint `json:"load_balancer_endpoints"`
			}
			check(t, json.Unmarshal(w.Body.Bytes(), &list))
			for _, e := range list.Endpoints {
				if e.Address == taken && ok(e) {
					return e
				}
			}
			select {
			case <-tick:
			case <-t.Context().Done():
				t.Fatalf("%s: %+v", what, list)
			}
		}
	}
	e := await("another port", func(e wire.LoadBalancerEndpoint) bool { return e.Local != "" })
	if e.Local == taken || !strings.Contains(e.Error, "stop the program that uses it") {
		t.Errorf("%+v", e)
	}
	if !log.has("WARN", "local="+e.Local) {
		t.Error("no warning was logged")
	}
	clock.Step(plane.BindInterval) // it is still taken
	_ = other.Close()
	await("the port asked for", func(e wire.LoadBalancerEndpoint) bool {
		clock.Step(plane.BindInterval) // a tick is lost if the one before it was not read
		return e.Local == taken && e.Error == ""
	})
	if !log.has("INFO", "local="+taken) {
		t.Error("the port that was asked for was not logged")
	}
}
