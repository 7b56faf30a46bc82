package control

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/fault"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/journal"
)

// Limits of how long a request may wait, in the machine's time: what is between client and cloud cuts
// connections on which nothing happens for long, so that whoever waits longer asks again.
const (
	DefaultWait = 30 * time.Second
	MaxWait     = 10 * time.Minute
)

// await calls wait with a context that ends with the request or after its parameter timeout. What was not
// reached by then is 504, which a client may just ask for again.
func await(r *http.Request, wait func(context.Context) error) error {
	d, err := waitFor(r.URL.Query())
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), d)
	defer cancel()
	err = wait(ctx)
	switch {
	case err == nil || ctx.Err() == nil:
		return err
	case r.Context().Err() != nil: // unless the client is gone
		return statusError{http.StatusServiceUnavailable, errors.New("the control API is being closed")}
	}
	return statusError{http.StatusGatewayTimeout, fmt.Errorf("not within %v: %w", d, err)}
}

func waitFor(q url.Values) (time.Duration, error) {
	text := q.Get("timeout")
	if text == "" {
		return DefaultWait, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 || d > MaxWait {
		return 0, fmt.Errorf("parameter timeout: %.64q is not a duration of 0s to %v", text, MaxWait)
	}
	return d, nil
}

// countParam returns the parameter n: how many of what is awaited. Default: 1.
func countParam(q url.Values) (int, error) {
	text := q.Get("n")
	if text == "" {
		return 1, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("parameter n: %.64q is not a number of 0 or more", text)
	}
	return n, nil
}

func awaitJournal(c *Controller, r *http.Request) (any, error) {
	q := r.URL.Query()
	f, err := journal.ParseFilter(q, "n", "timeout")
	if err != nil {
		return nil, err
	}
	n, err := countParam(q)
	if err != nil {
		return nil, err
	}
	var entries []journal.Entry
	err = await(r, func(ctx context.Context) (err error) {
		entries, err = c.Journal.Await(ctx, f, n)
		return err
	})
	if err != nil {
		return nil, err
	}
	return journalJSON(r, c, entries, len(entries))
}

func awaitFault(c *Controller, r *http.Request) (any, error) {
	n, err := countParam(r.URL.Query())
	if err != nil {
		return nil, err
	}
	var st fault.Status
	err = await(r, func(ctx context.Context) (err error) {
		st, err = c.API.Faults().Await(ctx, pathParam(r, "name"), uint64(n))
		return err
	})
	if errors.Is(err, fault.ErrNotFound) {
		return nil, noFault(r)
	}
	if err != nil {
		return nil, err
	}
	return map[string]any{"fault": st}, nil
}

func awaitIdle(c *Controller, r *http.Request) (any, error) {
	return done, await(r, c.AwaitIdle)
}

// pathParam returns a part of the path. The router cuts a path into parts as it was sent, so that a part
// may have a slash in it, and leaves it as it was sent.
func pathParam(r *http.Request, name string) string {
	part := chi.URLParam(r, name)
	if r.URL.RawPath == "" {
		return part
	}
	if plain, err := url.PathUnescape(part); err == nil {
		return plain
	}
	return part
}
