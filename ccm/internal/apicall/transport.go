package apicall

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
	"k8s.io/utils/clock"
)

const (
	// maxAttempts and retryBudget limit the retries of one call. The controllers' work queues retry for
	// longer; a worker that waits here delays other objects.
	maxAttempts = 6
	// pollAttempts is maxAttempts for questions that a controller soon asks again (see polling).
	pollAttempts = 2
	retryBudget  = 25 * time.Second
	// LockedBudget is retryBudget for a resource that another action has locked. The action may take long.
	LockedBudget = 5 * time.Second
	backoffBase  = 400 * time.Millisecond
	backoffCap   = 6 * time.Second

	// maxResponseBytes is far more than the size of a page with 50 servers.
	maxResponseBytes = 32 << 20
)

// transport sends API requests. It sets the token, limits the time of each attempt, reads the whole
// answer, counts the attempt, and repeats requests if that is safe. hcloud-go's own retries are
// switched off: they cover only conflict, rate_limit_exceeded, bad_gateway, timeout and 502/504 without
// a code, last up to five minutes each, and also repeat creations.
type transport struct {
	next           http.RoundTripper
	token          *TokenSource
	clock          clock.Clock
	metrics        *apiMetrics
	limit          *rateLimit
	attemptTimeout time.Duration
	// mayWrite is called before each request that changes something. The request fails with its error.
	mayWrite func(context.Context) error
	// jitter returns a random factor for the backoff.
	jitter func() float64
}

type pollingKey struct{}

// Polling marks the requests of a controller that asks the same again in a few seconds. They get only
// pollAttempts attempts. The node controllers handle one Node after the other: an error for one Node
// must not delay the others, and each attempt counts against the rate limit.
func Polling(ctx context.Context) context.Context {
	return context.WithValue(ctx, pollingKey{}, true)
}

type conflictKey struct{}

// WithoutConflictRetries marks requests that the caller itself repeats after conflict and locked.
func WithoutConflictRetries(ctx context.Context) context.Context {
	return context.WithValue(ctx, conflictKey{}, true)
}

// DefaultJitter returns a random factor around 1.
func DefaultJitter() float64 { return 0.5 + rand.Float64() }

// errTokenChanged is the error of a write that is based on answers to another token, possibly about another project.
var errTokenChanged = errors.New("the token changed since the work began: nothing was written; will try again")

// permit returns the token for a request, or an error if a write must not be sent now.
func (t *transport) permit(ctx context.Context, isWrite bool) (token string, err error) {
	if isWrite {
		if err := t.mayWrite(ctx); err != nil {
			return "", err
		}
	}
	if token, err = t.token.Token(); err != nil {
		return "", err
	}
	if isWrite && !PurposeOf(ctx).token.mayWrite(token) {
		return "", errTokenChanged
	}
	return token, nil
}

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx := req.Context()
	start := t.clock.Now()
	isWrite, attempts := req.Method != http.MethodGet, maxAttempts
	if ctx.Value(pollingKey{}) != nil {
		attempts = pollAttempts
	}
	for attempt := 0; ; attempt++ {
		if err := t.limit.admit(ctx, !isWrite); err != nil {
			if _, held := errors.AsType[*heldBackError](err); held {
				countPurpose(ctx, t.metrics.held)
			}
			return nil, err
		}
		token, err := t.permit(ctx, isWrite) // after all waits: meanwhile another CCM may lead, and the token may change
		if err != nil {
			return nil, err
		}
		resp, err := t.attempt(req, token)
		if err == nil && resp.StatusCode != http.StatusUnauthorized {
			PurposeOf(ctx).token.read(token)
		}
		if ctx.Err() != nil {
			return resp, err
		}
		reason, ok := retryReason(req.Method, resp, err)
		if resp != nil && resp.StatusCode == http.StatusUnauthorized && t.token.file != "" {
			// The token may have been rotated after the file was read.
			if now, err := t.token.Token(); err == nil && now != token {
				reason, ok = "token_rotated", true
			}
		}
		wait, budget := t.backoff(attempt, resp), retryBudget
		if reason == "locked" || reason == "conflict" {
			budget, ok = LockedBudget, ok && ctx.Value(conflictKey{}) == nil
		}
		if !ok || attempt+1 >= attempts || t.clock.Since(start)+wait > budget {
			return resp, err
		}
		t.metrics.retries.WithLabelValues(reason, req.Method, endpointLabel(req)).Inc()
		if Sleep(ctx, t.clock, wait) != nil {
			return resp, err
		}
	}
}

