package fakecloud_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
)

// lines reads a stream of events line by line.
func (c controlled) lines(t *testing.T, query, accept string) *bufio.Scanner {
	t.Helper()
	req := must(http.NewRequestWithContext(t.Context(), "GET", c.url+"/events"+query, nil))(t)
	req.Header.Set("Accept", accept)
	resp := must(http.DefaultClient.Do(req))(t)
	t.Cleanup(func() { _ = resp.Body.Close() })
	if len(resp.TransferEncoding) > 0 {
		t.Errorf("the stream is sent in parts (%v), which take three writes each", resp.TransferEncoding)
	}
	return bufio.NewScanner(resp.Body)
}

func nextLine(t *testing.T, s *bufio.Scanner) string {
	t.Helper()
	if !s.Scan() {
		t.Fatalf("the stream ended: %v", s.Err())
	}
	return s.Text()
}

func TestEventsAreStreamed(t *testing.T) {
	t.Parallel()
	c := startControlled(t, fakecloud.Options{})
	one := c.createKey(t, "one")
	s := c.lines(t, "?snapshot=true&kind=ssh_key", "")
	next := func(want string) {
		t.Helper()
		if line := nextLine(t, s); !strings.Contains(line, want) {
			t.Errorf("%s, want %s", line, want)
		}
	}
	next(`"type":"existing"`)
	next(`"type":"synced"`)
	must(c.Client().SSHKey.Delete(t.Context(), one))(t)
	next(`"type":"deleted"`)
	two := c.createKey(t, "two")
	next(`"name":"two"`)
	check(t, did(c.Client().SSHKey.Update(t.Context(), two, hcloud.SSHKeyUpdateOpts{Name: "three"})))
	next(`"type":"updated"`)
	c.Close()
	for s.Scan() {
		t.Errorf("after Close: %s", s.Text())
	}
	if c.reach("/events?nonsense=1") == nil {
		t.Error("the listener still answers after Close")
	}
}

// reach returns an error if the control API does not answer.
func (c controlled) reach(path string) error {
	resp, err := http.Get(c.url + path)
	if err == nil {
		_ = resp.Body.Close()
	}
	return err
}

func TestServerSentEvents(t *testing.T) {
	t.Parallel()
	c := startControlled(t, fakecloud.Options{})
	s := c.lines(t, "", "text/event-stream")
	if a, b := nextLine(t, s), nextLine(t, s); a != "event: synced" || b != "id: 0" {
		t.Errorf("%q, %q", a, b)
	}
	nextLine(t, s) // data
	nextLine(t, s) // the empty line between events
	c.createKey(t, "one")
	if a := nextLine(t, s); a != "event: created" {
		t.Errorf("%q", a)
	}
	nextLine(t, s)
	if a := nextLine(t, s); !strings.HasPrefix(a, `data: {"type":"created"`) {
		t.Errorf("%q", a)
	}
	c.call(t, "GET", "/events?kind=nothing", "", 400)
	c.call(t, "GET", "/events?snapshot=perhaps", "", 400)
}

func TestEventsCanBeAwaited(t *testing.T) {
	t.Parallel()
	c := newCloud(t, fakecloud.Options{})
	sub := c.Subscribe()
	defer sub.Close()
	key := controlled{Cloud: c}.createKey(t, "one")
	e, err := sub.Next(t.Context())
	if err != nil || e.Type != fakecloud.EventCreated || e.Kind != "ssh_key" || e.ID != key.ID ||
		!strings.Contains(string(e.Resource), `"name":"one"`) || e.Project != fakecloud.DefaultProject {
		t.Errorf("%+v, %v", e, err)
	}
	if err := c.AwaitIdle(t.Context()); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.AwaitEvent(ctx, func(fakecloud.Event) bool { return true }); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

// Actions are instant here: each state is over before a listener can look at the cloud.
func TestAnEventShowsTheStateRightAfterIt(t *testing.T) {
	t.Parallel()
	c := startControlled(t, fakecloud.Options{})
	inGo := c.Subscribe()
	defer inGo.Close()
	overHTTP := c.lines(t, "?kind=server", "")
	if line := nextLine(t, overHTTP); !strings.Contains(line, `"synced"`) {
		t.Fatalf("first line %s, want synced", line)
	}
	created, _, err := c.Client().Server.Create(t.Context(), serverOpts("one"))
	check(t, err)
	check(t, did(c.Client().Server.Poweroff(t.Context(), created.Server)))
	want := []string{"initializing", "starting", "running", "stopping", "off"}
	// awaitOff returns the different statuses that a listener sees until the server is off.
	awaitOff := func(next func() string) []string {
		var seen []string
		for !slices.Contains(seen, "off") {
			if status := next(); len(seen) == 0 || seen[len(seen)-1] != status {
				seen = append(seen, status)
			}
		}
		return seen
	}
	if got := awaitOff(func() string {
		for {
			e := must(inGo.Next(t.Context()))(t)
			var server schema.Server
			if e.Kind != "server" {
				continue
			}
			check(t, json.Unmarshal(e.Resource, &server))
			return server.Status
		}
	}); !slices.Equal(got, want) {
		t.Errorf("a subscriber in Go sees %v, want %v", got, want)
	}
	if got := awaitOff(func() string {
		var line struct {
			Resource struct {
				Status string `json:"status"`
			} `json:"resource"`
		}
		check(t, json.Unmarshal([]byte(nextLine(t, overHTTP)), &line))
		return line.Resource.Status
	}); !slices.Equal(got, want) {
		t.Errorf("a client of /events sees %v, want %v", got, want)
	}
}
