package ccm

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"k8s.io/utils/clock"
)

const (
	// calmServerAge is the maximum age of data on which nothing new is based: that a target or a gateway exists.
	// It is longer than the interval at which the node controller refreshes all Nodes, which is the list that
	// answers these questions.
	calmServerAge = 20 * time.Minute
	// maxInitAge is the maximum age of the data of a server whose Node is initialized.
	maxInitAge = 5 * time.Minute
	// maxNotReadyAge is the maximum age of the data of a server whose Node has been NotReady for long.
	maxNotReadyAge = 10 * time.Minute
)

// serverCache is the one snapshot of servers that all controllers share. Each question says how old the
// answer may be. What is too old is fetched in the way that costs least: as a list of all servers (one call
// per 50), as a list by the labels that the cluster's servers have in common, or by ID. Concurrent callers
// share one fetch.
//
// A cached list never proves that a server does not exist: the cache asks the API directly. It
// checks that answers come from the real API: a list has paging data, a server has the requested ID,
// and the list confirms a not_found.
type serverCache struct {
	client   *hcloud.Client
	clock    clock.PassiveClock
	ttl      time.Duration // maximum age of data on which a change is based; 0: nothing is cached
	evidence *evidence

	// fetching is held during a request; waiting for it respects a context.
	fetching chan struct{}

	mu       sync.Mutex
	byID     map[int64]cachedServer
	byName   map[string]int64     // by name in lower case
	absent   map[string]time.Time // names that a direct question did not find
	gone     map[int64]absence    // IDs that a direct question and a list did not find
	listedAt time.Time            // time of the last list of all servers; zero: none, or forgotten
	// listedWith is the token with which that list was fetched.
	listedWith string
	askedAt    time.Time // time of the last list of any kind
	// pages is the number of pages of the list of all servers, and selected that of a list by selector. 0: not known.
	pages, selected int
	selector        string
}

// absence is the time of an answer that a server does not exist, and whether that was doubted.
type absence struct {
	at      time.Time
	doubted bool
}

type cachedServer struct {
	server *hcloud.Server
	at     time.Time
}

// serverAsk is a question about a server, by ID or else by name.
type serverAsk struct {
	id   int64
	name string
	// maxAge is the maximum age of the answer; 0: the cache's ttl.
	maxAge time.Duration
	// notBefore is the time that the answer must not be older than; zero: any.
	notBefore time.Time
	// likely returns the questions that will probably follow; nil: not known.
	likely func() []serverAsk
}

func newServerCache(client *hcloud.Client, clk clock.PassiveClock, ttl time.Duration, e *evidence) *serverCache {
	return &serverCache{
		client: client, clock: clk, ttl: ttl, evidence: e,
		fetching: make(chan struct{}, 1),
		byID:     map[int64]cachedServer{},
		byName:   map[string]int64{},
		absent:   map[string]time.Time{},
		gone:     map[int64]absence{},
	}
}

// ByID returns the server, or nil if the API confirms that it does not exist.
func (c *serverCache) ByID(ctx context.Context, ask serverAsk) (*hcloud.Server, error) {
	if s := c.lookup(ask); s != nil {
		return s, nil
	}
	if err := c.lock(ctx); err != nil {
		return nil, err
	}
	defer c.unlock()
	if s := c.lookup(ask); s != nil { // another caller has fetched it
		return s, nil
	}
	if gone, err := c.knownGone(ctx, ask); gone || err != nil {
		return nil, err
	}
	token := c.evidence.currentToken()
	if demand, due := c.listIsDue(ask); due {
		if err := c.listFor(ctx, demand); err != nil {
			return nil, err
		}
		if s := c.lookup(ask); s != nil {
			c.evidence.sawOne(token)
			return s, nil
		}
	}
	at := c.clock.Now()
	server, _, err := c.client.Server.GetByID(ctx, ask.id)
	if err != nil {
		return nil, fmt.Errorf("getting server %d: %w", ask.id, err)
	}
	if server == nil {
		return c.confirmAbsent(ctx, ask.id, token)
	}
	if server.ID != ask.id {
		return nil, fmt.Errorf("getting server %d: the answer is about server %d; check HCLOUD_ENDPOINT", ask.id, server.ID)
	}
	c.evidence.sawOne(token)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.keep([]*hcloud.Server{server}, at)
	return server, nil
}

