package ccmtest

import (
	"hash/fnv"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
)

// seed chooses the cases that run with -short. TEST_SEED sets it.
var seed = sync.OnceValues(func() (uint64, error) {
	if text := os.Getenv("TEST_SEED"); text != "" {
		return strconv.ParseUint(text, 10, 32)
	}
	return rand.Uint64N(1 << 32), nil
})

// Share returns a function that reports whether the next case of the test runs: with -short one of n, without it each. A test that fails
// prints the seed.
func Share(t *testing.T, n uint64) (runs func() bool) {
	t.Helper()
	if !testing.Short() {
		return func() bool { return true }
	}
	chosen, err := seed()
	if err != nil {
		t.Fatalf("TEST_SEED must be a number below 2^32: %v", err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("TEST_SEED=%d chooses the same cases again", chosen)
		}
	})
	name := fnv.New32()
	_, _ = name.Write([]byte(t.Name()))
	next := chosen + uint64(name.Sum32())
	return func() bool {
		next++
		return next%n == 0
	}
}
