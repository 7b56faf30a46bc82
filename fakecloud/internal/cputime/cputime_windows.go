// Package cputime measures what work costs, for tests and benchmarks: a busy machine changes the time on the clock, but hardly this one.
package cputime

import (
	"syscall"
	"time"
)

// Used returns the CPU time of the process.
func Used() time.Duration {
	process, err := syscall.GetCurrentProcess()
	if err != nil {
		panic(err)
	}
	var created, ended, kernel, user syscall.Filetime
	if err := syscall.GetProcessTimes(process, &created, &ended, &kernel, &user); err != nil {
		panic(err)
	}
	ticks := func(t syscall.Filetime) time.Duration {
		return time.Duration(uint64(t.HighDateTime)<<32|uint64(t.LowDateTime)) * 100 * time.Nanosecond
	}
	return ticks(kernel) + ticks(user)
}
