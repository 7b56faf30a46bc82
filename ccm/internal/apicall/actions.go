package apicall

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"k8s.io/utils/clock"
)

// DefaultActionTimeout is the default of HCLOUD_ACTION_TIMEOUT.
// Most actions end sooner. While an action is waited for, a worker of a controller can do nothing else.
const DefaultActionTimeout = 10 * time.Second

// maxActionsPerPoll is the number of actions of one page: one call asks for so many.
const maxActionsPerPoll = 50

// pollSpacing is the least time between two polls. Actions that end within it share the second one.
const pollSpacing = 200 * time.Millisecond

// Waiter waits for actions on an injected clock. hcloud-go's own waiter uses the wall clock and
// polls twice per second for each of its callers.
//
// All waits share their polls: one call asks for all actions that have probably ended. The first poll for an action comes when
// those of its command have usually ended, and the next ones after pauses that grow (pauseAfter).
type Waiter struct {
	Client *hcloud.Client
	Clock  clock.Clock
	// Timeout limits the wait for one action. A slower action continues, and the next sync checks its
	// result.
	Timeout time.Duration

	polling KeyLock // held during a poll, with the empty key

	mu       sync.Mutex
	waits    map[int64]*actionWait
	polledAt time.Time
}

// NewWaiter returns a waiter. A timeout of 0 is DefaultActionTimeout.
func NewWaiter(client *hcloud.Client, clk clock.Clock, timeout time.Duration) *Waiter {
	return &Waiter{Client: client, Clock: clk, Timeout: cmp.Or(timeout, DefaultActionTimeout)}
}

// actionWait is an action that at least one caller waits for. All but started is guarded by the waiter's mu; latest may be
// read when ended is closed.
type actionWait struct {
	callers  int
	started  time.Time
	probable time.Time      // when it has probably ended
	latest   *hcloud.Action // nil: a poll did not find it
	ended    chan struct{}  // closed when latest has ended, or is nil
}

// PendingError reports that an action is still running after the timeout. It has not failed.
type PendingError struct {
	id      int64
	command string
	waited  time.Duration
}

func (e *PendingError) Error() string {
	return fmt.Sprintf("action %d (%s) is still running", e.id, e.command)
}

// retryAfter returns the delay before the next question. It grows, so that an action that hangs costs
// few calls.
func (e *PendingError) retryAfter() time.Duration {
	return min(max(busyRetry, e.waited/4), time.Minute)
}

// Wait returns nil when the action has succeeded, the action's error when it has failed, and an
// *PendingError when it still runs after the timeout. A nil action counts as success: some
// operations of some API versions return none.
func (w *Waiter) Wait(ctx context.Context, action *hcloud.Action) error {
	return w.WaitPatiently(ctx, action, 0)
}

// WaitPatiently is Wait, with a first poll that comes later by patience: probably another poll notices the end.
func (w *Waiter) WaitPatiently(ctx context.Context, action *hcloud.Action, patience time.Duration) error {
	if action == nil || action.ID == 0 || HasEnded(action) {
		return resultOf(action)
	}
	wait, probable, leave := w.join(action)
	defer leave()
	delay := probable.Sub(w.Clock.Now()) + patience
	for {
		waited := w.Clock.Since(wait.started)
		if waited >= w.Timeout {
			return &PendingError{id: action.ID, command: action.Command, waited: waited}
		}
		err := sleepUnless(ctx, w.Clock, min(delay, w.Timeout-waited), wait.ended)
		if err != nil {
			return fmt.Errorf("waiting for action %d (%s): %w", action.ID, action.Command, err)
		}
		if delay, err = w.poll(ctx, action.ID, wait); err != nil {
			return fmt.Errorf("getting action %d (%s): %w", action.ID, action.Command, err)
		}
		if delay == 0 {
			return resultOf(wait.latest)
		}
	}
}

// HasEnded reports whether the action has succeeded or failed.
func HasEnded(action *hcloud.Action) bool {
	return action.Status == hcloud.ActionStatusSuccess || action.Status == hcloud.ActionStatusError
}

// resultOf returns the error of a failed action, or nil.
func resultOf(action *hcloud.Action) error {
	if action != nil && action.Status == hcloud.ActionStatusError {
		return fmt.Errorf("action %d (%s) failed: %w", action.ID, action.Command, action.Error())
	}
	return nil
}

// join returns the wait that all callers share for an action, and its probable end. leave must be called at the end.
func (w *Waiter) join(action *hcloud.Action) (wait *actionWait, probable time.Time, leave func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	wait = w.waits[action.ID]
	if wait == nil {
		now := w.Clock.Now()
		wait = &actionWait{started: now, probable: now.Add(Usually(action.Command)), latest: action, ended: make(chan struct{})}
		if w.waits == nil {
			w.waits = map[int64]*actionWait{}
		}
		w.waits[action.ID] = wait
	}
	wait.callers++
	return wait, wait.probable, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if wait.callers--; wait.callers == 0 {
			delete(w.waits, action.ID)
		}
	}
}

