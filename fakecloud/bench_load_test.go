package fakecloud_test

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/fault"
)

// load is a number of clients that send requests over connections on loopback. Of every createEvery requests, one creates
// a server and the others get one. With 0, none creates one.
type load struct {
	clients, createEvery int
}

// loadResult is the time of all rounds, the CPU time of the process and the durations of the requests in them.
type loadResult struct {
	total, cpu time.Duration
	durations  []time.Duration
}

func (r *loadResult) p99() time.Duration {
	slices.Sort(r.durations)
	return r.durations[len(r.durations)*99/100]
}

// round sends requests from all clients and records their durations.
func (l load) round(b *testing.B, s *httptest.Server, get string, create func() string, r *loadResult) {
	const perRound = 640
	each := make([][]time.Duration, l.clients)
	start, cpuBefore := time.Now(), cpu(b)
	var wg sync.WaitGroup
	for c := range l.clients {
		wg.Go(func() {
			for i := range perRound / l.clients {
				begin := time.Now()
				if l.createEvery > 0 && i%l.createEvery == 0 {
					send(b, s.Client(), http.MethodPost, s.URL+"/v1/servers", create())
				} else {
					send(b, s.Client(), http.MethodGet, s.URL+get, "")
				}
				each[c] = append(each[c], time.Since(begin))
			}
		})
	}
	wg.Wait()
	r.total += time.Since(start)
	r.cpu += cpu(b) - cpuBefore
	r.durations = slices.Concat(append([][]time.Duration{r.durations}, each...)...)
}

func send(b *testing.B, client *http.Client, method, url, body string) {
	r, err := http.NewRequestWithContext(b.Context(), method, url, strings.NewReader(body))
	if err != nil {
		b.Error(err)
		return
	}
	r.Header.Set("Authorization", "Bearer "+fakecloud.DefaultToken)
	resp, err := client.Do(r)
	if err != nil {
		b.Error(err)
		return
	}
	if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode >= 300 {
		b.Errorf("%s %s: %s, %v", method, url, resp.Status, err)
	}
	_ = resp.Body.Close()
}

// serve returns a server whose client keeps a connection for each of many clients.
func serve(b *testing.B, h http.Handler) *httptest.Server {
	b.Helper()
	s := httptest.NewServer(h)
	b.Cleanup(s.Close)
	s.Client().Transport.(*http.Transport).MaxIdleConnsPerHost = 100
	return s
}

// BenchmarkLoad is BenchmarkRead with several clients, and with requests that create servers. It compares the time of all
// rounds, because the fastest one varies more between runs. The baseline reads the bodies of creations and writes the bytes of
// one such answer. "p99-of-baseline" is the API's 99th percentile divided by the baseline's.
// "cpu-of-baseline" compares the CPU time of a request, with that of the client: other work of the machine affects it less
// than it affects the rate.
func BenchmarkLoad(b *testing.B) {
	for _, c := range []struct {
		name string
		load
		path string
	}{
		{"GET one server/1 client", load{1, 0}, "GET one server"},
		{"GET one server/64 clients", load{64, 0}, "GET one server"},
		{"list 50 servers/1 client", load{1, 0}, "list 50 servers"},
		{"list 50 servers/64 clients", load{64, 0}, "list 50 servers"},
		{"create servers/1 client", load{1, 1}, "GET one server"},
		{"create servers/64 clients", load{64, 1}, "GET one server"},
		{"80 % GET, 20 % create/1 client", load{1, 5}, "GET one server"},
		{"80 % GET, 20 % create/64 clients", load{64, 5}, "GET one server"},
	} {
		b.Run(c.name, func(b *testing.B) {
			x := newBench(b)
			var n atomic.Int64
			n.Store(1000)
			create := func() string { return serverBody(int(n.Add(1))) }
			api, baseline := serve(b, x.cloud.Handler()), serve(b, x.withCreate(b))
			var ours, bare loadResult
			for b.Loop() {
				c.round(b, baseline, x.paths[c.path], create, &bare)
				c.round(b, api, x.paths[c.path], create, &ours)
			}
			b.ReportMetric(0, "ns/op") // means nothing here
			b.ReportMetric(float64(bare.total)/float64(ours.total), "of-baseline")
			b.ReportMetric(float64(bare.cpu)/float64(ours.cpu), "cpu-of-baseline")
			b.ReportMetric(float64(ours.p99().Microseconds()), "p99-µs")
			b.ReportMetric(float64(ours.p99())/float64(bare.p99()), "p99-of-baseline")
		})
	}
}

