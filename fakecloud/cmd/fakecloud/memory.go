package main

import (
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// largeHeap is the number of bytes above which memory counts more than speed. It is the heap of about 60,000 servers.
	largeHeap = 128 << 20
	// quietAfter is the number of seconds without work after which a large heap gives what it does not use to the system.
	quietAfter = 3
	// quietBytes is how much is allocated in a second without work, such as by health checks and clients that poll.
	quietBytes = 1 << 20
)

// smallHeap is the number of bytes below which a heap may have more garbage than Go's default. A larger one no longer fits in the
// processor's caches: with 64 MiB, a GET took a third to a half more CPU time.
const smallHeap = 16 << 20

// middleHeap is the number of bytes up to which a heap may have twice as much garbage: it takes no more memory then than the program
// needs anyway as soon as its heap is a large one. It is the heap of about 30,000 servers.
const middleHeap = 64 << 20

// gcPercent returns how much garbage there may be, in percent of what is in use. With Go's default, a small heap collects often
// under load: it may have up to four times as much, and one of some 30,000 servers twice as much. For a large one, less than half of
// the default saves more than a third of the memory, and costs about a tenth of the speed of creations.
func gcPercent(live uint64) int {
	switch {
	case live > largeHeap:
		return 45
	case live > middleHeap:
		return 100
	}
	return int(min(max(smallHeap*100/max(live, 1), 200), 400))
}

// memory decides, once a second, what saves memory.
type memory struct {
	allocated uint64 // since the start of the program
	quiet     int    // seconds without work
}

// look takes the bytes that are in use, and those that were allocated since the start of the program. It reports whether to give
// memory to the system: once, when the work has ended, since that costs a garbage collection.
func (m *memory) look(live, allocated uint64) (release bool) {
	if allocated-m.allocated > quietBytes {
		m.quiet = 0
	} else {
		m.quiet++
	}
	m.allocated = allocated
	return m.quiet == quietAfter && live > largeHeap
}

// saveMemory keeps the garbage collector's percentage at gcPercent until the context is done, and gives memory to the system after
// work. The environment variable GOGC overrides it.
func saveMemory(ctx context.Context) {
	if os.Getenv("GOGC") != "" {
		return
	}
	now := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/heap/allocs:bytes"}}
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	var m memory
	for current := 100; ; {
		metrics.Read(now)
		live, allocated := now[0].Value.Uint64(), now[1].Value.Uint64()
		if wanted := gcPercent(live); wanted != current {
			current = wanted
			debug.SetGCPercent(current)
		}
		if m.look(live, allocated) {
			debug.FreeOSMemory()
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}
