package fakecloud_test

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/fault"
)

// BenchmarkFilter filters lists in a small and in a large cloud. Each filter selects 10 servers in both, except
// role=web, which selects all.
func BenchmarkFilter(b *testing.B) {
	for _, n := range []int{100, 10_000} {
		c := newCloud(b, fakecloud.Options{JournalSize: 1})
		for i := range n {
			labels := `"role": "web"`
			if i < 10 {
				labels += `, "team": "a"`
			}
			body := fmt.Sprintf(`{"name": "server-%d", "server_type": "cx23", "image": "ubuntu-24.04", "location": "fsn1", "labels": {%s}}`,
				i, labels)
			if code, answer := request(b, c.Handler(), "POST", "/v1/servers", body); code != http.StatusCreated {
				b.Fatalf("%d %s", code, answer)
			}
		}
		for _, query := range []string{
			"label_selector=team=a", "label_selector=team", "label_selector=role=web,team", "label_selector=role=web",
			"name=server-1&name=server-2",
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
			c := newCloud(b, fakecloud.Options{})
			var total time.Duration
			for range b.N {
				for i := range n {
					createServer(b, c, i)
				}
				start := time.Now()
				check(b, c.Reset(b.Context()))
				total += time.Since(start)
			}
			b.ReportMetric(0, "ns/op") // would include the creation
			b.ReportMetric(float64(total.Microseconds())/1000/float64(b.N), "ms/reset")
		})
	}
}

// BenchmarkFaultRule gets a server from a cloud that has a fault rule for another operation, and from one that has none.
func BenchmarkFaultRule(b *testing.B) {
	for name, rules := range map[string]int{"none": 0, "one": 1} {
		b.Run(name, func(b *testing.B) {
			c := newCloud(b, fakecloud.Options{})
			createServer(b, c, 1)
			for range rules {
				must(c.Faults().Add(b.Context(), fault.Rule{Operation: "delete_volume", Effect: fault.LoseAnswer()}))(b)
			}
			serveOne(b, c, apiRequest(b, "GET", "/v1/servers/"+strconv.FormatInt(firstServer(b, c), 10), ""))
		})
	}
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
	pages := must(strconv.Atoi(string(bytes.Fields(text)[1])))(b)
	return pages * os.Getpagesize()
}
