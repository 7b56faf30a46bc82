package apicall

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

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/ccmtest"
)

func TestTransportRepeatsOnlySafeRequests(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name      string
		answer    func(http.ResponseWriter)
		get, post bool // the request is repeated
	}{
		{"locked", ccmtest.Status(423, "locked"), true, true},
		{"423 without a code", ccmtest.Bare(423), true, true},
		{"protected", ccmtest.Status(423, "protected"), false, false},
		{"conflict", ccmtest.Status(409, "conflict"), true, true},
		{"uniqueness_error", ccmtest.Status(409, "uniqueness_error"), false, false},
		{"rate_limit_exceeded", ccmtest.Status(429, "rate_limit_exceeded"), true, true},
		{"429 without a code", ccmtest.Bare(429), true, true},
		{"500", ccmtest.Status(500, "server_error"), true, false},
		{"502", ccmtest.Bare(502), true, false},
		{"503", ccmtest.Status(503, "unavailable"), true, false},
		{"504", ccmtest.Status(504, "timeout"), true, false},
		{"dropped connection", ccmtest.Abort, true, false},
		{"body cut off", ccmtest.CutOff, true, false},
		{"401", ccmtest.Status(401, "unauthorized"), false, false},
		{"403", ccmtest.Status(403, "forbidden"), false, false},
		{"404", ccmtest.Status(404, "not_found"), false, false},
		{"422", ccmtest.Status(422, "invalid_input"), false, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			api := ccmtest.NewAPI(t, func(w http.ResponseWriter, _ *http.Request) { tc.answer(w) })
			cloud, _ := clientOf(api, NewTokenSource("secret", ""), nil)
			_, _, _ = cloud.client.Server.GetByID(t.Context(), 1)
			if again := len(api.Recorded()) > 1; again != tc.get {
				t.Errorf("GET was sent %d times", len(api.Recorded()))
			}
			want := maxAttempts
			if strings.Contains(tc.name, "423") || tc.name == "locked" || tc.name == "conflict" {
				want = 4 // within LockedBudget
			}
			if tc.get && len(api.Recorded()) != want {
				t.Errorf("GET was sent %d times, want %d", len(api.Recorded()), want)
			}
			before := len(api.Recorded())
			_, _, err := cloud.client.LoadBalancer.Create(t.Context(),
				hcloud.LoadBalancerCreateOpts{Name: "x", LoadBalancerType: &hcloud.LoadBalancerType{Name: "lb11"}})
			if err == nil {
				t.Error("POST: no error")
			}
			if again := len(api.Recorded())-before > 1; again != tc.post {
				t.Errorf("POST was sent %d times", len(api.Recorded())-before)
			}
		})
	}
}

func TestTransportReturnsTheAnswerOfTheLastAttempt(t *testing.T) {
	t.Parallel()
	var n atomic.Int32
	answers := []func(http.ResponseWriter){ccmtest.Status(423, "locked"), ccmtest.Bare(429), ccmtest.Abort, ccmtest.CutOff,
		ccmtest.Status(503, "unavailable"),
		func(w http.ResponseWriter) { ccmtest.Reply(w, 200, `{"server":{"id":7,"name":"a"}}`) }}
	api := ccmtest.NewAPI(t, func(w http.ResponseWriter, _ *http.Request) { answers[n.Add(1)-1](w) })
	cloud, _ := clientOf(api, NewTokenSource("secret", ""), nil)
	server, _, err := cloud.client.Server.GetByID(t.Context(), 7)
	if err != nil || server.ID != 7 {
		t.Fatalf("got %v, %v", server, err)
	}
	for _, c := range api.Recorded() {
		if !strings.HasPrefix(c.UserAgent, "a-test/") || c.Token != "Bearer secret" {
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
	}{{503, "unavailable", maxAttempts, retryBudget}, {423, "locked", 4, LockedBudget}, {409, "conflict", 4, LockedBudget}} {
		var at []time.Time
		var clk *ccmtest.AutoClock
		api := ccmtest.NewAPI(t, func(w http.ResponseWriter, _ *http.Request) {
			at = append(at, clk.Now())
			ccmtest.ReplyError(w, tc.status, tc.code)
		})
		cloud, c := clientOf(api, NewTokenSource("secret", ""), nil)
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
		cloud, _ := clientOf(api, NewTokenSource("secret", ""), nil)
		_, _, _ = cloud.client.Server.GetByID(t.Context(), 1)
		if n := len(api.Recorded()); n != tc.calls {
			t.Errorf("Retry-After %s: %d calls, want %d", tc.header, n, tc.calls)
		}
	}
}

// silent is an API that never answers. It uses no network, so that only the provider's own timeout counts.
type silent struct{ attempts atomic.Int32 }

func (s *silent) RoundTrip(r *http.Request) (*http.Response, error) {
	s.attempts.Add(1)
	<-r.Context().Done()
	return nil, r.Context().Err()
}

func TestTransportEndsAnAttemptWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	api := &silent{}
	client := NewClient(ClientSettings{Endpoint: "http://silent.invalid", RequestTimeout: time.Millisecond}, NewTokenSource("secret", ""),
		ccmtest.NewAutoClock(), prometheus.NewRegistry(), api, DefaultJitter, nil)
	_, _, err := client.Server.GetByID(t.Context(), 1)
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
	cloud, _ := clientOf(api, NewTokenSource("secret", ""), nil)
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
			ccmtest.CutOff(w) // net/http itself repeats a request on a reused connection that was closed
		default:
			ccmtest.Reply(w, 200, `{"server":{"id":7}}`)
		}
	})
	cloud, _ := clientOf(api, NewTokenSource("secret", ""), nil)
	if _, _, err := cloud.client.Server.GetByID(Urgently(t.Context(), ControllerService, "ensure"), 7); err != nil {
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
	got := gather(t, cloud.registry)
	for name, value := range want {
		if got[name] != value {
			t.Errorf("%s is %v, want %v", name, got[name], value)
		}
	}
}

