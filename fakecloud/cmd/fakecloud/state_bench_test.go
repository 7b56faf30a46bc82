package main

import (
	"fmt"
	"net/http"
	"syscall"
	"testing"
	"time"
)

// BenchmarkState compares the program with --state with one without. Rounds of the two take turns. For each load, it shows the rate and
// the CPU time of the one without divided by those of the one with a state, and how long requests took.
func BenchmarkState(b *testing.B) {
	const rounds = 7
	for _, flag := range []string{"--state", "--state-sync"} {
		for _, l := range []load{loads[0], loads[2]} { // reads, creations
			for _, clients := range []int{1, maxClients} {
				b.Run(fmt.Sprintf("%s/%s/%d clients", flag, l.name, clients), func(b *testing.B) {
					args := []string{"--state", b.TempDir()}
					if flag != "--state" {
						args = append(args, flag)
					}
					disk, memory := newSide(b, 0, append(args, "--rate-limit", "0")...), newSide(b, 0, "--rate-limit", "0")
					for _, s := range []*side{disk, memory} {
						s.ask(b, http.MethodPost, "/servers", s.nextServer())
					}
					for i := range 1 + rounds {
						memory.round(b, l, clients, "/servers/1000001")
						disk.round(b, l, clients, "/servers/1000001")
						if i == 0 { // to warm up
							for _, s := range []*side{disk, memory} {
								s.durations, s.wall, s.cpu = nil, nil, nil
							}
						}
					}
					rate := ratios(memory.wall, disk.wall)
					b.ReportMetric(0, "ns/op") // means nothing here
					b.ReportMetric(rate[rounds/2], "rate-of-memory")
					b.ReportMetric(memory.cpuPerRequest()/disk.cpuPerRequest(), "cpu-of-memory")
					b.Logf("rate %.2f %.2f %.2f, CPU %.0f of %.0f µs, p50 %v of %v, p99 %v of %v", rate[0], rate[rounds/2], rate[rounds-1],
						memory.cpuPerRequest(), disk.cpuPerRequest(), memory.percentile(50), disk.percentile(50), memory.percentile(99),
						disk.percentile(99))
				})
			}
		}
	}
}

// BenchmarkStartWithState measures the time until a program listens that begins with the state of 100,000 servers.
func BenchmarkStartWithState(b *testing.B) {
	const servers = 100_000
	dir := b.TempDir()
	s := newSide(b, 0, "--state", dir, "--rate-limit", "0", "--actions", "instant")
	s.round(b, load{creates: 10, perRound: servers}, maxClients, "")
	check(b, s.Process.Signal(syscall.SIGTERM))
	_ = s.Wait()
	best := time.Hour
	for b.Loop() {
		start := time.Now()
		p := startProcess(b, "--state", dir)
		best = min(best, time.Since(start))
		p.kill()
	}
	b.ReportMetric(best.Seconds(), "best-s")
}
