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
// It never concludes from a cached list that a server does not exist: that is asked directly. And an
// answer is believed only if it can be the API's: a list says how it is paged, a server has the ID
// that was asked for, and a not_found for one server is checked against the list.
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
	if server == nil {
		return c.confirmAbsent(ctx, id)
	}
	if server.ID != id {
		return nil, fmt.Errorf("getting server %d: the answer is about server %d; is HCLOUD_ENDPOINT the API's?", id, server.ID)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.byID[id] = cachedServer{server, c.clock.Now()}
	return server, nil
}

// confirmAbsent returns nil if the list of servers agrees that there is no server id, for which the
// API has just answered not_found. That answer alone would not do: an endpoint whose path is wrong
// answers not_found to everything, and each Node whose server "does not exist" is deleted. It costs
// a list where none is fresh; servers are not deleted often.
func (c *serverCache) confirmAbsent(ctx context.Context, id int64) (*hcloud.Server, error) {
	if !c.listIsFresh() {
		if err := c.list(ctx); err != nil {
			return nil, err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.byID[id].server, nil
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
	named, err := c.fetch(ctx, hcloud.ServerListOpts{Name: name})
	if err != nil {
		return nil, fmt.Errorf("looking for a server named %q: %w", name, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.clock.Now()
	i := slices.IndexFunc(named, func(s *hcloud.Server) bool { return strings.EqualFold(s.Name, name) })
	if i < 0 {
		c.absent[name] = now
		return nil, nil
	}
	server := named[i]
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
	if !c.listIsFresh() {
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

func (c *serverCache) listIsFresh() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.listedAt.IsZero() && c.clock.Since(c.listedAt) < c.ttl
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
	servers, err := c.fetch(ctx, hcloud.ServerListOpts{})
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

// fetch returns all pages of a list. hcloud-go's own loop takes any JSON for a list, {} for an empty
// one; with that, a broken gateway would take all servers away from routes and load balancers.
func (c *serverCache) fetch(ctx context.Context, opts hcloud.ServerListOpts) ([]*hcloud.Server, error) {
	opts.PerPage = serversPerPage
	var all []*hcloud.Server
	for opts.Page = 1; ; {
		servers, resp, err := c.client.Server.List(ctx, opts)
		if err != nil {
			return nil, err
		}
		if resp.Meta.Pagination == nil || slices.ContainsFunc(servers, func(s *hcloud.Server) bool { return s.ID <= 0 }) {
			return nil, fmt.Errorf("the answer with status %d is JSON, but no list of servers; is HCLOUD_ENDPOINT the API's?", resp.StatusCode)
		}
		all = append(all, servers...)
		next := resp.Meta.Pagination.NextPage
		if next == 0 {
			return all, nil
		}
		if next <= opts.Page {
			return nil, fmt.Errorf("page %d of the servers says that page %d follows", opts.Page, next)
		}
		opts.Page = next
	}
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
