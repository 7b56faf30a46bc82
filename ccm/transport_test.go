package ccm

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/ccmtest"
	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	dto "github.com/prometheus/client_model/go"
)

// abort closes the connection without an answer.
func abort(http.ResponseWriter) { panic(http.ErrAbortHandler) }

func status(code int, apiCode string) func(http.ResponseWriter) {
	return func(w http.ResponseWriter) { ccmtest.ReplyError(w, code, apiCode) }
}

func bare(code int) func(http.ResponseWriter) {
	return func(w http.ResponseWriter) { w.WriteHeader(code) }
}

// cutOff sends less than its Content-Length.
func cutOff(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", "1000")
	_, _ = w.Write([]byte(`{"server": {"id": 1`))
	_ = http.NewResponseController(w).Flush()
	panic(http.ErrAbortHandler)
}

func TestTransportRepeatsOnlySafeRequests(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name      string
		answer    func(http.ResponseWriter)
		get, post bool // the request is repeated
	}{
		{"locked", status(423, "locked"), true, true},
		{"423 without a code", bare(423), true, true},
		{"protected", status(423, "protected"), false, false},
		{"conflict", status(409, "conflict"), true, true},
		{"uniqueness_error", status(409, "uniqueness_error"), false, false},
		{"rate_limit_exceeded", status(429, "rate_limit_exceeded"), true, true},
		{"429 without a code", bare(429), true, true},
		{"500", status(500, "server_error"), true, false},
		{"502", bare(502), true, false},
		{"503", status(503, "unavailable"), true, false},
		{"504", status(504, "timeout"), true, false},
		{"dropped connection", abort, true, false},
		{"body cut off", cutOff, true, false},
		{"401", status(401, "unauthorized"), false, false},
		{"403", status(403, "forbidden"), false, false},
		{"404", status(404, "not_found"), false, false},
		{"422", status(422, "invalid_input"), false, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			api := ccmtest.NewAPI(t, func(w http.ResponseWriter, _ *http.Request) { tc.answer(w) })
			cloud, _ := cloudOf(api, Config{})
			_, _, _ = cloud.client.Server.GetByID(t.Context(), 1)
			if again := len(api.Recorded()) > 1; again != tc.get {
				t.Errorf("GET was sent %d times", len(api.Recorded()))
			}
			want := maxAttempts
			if strings.Contains(tc.name, "423") || tc.name == "locked" || tc.name == "conflict" {
				want = 4 // within lockedBudget
			}
			if tc.get && len(api.Recorded()) != want {
				t.Errorf("GET was sent %d times, want %d", len(api.Recorded()), want)
			}
			before := len(api.Recorded())
			_, _, err := cloud.client.LoadBalancer.Create(t.Context(), hcloud.LoadBalancerCreateOpts{Name: "x", LoadBalancerType: &hcloud.LoadBalancerType{Name: "lb11"}})
			if err == nil {
				t.Error("POST: no error")
			}
			if again := len(api.Recorded())-before > 1; again != tc.post {
				t.Errorf("POST was sent %d times", len(api.Recorded())-before)
			}
		})
	}
}

func TestRequestsAboutNodesGetTwoAttempts(t *testing.T) {
	t.Parallel()
	api := ccmtest.NewAPI(t, bareHandler(503))
	cloud, _ := cloudOf(api, Config{ServerCacheTTL: time.Second})
	for _, node := range []string{ccmtest.ProviderID(1), ""} {
		before := len(api.Recorded())
		if _, err := cloud.instances.InstanceExists(t.Context(), ccmtest.Node("node-1", node)); err == nil {
			t.Error("no error")
		}
		if n := len(api.Recorded()) - before; n != pollAttempts {
			t.Errorf("provider ID %q: %d requests, want %d", node, n, pollAttempts)
		}
	}
}

func bareHandler(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
}

