//go:build unix

// Package cputime measures what work costs, for tests and benchmarks: a busy machine changes the time on the clock, but hardly this one.
package cputime

import (
	"syscall"
	"time"
)

// Used returns the CPU time of the process.
func Used() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
