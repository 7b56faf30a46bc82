package main

import (
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"
)

// kill ends the process, and returns its CPU time.
func (p process) kill() time.Duration {
	_ = p.Process.Kill()
	_ = p.Wait() // it was killed
	return p.ProcessState.UserTime() + p.ProcessState.SystemTime()
}

// BenchmarkStart measures the time from the start of the program as a process until it prints where it listens.
func BenchmarkStart(b *testing.B) {
	best := time.Hour
	for b.Loop() {
		start := time.Now()
		p := startProcess(b)
		best = min(best, time.Since(start))
		p.kill()
	}
	b.ReportMetric(float64(best.Microseconds())/1000, "best-ms")
}

// BenchmarkSelectedServersOverHTTP creates 1,000 servers, one after the other, that no load balancer selects or that 100 do, and
// compares the CPU time of the program. The baseline is in the same round, and its share of the start is taken off.
func BenchmarkSelectedServersOverHTTP(b *testing.B) {
	const servers = 1000
	spent := map[int]time.Duration{}
	for b.Loop() {
		for _, balancers := range []int{0, 100} {
			for _, n := range []int{0, servers} {
				p := startProcess(b, "--rate-limit", "0")
				for i := range balancers {
					p.ask(b, http.MethodPost, "/load_balancers",
						fmt.Sprintf(`{"name": "lb-%d", "load_balancer_type": "lb11", "location": "fsn1",
						"services": [{"protocol": "tcp", "listen_port": 80, "destination_port": 80}],
						"targets": [{"type": "label_selector", "label_selector": {"selector": "role=web"}}]}`, i))
				}
				for i := range n {
					p.ask(b, http.MethodPost, "/servers",
						fmt.Sprintf(`{"name": "server-%d", "server_type": "cx23", "image": "ubuntu-24.04", "location": "fsn1", "labels": {"role": "web"}}`, i))
				}
				if n == 0 {
					spent[balancers] -= p.kill()
				} else {
					spent[balancers] += p.kill()
				}
			}
		}
	}
	for _, balancers := range []int{0, 100} {
		b.ReportMetric(float64(spent[balancers].Microseconds())/float64(b.N*servers), fmt.Sprintf("cpu-µs/server-%d-lbs", balancers))
	}
	b.ReportMetric(float64(spent[100])/float64(spent[0]), "ratio")
}

// BenchmarkSubscribers changes the labels of a server while no client reads /events, one does, or 100 do. It shows what a change
// costs the program with 100 of them, as a multiple of one, and how long it takes. Rounds take turns.
func BenchmarkSubscribers(b *testing.B) {
	const rounds, clients = 7, 16
	changes := load{changes: 10, perRound: 2000}
	counts := []int{0, 1, 100}
	sides, paths := map[int]*side{}, map[int]string{}
	for _, n := range counts {
		sides[n], _, paths[n] = newSides(b, 1)
		for range n {
			followEvents(b, sides[n].control, io.Discard)
		}
	}
	for range rounds {
		for _, n := range counts {
			sides[n].round(b, changes, clients, paths[n])
		}
	}
	one, many := sides[1], sides[100]
	b.ReportMetric(0, "ns/op") // means nothing here
	b.ReportMetric(many.cpuPerRequest()/one.cpuPerRequest(), "cpu-of-100/of-1")
	b.ReportMetric(ratios(many.wall, one.wall)[rounds/2], "time-of-100/of-1")
	b.Logf("CPU per change with 0, 1 and 100: %.0f, %.0f, %.0f µs", sides[0].cpuPerRequest(), one.cpuPerRequest(), many.cpuPerRequest())
}
