package ccm

import (
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"k8s.io/utils/clock"
	testingclock "k8s.io/utils/clock/testing"
)

// autoClock is a clock on which each wait ends at once: a new timer advances the time by its duration
// and fires. Now tells how much time the waits would have taken.
type autoClock struct {
	*testingclock.FakeClock
	mu sync.Mutex
}

var _ clock.WithTicker = (*autoClock)(nil)

func newAutoClock() *autoClock {
	return &autoClock{FakeClock: testingclock.NewFakeClock(time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC))}
}

func (c *autoClock) NewTimer(d time.Duration) clock.Timer {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.FakeClock.NewTimer(d)
	c.Step(d)
	return t
}

// recordedCall is a request that reached the API.
type recordedCall struct{ Method, Path, Token, UserAgent string }

// testAPI is an API whose answers come from a test's handler.
type testAPI struct {
	*httptest.Server
	mu    sync.Mutex
	calls []recordedCall
}

// newTestAPI serves handler and records the calls.
func newTestAPI(t *testing.T, handler http.HandlerFunc) *testAPI {
	t.Helper()
	api := &testAPI{}
	api.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		api.mu.Lock()
		api.calls = append(api.calls, recordedCall{r.Method, r.URL.RequestURI(), r.Header.Get("Authorization"), r.Header.Get("User-Agent")})
		api.mu.Unlock()
		handler(w, r)
	}))
	t.Cleanup(api.Close)
	return api
}

func (a *testAPI) recorded() []recordedCall {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]recordedCall(nil), a.calls...)
}

// cloud returns a provider for the API, on an autoClock and without randomness.
func (a *testAPI) cloud(cfg Config, options ...Option) (*Cloud, *autoClock) {
	clk := newAutoClock()
	if cfg.Token == "" && cfg.TokenFile == "" {
		cfg.Token = "secret"
	}
	cfg.Endpoint = a.URL
	if cfg.RequestTimeout == 0 {
		cfg.RequestTimeout = 10 * time.Second
	}
	options = append([]Option{WithClock(clk), WithJitter(func() float64 { return 1 })}, options...)
	return New(cfg, options...), clk
}

// reply writes a JSON answer.
func reply(w http.ResponseWriter, status int, body string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(body))
}

// replyError writes an API error.
func replyError(w http.ResponseWriter, status int, code string) {
	reply(w, status, `{"error":{"code":"`+code+`","message":"as the test wants","details":null}}`)
}

// providerID returns the provider ID of a server by the default convention.
func providerID(serverID int64) string { return ConventionOwn.providerID(serverID) }