func TestTransportReturnsTheAnswerOfTheLastAttempt(t *testing.T) {
	t.Parallel()
	var n atomic.Int32
	answers := []func(http.ResponseWriter){status(423, "locked"), bare(429), abort, cutOff, status(503, "unavailable"),
		func(w http.ResponseWriter) { ccmtest.Reply(w, 200, `{"server":{"id":7,"name":"a"}}`) }}
	api := ccmtest.NewAPI(t, func(w http.ResponseWriter, _ *http.Request) { answers[n.Add(1)-1](w) })
	cloud, _ := cloudOf(api, Config{})
	server, _, err := cloud.client.Server.GetByID(t.Context(), 7)
	if err != nil || server.ID != 7 {
		t.Fatalf("got %v, %v", server, err)
	}
	for _, c := range api.Recorded() {
		if !strings.HasPrefix(c.UserAgent, ProviderName+"/") || c.Token != "Bearer secret" {
			t.Errorf("sent with user agent %q and authorization %q", c.UserAgent, c.Token)
		}
	}
}

func TestTransportBackoffGrowsAndIsLimited(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		status   int
		code     string
		attempts int
		budget   time.Duration
	}{{503, "unavailable", maxAttempts, retryBudget}, {423, "locked", 4, lockedBudget}, {409, "conflict", 4, lockedBudget}} {
		var at []time.Time
		var clk *ccmtest.AutoClock
		api := ccmtest.NewAPI(t, func(w http.ResponseWriter, _ *http.Request) {
			at = append(at, clk.Now())
			ccmtest.ReplyError(w, tc.status, tc.code)
		})
		cloud, c := cloudOf(api, Config{})
		clk = c
		_, _, err := cloud.client.Server.GetByID(t.Context(), 1)
		if !hcloud.IsError(err, hcloud.ErrorCode(tc.code)) {
			t.Fatalf("got %v", err)
		}
		var waits []time.Duration
		for i := 1; i < len(at); i++ {
			waits = append(waits, at[i].Sub(at[i-1]))
		}
		if len(at) != tc.attempts || !slices.IsSorted(waits) || waits[0] != backoffBase {
			t.Errorf("%s: waits %v", tc.code, waits)
		}
		if total := at[len(at)-1].Sub(at[0]); total > tc.budget {
			t.Errorf("%s: waited %v in all, more than %v", tc.code, total, tc.budget)
		}
	}
}

func TestTransportFollowsRetryAfterWithinItsBudget(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		header string
		calls  int
	}{{"7", 4}, {"3600", 1}} {
		api := ccmtest.NewAPI(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", tc.header)
			ccmtest.ReplyError(w, 429, "rate_limit_exceeded")
		})
		cloud, _ := cloudOf(api, Config{})
		_, _, _ = cloud.client.Server.GetByID(t.Context(), 1)
		if n := len(api.Recorded()); n != tc.calls {
			t.Errorf("Retry-After %s: %d calls, want %d", tc.header, n, tc.calls)
		}
	}
}

// silent is an API that never answers. It uses no network, so that only the provider's own timeout
// counts.
type silent struct{ attempts atomic.Int32 }

func (s *silent) RoundTrip(r *http.Request) (*http.Response, error) {
	s.attempts.Add(1)
	<-r.Context().Done()
	return nil, r.Context().Err()
}

func TestTransportEndsAnAttemptWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	api := &silent{}
	cloud := New(Config{Token: "secret", Endpoint: "http://silent.invalid", RequestTimeout: time.Millisecond},
		WithClock(ccmtest.NewAutoClock()), WithRoundTripper(api))
	_, _, err := cloud.client.Server.GetByID(t.Context(), 1)
	if err == nil || !strings.Contains(err.Error(), "no answer within 1ms") {
		t.Errorf("got %v", err)
	}
	if n := api.attempts.Load(); n != maxAttempts {
		t.Errorf("%d attempts, want %d", n, maxAttempts)
	}
}

func TestTransportStopsWhenTheContextEnds(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	api := ccmtest.NewAPI(t, func(w http.ResponseWriter, _ *http.Request) {
		cancel()
		ccmtest.ReplyError(w, 423, "locked")
	})
	cloud, _ := cloudOf(api, Config{})
	if _, _, err := cloud.client.Server.GetByID(ctx, 1); err == nil {
		t.Error("no error")
	}
	if n := len(api.Recorded()); n != 1 {
		t.Errorf("%d calls", n)
	}
}

