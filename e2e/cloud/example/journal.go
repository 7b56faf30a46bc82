package example

import (
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"
)

// Request is a request that the API got.
type Request struct {
	// Seq numbers the requests as they arrive.
	Seq       uint64    `json:"seq"`
	Time      time.Time `json:"time"`
	Method    string    `json:"method"`
	Path      string    `json:"path"`
	UserAgent string    `json:"user_agent"`
	// Kind is equal for requests of one kind, such as "GET /instances/{id}".
	Kind string `json:"kind"`
	// About is the resource that it is about, or empty.
	About string `json:"about,omitempty"`
	// ID is that of the instance or load balancer that it is about, if it exists and the path names it.
	ID string `json:"id,omitempty"`
	// Status is that of the answer, 0 while the request waits for one. If a fault drops the answer, it is the status of that answer.
	Status int `json:"status"`
	// Effect is that of the fault that it has met.
	Effect string `json:"effect,omitempty"`

	list    string                      // the field of the answer that is a list
	missing func(string, ...any) *Error // the error if what the path names does not exist
}

// Write reports whether the request changes something.
func (r Request) Write() bool { return r.Method != http.MethodGet && r.Method != http.MethodHead }

// String is one line about the request.
func (r Request) String() string {
	text := fmt.Sprintf("%s %s → %d", r.Method, r.Path, r.Status)
	if r.Status == 0 {
		text = fmt.Sprintf("%s %s → no answer", r.Method, r.Path)
	}
	if r.Effect != "" {
		text += ", fault " + r.Effect
	}
	return text
}

// kept is how many requests a cloud remembers.
const kept = 20_000

// journal has the last requests.
type journal struct {
	mu  sync.Mutex
	seq uint64
	all []Request
}

// begin remembers a request and numbers it.
func (j *journal) begin(r Request) (seq uint64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.seq++
	r.Seq = j.seq
	if len(j.all) == kept {
		j.all = slices.Delete(j.all, 0, kept/2)
	}
	j.all = append(j.all, r)
	return r.Seq
}

// end remembers how a request was answered.
func (j *journal) end(seq uint64, status int, effect string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if i := j.after(seq - 1); i < len(j.all) && j.all[i].Seq == seq {
		j.all[i].Status, j.all[i].Effect = status, effect
	}
}

// after returns where the requests with a higher number begin; the lock must be held.
func (j *journal) after(seq uint64) int {
	i, _ := slices.BinarySearchFunc(j.all, seq+1, func(r Request, n uint64) int {
		switch {
		case r.Seq < n:
			return -1
		case r.Seq > n:
			return 1
		}
		return 0
	})
	return i
}

// Requests returns the requests with a higher number, the oldest first. The cloud remembers the last 10,000 at least.
func (c *Cloud) Requests(after uint64) []Request {
	c.journal.mu.Lock()
	defer c.journal.mu.Unlock()
	return append([]Request{}, c.journal.all[c.journal.after(after):]...)
}
