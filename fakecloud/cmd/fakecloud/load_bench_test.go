package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"
)

// replies are what the baseline answers.
type replies struct{ Get, List, Create reply }

type reply struct {
	Status int
	Header http.Header
	Body   []byte
}

func (a *reply) write(w http.ResponseWriter) {
	maps.Copy(w.Header(), a.Header)
	w.WriteHeader(a.Status)
	_, _ = w.Write(a.Body)
}

// serveBaseline runs the baseline with the replies in a file until the process is killed. For a creation, it decodes the body and
// stores the result.
func serveBaseline(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var a replies
	if err := json.Unmarshal(text, &a); err != nil {
		return err
	}
	type server struct {
		Name       string            `json:"name"`
		ServerType string            `json:"server_type"`
		Image      string            `json:"image"`
		Location   string            `json:"location"`
		Labels     map[string]string `json:"labels"`
	}
	var mu sync.Mutex
	created := map[string]server{}
	mux := chi.NewRouter()
	mux.Get("/v1/servers/{id}", func(w http.ResponseWriter, _ *http.Request) { a.Get.write(w) })
	mux.Get("/v1/servers", func(w http.ResponseWriter, _ *http.Request) { a.List.write(w) })
	mux.Post("/v1/servers", func(w http.ResponseWriter, r *http.Request) {
		var s server
		if err := json.NewDecoder(r.Body).Decode(&s); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		mu.Lock()
		created[s.Name] = s
		mu.Unlock()
		a.Create.write(w)
	})
	fmt.Printf("export HCLOUD_ENDPOINT=%s/v1 HCLOUD_TOKEN=none\n# control: none\n", httptest.NewServer(mux).URL)
	select {}
}

// side is the program or the baseline with its clients, and what was measured.
type side struct {
	process
	connections []connection
	created     int
	durations   []time.Duration // of requests
	wall, cpu   []time.Duration // of rounds; the CPU time is that of the process
}

// connection is a client that costs little, so that it hides little of the server's cost.
type connection struct {
	net.Conn
	in *bufio.Reader
}

const maxClients = 64

// newSides starts the program with some servers, and the baseline with its replies. get is the path of one server.
func newSides(b *testing.B, servers int) (ours, bare *side, get string) {
	b.Helper()
	// There is a limit, as by default, but it is never reached.
	ours = newSide(b, 0, "--rate-limit", "1000000000")
	var a replies
	for range servers {
		a.Create = ours.ask(b, http.MethodPost, "/servers", ours.nextServer())
	}
	var created struct{ Server struct{ ID int64 } }
	check(b, json.Unmarshal(a.Create.Body, &created))
	get = fmt.Sprintf("/servers/%d", created.Server.ID)
	a.Get, a.List = ours.ask(b, http.MethodGet, get, ""), ours.ask(b, http.MethodGet, listPath, "")
	text := must(json.Marshal(a))(b)
	file := b.TempDir() + "/replies"
	check(b, os.WriteFile(file, text, 0o600))
	return ours, newSide(b, servers, baselinePrefix+file), get
}

func newSide(b *testing.B, created int, args ...string) *side {
	b.Helper()
	s := &side{process: startProcess(b, args...), created: created}
	b.Cleanup(func() { s.kill() })
	endpoint := must(url.Parse(s.endpoint))(b)
	for range maxClients {
		c := must(new(net.Dialer).DialContext(b.Context(), "tcp", endpoint.Host))(b)
		b.Cleanup(func() { _ = c.Close() })
		s.connections = append(s.connections, connection{c, bufio.NewReaderSize(c, 64<<10)})
	}
	return s
}

const (
	baselinePrefix = "baseline=" // begins the argument that makes the test the baseline
	listPath       = "/servers?per_page=50"
)

// nextServer returns the body of a request for one more server.
func (s *side) nextServer() string {
	s.created++
	return fmt.Sprintf(`{"name": "server-%d", "server_type": "cx23", "image": "ubuntu-24.04", "location": "fsn1",
		"labels": {"role": "web"}}`, s.created)
}

// ask sends a request and returns the answer.
func (p process) ask(b *testing.B, method, path, body string) reply {
	b.Helper()
	r := must(http.NewRequestWithContext(b.Context(), method, p.endpoint+path, strings.NewReader(body)))(b)
	r.Header.Set("Authorization", "Bearer "+p.token)
	resp := must(http.DefaultClient.Do(r))(b)
	text, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if resp.StatusCode >= 300 {
		b.Fatalf("%s %s: %s, %s, %v", method, path, resp.Status, text, err)
	}
	return reply{resp.StatusCode, resp.Header, text}
}

// load is what the clients send: of ten requests, so many create a server, so many list 50, so many change the labels of one, and
// the others get one.
type load struct {
	name                    string
	creates, lists, changes int
	perRound                int // number of requests
}

var loads = []load{
	{name: "GET one server", perRound: 8000},
	{name: "list 50 servers", lists: 10, perRound: 4000},
	{name: "create servers", creates: 10, perRound: 2000},
	{name: "80 % GET, 20 % create", creates: 2, perRound: 5000},
	{name: "40 % GET, 40 % list, 20 % create", creates: 2, lists: 4, perRound: 3000},
}

