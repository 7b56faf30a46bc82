// Package gone answers one question, for the CCM and for the machine controller: does something still exist in the cloud? Who
// wants to delete, or to create again, asks here, and never concludes it from an answer of the API.
package gone

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// Kind is what the question is about.
type Kind string

// The kinds.
const (
	Server       Kind = "server"
	LoadBalancer Kind = "load balancer"
)

// Verdict is the answer in one word.
type Verdict int

// The verdicts. Exists and Gone are proven. The zero value is a doubt: then nothing is deleted, made or replaced.
const (
	Doubtful Verdict = iota
	Exists
	Gone
)

// String returns the verdict as a word.
func (v Verdict) String() string { return [...]string{"doubtful", "exists", "gone"}[v] }

// Answer is a verdict, and the evidence for it as a sentence.
type Answer struct {
	Verdict  Verdict
	Evidence string
}

const (
	// massDisappearance is the least number of things of one kind that disappear at once, and massShare their least share
	// (1/massShare) of those that are known, that is not believed at once.
	massDisappearance = 3
	massShare         = 3
	// Hold is how long what disappears in a doubtful way must be missing before it counts as gone, unless an operator decides otherwise.
	Hold = 5 * time.Minute
)

// Question asks about one cluster's things in the cloud. It is safe for concurrent use. Three things make an answer doubtful
// although it is correct:
//
//   - The token belongs to another project, for example after a rotation of the Secret. The project is recognised once one of the
//     things that are known is visible with the token. Until then nothing is gone.
//   - Many things of one kind disappear at once. They count as gone once they have been missing for Hold.
//   - The list of a kind is empty, like that of a broken API. This matters to Ask only.
type Question struct {
	Clock clock.PassiveClock
	// Token returns the API token, or "" if it cannot be read.
	Token func() string
	// Known returns the IDs of all things that should exist, by the objects in Kubernetes. They include those in questions.
	Known func(Kind) map[string]bool
	// Hold takes the place of the constant; 0: it does not.
	Hold time.Duration

	mu         sync.Mutex
	recognised string // token with which something that is known was visible
	last       map[Kind]list
}

// list is what the last list of a kind has shown.
type list struct {
	token   string
	empty   bool
	missing map[string]time.Time // since when what is known is missing
}

// Ask asks the API with list, and judges the answer. list returns the IDs of all things of the kind that the API shows.
func (q *Question) Ask(ctx context.Context, kind Kind, id string, list func(context.Context) (map[string]bool, error)) Answer {
	token := q.Token()
	listed, err := list(ctx)
	switch {
	case err != nil:
		return Answer{Doubtful, fmt.Sprintf("listing each %s: %v", kind, err)}
	case listed[id]:
		q.Saw(token)
		q.Seen(kind, id)
		return Answer{Exists, fmt.Sprintf("the API lists %s %s", kind, id)}
	case token != q.Token():
		return Answer{Doubtful, fmt.Sprintf("the token changed during the question about %s %s", kind, id)}
	}
	q.Listed(kind, token, listed)
	if a := q.Judge(kind, id); a.Verdict == Doubtful {
		return a
	}
	if d := q.EmptyDoubt(kind, id); d != "" {
		return Answer{Doubtful, d}
	}
	return Answer{Gone, fmt.Sprintf("the API's list of %d %ss lacks %s", len(listed), kind, id)}
}

// Saw is told that something that is known was visible with the token.
func (q *Question) Saw(token string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.recognised = token
}

// Seen is told that a thing was visible outside of a list of all: it is not missing since the last one.
func (q *Question) Seen(kind Kind, id string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.last[kind].missing, id)
}

// Shown reports whether the last list of a kind has shown something that is known.
func (q *Question) Shown(kind Kind) bool {
	known, token := q.Known(kind), q.Token()
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.last[kind].token == token && len(q.last[kind].missing) < len(known)
}

// Recognised reports whether something that is known was visible with the token.
func (q *Question) Recognised(token string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.recognised == token && token != ""
}

// Listed is told of each complete list, and of the token that was valid before its request.
func (q *Question) Listed(kind Kind, token string, listed map[string]bool) {
	known := q.Known(kind)
	current := q.Token()
	q.mu.Lock()
	defer q.mu.Unlock()
	before := q.last[kind].missing
	if q.last[kind].token != token {
		before = nil // what another project lacks is not missing
	}
	missing, now := map[string]time.Time{}, q.Clock.Now()
	for id := range known {
		if !listed[id] {
			missing[id] = cmp.Or(before[id], now)
		}
	}
	if q.last == nil {
		q.last = map[Kind]list{}
	}
	q.last[kind] = list{token, len(listed) == 0, missing}
	if len(missing) < len(known) && token == current {
		q.recognised = token
	}
}

// Judge judges what the API has said last about a thing that neither it nor a list shows.
func (q *Question) Judge(kind Kind, id string) Answer {
	if d := q.ProjectDoubt(1); d != "" {
		return Answer{Doubtful, d}
	}
	doubt := q.MassDoubt(kind)
	q.mu.Lock()
	defer q.mu.Unlock()
	if since, tracked := q.last[kind].missing[id]; doubt != "" && tracked && q.Clock.Since(since) < q.hold() {
		return Answer{Doubtful, doubt}
	}
	return Answer{Gone, fmt.Sprintf("the API shows others, and not %s %s", kind, id)}
}

// ProjectDoubt says why the token may be that of another project, or returns "". So many more things are known to the caller.
func (q *Question) ProjectDoubt(more int) string {
	servers, lbs := len(q.Known(Server)), len(q.Known(LoadBalancer))
	if servers+lbs+more == 0 || q.Recognised(q.Token()) {
		return ""
	}
	return fmt.Sprintf("none of the cluster's %d servers and %d load balancers is visible with this token, which may belong to another "+
		"project: nothing is deleted or created; correct the token, or set HCLOUD_DISABLE_PROJECT_CHECK=true if all of them are gone",
		servers, lbs)
}

// MassDoubt says why it is not believed that many things of a kind have disappeared, or returns "".
func (q *Question) MassDoubt(kind Kind) string {
	known := q.Known(kind)
	q.mu.Lock()
	defer q.mu.Unlock()
	missing, young := 0, false
	for id, since := range q.last[kind].missing {
		if known[id] { // else a person has confirmed it by deleting the object
			missing, young = missing+1, young || q.Clock.Since(since) < q.hold()
		}
	}
	if !young || !Many(missing, len(known)) {
		return ""
	}
	return fmt.Sprintf("%d of the cluster's %d %ss have disappeared: they count as gone once they have been missing for %v",
		missing, len(known), kind, q.hold())
}

func (q *Question) hold() time.Duration { return cmp.Or(q.Hold, Hold) }

// Many reports whether so many of those that are known cannot have disappeared at once without a doubt.
func Many(missing, known int) bool { return missing >= massDisappearance && missing*massShare >= known }

// EmptyDoubt says why an empty list is not believed, or returns "".
func (q *Question) EmptyDoubt(kind Kind, id string) string {
	q.mu.Lock()
	defer q.mu.Unlock()
	if since, tracked := q.last[kind].missing[id]; q.last[kind].empty && tracked && q.Clock.Since(since) < q.hold() {
		return fmt.Sprintf("the list of %ss is empty, as that of a broken API is: %s %s counts as gone once it has been missing for %v",
			kind, kind, id, q.hold())
	}
	return ""
}
