package remote

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/wire"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/journal"
)

// Journal returns the requests that the cloud has answered.
func (c *Client) Journal() journal.Journal { return requests{c} }

// requests implements journal.Journal over the control API.
type requests struct{ c *Client }

type journalAnswer struct {
	Entries []journal.Entry `json:"entries"`
	Count   int             `json:"count"`
	LastSeq uint64          `json:"last_seq"`
}

func (j requests) get(ctx context.Context, path string, q url.Values) (out journalAnswer, err error) {
	err = j.c.call(ctx, http.MethodGet, path, q, nil, &out)
	return out, err
}

// Entries implements journal.Journal.
func (j requests) Entries(ctx context.Context, f journal.Filter) ([]journal.Entry, error) {
	out, err := j.get(ctx, "/journal", wire.Query(f))
	return out.Entries, err
}

// Count implements journal.Journal.
func (j requests) Count(ctx context.Context, f journal.Filter) (int, error) {
	out, err := j.get(ctx, "/journal/count", wire.Query(f))
	return out.Count, err
}

// Last implements journal.Journal.
func (j requests) Last(ctx context.Context) (uint64, error) {
	out, err := j.get(ctx, "/journal/count", nil)
	return out.LastSeq, err
}

// Await implements journal.Journal.
func (j requests) Await(ctx context.Context, f journal.Filter, n int) ([]journal.Entry, error) {
	q := wire.Query(f)
	q.Set("n", strconv.Itoa(n))
	var out journalAnswer
	err := await(ctx, func() (err error) {
		out, err = j.get(ctx, "/journal/await", q)
		return err
	})
	if err == nil || ctx.Err() == nil {
		return out.Entries, err
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

// await repeats a request while the answer is 504, which means "not yet".
func await(ctx context.Context, ask func() error) error {
	for {
		err := ask()
		var e *Error
		if ctx.Err() != nil || !errors.As(err, &e) || e.Status != http.StatusGatewayTimeout {
			return err
		}
	}
}

// afterwardsTimeout bounds the request for the state after the context is done.
const afterwardsTimeout = 5 * time.Second

func afterwards(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), afterwardsTimeout)
}
