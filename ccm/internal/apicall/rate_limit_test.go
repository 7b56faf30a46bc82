package apicall

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/ccmtest"
)

// headers returns those of an answer that says how much of the rate limit remains.
func headers(limit, remaining string) http.Header {
	return http.Header{"Ratelimit-Limit": {limit}, "Ratelimit-Remaining": {remaining}}
}

// newRateLimit returns a limit of one request per second, of which so many remain. 360 of 3600 are the reserve.
func newRateLimit(remaining int) (*rateLimit, *testingclock.FakeClock) {
	clk := testingclock.NewFakeClock(time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC))
	l := &rateLimit{clock: clk}
	l.observe(http.StatusOK, headers("3600", strconv.Itoa(remaining)))
	return l, clk
}

func TestBelowTheReservePeriodicReadsAreHeldBack(t *testing.T) {
	t.Parallel()
	periodic := Periodically(t.Context(), ControllerLifecycle, "exists")
	isHeld := func(err error) bool {
		_, held := errors.AsType[*heldBackError](err)
		return held && IsRateLimit(err)
	}
	l, clk := newRateLimit(361)
	for i := range 3 { // the last one with 359
		if err := l.admit(periodic, true); err != nil {
			t.Errorf("request %d: %v", i+1, err)
		}
	}
	for name, tc := range map[string]struct {
		ctx  context.Context
		read bool
		held bool
	}{
		"a periodic read":              {periodic, true, true},
		"a write of a periodic repair": {periodic, false, false},
		"a read for a user's change":   {Urgently(t.Context(), ControllerService, "ensure"), true, false},
		"a read without a purpose":     {t.Context(), true, false},
		"a question about an action":   {waiting(periodic), true, false},
		"work inside a user's change": {Periodically(Urgently(t.Context(), ControllerService, "ensure"), ControllerNode, "refresh"), true,
			false},
	} {
		if err := l.admit(tc.ctx, tc.read); (err != nil) != tc.held || tc.held && !isHeld(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	l.observe(http.StatusOK, headers("3600", "100")) // others use it up too
	clk.Step(heldBackInterval - time.Second)
	if err := l.admit(periodic, true); !isHeld(err) {
		t.Errorf("before the interval has passed: %v", err)
	}
	clk.Step(time.Second)
	if err := l.admit(periodic, true); err != nil {
		t.Errorf("once in the interval: %v", err)
	}
	clk.Step(5 * time.Minute) // 300 come back
	for range 2 {
		if err := l.admit(periodic, true); err != nil {
			t.Errorf("above the reserve again: %v", err)
		}
	}
	l, _ = newRateLimit(0)
	if err := l.admit(periodic, true); !isHeld(err) {
		t.Errorf("with nothing left: %v", err)
	}
}

func TestWithNothingLeftEachRequestWaitsForItsTurn(t *testing.T) {
	t.Parallel()
	l, clk := newRateLimit(1)
	if wait, err := l.take(false); wait != 0 || err != nil {
		t.Errorf("the last one: %v, %v", wait, err)
	}
	for i := range 25 {
		if wait, err := l.take(false); wait != time.Duration(i+1)*time.Second || err != nil {
			t.Errorf("request %d waits for %v, %v", i+1, wait, err)
		}
	}
	if _, err := l.take(false); !IsRateLimit(err) {
		t.Errorf("a wait of more than %v: %v", retryBudget, err)
	}
	clk.Step(time.Second)
	if wait, err := l.take(false); wait != 25*time.Second || err != nil {
		t.Errorf("a second later: %v, %v", wait, err)
	}

	auto := ccmtest.NewAutoClock()
	l = &rateLimit{clock: auto}
	l.observe(http.StatusOK, headers("3600", "0"))
	start := auto.Now()
	for range 3 {
		if err := l.admit(t.Context(), true); err != nil {
			t.Error(err)
		}
	}
	if took := auto.Since(start); took != 3*time.Second {
		t.Errorf("three requests took %v", took)
	}
	if l.waiting != 0 {
		t.Errorf("%d requests still wait", l.waiting)
	}
}

func TestARequestThatIsGivenUpKeepsNoTurn(t *testing.T) {
	t.Parallel()
	l, clk := newRateLimit(0)
	ended, cancel := context.WithCancelCause(t.Context())
	cancel(ErrNotLeader)
	if err := l.admit(ended, true); !errors.Is(err, ErrNotLeader) {
		t.Errorf("got %v", err)
	}
	clk.Step(time.Second)
	if wait, err := l.take(false); wait != 0 || err != nil {
		t.Errorf("its turn is lost: the next one waits for %v, %v", wait, err)
	}
}

func TestAnAnswerWithoutARateLimitEndsIt(t *testing.T) {
	t.Parallel()
	for name, h := range map[string]http.Header{"no headers": {}, "no number": headers("many", "0"),
		"a remainder that is not a number": headers("3600", "few"), "none per hour": headers("0", "0"),
		"a negative limit": headers("-1", "0")} {
		l, _ := newRateLimit(0)
		l.observe(http.StatusOK, h)
		if wait, err := l.take(true); wait != 0 || err != nil {
			t.Errorf("%s: %v, %v", name, wait, err)
		}
	}
}

func TestARequestThatIsHeldBackIsNotSent(t *testing.T) {
	t.Parallel()
	api := ccmtest.NewAPI(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("RateLimit-Limit", "3600")
		w.Header().Set("RateLimit-Remaining", "100")
		ccmtest.Reply(w, 200, `{"server":{"id":7}}`)
	})
	cloud, _ := clientOf(api, NewTokenSource("secret", ""), nil)
	ask := func(ctx context.Context) error { _, _, err := cloud.client.Server.GetByID(ctx, 7); return err }
	periodic := Periodically(t.Context(), ControllerLifecycle, "exists")
	for i, want := range []bool{true, true, false} { // the first one does not know the limit, the second is the one in the interval
		if err := ask(periodic); (err == nil) != want {
			t.Errorf("question %d: %v", i+1, err)
		}
	}
	if err := ask(Urgently(t.Context(), ControllerService, "ensure")); err != nil {
		t.Error(err)
	}
	if n := len(api.Recorded()); n != 3 {
		t.Errorf("%d requests were sent, want 3", n)
	}
	for name, want := range map[string]float64{
		`ccm_api_requests_held_back_total{controller=node-lifecycle,purpose=exists}`: 1,
		`ccm_api_requests_total{controller=node-lifecycle,purpose=exists}`:           2,
	} {
		if got := gather(t, cloud.registry)[name]; got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
}

// The wait may be longer than the Lease.
func TestAfterItsWaitARequestIsSentOnlyByTheLeader(t *testing.T) {
	t.Parallel()
	api := ccmtest.NewAPI(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("RateLimit-Limit", "180") // one in 20 s
		w.Header().Set("RateLimit-Remaining", "0")
		ccmtest.Reply(w, 200, `{"server":{"id":7}}`)
	})
	clk := ccmtest.NewAutoClock()
	start := clk.Now()
	leads := func(context.Context) error {
		if clk.Since(start) > ccmtest.FenceDuration {
			return ErrNotLeader
		}
		return nil
	}
	client := NewClient(ClientSettings{Endpoint: api.URL, RequestTimeout: time.Second}, &TokenSource{static: "secret"}, clk,
		prometheus.NewRegistry(), http.DefaultTransport, DefaultJitter, leads)
	if _, _, err := client.Server.GetByID(t.Context(), 7); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Network.Delete(t.Context(), &hcloud.Network{ID: 5}); !errors.Is(err, ErrNotLeader) {
		t.Errorf("a write after %v: %v, want %v", clk.Since(start), err, ErrNotLeader)
	}
	if n := len(api.Recorded()); n != 1 {
		t.Errorf("%d requests were sent, want 1", n)
	}
}

// A proxy or another limit than the project's answers 429 without saying what remains.
func TestARefusalWithoutHeadersHoldsAllRequestsBackForLongerAndLonger(t *testing.T) {
	t.Parallel()
	for name, h := range map[string]http.Header{"no headers": {}, "headers that say that enough remains": headers("3600", "3000")} {
		clk := testingclock.NewFakeClock(time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC))
		l := &rateLimit{clock: clk}
		urgent := func() time.Duration {
			t.Helper()
			wait, _, err := l.refusal(false, 0)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			return wait
		}
		refuse := func() { l.observe(http.StatusTooManyRequests, h) }
		refuse()
		refuse() // a request that was sent before the first answer
		want := firstRefusal
		for range 10 {
			if got := urgent(); got != want {
				t.Errorf("%s: a request waits for %v, want %v", name, got, want)
			}
			if _, _, err := l.refusal(true, 0); !IsRateLimit(err) {
				t.Errorf("%s: a periodic read: %v", name, err)
			}
			clk.Step(want)
			if got := urgent(); got != 0 {
				t.Errorf("%s: after that it waits for %v", name, got)
			}
			if got := urgent(); got != want {
				t.Errorf("%s: while another one shows whether the API still refuses, it waits for %v, want %v", name, got, want)
			}
			refuse()
			want = min(2*want, longestRefusal)
		}
		l.observe(http.StatusNotFound, h)
		if got := urgent(); got != 0 {
			t.Errorf("%s: after an answer it waits for %v", name, got)
		}
		refuse()
		if got := urgent(); got != firstRefusal {
			t.Errorf("%s: after the next refusal it waits for %v", name, got)
		}
		h := h.Clone()
		h.Set("Retry-After", "15")
		l.observe(http.StatusOK, h)
		l.observe(http.StatusTooManyRequests, h)
		if got := urgent(); got != 15*time.Second {
			t.Errorf("%s: with Retry-After: 15 it waits for %v", name, got)
		}
	}
	l, _ := newRateLimit(0)
	l.observe(http.StatusTooManyRequests, headers("3600", "0"))
	if wait, _, err := l.refusal(false, 0); wait != 0 || err != nil {
		t.Errorf("with nothing left, the turns alone decide: %v, %v", wait, err)
	}
}