func TestTransportCountsEveryAttempt(t *testing.T) {
	t.Parallel()
	var n atomic.Int32
	api := ccmtest.NewAPI(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("RateLimit-Remaining", "42")
		switch n.Add(1) {
		case 1:
			ccmtest.ReplyError(w, 423, "locked")
		case 2:
			cutOff(w) // net/http itself repeats a request on a reused connection that was closed
		default:
			ccmtest.Reply(w, 200, `{"server":{"id":7}}`)
		}
	})
	cloud, _ := cloudOf(api, Config{})
	if _, _, err := cloud.client.Server.GetByID(urgently(t.Context(), controllerService, "ensure"), 7); err != nil {
		t.Fatal(err)
	}
	want := map[string]float64{
		`hcloud_api_requests_total{api_endpoint=/servers/-,code=200,method=GET}`:        1,
		`hcloud_api_requests_total{api_endpoint=/servers/-,code=423,method=GET}`:        1,
		`hcloud_api_request_failures_total{api_endpoint=/servers/-,method=GET}`:         1,
		`hcloud_api_retries_total{api_endpoint=/servers/-,method=GET,reason=locked}`:    1,
		`hcloud_api_retries_total{api_endpoint=/servers/-,method=GET,reason=no_answer}`: 1,
		`hcloud_api_rate_limit_remaining{}`:                                             42,
		`hcloud_api_in_flight_requests{}`:                                               0,
		`hcloud_api_request_duration_seconds{method=GET}`:                               2,
		`ccm_api_requests_total{controller=service,purpose=ensure}`:                     3,
	}
	got := gather(t, cloud)
	for name, value := range want {
		if got[name] != value {
			t.Errorf("%s is %v, want %v", name, got[name], value)
		}
	}
}

// gather returns the values of counters and gauges, and the counts of histograms, by name and labels.
func gather(t *testing.T, cloud *Cloud) map[string]float64 {
	t.Helper()
	families, err := cloud.Metrics().Gather()
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			name := fmt.Sprintf("%s{%s}", f.GetName(), strings.Join(labels, ","))
			switch f.GetType() {
			case dto.MetricType_COUNTER:
				values[name] = m.GetCounter().GetValue()
			case dto.MetricType_GAUGE:
				values[name] = m.GetGauge().GetValue()
			case dto.MetricType_HISTOGRAM:
				values[name] = float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return values
}

func TestTransportReadsATokenFileAgainWhenItChanges(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "token")
	write := func(token string, age time.Duration) {
		if err := os.WriteFile(file, []byte(token+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		when := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC).Add(age)
		if err := os.Chtimes(file, when, when); err != nil {
			t.Fatal(err)
		}
	}
	write("old", 0)
	rotated := false
	api := ccmtest.NewAPI(t, func(w http.ResponseWriter, r *http.Request) {
		if rotated && r.Header.Get("Authorization") != "Bearer new" {
			ccmtest.ReplyError(w, 401, "unauthorized")
			return
		}
		ccmtest.Reply(w, 200, `{"server":{"id":7}}`)
	})
	cloud, _ := cloudOf(api, Config{TokenFile: file})
	get := func() error { _, _, err := cloud.client.Server.GetByID(t.Context(), 7); return err }
	if err := get(); err != nil {
		t.Fatal(err)
	}
	rotated = true
	if err := get(); !hcloud.IsError(err, hcloud.ErrorCodeUnauthorized) {
		t.Errorf("with the old token: %v", err)
	}
	write("new", time.Second)
	if err := get(); err != nil {
		t.Errorf("with the new token: %v", err)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if err := get(); err != nil {
		t.Errorf("while the file is being replaced: %v", err)
	}
}

// The token is rotated after the file was read, and before the API checks it. The request is sent again, once.
func TestARequestSurvivesARotationOfTheToken(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		rotations int // each request finds the token rotated, so many times
		works     bool
		requests  int
	}{"one rotation": {1, true, 2}, "no rotation": {0, false, 1}, "a token that is wrong, too": {2, true, 3}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "token")
			write := func(n int) {
				when := time.Date(2026, 11, 20, 12, 0, n, 0, time.UTC)
				if err := os.WriteFile(file, []byte(strconv.Itoa(n)), 0o600); err != nil {
					t.Fatal(err)
				}
				if err := os.Chtimes(file, when, when); err != nil {
					t.Fatal(err)
				}
			}
			write(0)
			current, valid := 0, max(tc.rotations, 1)
			api := ccmtest.NewAPI(t, func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Authorization") == "Bearer "+strconv.Itoa(valid) {
					ccmtest.Reply(w, 200, `{"server":{"id":7}}`)
					return
				}
				if current < tc.rotations {
					current++
					write(current)
				}
				ccmtest.ReplyError(w, 401, "unauthorized")
			})
			cloud, _ := cloudOf(api, Config{TokenFile: file})
			if _, _, err := cloud.client.Server.GetByID(t.Context(), 7); (err == nil) != tc.works {
				t.Errorf("got %v", err)
			}
			if n := len(api.Recorded()); n != tc.requests {
				t.Errorf("%d requests, want %d", n, tc.requests)
			}
		})
	}
}

