package remote

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
)

// Faults is the rules by which the cloud misbehaves: fakecloud.Faults over the control API.
type Faults struct{ c *Client }

// Faults returns the rules by which the cloud misbehaves.
func (c *Client) Faults() Faults { return Faults{c} }

type faultAnswer struct {
	Fault fakecloud.FaultStatus `json:"fault"`
}

// notFound tells whether the control API says that something does not exist.
func notFound(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.Status == http.StatusNotFound && !e.foreign
}

// Add adds a rule behind those that exist and returns it as it is used, with a name. The error says
// everything that is wrong with the rule, and what it could have named.
func (f Faults) Add(ctx context.Context, rule fakecloud.Fault) (fakecloud.Fault, error) {
	var out faultAnswer
	err := f.c.call(ctx, http.MethodPost, "/faults", nil, rule, &out)
	return out.Fault.Rule, err
}

// Remove removes a rule and tells whether there was one.
func (f Faults) Remove(ctx context.Context, name string) (bool, error) {
	err := f.c.call(ctx, http.MethodDelete, "/faults/"+url.PathEscape(name), nil, nil, nil)
	if notFound(err) {
		return false, nil
	}
	return err == nil, err
}

// Clear removes all rules.
func (f Faults) Clear(ctx context.Context) error {
	return f.c.call(ctx, http.MethodDelete, "/faults", nil, nil, nil)
}

// List returns all rules in the order in which they are asked.
func (f Faults) List(ctx context.Context) ([]fakecloud.FaultStatus, error) {
	var out struct {
		Faults []fakecloud.FaultStatus `json:"faults"`
	}
	err := f.c.call(ctx, http.MethodGet, "/faults", nil, nil, &out)
	return out.Faults, err
}

// Get returns one rule, and whether there is one of that name.
func (f Faults) Get(ctx context.Context, name string) (fakecloud.FaultStatus, bool, error) {
	var out faultAnswer
	err := f.c.call(ctx, http.MethodGet, "/faults/"+url.PathEscape(name), nil, nil, &out)
	if notFound(err) {
		return out.Fault, false, nil
	}
	return out.Fault, err == nil, err
}

// Await returns as soon as a rule has been applied n times, with its state then. It is an error if there
// is no rule of that name, or when the context is done first.
func (f Faults) Await(ctx context.Context, name string, n uint64) (fakecloud.FaultStatus, error) {
	var out faultAnswer
	err := await(ctx, func() error {
		return f.c.call(ctx, http.MethodGet, "/faults/"+url.PathEscape(name)+"/await",
			url.Values{"n": {strconv.FormatUint(n, 10)}}, nil, &out)
	})
	if err == nil || ctx.Err() == nil {
		return out.Fault, err
	}
	late, cancel := afterwards(ctx)
	defer cancel()
	st, _, errNow := f.Get(late, name)
	if errNow != nil {
		return st, errors.Join(context.Cause(ctx), errNow)
	}
	return st, fmt.Errorf("fault rule %q: applied %d times, not %d: %w", name, st.Applied, n, context.Cause(ctx))
}
