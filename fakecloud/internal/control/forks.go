package control

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/go-chi/chi/v5"
)

// Fork is a copy of the cloud that the control API serves under a path of its own. What it costs in memory is what has changed since
// it was made.
type Fork struct {
	API, Control http.Handler
	Close        func()
}

// maxForks limits the cost of a client that forgets to delete its forks. Forks of forks count, too.
const maxForks = 100

// forks are the forks of one cloud, by id.
type forks struct {
	count *atomic.Int64 // of the original cloud and all forks below it

	mu     sync.Mutex
	last   int
	all    map[string]*Fork
	closed bool // the cloud is closed: a fork of it would stay
}

// forkPath is the key of the path of a fork in the context of its requests.
type forkPath struct{}

// pathTo returns the path of a fork of the cloud that a request is for.
func pathTo(r *http.Request, id string) string {
	above, _ := r.Context().Value(forkPath{}).(string)
	return above + "/forks/" + id
}

// forkJSON is how the control API shows a fork.
type forkJSON struct {
	ID int `json:"id"`
	// Endpoint is for HCLOUD_ENDPOINT, Control is the URL of the fork's own control API.
	Endpoint string `json:"endpoint"`
	Control  string `json:"control"`
}

func showFork(r *http.Request, id string) forkJSON {
	n, _ := strconv.Atoi(id) // it is a number
	url := "http://" + r.Host + pathTo(r, id)
	return forkJSON{n, url + "/v1", url}
}

func addFork(c *Controller, r *http.Request) (any, error) {
	f := &c.forks
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil, errClosing
	}
	if f.count.Add(1) > maxForks {
		f.count.Add(-1)
		return nil, statusError{http.StatusConflict, fmt.Errorf("there are %d forks, with those of forks: the most; delete one", maxForks)}
	}
	if f.all == nil {
		f.all = map[string]*Fork{}
	}
	f.last++
	id := strconv.Itoa(f.last)
	f.all[id] = c.NewFork()
	return showFork(r, id), nil
}

func listForks(c *Controller, r *http.Request) (any, error) {
	c.forks.mu.Lock()
	defer c.forks.mu.Unlock()
	all := []forkJSON{}
	for id := range maps.Keys(c.forks.all) {
		all = append(all, showFork(r, id))
	}
	slices.SortFunc(all, func(a, b forkJSON) int { return a.ID - b.ID })
	return map[string]any{"forks": all}, nil
}

func deleteFork(c *Controller, r *http.Request) (any, error) {
	id := chi.URLParam(r, "fork")
	c.forks.mu.Lock()
	fork := c.forks.all[id]
	delete(c.forks.all, id)
	c.forks.mu.Unlock()
	if fork == nil {
		return nil, errNoFork(id)
	}
	c.forks.close(fork)
	return done, nil
}

func (f *forks) close(fork *Fork) {
	fork.Close()
	f.count.Add(-1)
}

func errNoFork(id string) error {
	return fmt.Errorf("fork %.64q %w; GET /forks lists them", id, ErrNotFound)
}

func (f *forks) get(id string) *Fork {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.all[id]
}

// CloseForks closes all forks.
func (c *Controller) CloseForks() {
	c.forks.mu.Lock()
	defer c.forks.mu.Unlock()
	for _, fork := range c.forks.all {
		c.forks.close(fork)
	}
	c.forks.all, c.forks.closed = nil, true
}

// route serves what is below the path of a fork. The fork's handlers have their own checks of the request.
func (f *forks) route(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		below, ok := strings.CutPrefix(r.URL.Path, "/forks/")
		id, path, isBelow := strings.Cut(below, "/")
		if !ok || !isBelow {
			next.ServeHTTP(w, r)
			return
		}
		fork := f.get(id)
		if fork == nil {
			writeJSON(w, http.StatusNotFound, errorBody{errNoFork(id).Error()})
			return
		}
		handler := fork.Control
		if path == "v1" || strings.HasPrefix(path, "v1/") {
			handler = fork.API
		}
		r = r.WithContext(context.WithValue(r.Context(), forkPath{}, pathTo(r, id)))
		http.StripPrefix("/forks/"+id, handler).ServeHTTP(w, r)
	})
}
