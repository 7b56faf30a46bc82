package apicall

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"
)

// actionsAPI answers questions about actions. Each ends at a time.
type actionsAPI struct {
	mu    sync.Mutex
	ends  map[int64]time.Time
	gone  map[int64]bool // actions that the API does not know
	takes time.Duration  // until the API answers
	calls []string
}

// RoundTrip implements http.RoundTripper.
func (a *actionsAPI) RoundTrip(r *http.Request) (*http.Response, error) {
	time.Sleep(a.takes)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.calls = append(a.calls, r.URL.RequestURI())
	describe := func(text string) string {
		id, _ := strconv.ParseInt(text, 10, 64)
		status := "success"
		if time.Now().Before(a.ends[id]) {
			status = "running"
		}
		return fmt.Sprintf(`{"id":%d,"command":"add_route","status":%q,"progress":0,"started":"2026-11-20T12:00:00Z","finished":null,"resources":[],"error":null}`, id, status)
	}
	var body string
	if ids := r.URL.Query()["id"]; len(ids) > 0 {
		var all []string
		for _, text := range ids {
			if id, _ := strconv.ParseInt(text, 10, 64); !a.gone[id] {
				all = append(all, describe(text))
			}
		}
		body = `{"actions":[` + strings.Join(all, ",") + `]}`
	} else if id, _ := strconv.ParseInt(r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:], 10, 64); a.gone[id] {
		return &http.Response{StatusCode: http.StatusNotFound, Header: http.Header{"Content-Type": {"application/json"}},
			Body: io.NopCloser(strings.NewReader(`{"error":{"code":"not_found","message":"not found"}}`)), Request: r}, nil
	} else {
		body = `{"action":` + describe(r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]) + `}`
	}
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
}

// newWaiter returns a waiter on the clock of the bubble.
func newWaiter() (*Waiter, *actionsAPI) {
	api := &actionsAPI{ends: map[int64]time.Time{}}
	client := NewClient(ClientSettings{Endpoint: "http://cloud.invalid/v1", RequestTimeout: time.Second}, NewTokenSource("secret", ""),
		clock.RealClock{},
		prometheus.NewRegistry(), api, DefaultJitter, func(context.Context) error { return nil })
	return NewWaiter(client, clock.RealClock{}, 0), api
}

// succeed waits for an action that starts now and takes so long, and fails the test if the wait fails.
func (a *actionsAPI) succeed(t *testing.T, w *Waiter, id int64, d time.Duration) {
	t.Helper()
	if err := w.Wait(t.Context(), a.start(id, d)); err != nil {
		t.Errorf("action %d: %v", id, err)
	}
}

// usual is the delay before the first poll for an action of the API.
var usual = Usually("add_route")

// start starts an action that takes so long.
func (a *actionsAPI) start(id int64, d time.Duration) *hcloud.Action {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ends[id] = time.Now().Add(d)
	return &hcloud.Action{ID: id, Command: "add_route", Status: hcloud.ActionStatusRunning}
}

func TestTheEndOfAnActionIsNoticedSoonWithFewCalls(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		command     string
		lasts, late time.Duration // late is the longest time until the end is noticed
		calls       int
	}{
		{"add_target", 200 * time.Millisecond, 350 * time.Millisecond, 1},
		{"add_target", 500 * time.Millisecond, 50 * time.Millisecond, 1},
		{"enable_public_interface", time.Second, 50 * time.Millisecond, 2},
		{"attach_to_network", 3 * time.Second, 750 * time.Millisecond, 6},
		{"change_load_balancer_type", 8 * time.Second, 2 * time.Second, 11},
		{"add_route", time.Second, 50 * time.Millisecond, 1},
		{"delete_route", time.Second, 50 * time.Millisecond, 1},
		{"create_load_balancer", 2 * time.Second, 50 * time.Millisecond, 1},
		{"create_load_balancer", 3 * time.Second, 500 * time.Millisecond, 3},
	} {
		synctest.Test(t, func(t *testing.T) {
			w, api := newWaiter()
			action := api.start(1, tc.lasts)
			action.Command = tc.command
			start := time.Now()
			if err := w.Wait(t.Context(), action); err != nil {
				t.Fatal(err)
			}
			if late := time.Since(start) - tc.lasts; late > tc.late || len(api.calls) > tc.calls {
				t.Errorf("%s of %v was noticed %v late, with %d calls; want at most %v and %d", tc.command, tc.lasts, late, len(api.calls),
					tc.late, tc.calls)
			}
		})
	}
}

func TestWaitsForActionsShareTheirCalls(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, api := newWaiter()
		const n = 60
		start := time.Now()
		var all sync.WaitGroup
		for i := range n {
			time.Sleep(5 * time.Millisecond)
			all.Go(func() { api.succeed(t, w, int64(i+1), time.Second) })
		}
		all.Wait()
		if took := time.Since(start); len(api.calls) > 6 || took > 1800*time.Millisecond {
			t.Errorf("%d waits took %v and %d calls: %.300s", n, took, len(api.calls), api.calls)
		}
		if len(w.waits) != 0 {
			t.Errorf("%d waits are left", len(w.waits))
		}
	})
}

