package ccm

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
	"k8s.io/utils/clock"
)

const (
	// maxAttempts and retryBudget bound what one call may cost: the workqueue above does the long
	// retries, and a worker that waits here keeps other objects waiting.
	maxAttempts = 6
	// pollAttempts is maxAttempts for questions that are asked again soon anyway.
	pollAttempts = 2
	retryBudget  = 25 * time.Second
	backoffBase  = 400 * time.Millisecond
	backoffCap   = 6 * time.Second

	// maxResponseBytes is far more than 50 servers with all their details take.
	maxResponseBytes = 32 << 20
)

// transport sends API requests: it sets the token, bounds each attempt in time, reads the whole
// answer, counts it, and repeats what is safe to repeat. hcloud-go's own retries are switched off
// (they cover only conflict, rate_limit_exceeded, bad_gateway, timeout and bare 502/504, each for
// up to five minutes, and repeat creations too).
type transport struct {
	next           http.RoundTripper
	token          *tokenSource
	clock          clock.Clock
	metrics        *apiMetrics
	attemptTimeout time.Duration
	// mayWrite is asked before each request that changes something; its error is the request's.
	mayWrite func(context.Context) error
	// jitter returns a factor for the backoff; tests make it constant.
	jitter func() float64
}

type pollingKey struct{}

// polling marks the requests of a controller that asks the same again in a few seconds: they are
// tried pollAttempts times only. The node controllers go from Node to Node; if the API fails for
// one, or refuses everything for a while, the others must not wait for it, and each attempt costs a
// call of the budget.
func polling(ctx context.Context) context.Context {
	return context.WithValue(ctx, pollingKey{}, true)
}

func attemptsFor(ctx context.Context) int {
	if ctx.Value(pollingKey{}) != nil {
		return pollAttempts
	}
	return maxAttempts
}

func defaultJitter() float64 { return 0.5 + rand.Float64() }

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx := req.Context()
	deadline := t.clock.Now().Add(retryBudget)
	lastToken := ""
	for attempt := 0; ; attempt++ {
		if req.Method != http.MethodGet && req.Method != http.MethodHead {
			if err := t.mayWrite(ctx); err != nil {
				return nil, err
			}
		}
		token, err := t.token.Token()
		if err != nil {
			return nil, err
		}
		resp, err := t.attempt(req, token)
		if ctx.Err() != nil {
			return resp, err
		}
		reason, ok := retryReason(req.Method, resp, err)
		if resp != nil && resp.StatusCode == http.StatusUnauthorized && t.token.file != "" {
			// The token may have been rotated between reading the file and the server's answer.
			if now, err := t.token.Token(); err == nil && now != token && now != lastToken {
				reason, ok = "token_rotated", true
			}
			lastToken = token
		}
		wait := t.backoff(attempt, resp)
		if !ok || attempt+1 >= attemptsFor(ctx) || t.clock.Now().Add(wait).After(deadline) {
			return resp, err
		}
		t.metrics.retries.WithLabelValues(reason, req.Method, endpointLabel(req)).Inc()
		timer := t.clock.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return resp, err
		case <-timer.C():
		}
	}
}

// attempt sends req once and reads the answer completely, so that a body that is cut off counts as
// a failed attempt and not as an answer.
func (t *transport) attempt(req *http.Request, token string) (*http.Response, error) {
	ctx, cancel := context.WithTimeout(req.Context(), t.attemptTimeout)
	defer cancel()
	clone := req.Clone(ctx)
	if req.Body != nil && req.GetBody != nil {
		body, err := req.GetBody()
		if err != nil {
			return nil, err
		}
		clone.Body = body
	}
	if token != "" {
		clone.Header.Set("Authorization", "Bearer "+token)
	}

	t.metrics.inFlight.Inc()
	start := t.clock.Now()
	resp, err := t.next.RoundTrip(clone)
	if err == nil {
		err = bufferBody(resp)
	}
	t.metrics.inFlight.Dec()
	if err != nil {
		t.metrics.observe(req, nil, 0)
		if ctx.Err() != nil && req.Context().Err() == nil {
			err = fmt.Errorf("no answer within %v: %w", t.attemptTimeout, err)
		}
		return nil, err
	}
	t.metrics.observe(req, resp, t.clock.Since(start))
	return resp, nil
}

// bufferBody replaces the body by a copy in memory.
func bufferBody(resp *http.Response) error {
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxResponseBytes+1))
	if err != nil {
		return fmt.Errorf("reading the answer: %w", err)
	}
	if len(body) > maxResponseBytes {
		return fmt.Errorf("the answer is longer than %d bytes", maxResponseBytes)
	}
	resp.Body = io.NopCloser(bytes.NewReader(body))
	return nil
}

// backoff returns how long to wait after the given attempt (counted from 0).
func (t *transport) backoff(attempt int, resp *http.Response) time.Duration {
	d := min(backoffBase<<attempt, backoffCap)
	d = time.Duration(float64(d) * t.jitter())
	if resp != nil {
		if s, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && s > 0 {
			d = max(d, time.Duration(s)*time.Second)
		}
	}
	return d
}

// retryReason says whether sending the request again is safe and may help. It is safe if the
// request changes nothing or the same thing again (GET, PUT, DELETE), or if the answer says that
// it was refused before anything happened. A POST whose fate is unknown (timeout, dropped
// connection, 500, 502, 504) is not repeated: it may have created something, and the sync that
// follows finds out what.
func retryReason(method string, resp *http.Response, err error) (reason string, retry bool) {
	idempotent := method == http.MethodGet || method == http.MethodHead || method == http.MethodPut || method == http.MethodDelete
	if err != nil {
		return "no_answer", idempotent
	}
	code := errorCode(resp)
	switch {
	case resp.StatusCode == http.StatusTooManyRequests:
		return "rate_limited", true // with or without its code
	case resp.StatusCode == http.StatusLocked:
		return "locked", code != hcloud.ErrorCodeProtected // protection does not go away by itself
	case code == hcloud.ErrorCodeConflict:
		return "conflict", true
	case resp.StatusCode >= 500:
		return "server_error", idempotent
	}
	return "", false
}

// errorCode returns the code of an API error, "" if the answer carries none. The body stays
// readable.
func errorCode(resp *http.Response) hcloud.ErrorCode {
	if resp.StatusCode < 400 {
		return ""
	}
	body, err := io.ReadAll(resp.Body)
	resp.Body = io.NopCloser(bytes.NewReader(body))
	var envelope schema.ErrorResponse
	if err != nil || json.Unmarshal(body, &envelope) != nil {
		return ""
	}
	return hcloud.ErrorCode(envelope.Error.Code)
}