// What was read with one token may be about another project than the one that a later token belongs to.
func TestAWriteNeedsTheTokenOfItsReads(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "token")
	write := func(token string, second int) {
		when := time.Date(2026, 11, 20, 12, 0, second, 0, time.UTC)
		if err := errors.Join(os.WriteFile(file, []byte(token), 0o600), os.Chtimes(file, when, when)); err != nil {
			t.Fatal(err)
		}
	}
	write("old", 0)
	api := ccmtest.NewAPI(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			ccmtest.Reply(w, 200, `{"server":{"id":7}}`)
			return
		}
		ccmtest.Reply(w, 200, `{"action":{"id":1,"status":"success"}}`)
	})
	cloud, _ := cloudOf(api, Config{TokenFile: file})
	read := func(ctx context.Context) error { _, _, err := cloud.client.Server.GetByID(ctx, 7); return err }
	change := func(ctx context.Context) error {
		_, _, err := cloud.client.Server.Poweron(ctx, &hcloud.Server{ID: 7})
		return err
	}
	work := urgently(t.Context(), controllerService, "ensure")
	if err := errors.Join(read(work), change(work)); err != nil {
		t.Errorf("with the same token: %v", err)
	}
	write("new", 1)
	if err := change(waiting(work)); !errors.Is(err, errTokenChanged) {
		t.Errorf("with another token: %v", err)
	}
	for _, r := range api.Recorded() {
		if r.Method == http.MethodPost && r.Token == "Bearer new" {
			t.Error("the request was sent")
		}
	}
	next := urgently(t.Context(), controllerService, "ensure")
	if err := errors.Join(read(next), change(next)); err != nil {
		t.Errorf("the next work: %v", err)
	}
}

// The answer of a gateway in front of the API is not an empty list, and not an object without values.
func TestAnAnswerWithoutItsFieldIsAnError(t *testing.T) {
	t.Parallel()
	api := ccmtest.NewAPI(t, func(w http.ResponseWriter, _ *http.Request) { ccmtest.Reply(w, 200, `{}`) })
	cloud, _ := cloudOf(api, Config{})
	c, ctx := cloud.client, t.Context()
	for name, ask := range map[string]func() error{
		"load balancers":      func() error { _, err := c.LoadBalancer.All(ctx); return err },
		"a load balancer":     func() error { _, _, err := c.LoadBalancer.GetByID(ctx, 1); return err },
		"certificates":        func() error { _, err := c.Certificate.All(ctx); return err },
		"a network":           func() error { _, _, err := c.Network.GetByName(ctx, "internal"); return err },
		"a network by its ID": func() error { _, _, err := c.Network.GetByID(ctx, 1); return err },
		"servers":             func() error { _, err := c.Server.All(ctx); return err },
		"a server":            func() error { _, _, err := c.Server.GetByID(ctx, 1); return err },
		"an action":           func() error { _, _, err := c.Action.GetByID(ctx, 1); return err },
		"types":               func() error { _, err := c.LoadBalancerType.All(ctx); return err },
		"locations":           func() error { _, err := c.Location.All(ctx); return err },
	} {
		if err := ask(); err == nil || !strings.Contains(err.Error(), "HCLOUD_ENDPOINT") {
			t.Errorf("%s: got %v", name, err)
		}
	}
}