// attempt sends req once and reads the whole answer: a truncated body is a failed attempt, not an
// answer.
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

	countPurpose(ctx, t.metrics.purposes)
	t.metrics.inFlight.Inc()
	start := t.clock.Now()
	resp, err := t.next.RoundTrip(clone)
	var body []byte
	if err == nil {
		body, err = bufferBody(resp)
	}
	if err == nil {
		err = checkField(req, resp.StatusCode, body)
	}
	t.metrics.inFlight.Dec()
	if err != nil {
		t.metrics.observe(req, nil, 0)
		if ctx.Err() != nil && req.Context().Err() == nil {
			err = fmt.Errorf("no answer within %v: %w", t.attemptTimeout, err)
		}
		return nil, err
	}
	t.limit.observe(resp.StatusCode, resp.Header)
	t.metrics.observe(req, resp, t.clock.Since(start))
	return resp, nil
}

// bufferBody replaces the body by a copy in memory, and returns it.
func bufferBody(resp *http.Response) ([]byte, error) {
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxResponseBytes+1))
	if err != nil {
		return nil, fmt.Errorf("reading the answer: %w", err)
	}
	if len(body) > maxResponseBytes {
		return nil, fmt.Errorf("reading the answer: it is longer than %d bytes", maxResponseBytes)
	}
	resp.Body = io.NopCloser(bytes.NewReader(body))
	return body, nil
}

// checkField returns an error if the answer to a successful GET lacks the field that each such answer of
// the API has: "servers" for /servers, "server" for /servers/7. hcloud-go accepts any JSON and takes {},
// for example from a broken gateway, for an empty list.
func checkField(req *http.Request, status int, body []byte) error {
	if req.Method != http.MethodGet || status != http.StatusOK {
		return nil
	}
	field := path.Base(req.URL.Path)
	if _, err := strconv.ParseInt(field, 10, 64); err == nil {
		field = strings.TrimSuffix(path.Base(path.Dir(req.URL.Path)), "s")
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(body, &fields); err != nil {
		return fmt.Errorf("the answer with status %d is not from the API: %w; check HCLOUD_ENDPOINT", status, err)
	}
	if value := fields[field]; len(value) == 0 || string(value) == "null" {
		return fmt.Errorf("the answer with status %d has no field %q; check HCLOUD_ENDPOINT", status, field)
	}
	return nil
}

// backoff returns the delay after the given attempt, counted from 0.
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

// retryReason reports whether repeating the request is safe and useful, and the reason for the metric.
// It is safe for an idempotent request (GET, PUT, DELETE), or if the answer says that the request was
// refused. A POST with an unknown result (timeout, dropped connection, 5xx) is not repeated, because it
// may have worked; the next sync checks that.
func retryReason(method string, resp *http.Response, err error) (reason string, retry bool) {
	idempotent := method == http.MethodGet || method == http.MethodPut || method == http.MethodDelete
	if err != nil {
		return "no_answer", idempotent
	}
	code := errorCode(resp)
	switch {
	case resp.StatusCode == http.StatusTooManyRequests:
		return "rate_limited", true // with or without the error code
	case resp.StatusCode == http.StatusLocked:
		return "locked", code != hcloud.ErrorCodeProtected // protection does not end by itself
	case code == hcloud.ErrorCodeConflict:
		return "conflict", true
	case resp.StatusCode >= 500:
		return "server_error", idempotent
	}
	return "", false
}

// errorCode returns the code of an API error, or "" if the answer has none. The body stays readable.
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
