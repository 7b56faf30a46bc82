package remote

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/wire"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/journal"
)

// Journal returns the requests that the cloud has answered.
func (c *Client) Journal() journal.Journal { return requests{c} }

// requests implements journal.Journal over the control API.
type requests struct{ c *Client }

// Entries implements journal.Journal.
func (j requests) Entries(ctx context.Context, f journal.Filter) ([]journal.Entry, error) {
	return field[[]journal.Entry](ctx, j.c, "entries", http.MethodGet, "/journal", wire.Query(f), nil)
}

// Count implements journal.Journal.
func (j requests) Count(ctx context.Context, f journal.Filter) (int, error) {
	return field[int](ctx, j.c, "count", http.MethodGet, "/journal/count", wire.Query(f), nil)
}

// Last implements journal.Journal.
func (j requests) Last(ctx context.Context) (uint64, error) {
	return field[uint64](ctx, j.c, "last_seq", http.MethodGet, "/journal/count", nil, nil)
}

// Await implements journal.Journal.
func (j requests) Await(ctx context.Context, f journal.Filter, n int) ([]journal.Entry, error) {
	q := wire.Query(f)
	q.Set("n", strconv.Itoa(n))
	entries, err := await(ctx, func() ([]journal.Entry, error) {
		return field[[]journal.Entry](ctx, j.c, "entries", http.MethodGet, "/journal/await", q, nil)
	})
	if err == nil || ctx.Err() == nil {
		return entries, err
	}
	late, cancel := afterwards(ctx)
	defer cancel()
	entries, errNow := j.Entries(late, f)
	if errNow != nil {
		return nil, errors.Join(context.Cause(ctx), errNow)
	}
	return entries, fmt.Errorf("%d of %d requests are in the journal: %w", len(entries), n, context.Cause(ctx))
}

// Reset implements journal.Journal.
func (j requests) Reset(ctx context.Context) error {
	return j.c.call(ctx, http.MethodDelete, "/journal", nil, nil, nil)
}

// await repeats a request while the answer is 504: "not yet".
func await[T any](ctx context.Context, ask func() (T, error)) (T, error) {
	for {
		out, err := ask()
		var e *Error
		if ctx.Err() != nil || !errors.As(err, &e) || e.Status != http.StatusGatewayTimeout {
			return out, err
		}
	}
}

// afterwardsTimeout bounds the request for the state after the context is done.
const afterwardsTimeout = 5 * time.Second

func afterwards(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), afterwardsTimeout)
}
