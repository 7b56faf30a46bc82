package route

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/apicall"
)

const (
	// MaxUnconfirmed is the number of changes of the network that are sent before their results are asked for.
	MaxUnconfirmed = 8
	// conflictDelay is the least delay before a change is sent again that met another one.
	conflictDelay = 150 * time.Millisecond
)

// routeChange is a change that was sent. Its result is not known yet.
type routeChange struct {
	route netRoute
	add   bool
	done  chan struct{} // closed when err is set
	err   error
}

// wait returns the result of the change.
func (c *routeChange) wait(ctx context.Context) error {
	select {
	case <-c.done:
		return c.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// changeTo returns the unconfirmed change of a route to destination, or nil.
func (r *Routes) changeTo(destination netip.Prefix) *routeChange {
	r.mu.Lock()
	defer r.mu.Unlock()
	for route, c := range r.unconfirmed {
		if route.Destination == destination {
			return c
		}
	}
	return nil
}

// change adds or deletes one route and waits for the action. It unlocks the lock that the caller holds when the request was sent. If the
// request or the action fails, change reads the network: it succeeds if the network already has the wanted state.
func (r *Routes) change(ctx context.Context, unlock func(), route netRoute, add bool) error {
	c := &routeChange{route: route, add: add, done: make(chan struct{})}
	defer unlock()
	action, err := r.send(ctx, route, add)
	if err == nil {
		r.mu.Lock()
		r.unconfirmed[route] = c
		others := len(r.unconfirmed)
		r.mu.Unlock()
		var patience time.Duration
		if r.Queued.Load() > 0 && others < MaxUnconfirmed {
			patience = r.waiter.Timeout / 2 // a later change asks for all
		}
		unlock()
		err = r.waiter.WaitPatiently(ctx, action, patience)
	}
	c.err = r.conclude(ctx, c, err)
	r.mu.Lock()
	delete(r.unconfirmed, route)
	r.mu.Unlock()
	close(c.done)
	return c.err
}

// conclude returns the result of a change, given the error of its request or its action.
func (r *Routes) conclude(ctx context.Context, c *routeChange, err error) error {
	if err == nil {
		r.state.Update(func(all []netRoute) []netRoute {
			all = slices.DeleteFunc(slices.Clone(all), func(nr netRoute) bool { return nr == c.route })
			if c.add {
				all = append(all, c.route)
			}
			return all
		})
		return nil
	}
	r.state.Forget()
	if current, readErr := r.readNetwork(ctx); readErr == nil && slices.Contains(current, c.route) == c.add {
		return nil
	}
	verb := "deleting"
	if c.add {
		verb = "adding"
	}
	return fmt.Errorf("%s the route %v: %w", verb, c.route, err)
}

// send sends a change once the last one has probably ended, and again as long as the network refuses it because of
// another one. The caller holds the lock.
func (r *Routes) send(ctx context.Context, route netRoute, add bool) (action *hcloud.Action, err error) {
	network, command := &hcloud.Network{ID: route.NetworkID}, "delete_route"
	request := func(ctx context.Context) (*hcloud.Action, *hcloud.Response, error) {
		return r.client.Network.DeleteRoute(ctx, network, hcloud.NetworkDeleteRouteOpts{Route: route.hcloud()})
	}
	if add {
		command = "add_route"
		request = func(ctx context.Context) (*hcloud.Action, *hcloud.Response, error) {
			return r.client.Network.AddRoute(ctx, network, hcloud.NetworkAddRouteOpts{Route: route.hcloud()})
		}
	}
	for start := r.waiter.Clock.Now(); ; {
		now := r.waiter.Clock.Now()
		if delay := r.freeAt.Sub(now); delay > 0 {
			if err := apicall.Sleep(ctx, r.waiter.Clock, delay); err != nil {
				return nil, err
			}
		}
		action, _, err = request(apicall.WithoutConflictRetries(ctx))
		now = r.waiter.Clock.Now()
		if err == nil {
			if r.freeAt = now; action != nil && !apicall.HasEnded(action) {
				r.freeAt = now.Add(apicall.Usually(command))
			}
			return action, nil
		}
		if !apicall.IsBusy(err) || now.Sub(start) > apicall.LockedBudget {
			return nil, err
		}
		r.freeAt = now.Add(max(conflictDelay, now.Sub(start)/4)) // the last change takes longer, or it is another client's
	}
}

// Lock waits until no other change of the routes is sent. unlock may be called several times.
func (r *Routes) Lock(ctx context.Context) (unlock func(), err error) {
	r.Queued.Add(1)
	defer r.Queued.Add(-1)
	if unlock, err = r.changing.Lock(ctx, ""); err != nil {
		return nil, err
	}
	return sync.OnceFunc(unlock), nil
}
