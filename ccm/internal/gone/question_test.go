package gone

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	testingclock "k8s.io/utils/clock/testing"
)

// cloud holds the things that an API shows, and those that are known.
type cloud struct {
	clock        *testingclock.FakeClock
	token        string
	known, shown map[string]bool
	err          error
	during       func() // during a list
}

// newCloud returns one that shows n servers, all of them known.
func newCloud(n int) (*cloud, *Question) {
	c := &cloud{clock: testingclock.NewFakeClock(time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)), token: "right",
		known: map[string]bool{}, shown: map[string]bool{}, during: func() {}}
	for i := range n {
		c.known[fmt.Sprint(i)], c.shown[fmt.Sprint(i)] = true, true
	}
	return c, &Question{Clock: c.clock, Token: func() string { return c.token },
		Known: func(k Kind) map[string]bool {
			if k != Server {
				return nil
			}
			return c.known
		}}
}

func (c *cloud) list(context.Context) (map[string]bool, error) {
	c.during()
	return c.shown, c.err
}

func (c *cloud) lose(n int) {
	shown := map[string]bool{}
	for id := range c.shown {
		shown[id] = true
	}
	for i := range n {
		delete(shown, fmt.Sprint(i))
	}
	c.shown = shown
}

func want(t *testing.T, a Answer, v Verdict) {
	t.Helper()
	if a.Verdict != v || a.Evidence == "" {
		t.Errorf("%s: %s; want %s", a.Verdict, a.Evidence, v)
	}
}

func TestWhatIsGone(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		n, lost      int
		first, later Verdict // at once, and after Hold
	}{
		"one that is there":             {4, 0, Exists, Exists},
		"one of two":                    {2, 1, Gone, Gone},
		"two of three":                  {3, 2, Gone, Gone},
		"three of nine":                 {9, 3, Doubtful, Gone},
		"three of ten":                  {10, 3, Gone, Gone},
		"the only one: an empty list":   {1, 1, Doubtful, Gone},
		"both of two: an empty list":    {2, 2, Doubtful, Gone},
		"all, as in a broken API":       {6, 6, Doubtful, Gone},
		"all but one, of more than few": {6, 5, Doubtful, Gone},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, q := newCloud(tc.n)
			q.Saw("right")
			c.lose(tc.lost)
			want(t, q.Ask(t.Context(), Server, "0", c.list), tc.first)
			c.clock.Step(Hold - time.Second)
			want(t, q.Ask(t.Context(), Server, "0", c.list), tc.first)
			c.clock.Step(time.Second)
			want(t, q.Ask(t.Context(), Server, "0", c.list), tc.later)
		})
	}
}

// One that has been missing for long is gone, although others have disappeared just now. The time of one that is there again restarts.
func TestSinceWhenSomethingIsMissing(t *testing.T) {
	t.Parallel()
	c, q := newCloud(6)
	q.Saw("right")
	c.lose(1)
	q.Ask(t.Context(), Server, "0", c.list)
	c.clock.Step(Hold)
	c.lose(4)
	want(t, q.Ask(t.Context(), Server, "1", c.list), Doubtful)
	want(t, q.Ask(t.Context(), Server, "0", c.list), Gone)
	c.shown["0"] = true
	want(t, q.Ask(t.Context(), Server, "1", c.list), Doubtful)
	c.lose(4)
	want(t, q.Ask(t.Context(), Server, "0", c.list), Doubtful)
	for id := range c.known { // a person deletes the objects
		if !c.shown[id] && id != "0" {
			delete(c.known, id)
		}
	}
	want(t, q.Ask(t.Context(), Server, "0", c.list), Gone)
}

func TestAnotherProjectProvesNothing(t *testing.T) {
	t.Parallel()
	c, q := newCloud(5)
	q.Saw("right")
	c.token, c.shown = "other", map[string]bool{"foreign": true}
	for range 20 {
		want(t, q.Ask(t.Context(), Server, "0", c.list), Doubtful)
		c.clock.Step(time.Minute)
	}
	c.token = ""
	want(t, q.Ask(t.Context(), Server, "0", c.list), Doubtful)
	c.token, c.shown = "new", map[string]bool{"1": true, "2": true, "3": true, "4": true} // the right project
	want(t, q.Ask(t.Context(), Server, "0", c.list), Gone)
	if !q.Recognised("new") || q.Recognised("right") {
		t.Error("the new token is not recognised")
	}
}

// What is missing in another project has not been missing in this one.
func TestAnAnswerWithAnotherTokenDoesNotCountForHowLong(t *testing.T) {
	t.Parallel()
	c, q := newCloud(1)
	q.Saw("right")
	c.lose(1)
	c.token = "other"
	want(t, q.Ask(t.Context(), Server, "0", c.list), Doubtful)
	c.clock.Step(Hold)
	c.token = "right"
	q.Saw("right")
	want(t, q.Ask(t.Context(), Server, "0", c.list), Doubtful)
	c.clock.Step(Hold)
	want(t, q.Ask(t.Context(), Server, "0", c.list), Gone)
}

// A list that was asked for with the old token arrives after the new one has shown something of the cluster.
func TestALateAnswerWithTheOldTokenChangesNothing(t *testing.T) {
	t.Parallel()
	c, q := newCloud(1)
	c.token = "new"
	q.Saw("new")
	q.Listed(Server, "old", map[string]bool{"0": true})
	if !q.Recognised("new") || q.Recognised("old") {
		t.Error("the project of the new token is not recognised any more")
	}
	q.Listed(Server, "new", map[string]bool{}) // the cluster's server is gone
	if !q.Recognised("new") {
		t.Error("a list without the cluster's server ends the recognition")
	}
}

// It has been visible since the last list of all, such as in an answer about its label.
func TestWhatWasSeenSinceIsNotMissingForLong(t *testing.T) {
	t.Parallel()
	c, q := newCloud(1)
	q.Saw("right")
	c.lose(1)
	want(t, q.Ask(t.Context(), Server, "0", c.list), Doubtful)
	q.Seen(Server, "0")
	c.clock.Step(Hold)
	want(t, q.Ask(t.Context(), Server, "0", c.list), Doubtful)
	c.shown["0"] = true
	want(t, q.Ask(t.Context(), Server, "0", c.list), Exists)
	c.clock.Step(Hold)
	c.lose(1)
	want(t, q.Ask(t.Context(), Server, "0", c.list), Doubtful)
	c.clock.Step(Hold)
	want(t, q.Ask(t.Context(), Server, "0", c.list), Gone)
}

func TestAnErrorOrATokenThatChangesIsDoubtful(t *testing.T) {
	t.Parallel()
	c, q := newCloud(5)
	q.Saw("right")
	c.lose(1)
	c.err = errors.New("503")
	want(t, q.Ask(t.Context(), Server, "0", c.list), Doubtful)
	c.err = nil
	c.during = func() { c.token = "next" }
	want(t, q.Ask(t.Context(), Server, "0", c.list), Doubtful)
	c.during = func() {}
	want(t, q.Ask(t.Context(), Server, "0", c.list), Gone)
}
