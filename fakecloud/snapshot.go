package fakecloud

import (
	"context"
	"errors"
	"io"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/cloud"
)

// Save writes a snapshot of the cloud as it is now, for [Cloud.Restore] and [Load]: the resources of all projects, the tokens, the
// actions that run, all else that is due later, the fault rules with their counters, what is left of the rate limits, reports about
// traffic and usage, and the clock's time. Clients can use the cloud meanwhile. The error is that of w.
//
// A snapshot is text: a JSON object with one resource on each line, in an order that does not change, so that it can be in a repository
// and has readable differences. It has the cloud's secrets: tokens, private keys, user data.
//
// Not saved: the journal, subscriptions, hypervisors, and the settings of [Options]. An action that waits for a hypervisor waits for
// one of the new cloud until its deadline.
func (c *Cloud) Save(_ context.Context, w io.Writer) error { return c.cloud.Save(w) }

// Restore replaces all that the cloud has by a snapshot of [Cloud.Save]. Actions go on where they were. The clock shows the time of the
// snapshot, unless Options.Clock is set. Subscribers get an event for each resource that goes and each that comes; hypervisors are
// detached. The cloud's own [Cloud.Token] stays valid.
//
// An error names the line that is wrong, such as one of a later version or a part that is missing. Then the cloud has not changed.
func (c *Cloud) Restore(_ context.Context, r io.Reader) error {
	if err := c.controller.Restore(r); err != nil {
		return err
	}
	c.keepToken()
	return nil
}

// keepToken makes the cloud's own token valid, if a snapshot does not have it.
func (c *Cloud) keepToken() {
	if _, ok := c.cloud.Token(c.token); !ok {
		c.cloud.AddToken(c.token, cloud.Token{Project: DefaultProject})
	}
}

// Disk keeps what a cloud has over the end of the program: a map from keys to values. Package disk has one; see Options.Disk.
type Disk interface {
	// Read calls yield for all keys in their order, until yield returns an error. yield must not keep the slices. It comes before Write.
	Read(yield func(key, value []byte) error) error
	// Write makes the changes of a function, or none if it returns an error or if the program ends. The function puts the value of a
	// key, deletes a key by putting nil, and deletes all keys that begin with a prefix. The disk must not change the slices. If durable
	// is set, these and all earlier changes survive a failure of the machine, too.
	Write(durable bool, change func(put func(key, value []byte) error, deleteAll func(prefix []byte) error) error) error
	// Room returns an error if further changes may not fit. The cloud asks after each Write, and each second while there is an error.
	Room() error
	Close() error
}

// useDisk lets the cloud begin with what is on a disk, and keep its changes there. Its error says that the disk cannot be used.
func (c *Cloud) useDisk(d Disk) error {
	if d == nil {
		return nil
	}
	c.cloud.OnDiskError(func(err error) {
		if err != nil {
			c.unsaved.Store(&err)
			c.options.Logger.Error("changes cannot be saved; the API refuses them until they can", "error", err)
		} else {
			c.unsaved.Store(nil)
			c.options.Logger.Info("changes are saved again")
		}
	})
	if err := c.controller.UseDisk(d); err != nil {
		return errors.Join(err, d.Close())
	}
	c.addTokens()
	return nil
}

// Load is [Open] with a snapshot, whose tokens are valid in addition to Options.Tokens.
func Load(r io.Reader, o Options) (*Cloud, error) {
	c, err := Open(o)
	if err != nil {
		return nil, err
	}
	if err := c.Restore(context.Background(), r); err != nil {
		c.Close()
		return nil, err
	}
	for _, t := range o.Tokens { // not the default: the snapshot may have it for something else
		c.cloud.AddToken(t, cloud.Token{Project: DefaultProject})
	}
	return c, nil
}
