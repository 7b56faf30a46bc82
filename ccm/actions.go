package ccm

import (
	"context"
	"fmt"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"k8s.io/utils/clock"
)

// defaultActionTimeout is the default of HCLOUD_ACTION_TIMEOUT.
const defaultActionTimeout = 45 * time.Second

// actionWaiter waits for actions on an injected clock. hcloud-go's own waiter uses the wall clock and
// polls twice per second.
type actionWaiter struct {
	client *hcloud.Client
	clock  clock.Clock
	// timeout limits the wait for one action. A slower action continues, and the next sync checks its
	// result.
	timeout time.Duration
}

// actionPendingError reports that an action is still running after the timeout. It has not failed.
type actionPendingError struct {
	id      int64
	command string
	waited  time.Duration
}

func (e *actionPendingError) Error() string {
	return fmt.Sprintf("action %d (%s) is still running after %v", e.id, e.command, e.waited)
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
		timer := w.clock.NewTimer(pollInterval(poll))
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
	}
}

// pollInterval returns the delay before a poll. It grows, because most actions take a second or two and
// each poll counts against the rate limit.
func pollInterval(poll int) time.Duration {
	return min(300*time.Millisecond<<min(poll, 4), 3*time.Second)
}
