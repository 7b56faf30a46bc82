//go:build !windows

package main

import (
	"errors"
	"os"
	"os/exec"
	"strconv"
	"syscall"
)

// tryLock takes the lock of a file and reports whether it could. The system takes it back when the file is closed, or when the program
// ends, in whatever way.
func tryLock(f *os.File) (bool, error) {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, err
}

// detach makes a command survive the end of the terminal. It does not get the open files that this program got, such as a pipe of the
// shell whose reader waits for its end.
func detach(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	files, _ := os.ReadDir("/dev/fd") // without it, the files stay open
	for _, f := range files {
		if fd, err := strconv.Atoi(f.Name()); err == nil && fd > 2 {
			syscall.CloseOnExec(fd)
		}
	}
}

func terminate(p *os.Process) error { return p.Signal(syscall.SIGTERM) }