// gather returns the values of counters and gauges, and the counts of histograms, by name and labels.
func gather(t *testing.T, registry prometheus.Gatherer) map[string]float64 {
	t.Helper()
	families, err := registry.Gather()
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
	rotated, err := false, writeToken(file, "old\n", 0)
	api := ccmtest.NewAPI(t, func(w http.ResponseWriter, r *http.Request) {
		if rotated && r.Header.Get("Authorization") != "Bearer new" {
			ccmtest.ReplyError(w, 401, "unauthorized")
			return
		}
		ccmtest.Reply(w, 200, `{"server":{"id":7}}`)
	})
	cloud, _ := clientOf(api, NewTokenSource("", file), nil)
	get := func() error { _, _, err := cloud.client.Server.GetByID(t.Context(), 7); return err }
	if err := errors.Join(err, get()); err != nil {
		t.Fatal(err)
	}
	rotated = true
	if err := get(); !hcloud.IsError(err, hcloud.ErrorCodeUnauthorized) {
		t.Errorf("with the old token: %v", err)
	}
	if err := errors.Join(writeToken(file, "new\n", 1), get()); err != nil {
		t.Errorf("with the new token: %v", err)
	}
	if err := errors.Join(os.Remove(file), get()); err != nil {
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
			cloud, _ := clientOf(api, NewTokenSource("", file), nil)
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
	written := writeToken(file, "old", 0)
	api := ccmtest.NewAPI(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			ccmtest.Reply(w, 200, `{"server":{"id":7}}`)
			return
		}
		ccmtest.Reply(w, 200, `{"action":{"id":1,"status":"success"}}`)
	})
	cloud, _ := clientOf(api, NewTokenSource("", file), nil)
	read := func(ctx context.Context) error { _, _, err := cloud.client.Server.GetByID(ctx, 7); return err }
	change := func(ctx context.Context) error {
		_, _, err := cloud.client.Server.Poweron(ctx, &hcloud.Server{ID: 7})
		return err
	}
	work := Urgently(t.Context(), ControllerService, "ensure")
	if err := errors.Join(written, read(work), change(work)); err != nil {
		t.Errorf("with the same token: %v", err)
	}
	written = writeToken(file, "new", 1)
	if err := change(waiting(work)); written != nil || !errors.Is(err, errTokenChanged) {
		t.Errorf("with another token: %v", err)
	}
	for _, r := range api.Recorded() {
		if r.Method == http.MethodPost && r.Token == "Bearer new" {
			t.Error("the request was sent")
		}
	}
	next := Urgently(t.Context(), ControllerService, "ensure")
	if err := errors.Join(read(next), change(next)); err != nil {
		t.Errorf("the next work: %v", err)
	}
}

// The answer of a gateway in front of the API is not an empty list, and not an object without values.
func TestAnAnswerWithoutItsFieldIsAnError(t *testing.T) {
	t.Parallel()
	api := ccmtest.NewAPI(t, func(w http.ResponseWriter, _ *http.Request) { ccmtest.Reply(w, 200, `{}`) })
	cloud, _ := clientOf(api, NewTokenSource("secret", ""), nil)
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

func TestTheBackoffHasJitterAndIsNoShorterThanTheAPIAsks(t *testing.T) {
	t.Parallel()
	half := &transport{jitter: func() float64 { return 0.5 }}
	asks := &http.Response{Header: http.Header{"Retry-After": {"3"}}}
	if got := half.backoff(1, nil); got != backoffBase {
		t.Errorf("half of the second delay: %v, want %v", got, backoffBase)
	}
	if got := half.backoff(1, asks); got != 3*time.Second {
		t.Errorf("the API asks for 3 s: %v", got)
	}
}
