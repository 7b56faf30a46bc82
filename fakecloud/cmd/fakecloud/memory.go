package main

import (
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// largeHeap is the number of bytes above which memory counts more than speed. It is the heap of about 60,000 servers.
const largeHeap = 128 << 20

// gcPercent returns how much garbage there may be, in percent of what is in use. A small heap has Go's default. For a
// large one, half of it saves a third of the memory, and costs about a tenth of the speed of creations.
func gcPercent(live uint64) int {
	if live > largeHeap {
		return 50
	}
	return 100
}

// saveMemory keeps the garbage collector's percentage at gcPercent until the context is done. The environment variable GOGC
// overrides it.
func saveMemory(ctx context.Context) {
	if os.Getenv("GOGC") != "" {
		return
	}
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for current := 100; ; {
		metrics.Read(live)
		if wanted := gcPercent(live[0].Value.Uint64()); wanted != current {
			current = wanted
			debug.SetGCPercent(current)
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}