func TestRequestsWaitTogetherForTheEndOfRefusals(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := &rateLimit{clock: clock.RealClock{}}
		for range 5 {
			l.observe(http.StatusTooManyRequests, nil)
			time.Sleep(longestRefusal)
			if err := l.admit(t.Context(), true); err != nil {
				t.Fatal(err)
			}
		}
		l.observe(http.StatusTooManyRequests, nil)
		var sent []time.Duration
		start := time.Now()
		var all sync.WaitGroup
		var mu sync.Mutex
		for range 5 {
			all.Go(func() {
				if err := l.admit(t.Context(), true); err != nil {
					return // it has waited for long enough
				}
				mu.Lock()
				sent = append(sent, time.Since(start))
				first := len(sent) == 1
				mu.Unlock()
				if first {
					time.Sleep(time.Second) // the others wake while the answer is on its way
					l.observe(http.StatusOK, nil)
				}
			})
		}
		all.Wait()
		if len(sent) != 5 || sent[4]-sent[0] > time.Second {
			t.Errorf("after the first answer the others are sent too: %v", sent)
		}
	})
}

func TestARequestThatHasWaitedForLongWaitsForOneAnswerOnly(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		answers bool
		wants   time.Duration
	}{"a refusal": {true, longestRefusal + time.Second}, "none": {false, 2 * longestRefusal}} {
		synctest.Test(t, func(t *testing.T) {
			l := &rateLimit{clock: clock.RealClock{}, refused: longestRefusal, answered: make(chan struct{}),
				nextTry: time.Now().Add(longestRefusal)}
			var sent, gaveUp atomic.Int32
			start := time.Now()
			var all sync.WaitGroup
			for range 5 {
				all.Go(func() {
					if err := l.admit(t.Context(), true); err == nil {
						sent.Add(1)
						time.Sleep(time.Second)
						if tc.answers {
							l.observe(http.StatusTooManyRequests, nil)
						}
					} else if took := time.Since(start); took != tc.wants || !IsRateLimit(err) {
						t.Errorf("%s: a request gives up after %v, want %v: %v", name, took, tc.wants, err)
					} else {
						gaveUp.Add(1)
					}
				})
			}
			all.Wait()
			if sent.Load() == 0 || sent.Load()+gaveUp.Load() != 5 {
				t.Errorf("%s: %d were sent, and %d gave up", name, sent.Load(), gaveUp.Load())
			}
		})
	}
}
