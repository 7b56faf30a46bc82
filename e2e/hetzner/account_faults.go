package hetzner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/cloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/fault"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/journal"
)

// about returns the subject of a request of Hetzner's API. The CCM reads a network for its routes.
func about(route string) cloud.Subject {
	switch {
	case strings.HasPrefix(route, "/servers"):
		return cloud.AboutServers
	case strings.HasPrefix(route, "/load_balancers"), strings.HasPrefix(route, "/certificates"):
		return cloud.AboutLoadBalancers
	case strings.HasPrefix(route, "/networks"):
		return cloud.AboutRoutes
	}
	return cloud.Other
}

// Requests implements cloud.Recorder.
func (a *account) Requests(ctx context.Context, after uint64) ([]cloud.Request, error) {
	entries, err := a.control.Journal().Entries(ctx, journal.Filter{Client: a.UserAgent, Since: after})
	if err != nil {
		return nil, err
	}
	requests := make([]cloud.Request, 0, len(entries))
	for _, e := range entries {
		r := cloud.Request{
			Seq: e.Seq, Time: e.Time, Write: e.Method != http.MethodGet, About: about(e.Route), Kind: cmp.Or(e.Operation, e.Route),
			Text: entryText(e),
		}
		if e.ResourceID != 0 {
			r.ID = idOf(e.ResourceID)
		}
		requests = append(requests, r)
	}
	return requests, nil
}

// entryText returns a line about a request.
func entryText(e journal.Entry) string {
	return fmt.Sprintf("%-6s %s%s → %d %s %s %s", e.Method, e.Path, query(e.Query), e.Status, e.ErrorCode, e.Fault, shortClient(e.Client))
}

// effects translates the effects of package cloud to Hetzner's API.
var effects = map[cloud.Effect]fault.Effect{
	cloud.Unavailable:  fault.HTTPStatus(http.StatusServiceUnavailable),
	cloud.Internal:     fault.APIError("server_error"),
	cloud.Unauthorized: fault.APIError("unauthorized"),
	cloud.Forbidden:    fault.APIError("forbidden"),
	cloud.RateLimited:  fault.APIError("rate_limit_exceeded"),
	cloud.Conflict:     fault.APIError("conflict"),
	cloud.NothingFound: fault.APIError("not_found"),
	cloud.EmptyLists:   fault.Empty(),
	cloud.Garbage:      fault.HTTPStatus(http.StatusOK),
	cloud.Hang:         fault.Latency(24 * time.Hour),
	cloud.HangAfter:    {Kind: fault.KindLatency, Latency: fault.Duration(24 * time.Hour), After: true},
	cloud.Drop:         fault.DropConnection(),
	cloud.LoseAnswer:   fault.LoseAnswer(),
}

// AddFault implements cloud.Faulty.
func (a *account) AddFault(ctx context.Context, f cloud.Fault) (string, error) {
	rule := fault.Rule{Client: a.UserAgent, First: f.First, Writes: f.Calls == cloud.Writes}
	if f.Pass > 0 {
		rule.First, rule.From = 0, f.Pass+1
		if f.First > 0 {
			rule.To = f.Pass + f.First
		}
	}
	if f.Calls == cloud.Reads {
		rule.Method = http.MethodGet
	}
	switch f.About {
	case cloud.AboutServers:
		rule.Resource = "server"
	case cloud.AboutLoadBalancers:
		rule.Resource = "load_balancer"
	case cloud.AboutRoutes:
		rule.Resource = "network"
	}
	var known bool
	if rule.Effect, known = effects[f.Effect]; !known {
		return "", fmt.Errorf("the effect %s: %w", f.Effect, errors.ErrUnsupported)
	}
	if f.Effect == cloud.EmptyLists {
		if rule.Resource == "" {
			return "", fmt.Errorf("the effect %s for all calls: %w", f.Effect, errors.ErrUnsupported)
		}
		rule.Route = "/" + rule.Resource + "s" // and not what is asked for by its id
	}
	added, err := a.control.Faults().Add(ctx, rule)
	return added.Name, err
}

// Met implements cloud.Faulty.
func (a *account) Met(ctx context.Context, name string) (int, error) {
	status, ok, err := a.control.Faults().Get(ctx, name)
	if err == nil && !ok {
		err = fmt.Errorf("fault %s: %w", name, cloud.ErrNotFound)
	}
	return int(status.Applied), err
}

// RemoveFault implements cloud.Faulty.
func (a *account) RemoveFault(ctx context.Context, name string) error {
	removed, err := a.control.Faults().Remove(ctx, name)
	if err == nil && !removed {
		err = fmt.Errorf("fault %s: %w", name, cloud.ErrNotFound)
	}
	return err
}
