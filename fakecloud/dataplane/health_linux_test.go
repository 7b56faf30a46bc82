package dataplane

import (
	"fmt"
	"net"
	"syscall"
	"testing"
)

// TestATargetThatDoesNotAcceptTimesOut uses a port with a full queue of connections: it neither accepts
// nor refuses.
func TestATargetThatDoesNotAcceptTimesOut(t *testing.T) {
	t.Parallel()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(fd) })
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	name, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	full := fmt.Sprintf("127.0.0.1:%d", name.(*syscall.SockaddrInet4).Port)
	first, err := net.Dial("tcp", full) // a queue of length 0 has room for one
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeQuietly(first) })

	l := newLab(t, Options{})
	s := tcpService(80)
	s.HealthCheck.Retries = 1
	tg := l.place("full", full)
	l.apply(balance([]Service{s}, tg))
	// Three timers wait for the clock: the housekeeping, the interval and the probe's timeout.
	await(t, "the probe is on its way", func() bool { return l.clock.Waiters() == 3 })
	l.clock.Step(defaultCheckTimeout)
	l.awaitHealth(Unhealthy, 80, tg)
	if r := l.last("full", 80); r.Detail != DetailConnectTimeout {
		t.Errorf("%+v", r)
	}
}