// poll asks for the action, and for all others that are probably over. It returns the delay before the next
// poll, or 0 at the end of the action. Shortly after another poll, it only returns a delay.
func (w *Waiter) poll(ctx context.Context, id int64, wait *actionWait) (time.Duration, error) {
	unlock, err := w.polling.Lock(ctx, "")
	if err != nil {
		return 0, err
	}
	defer unlock()
	ids, delay := w.due(id, wait)
	if len(ids) > 0 {
		if err := w.ask(waiting(ctx), ids); err != nil {
			return 0, err
		}
		delay = w.afterPoll(wait)
	}
	switch {
	case !isClosed(wait.ended):
		return max(delay, time.Millisecond), nil
	case wait.latest == nil:
		return 0, errors.New("it does not exist any more")
	}
	return 0, nil
}

// due returns the actions to ask for, or the delay until the next poll may be made.
func (w *Waiter) due(id int64, wait *actionWait) (ids []int64, delay time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if isClosed(wait.ended) {
		return nil, 0
	}
	now := w.Clock.Now()
	if delay := w.polledAt.Add(pollSpacing).Sub(now); delay > 0 {
		return nil, delay
	}
	ids = []int64{id}
	for _, other := range slices.Sorted(maps.Keys(w.waits)) {
		if other != id && len(ids) < maxActionsPerPoll && !w.waits[other].probable.After(now) {
			ids = append(ids, other)
		}
	}
	w.polledAt = now
	return ids, 0
}

// ask fetches actions and notes what the answer says.
func (w *Waiter) ask(ctx context.Context, ids []int64) error {
	var actions []*hcloud.Action
	var err error
	if len(ids) == 1 {
		var one *hcloud.Action
		if one, _, err = w.Client.Action.GetByID(ctx, ids[0]); one != nil {
			actions = []*hcloud.Action{one}
		}
	} else {
		actions, _, err = w.Client.Action.List(ctx, hcloud.ActionListOpts{ID: ids, ListOpts: hcloud.ListOpts{PerPage: maxActionsPerPoll}})
	}
	if err != nil {
		return err
	}
	answers := map[int64]*hcloud.Action{}
	for _, a := range actions {
		answers[a.ID] = a
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, id := range ids {
		wait := w.waits[id]
		if wait == nil || isClosed(wait.ended) {
			continue
		}
		if wait.latest = answers[id]; wait.latest == nil || HasEnded(wait.latest) {
			close(wait.ended)
		}
	}
	return nil
}

func isClosed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// afterPoll returns the delay before the next poll for an action that was still running.
func (w *Waiter) afterPoll(wait *actionWait) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.Clock.Now()
	delay := pauseAfter(now.Sub(wait.started))
	wait.probable = now.Add(delay)
	return delay
}

// pauseAfter returns the delay before the next poll for an action of this age: half a second, and later a quarter of the age.
// So the end of an action that takes d is noticed within max(d/4, 500 ms), and one that hangs for 10 s costs about 11 polls.
func pauseAfter(ran time.Duration) time.Duration { return max(ran/4, usualAction) }

// usualAction is how long most actions take, and usually how long those take that take longer and are frequent.
const usualAction = 500 * time.Millisecond

var usually = map[string]time.Duration{
	"create_load_balancer": 2 * time.Second,
	"add_route":            time.Second,
	"delete_route":         time.Second,
}

// Usually returns a little more than the time that actions of a command usually take.
func Usually(command string) time.Duration {
	return cmp.Or(usually[command], usualAction) + 50*time.Millisecond
}

// SlowActions remembers the actions that were still running after the timeout, by the resource that they
// lock. A later sync of the resource asks for the action first: it would otherwise meet the lock and wait
// again.
type SlowActions struct {
	Waiter *Waiter

	ids sync.Map // of the actions, by that of the resource
}

// Wait is Waiter.Wait for an action of the resource.
func (s *SlowActions) Wait(ctx context.Context, resource int64, action *hcloud.Action) error {
	err := s.Waiter.Wait(ctx, action)
	if pending, ok := errors.AsType[*PendingError](err); ok {
		s.ids.Store(resource, pending.id)
	}
	return err
}

// Check returns an *PendingError if the resource's slow action is still running. Any other action is forgotten, even one that
// failed or cannot be read: the resource itself shows its result. ended reports that the resource must be read again for that.
func (s *SlowActions) Check(ctx context.Context, resource int64) (ended bool, err error) {
	slow, is := s.ids.Load(resource)
	if !is {
		return false, nil
	}
	id := slow.(int64)
	action, _, err := s.Waiter.Client.Action.GetByID(waiting(ctx), id)
	if err == nil && action != nil && action.Status == hcloud.ActionStatusRunning {
		return false, &PendingError{id: id, command: action.Command, waited: s.Waiter.Clock.Since(action.Started)}
	}
	s.ids.Delete(resource)
	return true, nil
}

// Sleep returns nil after a time, or an error when ctx ends.
func Sleep(ctx context.Context, clk clock.Clock, d time.Duration) error {
	return sleepUnless(ctx, clk, d, nil)
}

// sleepUnless is Sleep, and ends early when the channel is closed.
func sleepUnless(ctx context.Context, clk clock.Clock, d time.Duration, early <-chan struct{}) error {
	timer := clk.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C():
	case <-early:
	}
	return nil
}
