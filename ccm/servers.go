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

// serverCache answers questions about servers with few API calls. One list (one call per 50 servers)
// answers for all Nodes until ttl is over. Concurrent callers share one fetch.
//
// A cached list never proves that a server does not exist: the cache asks the API directly. It
// checks that answers come from the real API: a list has paging data, a server has the requested ID,
// and the list confirms a not_found.
type serverCache struct {
	client   *hcloud.Client
	clock    clock.PassiveClock
	ttl      time.Duration
	evidence *evidence

	// fetching is held during a request; waiting for it respects a context.
	fetching chan struct{}

	mu       sync.Mutex
	byID     map[int64]cachedServer
	absent   map[string]time.Time // names that a direct question did not find
	listedAt time.Time            // time of the last list; zero: none, or forgotten
}

type cachedServer struct {
	server *hcloud.Server
	at     time.Time
}

func newServerCache(client *hcloud.Client, clk clock.PassiveClock, ttl time.Duration, e *evidence) *serverCache {
	return &serverCache{
		client: client, clock: clk, ttl: ttl, evidence: e,
		fetching: make(chan struct{}, 1),
		byID:     map[int64]cachedServer{},
		absent:   map[string]time.Time{},
	}
}

// ByID returns the server, or nil if the API confirms that it does not exist.
func (c *serverCache) ByID(ctx context.Context, id int64) (*hcloud.Server, error) {
	fresh := func() *hcloud.Server { return c.lookup(func(s *hcloud.Server) bool { return s.ID == id }, id) }
	if s := fresh(); s != nil {
		return s, nil
	}
	if err := c.lock(ctx); err != nil {
		return nil, err
	}
	defer c.unlock()
	if s := fresh(); s != nil { // another caller has fetched it
		return s, nil
	}
	token := c.evidence.currentToken()
	if c.listIsDue() {
		if err := c.list(ctx); err != nil {
			return nil, err
		}
		if s := fresh(); s != nil {
			c.evidence.sawOne(token)
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
		return nil, fmt.Errorf("getting server %d: the answer is about server %d; check HCLOUD_ENDPOINT", id, server.ID)
	}
	c.evidence.sawOne(token)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.byID[id] = cachedServer{server, c.clock.Now()}
	return server, nil
}

// confirmAbsent checks a not_found for server id against the list of servers. It returns nil if the
// list lacks the server too. A not_found alone is no proof: an endpoint with a wrong path answers
// not_found to every request, and Nodes without a server are deleted. The check costs a list if none
// is fresh; deleted servers are rare.
func (c *serverCache) confirmAbsent(ctx context.Context, id int64) (*hcloud.Server, error) {
	if !c.listIsFresh() {
		if err := c.list(ctx); err != nil {
			return nil, err
		}
	}
	c.mu.Lock()
	server := c.byID[id].server
	c.mu.Unlock()
	if server == nil {
		return nil, c.evidence.serverGone(ctx, id)
	}
	return server, nil
}

// ByName returns the server, or nil if no server has that name. An unknown name is cached for ttl,
// because the node controller asks for it repeatedly. So nil means "not yet" and must never lead to
// a deletion. Another project may have a server of that name: an error says so if it is not certain that
// the token belongs to the cluster's project.
func (c *serverCache) ByName(ctx context.Context, name string) (*hcloud.Server, error) {
	token := c.evidence.currentToken()
	server, err := c.byName(ctx, name)
	if err != nil || server == nil {
		return nil, err
	}
	if err := c.evidence.project(ctx); err != nil {
		return nil, err
	}
	c.evidence.sawOne(token) // it becomes the cluster's
	return server, nil
}

func (c *serverCache) byName(ctx context.Context, name string) (*hcloud.Server, error) {
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
		return nil, nil // the list was fetched just now
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

// Forget empties the cache.
func (c *serverCache) Forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.listedAt = time.Time{}
	clear(c.byID)
	clear(c.absent)
}

// lookup returns a matching server that is at most ttl old. An id other than 0 is used instead of
// match.
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

// listIsDue reports whether to fetch the list of all servers instead of one server. The list costs
// one call per 50 servers. It is fetched once the number of single requests reaches its number of
// pages: 1 NotReady node of 200 costs 1 call per ttl, and 200 of 200 cost 8, not 200.
func (c *serverCache) listIsDue() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ttl == 0 {
		return false // nothing is cached, so a list would answer only this question
	}
	if !c.listedAt.IsZero() && c.clock.Since(c.listedAt) < c.ttl {
		return false // the list is fresh: ask directly for a server that it lacks
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

// refresh fetches the list of all servers.
func (c *serverCache) refresh(ctx context.Context) error {
	if err := c.lock(ctx); err != nil {
		return err
	}
	defer c.unlock()
	return c.list(ctx)
}

func (c *serverCache) list(ctx context.Context) error {
	token := c.evidence.currentToken()
	servers, err := c.fetch(ctx, hcloud.ServerListOpts{})
	if err != nil {
		return fmt.Errorf("listing servers: %w", err)
	}
	listed := map[int64]bool{}
	c.mu.Lock()
	now := c.clock.Now()
	clear(c.byID)
	clear(c.absent)
	for _, s := range servers {
		c.byID[s.ID] = cachedServer{s, now}
		listed[s.ID] = true
	}
	c.listedAt = now
	c.mu.Unlock()
	c.evidence.sawServers(token, listed)
	return nil
}

// fetch returns all pages of a list. hcloud-go's own loop accepts any JSON as a list, and {} as an
// empty one: the answer of a broken gateway would then remove all servers from routes and load
// balancers.
func (c *serverCache) fetch(ctx context.Context, opts hcloud.ServerListOpts) ([]*hcloud.Server, error) {
	opts.PerPage = serversPerPage
	var all []*hcloud.Server
	for opts.Page = 1; ; {
		servers, resp, err := c.client.Server.List(ctx, opts)
		if err != nil {
			return nil, err
		}
		if resp.Meta.Pagination == nil || slices.ContainsFunc(servers, func(s *hcloud.Server) bool { return s.ID <= 0 }) {
			return nil, fmt.Errorf("the answer with status %d is not a list of servers; check HCLOUD_ENDPOINT", resp.StatusCode)
		}
		all = append(all, servers...)
		next := resp.Meta.Pagination.NextPage
		if next == 0 {
			return all, nil
		}
		if next <= opts.Page {
			return nil, fmt.Errorf("page %d of the list names page %d as the next one", opts.Page, next)
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
