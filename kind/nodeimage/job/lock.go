package job

import (
	"context"
	"errors"
	"os"
	"syscall"
	"time"

	"k8s.io/utils/clock"
)

// lockPoll is how often a process that waits for another's lock looks again.
const lockPoll = 500 * time.Millisecond

// Lock locks the file at path and returns a function that unlocks it. If another process has the lock, Lock calls waiting
// once, and waits until ctx ends. The system unlocks the file when the process dies; the empty file stays.
func Lock(ctx context.Context, path string, c clock.WithTicker, waiting func()) (unlock func(), err error) {
	unlock, free, err := TryLock(path)
	if err != nil || free {
		return unlock, err
	}
	waiting()
	ticker := c.NewTicker(lockPoll)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-ticker.C():
			if unlock, free, err = TryLock(path); err != nil || free {
				return unlock, err
			}
		}
	}
}

// TryLock takes the lock if it is free.
func TryLock(path string) (unlock func(), free bool, err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, false, err
	}
	// A lock of the open file, not of the process: two calls in one process
	// exclude each other too. Go opens files close-on-exec, so no child keeps it.
	err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, false, file.Close()
	}
	if err != nil {
		return nil, false, errors.Join(err, file.Close())
	}
	return func() { _ = file.Close() }, true, nil
}
