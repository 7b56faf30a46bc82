package ccm

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"k8s.io/utils/clock"
)

// defaultActionTimeout is the default of HCLOUD_ACTION_TIMEOUT.
// Most actions end sooner. While an action is waited for, a worker of a controller can do nothing else.
const defaultActionTimeout = 10 * time.Second

// actionWaiter waits for actions on an injected clock. hcloud-go's own waiter uses the wall clock and
// polls twice per second.
type actionWaiter struct {
	client *hcloud.Client
	clock  clock.Clock
	// timeout limits the wait for one action. A slower action continues, and the next sync checks its
	// result.
	timeout time.Duration

	mu sync.Mutex
	// lasted holds how long the last action of each command took in the cloud.
	lasted map[string]time.Duration
}

// actionPendingError reports that an action is still running after the timeout. It has not failed.
type actionPendingError struct {
	id      int64
	command string
	waited  time.Duration
}

func (e *actionPendingError) Error() string {
	return fmt.Sprintf("action %d (%s) is still running", e.id, e.command)
}

// retryAfter returns the delay before the next question. It grows, so that an action that hangs costs
// few calls.
func (e *actionPendingError) retryAfter() time.Duration {
	return min(max(busyRetry, e.waited/4), time.Minute)
}

// wait returns nil when the action has succeeded, the action's error when it has failed, and an
// *actionPendingError when it still runs after the timeout. A nil action counts as success: some
// operations of some API versions return none.
func (w *actionWaiter) wait(ctx context.Context, action *hcloud.Action) error {
	start := w.clock.Now()
	for poll := 0; ; poll++ {
		switch {
		case action == nil || action.ID == 0 || action.Status == hcloud.ActionStatusSuccess:
			return nil
		case action.Status == hcloud.ActionStatusError:
			return fmt.Errorf("action %d (%s) failed: %w", action.ID, action.Command, action.Error())
		}
		if waited := w.clock.Since(start); waited >= w.timeout {
			return &actionPendingError{id: action.ID, command: action.Command, waited: waited}
		}
		timer := w.clock.NewTimer(w.delay(action.Command, poll))
		select {
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("waiting for action %d (%s): %w", action.ID, action.Command, context.Cause(ctx))
		case <-timer.C():
		}
		updated, _, err := w.client.Action.GetByID(ctx, action.ID)
		if err != nil {
			return fmt.Errorf("getting action %d (%s): %w", action.ID, action.Command, err)
		}
		if updated == nil {
			return fmt.Errorf("getting action %d (%s): it does not exist any more", action.ID, action.Command)
		}
		action = updated
		w.learn(action)
	}
}

// delay returns the delay before a poll. The first poll comes when the last action of that command would
// have ended: most actions of a command take equally long, and each poll counts against the rate limit.
func (w *actionWaiter) delay(command string, poll int) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	lasted := w.lasted[command]
	switch {
	case lasted == 0:
		return pollInterval(poll)
	case poll == 0:
		return lasted + 50*time.Millisecond
	}
	return pollInterval(poll - 1)
}

// learn notes how long an action took. Slow ones count only up to the longest interval between polls.
func (w *actionWaiter) learn(action *hcloud.Action) {
	lasted := action.Finished.Sub(action.Started)
	if action.Status != hcloud.ActionStatusSuccess || lasted <= 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.lasted == nil {
		w.lasted = map[string]time.Duration{}
	}
	w.lasted[action.Command] = min(lasted, 3*time.Second)
}

// slowActions remembers the actions that were still running after the timeout, by the resource that they
// lock. A later sync of the resource asks for the action first: it would otherwise meet the lock and wait
// again.
type slowActions struct {
	waiter *actionWaiter

	mu  sync.Mutex
	ids map[int64]int64
}

// wait is actionWaiter.wait for an action of the resource.
func (s *slowActions) wait(ctx context.Context, resource int64, action *hcloud.Action) error {
	err := s.waiter.wait(ctx, action)
	if pending, ok := errors.AsType[*actionPendingError](err); ok {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.ids == nil {
			s.ids = map[int64]int64{}
		}
		s.ids[resource] = pending.id
	}
	return err
}

// check returns an *actionPendingError if the resource's slow action is still running. An action that has
// ended, also with an error, or cannot be read is forgotten: the resource itself shows its result.
func (s *slowActions) check(ctx context.Context, resource int64) error {
	s.mu.Lock()
	id, slow := s.ids[resource]
	s.mu.Unlock()
	if !slow {
		return nil
	}
	action, _, err := s.waiter.client.Action.GetByID(ctx, id)
	if err == nil && action != nil && action.Status == hcloud.ActionStatusRunning {
		return &actionPendingError{id: id, command: action.Command, waited: s.waiter.clock.Since(action.Started)}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.ids, resource)
	return nil
}

// pollInterval returns the delay before a poll. It grows, because most actions take a second or two and
// each poll counts against the rate limit.
func pollInterval(poll int) time.Duration {
	return min(300*time.Millisecond<<min(poll, 4), 3*time.Second)
}
