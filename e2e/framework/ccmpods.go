package framework

import (
	"context"
	"sync"
)

// podCCM is the CCM that runs in the pods of a shared cluster. A spec that changes it runs alone.
type podCCM struct {
	// configure has exactly the given number of replicas run with the given settings, and returns when they
	// are available and all others have ended.
	configure func(context.Context, podSettings) error
	// kill ends the CCM's processes without warning. Their pods start others.
	kill func(context.Context) error
	// log returns what the CCM's pods have printed.
	log func(context.Context) (string, error)
	// usual are the settings that specs start with.
	usual podSettings

	mu      sync.Mutex
	changed bool
}

// podSettings are how a CCM in pods is run.
type podSettings struct {
	Env      map[string]string
	Args     []string
	Replicas int32
}

func (c *podCCM) change(ctx context.Context, s podSettings) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changed = true
	return c.configure(ctx, s)
}

// restore puts back the usual settings, if they were changed.
func (c *podCCM) restore(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.changed {
		return nil
	}
	err := c.configure(ctx, c.usual)
	c.changed = err != nil
	return err
}
