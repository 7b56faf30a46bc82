package api

import (
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/cloud"
)

// DefaultRateLimit is the real API's limit, in requests per hour and project (API document,
// chapter Rate Limiting).
const DefaultRateLimit = 3600

// rateLimits holds one bucket per project, and one per address for requests without a known token,
// which are limited too. A bucket refills evenly, by one request per second at the default limit.
type rateLimits struct {
	mu      sync.RWMutex // guards what follows
	perHour int
	text    string // perHour, as in a header
	buckets map[rateKey]*bucket
}

// rateKey says whose bucket it is: a project's, or else an address's.
type rateKey struct {
	project int64
	address string
}

// bucket is what is left of a limit, as the time at which it was, or would have been, empty: since
// then one request has come back per interval. It is exact, where a sum of fractions is not.
type bucket struct {
	mu    sync.Mutex
	empty time.Time
	// full is when it is full, which is the same for all requests of a second, and as in a header.
	full     int64
	fullText string
}

// interval is the time in which one request comes back.
func interval(perHour int) time.Duration { return time.Hour / time.Duration(perHour) }

// level returns how many requests are left, and when it was empty.
func (b *bucket) level(now time.Time, limit int) int {
	if full := now.Add(-time.Duration(limit) * interval(limit)); b.empty.Before(full) {
		b.empty = full
	}
	// A request that was overtaken comes with an earlier time.
	return max(0, int(now.Sub(b.empty)/interval(limit)))
}

// reset returns when it is full, in Unix seconds, rounded up.
func (b *bucket) reset(limit int) string {
	full := b.empty.Add(time.Duration(limit)*interval(limit) + time.Second - 1).Unix()
	if b.full != full {
		b.full, b.fullText = full, strconv.FormatInt(full, 10)
	}
	return b.fullText
}

func newRateLimits(perHour int) *rateLimits {
	l := &rateLimits{}
	l.set(perHour)
	return l
}

// set changes the limit and fills all buckets.
func (l *rateLimits) set(perHour int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.perHour = perHour
	l.text = strconv.Itoa(perHour)
	l.buckets = map[rateKey]*bucket{}
}

type rateState struct {
	limit, remaining int
	limitText        string
	reset            string // Unix seconds
	allowed          bool
}

// take takes one request out of a bucket. ok is false when there is no limit.
func (l *rateLimits) take(key rateKey, now time.Time) (s rateState, ok bool) {
	l.mu.RLock()
	s.limit, s.limitText = l.perHour, l.text
	b := l.buckets[key]
	l.mu.RUnlock()
	if s.limit <= 0 {
		return s, false
	}
	if b == nil {
		b = l.bucket(key)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	s.remaining = b.level(now, s.limit)
	if s.remaining > 0 {
		b.empty = b.empty.Add(interval(s.limit))
		s.remaining--
		s.allowed = true
	}
	s.reset = b.reset(s.limit)
	return s, true
}

func (l *rateLimits) bucket(key rateKey) *bucket {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.buckets[key]
	if b == nil {
		b = &bucket{} // empty long ago: full
		l.buckets[key] = b
	}
	return b
}

// exhaust empties a bucket, for the fault rule exhaust_rate_limit, and returns what it is like
// then. Where there is no limit it looks as if the real API's had been used up.
func (l *rateLimits) exhaust(key rateKey, now time.Time) rateState {
	l.mu.RLock()
	s := rateState{limit: l.perHour, limitText: l.text, reset: strconv.FormatInt(now.Add(time.Hour).Unix(), 10)}
	b := l.buckets[key]
	l.mu.RUnlock()
	if s.limit <= 0 {
		s.limit, s.limitText = DefaultRateLimit, strconv.Itoa(DefaultRateLimit)
	} else if b != nil {
		b.mu.Lock()
		// What has come back in part since the last whole request is not taken.
		b.empty = b.empty.Add(time.Duration(b.level(now, s.limit)) * interval(s.limit))
		s.reset = b.reset(s.limit)
		b.mu.Unlock()
	}
	return s
}

// SetRateLimit changes the limit, in requests per hour and project; 0 is no limit. All buckets
// are full afterwards.
func (a *API) SetRateLimit(perHour int) { a.limits.set(perHour) }

// limitRate counts the request against its project and sets the three headers.
func (a *API) limitRate(next Handler) Handler {
	return func(w http.ResponseWriter, r *Request) {
		r.identify()
		s, limited := a.limits.take(r.rateKey(), r.arrived)
		if !limited {
			next(w, r)
			return
		}
		r.writeRate(w.Header(), &s)
		if !s.allowed {
			writeError(w, r, cloud.ErrRateLimit(s.limit))
			return
		}
		next(w, r)
	}
}

func (r *Request) writeRate(h http.Header, s *rateState) {
	r.setHeader(h, "Ratelimit-Limit", s.limitText)
	r.setHeader(h, "Ratelimit-Remaining", strconv.Itoa(s.remaining))
	r.setHeader(h, "Ratelimit-Reset", s.reset)
}

func (r *Request) rateKey() rateKey {
	if r.known {
		return rateKey{project: r.token.Project}
	}
	host, _, err := net.SplitHostPort(r.HTTP.RemoteAddr)
	if err != nil {
		host = r.HTTP.RemoteAddr
	}
	return rateKey{address: host}
}
