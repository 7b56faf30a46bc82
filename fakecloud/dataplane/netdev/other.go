//go:build !linux

package netdev

import (
	"errors"
	"fmt"
	"runtime"
)

var errUnsupported = fmt.Errorf("network interfaces can be changed only on Linux, not on %s: run the container image: %w", runtime.GOOS,
	errors.ErrUnsupported)

func openDevice(string) (device, error) { return nil, errUnsupported }

func openTable(string, int) (table, error) { return nil, errUnsupported }
