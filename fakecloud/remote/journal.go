package remote

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
)

// Journal is what the cloud remembers of the latest requests: fakecloud.Journal over the control API.
type Journal struct{ c *Client }

// Journal returns the requests that the cloud has answered.
func (c *Client) Journal() Journal { return Journal{c} }

type journalAnswer struct {
	Entries []fakecloud.JournalEntry `json:"entries"`
	Count   int                      `json:"count"`
	LastSeq uint64                   `json:"last_seq"`
}

func (j Journal) get(ctx context.Context, path string, q url.Values) (out journalAnswer, err error) {
	err = j.c.call(ctx, http.MethodGet, path, q, nil, &out)
	return out, err
}

// Entries returns the kept entries that match, oldest first.
func (j Journal) Entries(ctx context.Context, f fakecloud.JournalFilter) ([]fakecloud.JournalEntry, error) {
	out, err := j.get(ctx, "/journal", f.Query())
	return out.Entries, err
}

// Count returns how many of the kept entries match.
func (j Journal) Count(ctx context.Context, f fakecloud.JournalFilter) (int, error) {
	out, err := j.get(ctx, "/journal/count", f.Query())
	return out.Count, err
}

// Last returns the Seq of the latest entry, 0 if there was none: what a filter's Since takes to look
// only at what follows.
func (j Journal) Last(ctx context.Context) (uint64, error) {
	out, err := j.get(ctx, "/journal/count", nil)
	return out.LastSeq, err
}

// Await returns as soon as at least n kept entries match, with all that do. When the context is done
// first, it returns what matches then and the context's error.
func (j Journal) Await(ctx context.Context, f fakecloud.JournalFilter, n int) ([]fakecloud.JournalEntry, error) {
	q := f.Query()
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

// Reset forgets all entries. Numbering goes on, so that a Since from before stays right.
func (j Journal) Reset(ctx context.Context) error {
	return j.c.call(ctx, http.MethodDelete, "/journal", nil, nil, nil)
}

// await asks again as long as the answer is that what is awaited has not come yet.
func await(ctx context.Context, ask func() error) error {
	for {
		err := ask()
		var e *Error
		if ctx.Err() != nil || !errors.As(err, &e) || e.Status != http.StatusGatewayTimeout {
			return err
		}
	}
}

// afterwardsTimeout bounds the request by which a method tells how far things had come when its context was
// done.
const afterwardsTimeout = 5 * time.Second

func afterwards(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), afterwardsTimeout)
}