// knownGone reports whether the API said a short time ago that the server does not exist. The error is the doubt about
// that, for as long as it lasts and the answer is young enough: the server counts as gone only after another look.
func (c *serverCache) knownGone(ctx context.Context, ask serverAsk) (gone bool, doubt error) {
	c.mu.Lock()
	last, missed := c.gone[ask.id]
	c.mu.Unlock()
	age := c.clock.Since(last.at)
	switch {
	case !missed || age >= c.age(ask.maxAge):
		return false, nil
	case last.doubted:
		return false, c.evidence.serverGone(ctx, ask.id)
	}
	return age < maxLoadBalancerAge, nil // as young as the load balancers that are compared
}

// confirmAbsent checks a not_found for server id, with the token, against the list of servers. It returns nil if the
// list lacks the server too. A not_found alone is no proof: an endpoint with a wrong path answers
// not_found to every request, and Nodes without a server are deleted. The check costs a list if none
// is fresh; deleted servers are rare.
func (c *serverCache) confirmAbsent(ctx context.Context, id int64, token string) (*hcloud.Server, error) {
	c.mu.Lock()
	sameToken := c.listedWith == token
	c.mu.Unlock()
	if !sameToken || !c.listIsFresh(c.ttl) {
		if err := c.list(ctx); err != nil {
			return nil, err
		}
	}
	c.mu.Lock()
	server := c.byID[id].server
	c.mu.Unlock()
	if server != nil {
		return server, nil
	}
	if token != c.evidence.currentToken() { // the answers may be about another project
		return nil, fmt.Errorf("getting server %d: the token changed during the request; will try again", id)
	}
	err := c.evidence.serverGone(ctx, id)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gone[id] = absence{c.clock.Now(), err != nil}
	return nil, err
}

// ByName returns the server, or nil if no server has that name. An unknown name is cached for ask.maxAge,
// because the node controller asks for it repeatedly. So nil means "not yet" and must never lead to
// a deletion. Another project may have a server of that name: an error says so if it is not certain that
// the token belongs to the cluster's project.
func (c *serverCache) ByName(ctx context.Context, ask serverAsk) (*hcloud.Server, error) {
	token := c.evidence.currentToken()
	server, err := c.findByName(ctx, ask)
	if err != nil || server == nil {
		return nil, err
	}
	if err := c.evidence.project(ctx); err != nil {
		return nil, err
	}
	c.evidence.sawOne(token) // it becomes the cluster's
	return server, nil
}

