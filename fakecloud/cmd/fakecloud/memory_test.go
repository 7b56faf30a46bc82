package main

import (
	"fmt"
	"testing"
)

// A large heap gives memory to the system once after each period of work, a small one never.
func TestMemoryIsReleasedAfterWork(t *testing.T) {
	t.Parallel()
	for live, want := range map[uint64]string{largeHeap + 1: "[5 11]", largeHeap: "[]"} {
		var m memory
		var released []int
		allocated := uint64(0)
		for second, work := range []bool{false, true, true, false, false, false, false, false, true, false, false, false} {
			allocated += quietBytes / 2
			if work {
				allocated += quietBytes
			}
			if m.look(live, allocated) {
				released = append(released, second)
			}
		}
		if got := fmt.Sprint(released); got != want {
			t.Errorf("%d bytes in use: released after %s seconds, want %s", live, got, want)
		}
	}
}

func TestASmallHeapMayHaveMoreGarbage(t *testing.T) {
	t.Parallel()
	for live, want := range map[uint64]int{
		0: 400, 4 << 20: 400, 6 << 20: 266, 8 << 20: 200, middleHeap: 200, middleHeap + 1: 100, largeHeap: 100, largeHeap + 1: 45,
	} {
		if got := gcPercent(live); got != want {
			t.Errorf("%d bytes in use: %d %%, want %d %%", live, got, want)
		}
	}
}
