package main

import (
	"bufio"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// BenchmarkStart measures the time from the start of the program as a process until it prints where it listens.
func BenchmarkStart(b *testing.B) {
	best := time.Hour
	for b.Loop() {
		cmd := exec.CommandContext(b.Context(), os.Args[0], "--listen", "127.0.0.1:0", "--control", "127.0.0.1:0")
		cmd.Env = append(os.Environ(), "TEST_RUN_FAKECLOUD=1")
		out, err := cmd.StdoutPipe()
		if err != nil {
			b.Fatal(err)
		}
		start := time.Now()
		if err := cmd.Start(); err != nil {
			b.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for lines.Scan() && !strings.HasPrefix(lines.Text(), "export ") {
		}
		best = min(best, time.Since(start))
		if err := lines.Err(); err != nil {
			b.Error(err)
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
	}
	b.ReportMetric(float64(best.Microseconds())/1000, "best-ms")
}
