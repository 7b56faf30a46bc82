package dataplane

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// benchClients is the number of clients that send requests at the same time.
const benchClients = 16

// cpuTime returns the CPU time that a process has used so far.
func cpuTime(t testing.TB, pid int) time.Duration {
	t.Helper()
	files, err := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*/schedstat")
	if err != nil || len(files) == 0 {
		t.Skip("the CPU time of another process is read from /proc, which this system does not have")
	}
	var sum time.Duration
	for _, name := range files {
		text, _ := os.ReadFile(name)
		first, _, _ := strings.Cut(string(text), " ")
		n, _ := strconv.ParseInt(first, 10, 64)
		sum += time.Duration(n)
	}
	return sum
}

// benchTarget answers each request that fits into one read with body, at the least cost.
func benchTarget(b *testing.B, answer []byte) string {
	return newTCPTargetAt(b, "t", "127.0.0.1:0", func(c net.Conn) {
		buf := make([]byte, 4096)
		for {
			n, err := c.Read(buf)
			if err != nil || !bytes.HasSuffix(buf[:n], []byte("\r\n\r\n")) {
				return
			}
			if _, err := c.Write(answer); err != nil {
				return
			}
		}
	}).at()
}

// benchClient sends requests and reads answers of a known size, at the least cost.
type benchClient struct {
	net.Conn
	in   *bufio.Reader
	body int
}

func (c *benchClient) get() error {
	if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: bench\r\nUser-Agent: bench\r\nAccept: */*\r\n\r\n"); err != nil {
		return err
	}
	for {
		line, err := c.in.ReadSlice('\n')
		if err != nil {
			return err
		}
		if len(line) == 2 {
			break
		}
	}
	_, err := c.in.Discard(c.body)
	return err
}

// contender is a proxy of a comparison, with its costs so far.
type contender struct {
	pid       int
	clients   []*benchClient
	wall, cpu time.Duration
}

func mustDial(b *testing.B, at string) net.Conn {
	b.Helper()
	c, err := net.Dial("tcp", at)
	if err != nil {
		b.Fatal(err)
	}
	return c
}

func newContender(b *testing.B, protocol Protocol, at string, pid, body int) *contender {
	b.Helper()
	p := &contender{pid: pid}
	for range benchClients {
		c := mustDial(b, at)
		if protocol == HTTPS {
			c = tls.Client(c, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}}) //nolint:gosec // benchmark
		}
		b.Cleanup(func() { closeQuietly(c) })
		p.clients = append(p.clients, &benchClient{c, bufio.NewReaderSize(c, 64<<10), body})
	}
	p.turn(b, benchClients)
	p.wall, p.cpu = 0, 0
	return p
}

// turn sends n requests, by all clients together.
func (p *contender) turn(b *testing.B, n int) {
	wall, cpu := time.Now(), cpuTime(b, p.pid)
	var wg sync.WaitGroup
	errs := make([]error, len(p.clients))
	for i, c := range p.clients {
		wg.Go(func() {
			for j := i; j < n && errs[i] == nil; j += len(p.clients) {
				errs[i] = c.get()
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		b.Fatal(err)
	}
	p.wall += time.Since(wall)
	p.cpu += cpuTime(b, p.pid) - cpu
}

// BenchmarkAgainstHAProxy compares this package with HAProxy and with a bare httputil.ReverseProxy, in turns. Its figures
// are our rate divided by theirs, and our proxy's CPU time divided by theirs. Clients and target are in one process.
func BenchmarkAgainstHAProxy(b *testing.B) {
	cert := certificate(b, 1, "bench")
	pem := filepath.Join(b.TempDir(), "cert.pem")
	if err := os.WriteFile(pem, []byte(cert.Chain+cert.PrivateKey), 0o600); err != nil {
		b.Fatal(err)
	}
	for _, v := range []struct {
		name     string
		protocol Protocol
		body     int
		turn     int // the number of requests after which it is the next proxy's turn
	}{
		{"http-small", HTTP, 2, 4096},
		{"https-small", HTTPS, 2, 4096},
		{"http-10MB", HTTP, 10 << 20, 16},
		{"tcp-small", TCP, 2, 4096},
	} {
		b.Run(v.name, func(b *testing.B) {
			head := fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n", v.body)
			target := benchTarget(b, append([]byte(head), make([]byte, v.body)...))
			conf := proxyConfig{protocol: string(v.protocol), target: target, pem: pem}
			at, pid := startHAProxy(b, conf)
			haproxy := newContender(b, v.protocol, at, pid, v.body)
			conf.kind = "ours"
			at, pid = startProxy(b, conf)
			ours := newContender(b, v.protocol, at, pid, v.body)
			all := []*contender{ours, haproxy}
			bare := &contender{}
			if v.protocol != TCP {
				conf.kind = "bare"
				at, pid = startProxy(b, conf)
				bare = newContender(b, v.protocol, at, pid, v.body)
				all = append(all, bare)
			}
			b.ResetTimer()
			for left := b.N; left > 0; left -= v.turn {
				for _, p := range all {
					p.turn(b, min(left, v.turn))
				}
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(float64(ours.cpu.Microseconds())/float64(b.N), "cpu-µs/op")
			b.ReportMetric(float64(haproxy.wall)/float64(ours.wall), "rate/haproxy")
			b.ReportMetric(float64(ours.cpu)/float64(haproxy.cpu), "cpu/haproxy")
			if v.protocol != TCP {
				b.ReportMetric(float64(bare.wall)/float64(ours.wall), "rate/bare")
				b.ReportMetric(float64(ours.cpu)/float64(bare.cpu), "cpu/bare")
			}
		})
	}
}
