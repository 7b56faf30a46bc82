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
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/wire"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/journal"
)

// Limits of how long a request may wait, in the machine's time. They are short because proxies cut idle connections. A
// client that waits longer sends the request again.
const (
	DefaultWait = 30 * time.Second
	MaxWait     = 10 * time.Minute
)

// await calls wait with a context that ends with the request, or after the time of the parameter timeout. After that
// time, the error is 504, and the client may send the request again.
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
	case r.Context().Err() != nil: // or the client is gone and does not see this
		return errClosing
	}
	return statusError{http.StatusGatewayTimeout, fmt.Errorf("did not happen within %v; send the request again to wait longer: %w", d, err)}
}

var errClosing = statusError{http.StatusServiceUnavailable, errors.New("the cloud is closing; start it again")}

func waitFor(q url.Values) (time.Duration, error) {
	text := q.Get("timeout")
	if text == "" {
		return DefaultWait, nil
	}
	var d fault.Duration
	if err := d.UnmarshalText([]byte(text)); err != nil || d < 0 || time.Duration(d) > MaxWait {
		return 0, fmt.Errorf("parameter timeout=%.64q: must be a duration of 0s to %v", text, MaxWait)
	}
	return time.Duration(d), nil
}

// numberParam returns a parameter that is a number, or the standard without it.
func numberParam(q url.Values, name string, standard int) (int, error) {
	text := q.Get(name)
	if text == "" {
		return standard, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("parameter %s=%.64q: must be a number of at least 0", name, text)
	}
	return n, nil
}

func awaitJournal(c *Controller, r *http.Request) (any, error) {
	q := r.URL.Query()
	f, err := wire.ParseFilter(q, "n", "timeout")
	if err != nil {
		return nil, err
	}
	n, err := numberParam(q, "n", 1)
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
	n, err := numberParam(r.URL.Query(), "n", 1)
	if err != nil {
		return nil, err
	}
	var st fault.Status
	err = await(r, func(ctx context.Context) (err error) {
		st, err = c.API.Faults().Await(ctx, pathParam(r, "name"), uint64(n))
		return err
	})
	if errors.Is(err, fault.ErrNotFound) {
		err = noFault(r)
	}
	return map[string]any{"fault": st}, err
}

func awaitIdle(c *Controller, r *http.Request) (any, error) {
	return done, await(r, c.AwaitIdle)
}

// pathParam returns a part of the path, unescaped. The router splits the path before it is unescaped: a part may have an
// escaped slash.
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
