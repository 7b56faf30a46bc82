package apicall

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// Cache caches one value for a short time. Concurrent callers share one fetch. It saves calls in
// bursts, such as the sync of many Services after a change of one node. The TTL is short because
// decisions need fresh data.
type Cache[T any] struct {
	clock clock.PassiveClock
	ttl   time.Duration
	fetch func(context.Context) (T, error)

	fetching KeyLock // held during a fetch, with the empty key
	mu       sync.Mutex
	value    T
	at       time.Time
	valid    bool
}

// NewCache returns a cache of the value from fetch.
func NewCache[T any](clk clock.PassiveClock, ttl time.Duration, fetch func(context.Context) (T, error)) *Cache[T] {
	return &Cache[T]{clock: clk, ttl: ttl, fetch: fetch}
}

// Listing returns a fetch of all things of a kind, for a cache.
func Listing[T any](kind string, all func(context.Context) ([]T, error)) func(context.Context) ([]T, error) {
	return func(ctx context.Context) ([]T, error) {
		list, err := all(ctx)
		if err != nil {
			return nil, fmt.Errorf("listing %s: %w", kind, err)
		}
		return list, nil
	}
}

// Get returns the value, at most ttl old.
func (c *Cache[T]) Get(ctx context.Context) (T, error) {
	var none T
	unlock, err := c.fetching.Lock(ctx, "")
	if err != nil {
		return none, err
	}
	defer unlock()
	if value, known := c.Peek(); known {
		return value, nil
	}
	c.mu.Lock()
	c.valid = true // forget resets it, also during the fetch
	c.mu.Unlock()

	value, err := c.fetch(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		c.valid = false
		return none, err
	}
	c.value, c.at = value, c.clock.Now()
	return value, nil
}

// Peek returns the value if it is known and at most ttl old.
func (c *Cache[T]) Peek() (value T, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.valid && c.clock.Since(c.at) < c.ttl {
		return c.value, true
	}
	return value, false
}

// Forget makes the next get fetch.
func (c *Cache[T]) Forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.valid = false
}

// Update changes the cached value, if there is one, after a write with a known result.
func (c *Cache[T]) Update(change func(T) T) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.valid {
		c.value = change(c.value)
	}
}

// KeyLock is a mutex per key. Waiting for it respects a context.
type KeyLock struct {
	mu    sync.Mutex
	locks map[string]*keyLockEntry
}

type keyLockEntry struct {
	sem  chan struct{}
	refs int
}

// Lock locks the key and returns the function that unlocks it.
func (k *KeyLock) Lock(ctx context.Context, key string) (unlock func(), err error) {
	e := k.entry(key)
	select {
	case e.sem <- struct{}{}:
		return func() { <-e.sem; k.drop(key, e) }, nil
	case <-ctx.Done():
		k.drop(key, e)
		return nil, context.Cause(ctx)
	}
}

// TryLock locks the key if it is free.
func (k *KeyLock) TryLock(key string) (unlock func(), ok bool) {
	e := k.entry(key)
	select {
	case e.sem <- struct{}{}:
		return func() { <-e.sem; k.drop(key, e) }, true
	default:
		k.drop(key, e)
		return nil, false
	}
}

func (k *KeyLock) entry(key string) *keyLockEntry {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.locks == nil {
		k.locks = map[string]*keyLockEntry{}
	}
	e := k.locks[key]
	if e == nil {
		e = &keyLockEntry{sem: make(chan struct{}, 1)}
		k.locks[key] = e
	}
	e.refs++
	return e
}

func (k *KeyLock) drop(key string, e *keyLockEntry) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if e.refs--; e.refs == 0 {
		delete(k.locks, key)
	}
}
