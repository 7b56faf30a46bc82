package fakecloud_test

import (
	"syscall"
	"testing"
	"time"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
)

// BenchmarkDueActions steps the clock over the ends of 10,000 actions, create_server and start_server of
// 5,000 servers. Its baseline, in the same run, is what a request that creates a server costs.
func BenchmarkDueActions(b *testing.B) {
	const servers = 5000
	var create, due time.Duration
	for b.Loop() {
		c := fakecloud.New(fakecloud.Options{JournalSize: 1, Actions: "800ms"})
		if err := c.SetSpeed(b.Context(), 0); err != nil {
			b.Fatal(err)
		}
		start := cpu(b)
		for i := range servers {
			createServer(b, c, i)
		}
		created := cpu(b)
		if err := c.Step(b.Context(), time.Hour); err != nil {
			b.Fatal(err)
		}
		create += created - start
		due += cpu(b) - created
		c.Close()
	}
	perAction := func(d time.Duration, n int) float64 { return float64(d.Microseconds()) / float64(b.N*n) }
	b.ReportMetric(perAction(due, 2*servers), "cpu-µs/due-action")
	b.ReportMetric(perAction(create, servers), "cpu-µs/create-request")
}

// cpu is the CPU time that the process has used.
func cpu(b testing.TB) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
