package api

import (
	"math"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/cloud"
)

// DefaultRateLimit is the real API's limit, in requests per hour and project (API document,
// chapter Rate Limiting).
const DefaultRateLimit = 3600

// rateLimits holds one bucket per project, and one per address for requests without a known token,
// which are limited too. A bucket refills evenly, by one request per second at the default limit.
type rateLimits struct {
	now func() time.Time

	mu      sync.Mutex
	perHour int
	buckets map[string]*rate.Limiter
}

func newRateLimits(perHour int, now func() time.Time) *rateLimits {
	return &rateLimits{perHour: perHour, now: now, buckets: map[string]*rate.Limiter{}}
}

// set changes the limit and fills all buckets.
func (l *rateLimits) set(perHour int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.perHour = perHour
	clear(l.buckets)
}

type rateState struct {
	limit, remaining int
	reset            int64 // Unix seconds
	allowed          bool
}

// take takes one request out of a bucket. ok is false when there is no limit.
func (l *rateLimits) take(key string) (s rateState, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.perHour <= 0 {
		return s, false
	}
	perSecond := float64(l.perHour) / 3600
	b := l.buckets[key]
	if b == nil {
		b = rate.NewLimiter(rate.Limit(perSecond), l.perHour)
		l.buckets[key] = b
	}
	now := l.now()
	s.limit = l.perHour
	s.allowed = b.AllowN(now, 1)
	tokens := max(0, b.TokensAt(now))
	s.remaining = int(tokens)
	s.reset = now.Unix() + int64(math.Ceil((float64(l.perHour)-tokens)/perSecond))
	return s, true
}

// exhaust empties a bucket, for the fault rule exhaust_rate_limit, and returns what it is like
// then. Where there is no limit it looks as if the real API's had been used up.
func (l *rateLimits) exhaust(key string) rateState {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	s := rateState{limit: l.perHour}
	if l.perHour <= 0 {
		s.limit = DefaultRateLimit
	} else if b := l.buckets[key]; b != nil {
		b.AllowN(now, int(b.TokensAt(now)))
	}
	s.reset = now.Unix() + 3600
	return s
}

func (s *rateState) writeHeaders(h http.Header) {
	h["Ratelimit-Limit"] = []string{strconv.Itoa(s.limit)}
	h["Ratelimit-Remaining"] = []string{strconv.Itoa(s.remaining)}
	h["Ratelimit-Reset"] = []string{strconv.FormatInt(s.reset, 10)}
}

// SetRateLimit changes the limit, in requests per hour and project; 0 is no limit. All buckets
// are full afterwards.
func (a *API) SetRateLimit(perHour int) { a.limits.set(perHour) }

// limitRate counts the request against its project and sets the three headers.
func (a *API) limitRate(next Handler) Handler {
	return func(w http.ResponseWriter, r *Request) {
		r.identify()
		s, limited := a.limits.take(r.rateKey())
		if !limited {
			next(w, r)
			return
		}
		s.writeHeaders(w.Header())
		if !s.allowed {
			writeError(w, r, cloud.ErrRateLimit(s.limit))
			return
		}
		next(w, r)
	}
}

func (r *Request) rateKey() string {
	if r.known {
		return "project " + strconv.FormatInt(r.token.Project, 10)
	}
	host, _, err := net.SplitHostPort(r.HTTP.RemoteAddr)
	if err != nil {
		host = r.HTTP.RemoteAddr
	}
	return "address " + host
}
