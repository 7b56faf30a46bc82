package api

import (
	"cmp"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/cloud"
)

// RealRateLimit is the limit of the real API, in requests per hour and project (API document, chapter Rate Limiting).
const RealRateLimit = 3600

// rateLimits holds one bucket per project. For requests without a known token, it holds one per client address. A bucket
// refills evenly: at the real limit, by one request per second.
type rateLimits struct {
	mu      sync.RWMutex // guards the fields below
	perHour int
	text    string // perHour, as in a header
	buckets map[rateKey]*bucket
}

// rateKey identifies a bucket: by project, or by address if project is 0.
type rateKey struct {
	project int64
	address string
}

// bucket is the remaining part of a limit. It is stored as the time when it was empty: since then, one request comes back per interval. A
// time is exact, a sum of fractions is not.
type bucket struct {
	mu    sync.Mutex
	empty time.Time
	// full is when the bucket will be full, in Unix seconds, and fullText the same as text. They are kept because they
	// are the same for all requests of a second.
	full     int64
	fullText string
}

// interval is how long it takes until one request comes back.
func interval(perHour int) time.Duration { return time.Hour / time.Duration(perHour) }

// level returns how many requests are left.
func (b *bucket) level(now time.Time, limit int) int {
	if full := now.Add(-time.Duration(limit) * interval(limit)); b.empty.Before(full) {
		b.empty = full
	}
	// Requests may come in another order than that of their times.
	return max(0, int(now.Sub(b.empty)/interval(limit)))
}

// reset returns when the bucket will be full, in Unix seconds, rounded up.
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

// fork returns a copy of the limits and of their buckets.
func (l *rateLimits) fork() *rateLimits {
	l.mu.RLock()
	defer l.mu.RUnlock()
	f := newRateLimits(l.perHour)
	for key, b := range l.buckets {
		b.mu.Lock()
		f.buckets[key] = &bucket{empty: b.empty}
		b.mu.Unlock()
	}
	return f
}

// SavedRate is the bucket of a project, or of an address without a known token, as data: the time when the bucket was empty.
type SavedRate struct {
	Project int64     `json:"project,omitzero"`
	Address string    `json:"address,omitzero"`
	Empty   time.Time `json:"empty"`
}

// SaveRates returns what is left of the rate limits, by project and address.
func (a *API) SaveRates() []SavedRate {
	l := a.limits
	l.mu.RLock()
	defer l.mu.RUnlock()
	all := make([]SavedRate, 0, len(l.buckets))
	for key, b := range l.buckets {
		b.mu.Lock()
		all = append(all, SavedRate{key.project, key.address, b.empty.UTC()})
		b.mu.Unlock()
	}
	slices.SortFunc(all, func(a, b SavedRate) int {
		return cmp.Or(cmp.Compare(a.Project, b.Project), cmp.Compare(a.Address, b.Address))
	})
	return all
}

// RatesLeft returns the remaining requests of at most n projects. It is empty without a limit.
func (a *API) RatesLeft(now time.Time, n int) map[int64]int {
	l, left := a.limits, map[int64]int{}
	l.mu.RLock()
	defer l.mu.RUnlock()
	for key, b := range l.buckets {
		if key.project != 0 && l.perHour > 0 && len(left) < n {
			b.mu.Lock()
			left[key.project] = b.level(now, l.perHour)
			b.mu.Unlock()
		}
	}
	return left
}

// LoadRates replaces what is left of the rate limits.
func (a *API) LoadRates(saved []SavedRate) {
	l := a.limits
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.buckets)
	for _, s := range saved {
		l.buckets[rateKey{s.Project, s.Address}] = &bucket{empty: s.Empty}
	}
}

// forget fills the bucket of a project.
func (l *rateLimits) forget(project int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.buckets, rateKey{project: project})
}

type rateState struct {
	limit, remaining int
	limitText        string
	reset            string // Unix seconds
	allowed          bool
}

// take takes one request out of a bucket. ok is false without a limit.
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

// exhaust empties a bucket, for the fault exhaust_rate_limit, and returns its state. Without a limit, the state is that of a used-up limit
// of the real API.
func (l *rateLimits) exhaust(key rateKey, now time.Time) *rateState {
	s := l.usedUp(now)
	l.mu.RLock()
	b := l.buckets[key]
	l.mu.RUnlock()
	if b != nil {
		b.mu.Lock()
		// It takes whole requests only.
		b.empty = b.empty.Add(time.Duration(b.level(now, s.limit)) * interval(s.limit))
		s.reset = b.reset(s.limit)
		b.mu.Unlock()
	}
	return s
}

// usedUp returns the state of a limit that is used up, and full in an hour. Without a limit, it is that of the real API.
func (l *rateLimits) usedUp(now time.Time) *rateState {
	l.mu.RLock()
	defer l.mu.RUnlock()
	s := &rateState{limit: l.perHour, limitText: l.text, reset: strconv.FormatInt(now.Add(time.Hour).Unix(), 10)}
	if s.limit <= 0 {
		s.limit, s.limitText = RealRateLimit, strconv.Itoa(RealRateLimit)
	}
	return s
}

// SetRateLimit changes the limit, in requests per hour and project, and fills all buckets. 0 means no limit.
func (a *API) SetRateLimit(perHour int) { a.limits.set(perHour) }

// FillRateLimit fills the bucket of one project.
func (a *API) FillRateLimit(project int64) { a.limits.forget(project) }

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

// rateHeaders are the headers of the API document's chapter Rate Limiting.
var rateHeaders = [3]string{"Ratelimit-Limit", "Ratelimit-Remaining", "Ratelimit-Reset"}

func (r *Request) writeRate(h http.Header, s *rateState) {
	r.setHeader(h, rateHeaders[0], s.limitText)
	r.setHeader(h, rateHeaders[1], strconv.Itoa(s.remaining))
	r.setHeader(h, rateHeaders[2], s.reset)
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
