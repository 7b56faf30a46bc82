package apicall

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"k8s.io/utils/clock"
)

const (
	// reserveShare is the share of the rate limit (1/reserveShare) that is kept for urgent work.
	reserveShare = 10
	// heldBackInterval is the least time between two requests of periodic work below the reserve. One of them
	// from time to time shows whether others still use up the limit.
	heldBackInterval = 10 * time.Second
	// firstRefusal is how long all requests wait after the first answer 429 that does not say what remains. The time
	// doubles up to longestRefusal, and an urgent request waits that long.
	firstRefusal   = backoffBase
	longestRefusal = 20 * time.Second
	// longestRetryAfter limits what such an answer may ask for.
	longestRetryAfter = time.Minute
)

// rateLimit follows the project's rate limit by the headers of the answers. Everything that runs in the
// project shares the limit: 3600 requests, and one comes back per second.
//
// Below the reserve, periodic reads fail without a request, and are made again with the next round. When
// nothing remains, each request waits for its turn: one per second, not one per retry. Writes are never held
// back, so that every repair ends.
type rateLimit struct {
	clock clock.Clock

	mu        sync.Mutex
	limit     int // per hour; 0: the answers name none
	remaining float64
	at        time.Time // time of remaining
	waiting   int       // requests that wait for their turn
	periodic  time.Time // time of the last request of periodic work below the reserve

	refused  time.Duration // how long requests wait after the last refusal; 0: none
	nextTry  time.Time     // when the next request may be sent
	trying   bool          // one was sent since the last refusal
	answered chan struct{} // closed by the answer to that one, and by one that ends the refusals
}

// observe reads the status and the headers of an answer.
func (l *rateLimit) observe(status int, h http.Header) {
	limit, err := strconv.Atoi(h.Get("RateLimit-Limit"))
	remaining, err2 := strconv.Atoi(h.Get("RateLimit-Remaining"))
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil || err2 != nil || limit <= 0 {
		l.limit = 0
	} else {
		l.limit, l.remaining, l.at = limit, float64(remaining), l.clock.Now()
	}
	switch {
	case status == http.StatusTooManyRequests && (l.limit == 0 || remaining > 0):
		l.refuse(h)
	case status != http.StatusTooManyRequests && l.refused > 0:
		l.refused = 0
		close(l.answered)
	}
}

// refuse notes a refusal. The caller holds mu.
func (l *rateLimit) refuse(h http.Header) {
	switch {
	case l.refused == 0:
		l.refused, l.answered = firstRefusal, make(chan struct{})
	case l.trying:
		l.refused = min(2*l.refused, longestRefusal)
		close(l.answered)
		l.answered = make(chan struct{})
	default:
		return // it was sent before the last refusal
	}
	seconds, _ := strconv.Atoi(h.Get("Retry-After")) // 0 if there is none
	wait := max(l.refused, min(time.Duration(seconds)*time.Second, longestRetryAfter))
	l.trying, l.nextTry = false, l.clock.Now().Add(wait)
}

// refusal returns how long a request has to wait after a refusal if it has waited for so long already, and a channel that is
// closed when that may differ. With 0 it may be sent: it shows whether the API still refuses, and the others go on waiting.
func (l *rateLimit) refusal(periodic bool, waited time.Duration) (wait time.Duration, answered <-chan struct{}, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.clock.Now()
	switch wait = l.nextTry.Sub(now); {
	case l.refused == 0:
		return 0, nil, nil
	case wait <= 0:
		l.trying, l.nextTry = true, now.Add(l.refused)
		return 0, nil, nil
	case periodic:
		return 0, nil, &heldBackError{hcloud.Error{Code: hcloud.ErrorCodeRateLimitExceeded,
			Message: "held back: the API answers 429; will try again"}}
	}
	budget := retryBudget
	if l.trying {
		budget += longestRefusal // the answer is on its way, and may end the refusals
	}
	if waited+wait > budget {
		return 0, nil, hcloud.Error{Code: hcloud.ErrorCodeRateLimitExceeded,
			Message: "the API answers 429, and other requests wait already; will try again"}
	}
	return wait, l.answered, nil
}

// awaitRefusals blocks while the API is answering other requests with 429.
func (l *rateLimit) awaitRefusals(ctx context.Context, periodic bool) error {
	for start := l.clock.Now(); ; {
		wait, answered, err := l.refusal(periodic, l.clock.Since(start))
		if err != nil || wait == 0 {
			return err
		}
		if err := sleepUnless(ctx, l.clock, wait, answered); err != nil {
			return err
		}
	}
}

// admit returns when the request may be sent. The error is a rate limit's, as that of the API.
func (l *rateLimit) admit(ctx context.Context, read bool) error {
	periodic := PurposeOf(ctx).Periodic && read
	if err := l.awaitRefusals(ctx, periodic); err != nil {
		return err
	}
	wait, err := l.take(periodic)
	if err != nil || wait <= 0 {
		return err
	}
	err = Sleep(ctx, l.clock, wait)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.waiting--; err == nil {
		l.remaining--
	}
	return err
}

// take takes one of the remaining requests, or returns the time until its turn.
func (l *rateLimit) take(periodic bool) (time.Duration, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.limit == 0 {
		return 0, nil
	}
	now, each := l.clock.Now(), time.Hour/time.Duration(l.limit)
	left := min(l.remaining+float64(now.Sub(l.at))/float64(each), float64(l.limit)) - float64(l.waiting)
	if reserve := l.limit / reserveShare; periodic && left < float64(reserve) {
		if left < 1 || now.Sub(l.periodic) < heldBackInterval {
			return 0, &heldBackError{hcloud.Error{Code: hcloud.ErrorCodeRateLimitExceeded, Message: fmt.Sprintf(
				"held back: %d of %d requests of the project's rate limit remain, and %d are reserved for changes; will try again",
				int(max(left, 0)), l.limit, reserve)}}
		}
		l.periodic = now
	}
	if left >= 1 {
		l.remaining--
		return 0, nil
	}
	wait := time.Duration((1 - left) * float64(each))
	if wait > retryBudget {
		return 0, hcloud.Error{Code: hcloud.ErrorCodeRateLimitExceeded, Message: fmt.Sprintf(
			"the project's rate limit of %d requests per hour is used up, and other requests wait already; will try again", l.limit)}
	}
	l.waiting++
	return wait, nil
}

// heldBackError reports a request that was not sent because of the reserve.
type heldBackError struct{ err hcloud.Error }

func (e *heldBackError) Error() string { return e.err.Error() }

func (e *heldBackError) Unwrap() error { return e.err }
