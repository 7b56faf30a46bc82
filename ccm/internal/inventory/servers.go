package inventory

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/apicall"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/gone"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/nodeinfo"
)

// AskFor completes a question by the Node's server: by its provider ID, or by its name if it has none.
func AskFor(node *corev1.Node, ask Ask) (Ask, error) {
	if node.Spec.ProviderID == "" {
		ask.Name = node.Name
		return ask, nil
	}
	var err error
	ask.ID, err = nodeinfo.ParseProviderID(node.Spec.ProviderID)
	return ask, err
}

const (
	// CalmServerAge is the maximum age of data that change nothing: that a target or a gateway still exists.
	// It is longer than the interval of the node controller's refreshes of all Nodes. Their list answers these questions.
	CalmServerAge = 20 * time.Minute
	// MaxInitAge is the maximum age of the data that initialize a Node.
	MaxInitAge = 5 * time.Minute
	// MaxNotReadyAge is the maximum age of the data about the server of a Node that has been NotReady for long.
	MaxNotReadyAge = 10 * time.Minute
)

// Servers is the one snapshot of servers that all controllers share. Each question says how old the
// answer may be. What is too old is fetched as a list if that has no more pages than there are questions that are
// due with this one, and else by ID or name. Concurrent callers share one fetch.
//
// A cached list never proves that a server does not exist: the cache asks the API directly. It
// checks that answers come from the real API: a list has paging data, a server has the requested ID,
// and the list confirms a not_found.
type Servers struct {
	client   *hcloud.Client
	Clock    clock.PassiveClock
	TTL      time.Duration // maximum age of data on which a change is based; 0: nothing is cached
	Evidence *Evidence

	mu     sync.Mutex
	byID   map[int64]cachedServer
	byName map[string]int64 // by name in lower case

	fetching apicall.KeyLock      // held during a request, with the empty key; guards what follows
	absent   map[string]time.Time // names that a direct question did not find
	gone     map[int64]absence    // IDs that a direct question and a list did not find
	listedAt time.Time            // time of the last list of all servers; zero: none, or forgotten
	// listedWith is the token with which that list was fetched.
	listedWith string
	askedAt    time.Time // time of the last list of any kind
	pages      int       // of the list of all servers; 0: not known
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

// Ask is a question about a server, by ID or else by name.
type Ask struct {
	ID   int64
	Name string
	// MaxAge is the maximum age of the answer; 0: the cache's ttl.
	MaxAge time.Duration
	// NotBefore is the time that the answer must not be older than; zero: any.
	NotBefore time.Time
	// Likely returns the questions that will probably follow, and this one; nil: none.
	Likely func() []Ask
}

// NewServers returns the servers. The evidence sees their lists.
func NewServers(client *hcloud.Client, clk clock.PassiveClock, ttl time.Duration, e *Evidence) *Servers {
	c := &Servers{
		client: client, Clock: clk, TTL: ttl, Evidence: e,
		byID:   map[int64]cachedServer{},
		byName: map[string]int64{},
		absent: map[string]time.Time{},
		gone:   map[int64]absence{},
	}
	e.listServers = c.Refresh
	return c
}

// ByID returns the server, or nil if the API confirms that it does not exist.
func (c *Servers) ByID(ctx context.Context, ask Ask) (*hcloud.Server, error) {
	if s := c.lookup(ask); s != nil {
		return s, nil
	}
	unlock, err := c.fetching.Lock(ctx, "")
	if err != nil {
		return nil, err
	}
	defer unlock()
	if s := c.lookup(ask); s != nil { // another caller has fetched it
		return s, nil
	}
	if gone, err := c.knownGone(ctx, ask); gone || err != nil {
		return nil, err
	}
	token := c.Evidence.currentToken()
	if _, err := c.listIfDue(ctx, ask); err != nil {
		return nil, err
	}
	if s := c.lookup(ask); s != nil {
		c.Evidence.SawOne(token)
		return s, nil
	}
	at := c.Clock.Now()
	server, _, err := c.client.Server.GetByID(ctx, ask.ID)
	if err != nil {
		return nil, fmt.Errorf("getting server %d: %w", ask.ID, err)
	}
	if server == nil {
		return c.confirmAbsent(ctx, ask.ID, token)
	}
	if server.ID != ask.ID {
		return nil, fmt.Errorf("getting server %d: the answer is about server %d; check HCLOUD_ENDPOINT", ask.ID, server.ID)
	}
	c.Evidence.SawOne(token)
	c.Evidence.question.Seen(gone.Server, strconv.FormatInt(ask.ID, 10))
	c.mu.Lock()
	defer c.mu.Unlock()
	c.keep([]*hcloud.Server{server}, at)
	return server, nil
}

// knownGone reports whether the API said a short time ago that the server does not exist. The error is the doubt about
// that, for as long as it lasts and the answer is young enough: the server counts as gone only after another look.
func (c *Servers) knownGone(ctx context.Context, ask Ask) (gone bool, doubt error) {
	last, missed := c.gone[ask.ID]
	age := c.Clock.Since(last.at)
	switch {
	case !missed || age >= c.age(ask.MaxAge):
		return false, nil
	case last.doubted:
		return false, c.Evidence.serverGone(ctx, ask.ID)
	}
	return age < MaxLoadBalancerAge, nil // as young as the load balancers that are compared
}

// confirmAbsent checks a not_found for server id, with the token, against the list of servers. It returns nil if the
// list lacks the server too. A not_found alone does not prove it: an endpoint with a wrong path answers
// not_found to every request, and Nodes without a server are deleted. The check costs a list if none
// is fresh, or a request for each server of the cluster if that is less; deleted servers are rare.
func (c *Servers) confirmAbsent(ctx context.Context, id int64, token string) (*hcloud.Server, error) {
	if c.listedWith != token || !c.listIsFresh(c.TTL) {
		if err := c.look(ctx, id, token); err != nil {
			return nil, err
		}
	}
	c.mu.Lock()
	server := c.byID[id].server
	c.mu.Unlock()
	if server != nil {
		return server, nil
	}
	if token != c.Evidence.currentToken() { // the answers may be about another project
		return nil, fmt.Errorf("getting server %d: the token changed during the request; will try again", id)
	}
	err := c.Evidence.serverGone(ctx, id)
	c.gone[id] = absence{c.Clock.Now(), err != nil}
	return nil, err
}

// ByName returns the server, or nil if no server has that name. An unknown name is cached for ask.maxAge,
// because the node controller asks for it repeatedly. So nil means "not yet" and must never lead to
// a deletion. Another project may have a server of that name: an error says so if it is not certain that
// the token belongs to the cluster's project.
func (c *Servers) ByName(ctx context.Context, ask Ask) (*hcloud.Server, error) {
	token := c.Evidence.currentToken()
	server, err := c.findByName(ctx, ask)
	if err != nil || server == nil {
		return nil, err
	}
	if err := c.Evidence.Project(ctx); err != nil {
		return nil, err
	}
	c.Evidence.SawOne(token) // it becomes the cluster's
	return server, nil
}

func (c *Servers) findByName(ctx context.Context, ask Ask) (*hcloud.Server, error) {
	if s := c.lookup(ask); s != nil {
		return s, nil
	}
	unlock, err := c.fetching.Lock(ctx, "")
	if err != nil {
		return nil, err
	}
	defer unlock()
	if s := c.lookup(ask); s != nil {
		return s, nil
	}
	if c.Clock.Since(c.absent[ask.Name]) < c.age(ask.MaxAge) {
		return nil, nil
	}
	listed, err := c.listIfDue(ctx, ask)
	if err != nil {
		return nil, err
	}
	if s := c.lookup(ask); s != nil || listed && c.listIsFresh(c.TTL) { // all servers were listed just now
		return s, nil
	}
	named, err := c.fetch(ctx, hcloud.ServerListOpts{Name: ask.Name}, math.MaxInt)
	if err != nil {
		return nil, fmt.Errorf("looking for a server named %q: %w", ask.Name, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.keep(named.servers, named.at)
	i := slices.IndexFunc(named.servers, func(s *hcloud.Server) bool { return strings.EqualFold(s.Name, ask.Name) })
	if i < 0 {
		c.absent[ask.Name] = c.Clock.Now()
		return nil, nil
	}
	delete(c.absent, ask.Name)
	return named.servers[i], nil
}

// All returns the servers that are known, ordered by ID, and no data older than MaxAge. They include all servers of
// the cluster, and all of the project after a refresh.
func (c *Servers) All(ctx context.Context, maxAge time.Duration) ([]*hcloud.Server, error) {
	unlock, err := c.fetching.Lock(ctx, "")
	if err != nil {
		return nil, err
	}
	defer unlock()
	if !c.listIsFresh(maxAge) && !c.coversCluster(maxAge) {
		if err := c.list(ctx); err != nil {
			return nil, err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	all := make([]*hcloud.Server, 0, len(c.byID))
	for _, id := range slices.Sorted(maps.Keys(c.byID)) {
		if e := c.byID[id]; c.TTL == 0 || c.Clock.Since(e.at) < c.age(maxAge) {
			all = append(all, e.server)
		}
	}
	return all, nil
}

// coversCluster reports whether the data of all servers of the cluster are young enough.
func (c *Servers) coversCluster(maxAge time.Duration) bool {
	known := c.Evidence.KnownServers()
	c.mu.Lock()
	defer c.mu.Unlock()
	for id := range known {
		if c.cached(Ask{ID: id}, c.age(maxAge)) == nil {
			return false
		}
	}
	return len(known) > 0
}

// ForgetOne makes the next question about a server ask the API.
func (c *Servers) ForgetOne(id int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, cached := c.byID[id]; cached {
		c.byID[id] = cachedServer{server: e.server} // it is still one that the last list contained
	}
}

// age returns the maximum age of an answer to a question that allows MaxAge.
func (c *Servers) age(maxAge time.Duration) time.Duration {
	if c.TTL == 0 || maxAge <= 0 {
		return c.TTL
	}
	return maxAge
}

// lookup returns the server if the cached data are young enough.
func (c *Servers) lookup(ask Ask) *hcloud.Server {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cached(ask, c.age(ask.MaxAge))
}

// cached is lookup with an age. The caller holds mu.
func (c *Servers) cached(ask Ask, maxAge time.Duration) *hcloud.Server {
	id := ask.ID
	if id == 0 {
		id = c.byName[strings.ToLower(ask.Name)]
	}
	if e, ok := c.byID[id]; ok && c.Clock.Since(e.at) < maxAge && !e.at.Before(ask.NotBefore) {
		return e.server
	}
	return nil
}

// listIsFresh reports whether the last list of all servers is young enough. The caller holds fetching.
func (c *Servers) listIsFresh(maxAge time.Duration) bool {
	return !c.listedAt.IsZero() && c.Clock.Since(c.listedAt) < c.age(maxAge)
}

// keep stores the API's answer to a question that was asked at that time. The caller holds fetching and mu.
func (c *Servers) keep(servers []*hcloud.Server, at time.Time) {
	for _, s := range servers {
		if before := c.byID[s.ID].server; before != nil && before.Name != s.Name {
			delete(c.byName, strings.ToLower(before.Name))
		}
		c.byID[s.ID] = cachedServer{s, at}
		c.byName[strings.ToLower(s.Name)] = s.ID
		delete(c.gone, s.ID)
	}
}
