package ccm

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"testing"
	"time"

	testingclock "k8s.io/utils/clock/testing"
)

// headers returns those of an answer that says how much of the rate limit remains.
func headers(limit, remaining string) http.Header {
	return http.Header{"Ratelimit-Limit": {limit}, "Ratelimit-Remaining": {remaining}}
}

// newRateLimit returns a limit of one request per second, of which so many remain. 360 of 3600 are the reserve.
func newRateLimit(remaining int) (*rateLimit, *testingclock.FakeClock) {
	clk := testingclock.NewFakeClock(time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC))
	l := &rateLimit{clock: clk}
	l.observe(headers("3600", strconv.Itoa(remaining)))
	return l, clk
}

func TestBelowTheReservePeriodicReadsAreHeldBack(t *testing.T) {
	t.Parallel()
	periodic := periodically(t.Context(), controllerLifecycle, "exists")
	isHeld := func(err error) bool {
		_, held := errors.AsType[*heldBackError](err)
		return held && isRateLimit(err)
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
		"a read for a user's change":   {urgently(t.Context(), controllerService, "ensure"), true, false},
		"a read without a purpose":     {t.Context(), true, false},
		"a question about an action":   {waiting(periodic), true, false},
		"work inside a user's change":  {periodically(urgently(t.Context(), controllerService, "ensure"), controllerNode, "refresh"), true, false},
	} {
		if err := l.admit(tc.ctx, tc.read); (err != nil) != tc.held || tc.held && !isHeld(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	l.observe(headers("3600", "100")) // others use it up too
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
	if _, err := l.take(false); !isRateLimit(err) {
		t.Errorf("a wait of more than %v: %v", retryBudget, err)
	}
	clk.Step(time.Second)
	if wait, err := l.take(false); wait != 25*time.Second || err != nil {
		t.Errorf("a second later: %v, %v", wait, err)
	}

	auto := newAutoClock()
	l = &rateLimit{clock: auto}
	l.observe(headers("3600", "0"))
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
	cancel(errNotLeader)
	if err := l.admit(ended, true); !errors.Is(err, errNotLeader) {
		t.Errorf("got %v", err)
	}
	clk.Step(time.Second)
	if wait, err := l.take(false); wait != 0 || err != nil {
		t.Errorf("its turn is lost: the next one waits for %v, %v", wait, err)
	}
}

func TestAnAnswerWithoutARateLimitEndsIt(t *testing.T) {
	t.Parallel()
	for name, h := range map[string]http.Header{"no headers": {}, "no number": headers("many", "0"), "remaining is no number": headers("3600", "few"), "none per hour": headers("0", "0"),
		"a negative limit": headers("-1", "0")} {
		l, _ := newRateLimit(0)
		l.observe(h)
		if wait, err := l.take(true); wait != 0 || err != nil {
			t.Errorf("%s: %v, %v", name, wait, err)
		}
	}
}

func TestARequestThatIsHeldBackIsNotSent(t *testing.T) {
	t.Parallel()
	api := newTestAPI(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("RateLimit-Limit", "3600")
		w.Header().Set("RateLimit-Remaining", "100")
		reply(w, 200, `{"server":{"id":7}}`)
	})
	cloud, _ := api.cloud(Config{})
	ask := func(ctx context.Context) error { _, _, err := cloud.client.Server.GetByID(ctx, 7); return err }
	periodic := periodically(t.Context(), controllerLifecycle, "exists")
	for i, want := range []bool{true, true, false} { // the first one does not know the limit, the second is the one in the interval
		if err := ask(periodic); (err == nil) != want {
			t.Errorf("question %d: %v", i+1, err)
		}
	}
	if err := ask(urgently(t.Context(), controllerService, "ensure")); err != nil {
		t.Error(err)
	}
	if n := len(api.recorded()); n != 3 {
		t.Errorf("%d requests were sent, want 3", n)
	}
	for name, want := range map[string]float64{
		`ccm_api_requests_held_back_total{controller=node-lifecycle,purpose=exists}`: 1,
		`ccm_api_requests_total{controller=node-lifecycle,purpose=exists}`:           2,
	} {
		if got := gather(t, cloud)[name]; got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
}
