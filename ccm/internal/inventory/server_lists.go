package inventory

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/gone"
)

const serversPerPage = 50

// Refresh fetches the list of all servers.
func (c *Servers) Refresh(ctx context.Context) error {
	unlock, err := c.fetching.Lock(ctx, "")
	if err != nil {
		return err
	}
	defer unlock()
	return c.list(ctx)
}

// look finds out which of the cluster's servers there are, beside one that the API has just not found: by a list, or one by one if the list
// has more pages. If the API shows none of them, only a list counts.
func (c *Servers) look(ctx context.Context, absent int64, token string) error {
	known := slices.Sorted(maps.Keys(c.Evidence.KnownServers()))
	few := len(known) < c.pages
	shown := map[string]bool{}
	for _, id := range known {
		if !few || id == absent {
			continue
		}
		server := c.lookup(Ask{ID: id})
		if server == nil {
			at := c.Clock.Now()
			var err error
			if server, _, err = c.client.Server.GetByID(ctx, id); err != nil {
				return fmt.Errorf("getting server %d: %w", id, err)
			}
			if server == nil || server.ID != id {
				continue
			}
			c.mu.Lock()
			c.keep([]*hcloud.Server{server}, at)
			c.mu.Unlock()
		}
		shown[strconv.FormatInt(server.ID, 10)] = true
	}
	if len(shown) == 0 {
		return c.list(ctx)
	}
	c.mu.Lock()
	delete(c.byID, absent)
	c.mu.Unlock()
	c.Evidence.question.Listed(gone.Server, token, shown)
	return nil
}

// list fetches all servers.
func (c *Servers) list(ctx context.Context) error {
	return c.listWith(ctx, "", math.MaxInt)
}

// listIfDue fetches a list if it has no more pages than there are questions that are due: this one, and the likely ones with data of more
// than half of the allowed age. They would be due soon, and from then on they come together.
//
// It is the list of all servers or, if others are most of them, the one by the labels that the cluster's servers have in common.
// How many pages that one has is a guess until its first page shows it.
func (c *Servers) listIfDue(ctx context.Context, ask Ask) (listed bool, err error) {
	var likely []Ask
	if ask.Likely != nil {
		likely = ask.Likely() // without the lock: it reads all Nodes
	}
	known := c.Evidence.KnownServers()
	c.mu.Lock()
	due, selector, pages := 0, "", c.pages
	for _, other := range likely {
		if c.cached(other, c.age(other.MaxAge)/2) == nil {
			due++
		}
	}
	due = max(due, 1)
	if own := (len(known) + serversPerPage - 1) / serversPerPage; 0 < own && own < pages {
		if selector = c.commonLabels(known); selector != "" {
			pages = own
		}
	}
	// With a TTL of 0, a list would answer only this question. After a list, ask directly for a server that it lacks.
	skip := c.TTL == 0 || c.Clock.Since(c.askedAt) < c.TTL || due < pages
	c.mu.Unlock()
	if skip {
		return false, nil
	}
	return true, c.listWith(ctx, selector, due)
}

func (c *Servers) listWith(ctx context.Context, selector string, most int) error {
	token := c.Evidence.currentToken()
	list, err := c.fetch(ctx, hcloud.ServerListOpts{ListOpts: hcloud.ListOpts{LabelSelector: selector}}, most)
	if err != nil {
		return fmt.Errorf("listing servers: %w", err)
	}
	all := list.complete && selector == ""
	c.mu.Lock()
	if all {
		clear(c.byID)
		clear(c.byName)
		clear(c.absent)
		clear(c.gone)
		c.listedAt, c.listedWith = list.at, token
	}
	c.keep(list.servers, list.at)
	c.askedAt = list.at
	if selector == "" {
		c.pages = list.pages
	}
	c.mu.Unlock()
	if !all {
		return nil
	}
	listed := map[string]bool{}
	for _, s := range list.servers {
		listed[strconv.FormatInt(s.ID, 10)] = true
	}
	c.Evidence.question.Listed(gone.Server, token, listed)
	return nil
}

// commonLabels returns a label selector for the labels that the known servers have in common. The caller holds mu.
func (c *Servers) commonLabels(known map[int64]bool) string {
	var common map[string]string
	for id := range known {
		e, cached := c.byID[id]
		switch {
		case !cached:
		case common == nil:
			common = maps.Clone(e.server.Labels)
		default:
			maps.DeleteFunc(common, func(key, value string) bool { v, has := e.server.Labels[key]; return !has || v != value })
		}
	}
	return labels.Set(common).String()
}

// serverList is a list of servers, or only its first page.
type serverList struct {
	at       time.Time // before the request: the servers are not older than that
	servers  []*hcloud.Server
	pages    int
	complete bool
}

// fetch returns a list. If it has more pages than most after the first one, it ends with that. hcloud-go's own
// loop accepts any JSON as a list, and {} as an empty one: the answer of a broken gateway would then remove all
// servers from routes and load balancers.
func (c *Servers) fetch(ctx context.Context, opts hcloud.ServerListOpts, most int) (list serverList, err error) {
	list.at, opts.PerPage = c.Clock.Now(), serversPerPage
	for opts.Page = 1; ; {
		servers, resp, err := c.client.Server.List(ctx, opts)
		if err != nil {
			return list, err
		}
		paging := resp.Meta.Pagination
		if paging == nil || slices.ContainsFunc(servers, func(s *hcloud.Server) bool { return s.ID <= 0 }) {
			return list, fmt.Errorf("the answer with status %d is not a list of servers; check HCLOUD_ENDPOINT", resp.StatusCode)
		}
		list.servers = append(list.servers, servers...)
		list.pages = max(opts.Page, paging.LastPage)
		switch {
		case paging.NextPage == 0:
			list.pages, list.complete = opts.Page, true
			return list, nil
		case paging.NextPage <= opts.Page:
			return list, fmt.Errorf("page %d of the list names page %d as the next one", opts.Page, paging.NextPage)
		case list.pages-opts.Page > most:
			return list, nil
		}
		opts.Page = paging.NextPage
	}
}
