package ccm

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"k8s.io/utils/clock"
)

const serversPerPage = 50

// serverCache answers questions about servers with few API calls. One list (a call per 50
// servers) answers for all Nodes for ttl; callers that come while it is being fetched share it.
//
// It never concludes from a cached list that a server does not exist: that is asked directly.
type serverCache struct {
	client *hcloud.Client
	clock  clock.PassiveClock
	ttl    time.Duration

	// fetching is held while a request is under way; waiting for it respects a context.
	fetching chan struct{}

	mu       sync.Mutex
	byID     map[int64]cachedServer
	absent   map[string]time.Time // names that were asked for directly and not found
	listedAt time.Time            // when the list was fetched; zero: never, or forgotten
}

type cachedServer struct {
	server *hcloud.Server
	at     time.Time
}

func newServerCache(client *hcloud.Client, clk clock.PassiveClock, ttl time.Duration) *serverCache {
	return &serverCache{
		client: client, clock: clk, ttl: ttl,
		fetching: make(chan struct{}, 1),
		byID:     map[int64]cachedServer{},
		absent:   map[string]time.Time{},
	}
}

// ByID returns the server, or nil if the API says definitely that there is none.
func (c *serverCache) ByID(ctx context.Context, id int64) (*hcloud.Server, error) {
	fresh := func() *hcloud.Server { return c.lookup(func(s *hcloud.Server) bool { return s.ID == id }, id) }
	if s := fresh(); s != nil {
		return s, nil
	}
	if err := c.lock(ctx); err != nil {
		return nil, err
	}
	defer c.unlock()
	if s := fresh(); s != nil { // fetched by another caller meanwhile
		return s, nil
	}
	if c.listIsDue() {
		if err := c.list(ctx); err != nil {
			return nil, err
		}
		if s := fresh(); s != nil {
			return s, nil
		}
	}
	server, _, err := c.client.Server.GetByID(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("getting server %d: %w", id, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if server == nil {
		delete(c.byID, id)
		return nil, nil
	}
	c.byID[id] = cachedServer{server, c.clock.Now()}
	return server, nil
}

// ByName returns the server, or nil if there is none of that name. That a name was not found is
// remembered for ttl too, because the node controller asks for the same unknown name over and
// over; so nil here is good for "not yet", not for deleting anything.
func (c *serverCache) ByName(ctx context.Context, name string) (*hcloud.Server, error) {
	fresh := func() *hcloud.Server {
		return c.lookup(func(s *hcloud.Server) bool { return strings.EqualFold(s.Name, name) }, 0)
	}
	if s := fresh(); s != nil {
		return s, nil
	}
	if err := c.lock(ctx); err != nil {
		return nil, err
	}
	defer c.unlock()
	if s := fresh(); s != nil {
		return s, nil
	}
	if c.knownAbsent(name) {
		return nil, nil
	}
	if c.listIsDue() {
		if err := c.list(ctx); err != nil {
			return nil, err
		}
		if s := fresh(); s != nil {
			return s, nil
		}
		return nil, nil // the list is of this moment
	}
	server, _, err := c.client.Server.GetByName(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("looking for a server named %q: %w", name, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.clock.Now()
	if server == nil {
		c.absent[name] = now
		return nil, nil
	}
	delete(c.absent, name)
	c.byID[server.ID] = cachedServer{server, now}
	return server, nil
}

// All returns every server of the project, at most ttl old, ordered by ID.
func (c *serverCache) All(ctx context.Context) ([]*hcloud.Server, error) {
	if err := c.lock(ctx); err != nil {
		return nil, err
	}
	defer c.unlock()
	c.mu.Lock()
	due := c.listedAt.IsZero() || c.clock.Since(c.listedAt) >= c.ttl
	c.mu.Unlock()
	if due {
		if err := c.list(ctx); err != nil {
			return nil, err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	all := make([]*hcloud.Server, 0, len(c.byID))
	for _, id := range slices.Sorted(maps.Keys(c.byID)) {
		all = append(all, c.byID[id].server)
	}
	return all, nil
}

// Forget makes the next question go to the API.
func (c *serverCache) Forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.listedAt = time.Time{}
	clear(c.byID)
	clear(c.absent)
}

// lookup returns a matching server whose data are not older than ttl. id, if not 0, spares the
// search.
func (c *serverCache) lookup(match func(*hcloud.Server) bool, id int64) *hcloud.Server {
	c.mu.Lock()
	defer c.mu.Unlock()
	if id != 0 {
		if e, ok := c.byID[id]; ok && c.clock.Since(e.at) < c.ttl {
			return e.server
		}
		return nil
	}
	for _, e := range c.byID {
		if match(e.server) && c.clock.Since(e.at) < c.ttl {
			return e.server
		}
	}
	return nil
}

func (c *serverCache) knownAbsent(name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	at, ok := c.absent[name]
	return ok && c.clock.Since(at) < c.ttl
}

// listIsDue decides between asking for one server and asking for all. The list is worth its pages
// (one call per 50 servers) once as many servers have been asked for one by one as it has pages:
// so 1 NotReady node of 200 costs 1 call per ttl, and 200 of 200 cost 8, not 200.
func (c *serverCache) listIsDue() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ttl == 0 {
		return false // nothing is kept, so a list would answer nobody
	}
	if !c.listedAt.IsZero() && c.clock.Since(c.listedAt) < c.ttl {
		return false // the list is fresh: what it lacks must be asked for directly
	}
	pages := (len(c.byID) + serversPerPage - 1) / serversPerPage
	recent := 0
	for _, e := range c.byID {
		if e.at.After(c.listedAt) && c.clock.Since(e.at) < c.ttl {
			recent++
		}
	}
	return c.listedAt.IsZero() || recent >= pages-1
}

func (c *serverCache) list(ctx context.Context) error {
	servers, err := c.client.Server.AllWithOpts(ctx, hcloud.ServerListOpts{ListOpts: hcloud.ListOpts{PerPage: serversPerPage}})
	if err != nil {
		return fmt.Errorf("listing servers: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.clock.Now()
	clear(c.byID)
	clear(c.absent)
	for _, s := range servers {
		c.byID[s.ID] = cachedServer{s, now}
	}
	c.listedAt = now
	return nil
}

func (c *serverCache) lock(ctx context.Context) error {
	select {
	case c.fetching <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (c *serverCache) unlock() { <-c.fetching }