// One caller gives up; the other one still gets the result.
func TestTwoCallersWaitForOneAction(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, api := newWaiter()
		action := api.start(1, 2*time.Second)
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var all sync.WaitGroup
		all.Go(func() {
			if err := w.Wait(short, action); err == nil {
				t.Error("no error")
			}
		})
		all.Go(func() {
			if err := w.Wait(t.Context(), action); err != nil {
				t.Error(err)
			}
		})
		all.Wait()
	})
}

// The race detector sees whether a caller may begin to wait while the poll of another one ends.
func TestACallerMayJoinDuringAPoll(t *testing.T) {
	t.Parallel()
	for range 100 {
		synctest.Test(t, func(t *testing.T) {
			w, api := newWaiter()
			action := api.start(1, time.Second)
			var all sync.WaitGroup
			for _, after := range []time.Duration{0, usual, usual, usual} {
				all.Go(func() {
					time.Sleep(after)
					if err := w.Wait(t.Context(), action); err != nil {
						t.Error(err)
					}
				})
			}
			all.Wait()
		})
	}
}

// A caller gives up while the API is asked for its action together with another one's.
func TestACallerMayGiveUpDuringAPoll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, api := newWaiter()
		api.takes = 100 * time.Millisecond
		short, cancel := context.WithTimeout(t.Context(), usual+50*time.Millisecond)
		defer cancel()
		var all sync.WaitGroup
		all.Go(func() { api.succeed(t, w, 1, 2*time.Second) })
		synctest.Wait()
		all.Go(func() {
			if err := w.Wait(short, api.start(2, 2*time.Second)); err == nil {
				t.Error("no error")
			}
		})
		all.Wait()
	})
}

// A wait that trusts in the polls of others ends with the first of them, or polls by itself after a while.
func TestAPatientWaitEndsWithTheNextPoll(t *testing.T) {
	t.Parallel()
	for others, want := range map[bool]time.Duration{true: 2300 * time.Millisecond, false: 7 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			w, api := newWaiter()
			start := time.Now()
			var all sync.WaitGroup
			all.Go(func() {
				if err := w.WaitPatiently(t.Context(), api.start(1, time.Second), 5*time.Second); err != nil {
					t.Error(err)
				}
				if took := time.Since(start); took > want {
					t.Errorf("others: %t, took %v, want at most %v", others, took, want)
				}
			})
			if others {
				time.Sleep(time.Second)
				all.Go(func() { _ = w.Wait(t.Context(), api.start(2, time.Second)) })
			}
			all.Wait()
			if len(api.calls) > 2 || others != strings.Contains(api.calls[0], "id=1&") {
				t.Errorf("others: %t, %d calls: %v", others, len(api.calls), api.calls)
			}
		})
	}
}

// Nothing is known about the result of an action that the API has forgotten: the next sync sees it.
func TestAnActionThatIsGoneIsAnError(t *testing.T) {
	t.Parallel()
	for name, others := range map[string]int{"alone": 0, "with others": 2} {
		synctest.Test(t, func(t *testing.T) {
			w, api := newWaiter()
			api.gone = map[int64]bool{1: true}
			var all sync.WaitGroup
			all.Go(func() {
				if err := w.Wait(t.Context(), api.start(1, time.Second)); err == nil ||
					!strings.Contains(err.Error(), "action 1 (add_route): it does not exist any more") {
					t.Errorf("%s: %v", name, err)
				}
			})
			for i := range others {
				all.Go(func() { api.succeed(t, w, int64(i+2), time.Second) })
			}
			all.Wait()
		})
	}
}

// An action that hangs costs few calls: while it is waited for, and when the next syncs ask for it.
func TestAnActionThatHangsIsAskedForByTheNextSync(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, api := newWaiter()
		slow := &SlowActions{Waiter: w}
		expect := func(when string, calls int, err error, waits bool) {
			t.Helper()
			_, pending := errors.AsType[*PendingError](err)
			if pending != waits || err != nil && !pending || len(api.calls) > calls {
				t.Errorf("%s: %v, %d calls: %v", when, err, len(api.calls), api.calls)
			}
			api.calls = nil
		}
		start := time.Now()
		expect("the wait", 15, slow.Wait(t.Context(), 7, api.start(1, time.Minute)), true)
		if took := time.Since(start); took != w.Timeout {
			t.Errorf("the wait took %v, want %v", took, w.Timeout)
		}
		check := func(when string, resource int64, calls int, waits, ends bool) {
			t.Helper()
			ended, err := slow.Check(t.Context(), resource)
			if expect(when, calls, err, waits); ended != ends {
				t.Errorf("%s: ended: %t", when, ended)
			}
		}
		check("another resource", 8, 0, false, false)
		check("the next sync", 7, 1, true, false)
		time.Sleep(time.Minute)
		check("the sync after its end", 7, 1, false, true)
		check("a later sync", 7, 0, false, false)
	})
}

// The API's page shows at most 50 actions, however many have probably ended.
func TestOneCallAsksForOnePageOfActions(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, api := newWaiter()
		var all sync.WaitGroup
		for i := range 120 {
			all.Go(func() { api.succeed(t, w, int64(i+1), time.Second) })
		}
		all.Wait()
		for _, call := range api.calls {
			if n := strings.Count(call, "id="); n > maxActionsPerPoll {
				t.Errorf("one call asks for %d actions", n)
			}
		}
	})
}