// requests returns what each client sends in a round.
func (s *side) requests(l load, clients int, get string) [][][]byte {
	endpoint, _ := url.Parse(s.endpoint)
	request := func(method, path, body string) []byte {
		return fmt.Appendf(nil, "%s %s%s HTTP/1.1\r\nHost: %s\r\nUser-Agent: hcloud-go/2.52.0\r\nAccept: application/json\r\n"+
			"Authorization: Bearer %s\r\nContent-Length: %d\r\n\r\n%s", method, endpoint.Path, path, endpoint.Host, s.token, len(body),
			body)
	}
	one, list := request(http.MethodGet, get, ""), request(http.MethodGet, listPath, "")
	all := make([][][]byte, clients)
	for i := range l.perRound {
		r := one
		switch n := i / clients % 10; {
		case n < l.creates:
			r = request(http.MethodPost, "/servers", s.nextServer())
		case n < l.creates+l.lists:
			r = list
		case n < l.creates+l.lists+l.changes:
			r = request(http.MethodPut, get, fmt.Sprintf(`{"labels": {"change": "%d"}}`, i))
		}
		all[i%clients] = append(all[i%clients], r)
	}
	return all
}

// round sends requests from some clients at the same time, and records what they cost.
func (s *side) round(b *testing.B, l load, clients int, get string) {
	requests := s.requests(l, clients, get)
	each := make([][]time.Duration, clients)
	var wg sync.WaitGroup
	start, cpu := time.Now(), s.cpuTime(b)
	for c := range clients {
		wg.Go(func() {
			for _, r := range requests[c] {
				begin := time.Now()
				if err := s.connections[c].send(r); err != nil {
					b.Errorf("%s: %v", r, err)
					return
				}
				each[c] = append(each[c], time.Since(begin))
			}
		})
	}
	wg.Wait()
	s.wall, s.cpu = append(s.wall, time.Since(start)), append(s.cpu, s.cpuTime(b)-cpu)
	s.durations = slices.Concat(append(each, s.durations)...)
}

// send sends a request, and reads the answer to its end.
func (c connection) send(request []byte) error {
	if _, err := c.Write(request); err != nil {
		return err
	}
	status, length := "", 0
	for {
		line, err := c.in.ReadSlice('\n')
		if err != nil {
			return err
		}
		if status == "" {
			status = string(line)
		}
		if n, ok := bytes.CutPrefix(line, []byte("Content-Length: ")); ok {
			length, _ = strconv.Atoi(string(bytes.TrimSpace(n)))
		}
		if len(line) == len("\r\n") {
			break
		}
	}
	if _, err := c.in.Discard(length); err != nil || length == 0 || !strings.HasPrefix(status, "HTTP/1.1 20") {
		return fmt.Errorf("%s with %d bytes: %w", strings.TrimSpace(status), length, err)
	}
	return nil
}

// cpuTime returns the CPU time of the process so far.
func (p process) cpuTime(b *testing.B) time.Duration {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.Process.Pid))
	if err != nil {
		b.Skip("the CPU time of a process is read from /proc")
	}
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')'):])) // a name in parentheses may have spaces
	user, _ := strconv.Atoi(fields[12])
	system, _ := strconv.Atoi(fields[13])
	return time.Duration(user+system) * (time.Second / 100)
}

func (s *side) percentile(n int) time.Duration {
	slices.Sort(s.durations)
	return s.durations[(len(s.durations)-1)*n/100].Round(time.Microsecond)
}

// cpuPerRequest returns the CPU time of the process per request, in microseconds.
func (s *side) cpuPerRequest() float64 {
	var sum time.Duration
	for _, d := range s.cpu {
		sum += d
	}
	return float64(sum.Nanoseconds()) / 1000 / float64(len(s.durations))
}

// ratios returns the quotients of two lists, in order.
func ratios(over, under []time.Duration) []float64 {
	all := make([]float64, len(over))
	for i := range over {
		all[i] = float64(over[i]) / float64(max(under[i], 1))
	}
	slices.Sort(all)
	return all
}

// BenchmarkLoad compares the program with a baseline: a bare chi handler that answers the same bytes. Each is a process of its
// own, and so is the client, as for a user. Rounds of the two take turns. For each load, it shows the program's rate divided by the
// baseline's, the baseline's CPU time divided by the program's, and how long requests took. Other work of the machine changes the
// CPU time less than the rate: the least, the middle and the greatest ratio of a round show how much.
func BenchmarkLoad(b *testing.B) {
	const rounds = 7
	for _, servers := range []int{100, 10_000} {
		for _, l := range loads {
			for _, clients := range []int{1, maxClients} {
				b.Run(fmt.Sprintf("%s/of %d/%d clients", l.name, servers, clients), func(b *testing.B) {
					ours, bare, get := newSides(b, servers)
					for i := range 1 + rounds {
						bare.round(b, l, clients, get)
						ours.round(b, l, clients, get)
						if i == 0 { // to warm up
							for _, s := range []*side{ours, bare} {
								s.durations, s.wall, s.cpu = nil, nil, nil
							}
						}
					}
					rate, cpu := ratios(bare.wall, ours.wall), ratios(bare.cpu, ours.cpu)
					b.ReportMetric(0, "ns/op") // means nothing here
					b.ReportMetric(rate[rounds/2], "rate-of-baseline")
					b.ReportMetric(bare.cpuPerRequest()/ours.cpuPerRequest(), "cpu-of-baseline")
					b.Logf("rate %.2f %.2f %.2f, CPU %.2f %.2f %.2f (%.0f of %.0f µs), p50 %v of %v, p99 %v of %v",
						rate[0], rate[rounds/2], rate[rounds-1], cpu[0], cpu[rounds/2], cpu[rounds-1], bare.cpuPerRequest(),
						ours.cpuPerRequest(),
						bare.percentile(50), ours.percentile(50), bare.percentile(99), ours.percentile(99))
				})
			}
		}
	}
}
