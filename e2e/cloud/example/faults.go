package example

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
)

// The resources that requests are about.
const (
	AboutInstances     = "instances"
	AboutLoadBalancers = "load-balancers" // and their listeners
	AboutRoutes        = "routes"
)

// The effects of faults.
const (
	Unavailable  = "unavailable"   // 503
	Internal     = "internal"      // 500
	Unauthorized = "unauthorized"  // 401
	Forbidden    = "forbidden"     // 403
	RateLimited  = "rate-limited"  // 429
	Busy         = "busy"          // 409
	NothingFound = "nothing-found" // what is asked for by its ID does not exist; requests without an ID are not affected
	EmptyLists   = "empty-lists"   // lists are empty; other requests are not affected
	Garbage      = "garbage"       // a page of HTML with 200
	Hang         = "hang"          // no answer
	HangAfter    = "hang-after"    // it is done, and there is no answer
	Drop         = "drop"          // the connection is closed, and nothing is done
	LoseAnswer   = "lose-answer"   // it is done, and the connection is closed
)

// Fault makes requests of one client fail.
type Fault struct {
	// Name is the result of AddFault.
	Name string `json:"name,omitempty"`
	// UserAgent is a part of the User-Agent of the requests.
	UserAgent string `json:"user_agent"`
	// Writes and Reads select requests that change something, or nothing. Both or neither: all.
	Writes bool `json:"writes,omitempty"`
	Reads  bool `json:"reads,omitempty"`
	// About selects requests about a resource. Empty: all.
	About string `json:"about,omitempty"`
	// Pass is how many of the selected requests do not fail before the first that does.
	Pass int `json:"pass,omitempty"`
	// First is how many requests fail. 0: all until the fault is removed.
	First  int    `json:"first,omitempty"`
	Effect string `json:"effect"`
	// Met is how many requests have met it.
	Met int `json:"met,omitempty"`

	passed int
}

// selects reports whether a request fails.
func (f *Fault) selects(r Request) bool {
	switch {
	case f.First > 0 && f.Met >= f.First, !strings.Contains(r.UserAgent, f.UserAgent), f.About != "" && f.About != r.About:
		return false
	case f.Writes != f.Reads && f.Writes != r.Write():
		return false
	case f.Effect == NothingFound:
		return r.missing != nil
	case f.Effect == EmptyLists:
		return r.list != ""
	}
	return true
}

// faults are those of a cloud.
type faults struct {
	mu    sync.Mutex
	all   []*Fault
	added int
}

// effects has the answer of each effect that answers an error.
var effects = map[string]*Error{
	Unavailable:  unavailable("the cloud cannot answer now: try again later"),
	Internal:     internal("the cloud has failed: try again later"),
	Unauthorized: unauthorized("the token is not known: send that of the account"),
	Forbidden:    forbidden("the token may not do this: use another one"),
	RateLimited:  rateLimited("too many requests: send fewer"),
	Busy:         busy("another client changes this now: try again"),
}

// AddFault begins a fault and returns its name.
func (c *Cloud) AddFault(f Fault) (name string, err error) {
	if f.UserAgent == "" {
		return "", badRequest("user_agent: write a part of the User-Agent of the requests that fail, such as example-ccm")
	}
	others := []string{NothingFound, EmptyLists, Garbage, Hang, HangAfter, Drop, LoseAnswer}
	if _, ok := effects[f.Effect]; !ok && !slices.Contains(others, f.Effect) {
		return "", badRequest("effect: %q: faults.go lists the effects", f.Effect)
	}
	if !slices.Contains([]string{"", AboutInstances, AboutLoadBalancers, AboutRoutes}, f.About) {
		return "", badRequest("about: %q: must be one of %s, %s, %s", f.About, AboutInstances, AboutLoadBalancers, AboutRoutes)
	}
	c.faults.mu.Lock()
	defer c.faults.mu.Unlock()
	c.faults.added++
	f.Name, f.Met, f.passed = fmt.Sprintf("fault-%d", c.faults.added), 0, 0
	c.faults.all = append(c.faults.all, &f)
	return f.Name, nil
}

// Faults returns the faults, the oldest first.
func (c *Cloud) Faults() []Fault {
	c.faults.mu.Lock()
	defer c.faults.mu.Unlock()
	all := []Fault{}
	for _, f := range c.faults.all {
		all = append(all, *f)
	}
	return all
}

// RemoveFault ends a fault. It returns false if no fault has that name.
func (c *Cloud) RemoveFault(name string) bool {
	c.faults.mu.Lock()
	defer c.faults.mu.Unlock()
	before := len(c.faults.all)
	c.faults.all = slices.DeleteFunc(c.faults.all, func(f *Fault) bool { return f.Name == name })
	return len(c.faults.all) < before
}

// meet returns the effect of the first fault that selects a request, or "".
func (fs *faults) meet(r Request) string {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	for _, f := range fs.all {
		switch {
		case !f.selects(r):
		case f.passed < f.Pass:
			f.passed++
		default:
			f.Met++
			return f.Effect
		}
	}
	return ""
}

// misbehave answers a request as an effect says, and returns the status. It returns 0 if it sends no answer.
func (c *Cloud) misbehave(effect string, q Request, w http.ResponseWriter, r *http.Request) (status int) {
	switch effect {
	case Hang, HangAfter:
		select {
		case <-r.Context().Done():
		case <-c.done:
		}
		return 0
	case Drop:
		return 0
	case Garbage:
		w.Header().Set("Content-Type", "text/html")
		_, _ = w.Write([]byte("<html><body>Welcome!</body></html>\n"))
		return http.StatusOK
	case EmptyLists:
		return answer(w, http.StatusOK, map[string]any{q.list: []any{}})
	case NothingFound:
		return refuse(w, q.missing("what %s asks for does not exist: look for it in the list", q.Path))
	default:
		return refuse(w, effects[effect])
	}
}
