package fakecloud_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
)

// createSelecting creates a load balancer with a service whose targets are all servers of createServer.
func createSelecting(b testing.TB, c *fakecloud.Cloud, i int) {
	b.Helper()
	code, body := request(b, c.Handler(), "POST", "/v1/load_balancers", fmt.Sprintf(`{
		"name": "lb-%d", "load_balancer_type": "lb11", "location": "fsn1",
		"services": [{"protocol": "tcp", "listen_port": 80, "destination_port": 80}],
		"targets": [{"type": "label_selector", "label_selector": {"selector": "role=web"}}]}`, i))
	if code != 201 {
		b.Fatalf("create load balancer %d: %d %s", i, code, body)
	}
}

// BenchmarkSelectedServers creates 1,000 servers which every load balancer selects, and lets their
// health checks succeed. Its metrics are CPU time, and heap while the
// health is still unknown, per server.
func BenchmarkSelectedServers(b *testing.B) {
	const servers = 1000
	for _, balancers := range []int{0, 1, 10, 50, 100} {
		b.Run(fmt.Sprintf("%d load balancers", balancers), func(b *testing.B) {
			for b.Loop() {
				c := fakecloud.New(fakecloud.Options{JournalSize: 1})
				for i := range balancers {
					createSelecting(b, c, i)
				}
				before, start := heap(), cpu(b)
				for i := range servers {
					createServer(b, c, i)
				}
				created := cpu(b)
				peak := heap()
				stepped := cpu(b)
				if err := c.Step(b.Context(), time.Minute); err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(float64((created-start).Microseconds())/servers, "create-cpu-µs/server")
				b.ReportMetric(float64((cpu(b)-stepped).Microseconds())/servers, "health-cpu-µs/server")
				b.ReportMetric(float64(peak-before)/servers, "heap-B/server")
				c.Close()
			}
		})
	}
}
