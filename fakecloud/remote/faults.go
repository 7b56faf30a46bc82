package remote

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/fault"
)

// Faults returns the rules by which the cloud misbehaves.
func (c *Client) Faults() fault.Rules { return rules{c} }

// rules implements fault.Rules over the control API.
type rules struct{ c *Client }

// has reports whether an error is an answer of the control API with a status.
func has(err error, status int) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Status == status && !e.Foreign
}

// as adds the error that an answer with a status stands for.
func as(err error, status int, known error) error {
	if has(err, status) {
		return fmt.Errorf("%w: %w", known, err)
	}
	return err
}

// Add implements fault.Rules.
func (r rules) Add(ctx context.Context, rule fault.Rule) (fault.Rule, error) {
	added, err := field[fault.Status](ctx, r.c, "fault", http.MethodPost, "/faults", nil, rule)
	return added.Rule, as(err, http.StatusConflict, fault.ErrExists)
}

// Remove implements fault.Rules.
func (r rules) Remove(ctx context.Context, name string) (bool, error) {
	err := r.c.call(ctx, http.MethodDelete, "/faults/"+url.PathEscape(name), nil, nil, nil)
	if has(err, http.StatusNotFound) {
		return false, nil
	}
	return err == nil, err
}

// Clear implements fault.Rules.
func (r rules) Clear(ctx context.Context) error {
	return r.c.call(ctx, http.MethodDelete, "/faults", nil, nil, nil)
}

// List implements fault.Rules.
func (r rules) List(ctx context.Context) ([]fault.Status, error) {
	return field[[]fault.Status](ctx, r.c, "faults", http.MethodGet, "/faults", nil, nil)
}

// Get implements fault.Rules.
func (r rules) Get(ctx context.Context, name string) (fault.Status, bool, error) {
	st, err := field[fault.Status](ctx, r.c, "fault", http.MethodGet, "/faults/"+url.PathEscape(name), nil, nil)
	if has(err, http.StatusNotFound) {
		return st, false, nil
	}
	return st, err == nil, err
}

// Await implements fault.Rules.
func (r rules) Await(ctx context.Context, name string, n uint64) (fault.Status, error) {
	st, err := await(ctx, func() (fault.Status, error) {
		return field[fault.Status](ctx, r.c, "fault", http.MethodGet, "/faults/"+url.PathEscape(name)+"/await",
			url.Values{"n": {strconv.FormatUint(n, 10)}}, nil)
	})
	if has(err, http.StatusNotFound) {
		return st, fmt.Errorf("await fault rule %.128q: %w", name, fault.ErrNotFound)
	}
	if err == nil || ctx.Err() == nil {
		return st, err
	}
	late, cancel := afterwards(ctx)
	defer cancel()
	st, _, errNow := r.Get(late, name)
	if errNow != nil {
		return st, errors.Join(context.Cause(ctx), errNow)
	}
	return st, fmt.Errorf("await fault rule %q: applied %d of %d times: %w", name, st.Applied, n, context.Cause(ctx))
}