// withCreate returns the baseline with a route that answers like the creation of a server.
func (x *bench) withCreate(b *testing.B) http.Handler {
	b.Helper()
	w := httptest.NewRecorder()
	x.cloud.Handler().ServeHTTP(w, apiRequest(b, "POST", "/v1/servers", serverBody(1000)))
	if w.Code != http.StatusCreated {
		b.Fatalf("%d %s", w.Code, w.Body)
	}
	header, body := w.Result().Header, w.Body.Bytes()
	mux := chi.NewRouter()
	mux.Post("/v1/servers", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		maps.Copy(w.Header(), header)
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write(body)
	})
	mux.Mount("/", x.baseline)
	return mux
}

// BenchmarkFilter filters lists in a small and in a large cloud. Each filter selects 10 servers in both, except
// role=web, which selects all.
func BenchmarkFilter(b *testing.B) {
	for _, n := range []int{100, 10_000} {
		c := fakecloud.New(fakecloud.Options{JournalSize: 1})
		b.Cleanup(c.Close)
		for i := range n {
			labels := `"role": "web"`
			if i < 10 {
				labels += `, "team": "a"`
			}
			body := fmt.Sprintf(`{"name": "server-%d", "server_type": "cx23", "image": "ubuntu-24.04", "location": "fsn1", "labels": {%s}}`, i, labels)
			if code, answer := request(b, c.Handler(), "POST", "/v1/servers", body); code != http.StatusCreated {
				b.Fatalf("%d %s", code, answer)
			}
		}
		for _, query := range []string{
			"label_selector=team=a", "label_selector=team", "label_selector=role=web,team", "label_selector=role=web", "name=server-1&name=server-2",
		} {
			b.Run(fmt.Sprintf("%d servers?%s", n, query), func(b *testing.B) {
				path := "/v1/servers?" + strings.ReplaceAll(query, "role=web,", "role%3Dweb,")
				r := apiRequest(b, "GET", path, "")
				serveOne(b, c, r)
			})
		}
	}
}

// BenchmarkReset removes 10,000 and 100,000 servers.
func BenchmarkReset(b *testing.B) {
	for _, n := range []int{10_000, 100_000} {
		b.Run(fmt.Sprintf("%d servers", n), func(b *testing.B) {
			c := fakecloud.New(fakecloud.Options{})
			b.Cleanup(c.Close)
			var total time.Duration
			for range b.N {
				for i := range n {
					createServer(b, c, i)
				}
				start := time.Now()
				if err := c.Reset(b.Context()); err != nil {
					b.Fatal(err)
				}
				total += time.Since(start)
			}
			b.ReportMetric(0, "ns/op") // would include the creation
			b.ReportMetric(float64(total.Microseconds())/1000/float64(b.N), "ms/reset")
		})
	}
}

// BenchmarkFaultRule compares a cloud that has a fault rule for another operation with one that has none.
func BenchmarkFaultRule(b *testing.B) {
	x, other := newBench(b), newBench(b)
	if _, err := x.cloud.Faults().Add(b.Context(), fault.Rule{Operation: "delete_volume", Effect: fault.LoseAnswer()}); err != nil {
		b.Fatal(err)
	}
	x.baseline = other.cloud.Handler()
	x.compare(b, func(h http.Handler) func() {
		s := serve(b, h)
		return func() { fetch(b, s.Client(), s.URL+x.paths["GET one server"]) }
	})
}

// BenchmarkMemory reports the resident memory of the process per server, after Go has returned what it does not need.
func BenchmarkMemory(b *testing.B) {
	const n = 100_000
	for range b.N {
		c := fakecloud.New(fakecloud.Options{})
		debug.FreeOSMemory()
		before := residentBytes(b)
		for i := range n {
			createServer(b, c, i)
		}
		peak := residentBytes(b)
		debug.FreeOSMemory()
		b.ReportMetric(float64(residentBytes(b)-before)/n, "rss-B/server")
		b.ReportMetric(float64(peak-before)/n, "peak-rss-B/server")
		runtime.KeepAlive(c)
		c.Close()
	}
}

func residentBytes(b *testing.B) int {
	b.Helper()
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		b.Skip("the resident memory is read from /proc")
	}
	pages, err := strconv.Atoi(string(bytes.Fields(text)[1]))
	if err != nil {
		b.Fatal(err)
	}
	return pages * os.Getpagesize()
}