func (c *serverCache) findByName(ctx context.Context, ask serverAsk) (*hcloud.Server, error) {
	if s := c.lookup(ask); s != nil {
		return s, nil
	}
	if err := c.lock(ctx); err != nil {
		return nil, err
	}
	defer c.unlock()
	if s := c.lookup(ask); s != nil {
		return s, nil
	}
	if c.knownAbsent(ask) {
		return nil, nil
	}
	if demand, due := c.listIsDue(ask); due {
		if err := c.listFor(ctx, demand); err != nil {
			return nil, err
		}
		if s := c.lookup(ask); s != nil {
			return s, nil
		}
		if c.listIsFresh(c.ttl) {
			return nil, nil // all servers were listed just now
		}
	}
	named, err := c.fetch(ctx, hcloud.ServerListOpts{Name: ask.name}, math.MaxInt)
	if err != nil {
		return nil, fmt.Errorf("looking for a server named %q: %w", ask.name, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.keep(named.servers, named.at)
	i := slices.IndexFunc(named.servers, func(s *hcloud.Server) bool { return strings.EqualFold(s.Name, ask.name) })
	if i < 0 {
		c.absent[ask.name] = c.clock.Now()
		return nil, nil
	}
	delete(c.absent, ask.name)
	return named.servers[i], nil
}

// All returns the servers that are known, ordered by ID, and no data older than maxAge. They include all servers of
// the cluster, and all of the project after a refresh.
func (c *serverCache) All(ctx context.Context, maxAge time.Duration) ([]*hcloud.Server, error) {
	if err := c.lock(ctx); err != nil {
		return nil, err
	}
	defer c.unlock()
	if !c.listIsFresh(maxAge) && !c.coversCluster(maxAge) {
		if err := c.list(ctx); err != nil {
			return nil, err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	all := make([]*hcloud.Server, 0, len(c.byID))
	for _, id := range slices.Sorted(maps.Keys(c.byID)) {
		if e := c.byID[id]; c.ttl == 0 || c.clock.Since(e.at) < c.age(maxAge) {
			all = append(all, e.server)
		}
	}
	return all, nil
}

// coversCluster reports whether the data of all servers of the cluster are young enough.
func (c *serverCache) coversCluster(maxAge time.Duration) bool {
	known := c.evidence.knownServers()
	c.mu.Lock()
	defer c.mu.Unlock()
	for id := range known {
		if c.cached(serverAsk{id: id}, c.age(maxAge)) == nil {
			return false
		}
	}
	return len(known) > 0
}

// ForgetOne makes the next question about a server ask the API.
func (c *serverCache) ForgetOne(id int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, cached := c.byID[id]; cached {
		c.byID[id] = cachedServer{server: e.server} // it is still one that the last list contained
	}
}

// clear empties the cache. The caller holds mu.
func (c *serverCache) clear() {
	c.listedAt, c.askedAt = time.Time{}, time.Time{}
	clear(c.byID)
	clear(c.byName)
	clear(c.absent)
	clear(c.gone)
}

// age returns the maximum age of an answer to a question that allows maxAge.
func (c *serverCache) age(maxAge time.Duration) time.Duration {
	if c.ttl == 0 || maxAge <= 0 {
		return c.ttl
	}
	return maxAge
}

// lookup returns the server if the cached data are young enough.
func (c *serverCache) lookup(ask serverAsk) *hcloud.Server {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cached(ask, c.age(ask.maxAge))
}

// cached is lookup with an age. The caller holds mu.
func (c *serverCache) cached(ask serverAsk, maxAge time.Duration) *hcloud.Server {
	id := ask.id
	if id == 0 {
		id = c.byName[strings.ToLower(ask.name)]
	}
	if e, ok := c.byID[id]; ok && c.clock.Since(e.at) < maxAge && !e.at.Before(ask.notBefore) {
		return e.server
	}
	return nil
}

func (c *serverCache) listIsFresh(maxAge time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.listedAt.IsZero() && c.clock.Since(c.listedAt) < c.age(maxAge)
}

func (c *serverCache) knownAbsent(ask serverAsk) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.clock.Since(c.absent[ask.name]) < c.age(ask.maxAge)
}

// listIsDue reports whether to fetch a list instead of one server, and for how many questions: the list costs
// fewer calls if there are at least as many questions as it has pages. A question that will be due soon
// counts too: the list answers it now, and from then on these questions come together.
//
// Where the questions to come are not known, the calls for single servers in the last ttl take their place:
// 1 NotReady node of 200 costs 1 call per ttl, and 200 of 200 cost at most 8, not 200.
func (c *serverCache) listIsDue(ask serverAsk) (demand int, due bool) {
	var likely []serverAsk
	if ask.likely != nil {
		likely = ask.likely() // without the lock: it reads all Nodes
	}
	_, pages := c.cheapestList()
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.ttl == 0:
		return 0, false // nothing is cached, so a list would answer only this question
	case !c.askedAt.IsZero() && c.clock.Since(c.askedAt) < c.ttl:
		return 0, false // there was a list just now: ask directly for a server that it lacks
	}
	for _, other := range likely {
		if c.cached(other, c.age(other.maxAge)/2) == nil {
			demand++
		}
	}
	for _, e := range c.byID {
		if e.at.After(c.askedAt) && c.clock.Since(e.at) < c.ttl {
			demand++
		}
	}
	if pages == 0 && len(likely) == 0 {
		return math.MaxInt, true
	}
	demand = max(demand, 1)
	return demand, demand >= pages
}

// keep stores the API's answer to a question that was asked at that time. The caller holds mu.
func (c *serverCache) keep(servers []*hcloud.Server, at time.Time) {
	for _, s := range servers {
		if before := c.byID[s.ID].server; before != nil && before.Name != s.Name {
			delete(c.byName, strings.ToLower(before.Name))
		}
		c.byID[s.ID] = cachedServer{s, at}
		c.byName[strings.ToLower(s.Name)] = s.ID
		delete(c.gone, s.ID)
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
