package fakecloud_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/cputime"
)

// request sends one API request to a cloud within the process.
func request(b testing.TB, h http.Handler, method, path, body string) (int, []byte) {
	b.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, apiRequest(b, method, path, body))
	return w.Code, w.Body.Bytes()
}

func apiRequest(b testing.TB, method, path, body string) *http.Request {
	b.Helper()
	var reader io.Reader
	if body != "" {
		reader = bytes.NewReader([]byte(body))
	}
	r := httptest.NewRequestWithContext(b.Context(), method, "http://fakecloud.invalid"+path, reader)
	r.Header.Set("Authorization", "Bearer "+fakecloud.DefaultToken)
	r.Header.Set("User-Agent", "hcloud-go/2.52.0")
	r.Header.Set("Accept", "application/json")
	return r
}

func createServer(b testing.TB, c *fakecloud.Cloud, i int) {
	b.Helper()
	code, body := request(b, c.Handler(), "POST", "/v1/servers", serverBody(i))
	if code != 201 {
		b.Fatalf("create server %d: %d %s", i, code, body)
	}
}

func serverBody(i int) string {
	return `{"name": "server-` + strconv.Itoa(i) +
		`", "server_type": "cx23", "image": "ubuntu-24.04", "location": "fsn1", "labels": {"role": "web"}}`
}

// firstServer returns the id of the oldest server.
func firstServer(b *testing.B, c *fakecloud.Cloud) int64 {
	b.Helper()
	servers, _, err := c.Client().Server.List(b.Context(), hcloud.ServerListOpts{ListOpts: hcloud.ListOpts{PerPage: 1},
		Sort: []string{"id:asc"}})
	if err != nil || len(servers) == 0 {
		b.Fatal(servers, err)
	}
	return servers[0].ID
}

// discard is a cheap http.ResponseWriter: the benchmark measures the handler.
type discard struct {
	header http.Header
	n      int
}

func (d *discard) Header() http.Header { return d.header }
func (d *discard) WriteHeader(int)     {}
func (d *discard) Flush()              {}
func (d *discard) reset()              { clear(d.header); d.n = 0 }
func (d *discard) Write(b []byte) (int, error) {
	d.n += len(b)
	return len(b), nil
}

// serveOne measures how long a cloud takes to answer one request within the process.
func serveOne(b *testing.B, c *fakecloud.Cloud, r *http.Request) {
	b.Helper()
	w := &discard{header: http.Header{}}
	b.ReportAllocs()
	for b.Loop() {
		w.reset()
		c.Handler().ServeHTTP(w, r)
	}
}

// BenchmarkCreateServers creates servers in a cloud that already has some.
func BenchmarkCreateServers(b *testing.B) {
	for _, existing := range []int{0, 10_000} {
		b.Run(fmt.Sprintf("after %d", existing), func(b *testing.B) {
			c := newCloud(b, fakecloud.Options{})
			for i := range existing {
				createServer(b, c, i)
			}
			i := existing
			b.ReportAllocs()
			for b.Loop() {
				createServer(b, c, i)
				i++
			}
		})
	}
}

// BenchmarkHeapPerServer reports the bytes of heap per server, with its Primary IPs, its actions and their JSON.
func BenchmarkHeapPerServer(b *testing.B) {
	const n = 10_000
	for b.Loop() {
		c := fakecloud.New(fakecloud.Options{JournalSize: 1})
		before := heap()
		for i := range n {
			createServer(b, c, i)
		}
		b.ReportMetric(float64(heap()-before)/n, "heap-B/server")
		c.Close()
	}
}

func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// BenchmarkDueActions steps the clock over the ends of 10,000 actions: create_server and start_server of 5,000 servers. It
// also reports the cost of a request that creates a server, for comparison.
func BenchmarkDueActions(b *testing.B) {
	for name, subscribe := range map[string]bool{"no subscriber": false, "a subscriber": true} {
		b.Run(name, func(b *testing.B) { dueActions(b, subscribe) })
	}
}

func dueActions(b *testing.B, subscribe bool) {
	const servers = 5000
	var create, due time.Duration
	for b.Loop() {
		c := fakecloud.New(fakecloud.Options{JournalSize: 1, Actions: "800ms"})
		check(b, c.SetSpeed(b.Context(), 0))
		start := cputime.Used()
		for i := range servers {
			createServer(b, c, i)
		}
		created := cputime.Used()
		if subscribe {
			events := c.Subscribe()
			go func() {
				for {
					if _, err := events.Next(b.Context()); err != nil { // the cloud is closed
						return
					}
				}
			}()
		}
		check(b, c.Step(b.Context(), time.Hour))
		create += created - start
		due += cputime.Used() - created
		c.Close()
	}
	perAction := func(d time.Duration, n int) float64 { return float64(d.Microseconds()) / float64(b.N*n) }
	b.ReportMetric(perAction(due, 2*servers), "cpu-µs/due-action")
	b.ReportMetric(perAction(create, servers), "cpu-µs/create-request")
}
