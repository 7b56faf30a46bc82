package job

import (
	"context"
	"errors"
	"os"
	"syscall"
	"time"
)

// lockPoll is how often a process that waits for another's lock looks again.
const lockPoll = 500 * time.Millisecond

// Lock locks the file at path and returns a function that unlocks it. If another process has the lock, Lock says that it makes
// the thing, and waits until ctx ends. The system unlocks the file when the process dies; the empty file stays.
func (p *Progress) Lock(ctx context.Context, path, thing string) (unlock func(), err error) {
	unlock, free, err := tryLock(path)
	if err != nil || free {
		return unlock, err
	}
	p.Say("another process is making %s; waiting for it (Ctrl-C stops waiting)", thing)
	ticker := p.clock().NewTicker(lockPoll)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-ticker.C():
			if unlock, free, err = tryLock(path); err != nil || free {
				return unlock, err
			}
		}
	}
}

// tryLock takes the lock if it is free.
func tryLock(path string) (unlock func(), free bool, err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, false, err
	}
	// A lock of the open file, not of the process: two calls in one process exclude each other, too.
	err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, false, file.Close()
	}
	if err != nil {
		return nil, false, errors.Join(err, file.Close())
	}
	// Closing alone leaves it locked while a process that is just being started still has a copy of the file.
	return func() { _, _ = syscall.Flock(int(file.Fd()), syscall.LOCK_UN), file.Close() }, true, nil
}
