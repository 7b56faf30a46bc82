//go:build linux || darwin

package dataplane

import (
	"errors"
	"net"
	"syscall"
)

// alive reports whether the other side of an unused connection has neither closed it nor sent anything.
func alive(c net.Conn) bool {
	sc, ok := innermost(c).(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return false
	}
	silent := false
	err = raw.Read(func(fd uintptr) bool {
		var b [1]byte
		_, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		silent = errors.Is(err, syscall.EAGAIN)
		return true
	})
	return err == nil && silent
}
