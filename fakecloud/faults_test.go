package fakecloud_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/fault"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/journal"
)

// reach is a way to a cloud.
type reach struct {
	url    string
	client *http.Client
}

// overBoth runs a test in the process and once more over a network connection.
func overBoth(t *testing.T, o fakecloud.Options, test func(t *testing.T, c *fakecloud.Cloud, r reach)) {
	t.Helper()
	t.Run("in process", func(t *testing.T) {
		t.Parallel()
		c := newCloud(t, o)
		test(t, c, reach{"http://fakecloud.invalid/v1", &http.Client{Transport: c.Transport()}})
	})
	t.Run("over a connection", func(t *testing.T) {
		t.Parallel()
		c := newCloud(t, o)
		endpoint := must(c.Start(t.Context(), ""))(t)
		transport := &http.Transport{}
		t.Cleanup(transport.CloseIdleConnections)
		test(t, c, reach{endpoint, &http.Client{Transport: transport}})
	})
}

// answer is the answer to a request.
type answer struct {
	status int
	header http.Header
	body   string
	err    error // of the round trip or of reading the body
}

func (r reach) do(ctx context.Context, method, path, body string) answer {
	req, err := http.NewRequestWithContext(ctx, method, r.url+path, strings.NewReader(body))
	if err != nil {
		return answer{err: err}
	}
	req.Header.Set("Authorization", "Bearer "+fakecloud.DefaultToken)
	req.Header.Set("User-Agent", "test")
	resp, err := r.client.Do(req)
	if err != nil {
		return answer{err: err}
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, string(b), err}
}

const createKey = `{"name": "one", "public_key": "` + testKey + `"}`

// keys returns the number of SSH keys. Fault rules do not see this.
func keys(t *testing.T, c *fakecloud.Cloud) int {
	t.Helper()
	raw := must(c.State(t.Context(), fakecloud.Selection{Kinds: []string{"ssh_key"}}))(t)
	return strings.Count(string(raw), `"public_key"`)
}

func TestFaultsHaveTheirEffect(t *testing.T) {
	t.Parallel()
	refused := func(a answer, status int, part string) string {
		if a.err != nil || a.status != status || !strings.Contains(a.body, part) {
			return "want " + part
		}
		return ""
	}
	for name, tc := range map[string]struct {
		effect  fault.Effect
		written int // keys that exist afterwards
		status  int // in the journal
		handled int
		wrong   func(answer) string
	}{
		"an API error": {fault.APIError("conflict"), 0, 409, 0, func(a answer) string {
			return refused(a, 409, `"code": "conflict"`)
		}},
		"an API error of another status": {fault.Effect{Kind: "api_error", Code: "source_port_already_used", Status: 422, Message: "hello"},
			0, 422, 0, func(a answer) string {
				return refused(a, 422, `"message": "hello"`)
			}},
		"an API error after the write": {fault.Effect{Kind: "api_error", Code: "timeout", After: true}, 1, 504, 201, func(a answer) string {
			return refused(a, 504, `"code": "timeout"`)
		}},
		"a proxy's page": {fault.HTTPStatus(502), 0, 502, 0, func(a answer) string {
			if a.header.Get("Content-Type") != "text/html" {
				return "want HTML"
			}
			return refused(a, 502, "<h1>502 Bad Gateway</h1>")
		}},
		"JSON that is not an error of the API": {fault.Effect{Kind: "http_status", Status: 429, Body: `{"x": 1}`}, 0, 429, 0,
			func(a answer) string {
				if a.header.Get("Content-Type") != "application/json" {
					return "want JSON"
				}
				return refused(a, 429, `{"x": 1}`)
			}},
		"a status without a body": {fault.HTTPStatus(204), 0, 204, 0, func(a answer) string {
			if a.body != "" {
				return "want no body"
			}
			return refused(a, 204, "")
		}},
		"a dropped connection": {fault.DropConnection(), 0, 0, 0, func(a answer) string {
			if !errors.Is(a.err, io.EOF) {
				return "want EOF"
			}
			return ""
		}},
		"a reset connection": {fault.ResetConnection(), 0, 0, 0, func(a answer) string {
			if !errors.Is(a.err, syscall.ECONNRESET) {
				return "want ECONNRESET"
			}
			return ""
		}},
		"a lost answer": {fault.LoseAnswer(), 1, 0, 201, func(a answer) string {
			if !errors.Is(a.err, io.EOF) {
				return "want EOF"
			}
			return ""
		}},
		"a lost answer by reset": {fault.Effect{Kind: "reset", After: true}, 1, 0, 201, func(a answer) string {
			if !errors.Is(a.err, syscall.ECONNRESET) {
				return "want ECONNRESET"
			}
			return ""
		}},
		"a cut-off body": {fault.CutBody(12), 1, 201, 201, func(a answer) string {
			if !errors.Is(a.err, io.ErrUnexpectedEOF) || a.body != "{\n  \"ssh_key" {
				return "want 12 bytes and unexpected EOF"
			}
			return ""
		}},
		"half a body": {fault.CutBody(0), 1, 201, 201, func(a answer) string {
			if !errors.Is(a.err, io.ErrUnexpectedEOF) || len(a.body) < 100 {
				return "want some bytes and unexpected EOF"
			}
			return ""
		}},
		"more than the body": {fault.CutBody(1 << 20), 1, 201, 201, func(a answer) string {
			if !errors.Is(a.err, io.ErrUnexpectedEOF) || !strings.HasSuffix(a.body, "}") {
				return "want all but the last byte"
			}
			return ""
		}},
		"an exhausted rate limit": {fault.ExhaustRateLimit(), 0, 429, 0, func(a answer) string {
			if a.header.Get("RateLimit-Remaining") != "0" || a.header.Get("RateLimit-Limit") != "3600" {
				return "want the headers of an empty limit"
			}
			return refused(a, 429, `"code": "rate_limit_exceeded"`)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			overBoth(t, fakecloud.Options{}, func(t *testing.T, c *fakecloud.Cloud, r reach) {
				must(c.Faults().Add(t.Context(), fault.Rule{Name: "f", Method: "POST", Route: "/ssh_keys", First: 1,
					Effect: tc.effect}))(t)
				a := r.do(t.Context(), "POST", "/ssh_keys", createKey)
				if wrong := tc.wrong(a); wrong != "" {
					t.Errorf("%s; got %d %q %v", wrong, a.status, a.body, a.err)
				}
				if n := keys(t, c); n != tc.written {
					t.Errorf("%d keys were written, want %d", n, tc.written)
				}
				entries, err := c.Journal().Await(t.Context(), journal.Filter{Fault: "f"}, 1)
				if err != nil || entries[0].Status != tc.status || entries[0].Handled != tc.handled {
					t.Errorf("journal: %+v, %v; want status %d, handled %d", entries, err, tc.status, tc.handled)
				}
				// The next request works.
				if a := r.do(t.Context(), "GET", "/ssh_keys", ""); a.status != 200 || a.header.Get("X-Correlation-Id") == "" {
					t.Errorf("next request: %+v", a)
				}
			})
		})
	}
}

func TestLatencyIsOnTheCloudsClock(t *testing.T) {
	t.Parallel()
	for name, effect := range map[string]fault.Effect{
		"before":                fault.Latency(time.Hour),
		"after":                 {Kind: "latency", Latency: fault.Duration(time.Hour), After: true},
		"of another effect":     {Kind: "api_error", Code: "locked", Latency: fault.Duration(time.Hour)},
		"of an effect after it": {Kind: "api_error", Code: "locked", Latency: fault.Duration(time.Hour), After: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			overBoth(t, fakecloud.Options{}, func(t *testing.T, c *fakecloud.Cloud, r reach) {
				check(t, c.SetSpeed(t.Context(), 0))
				must(c.Faults().Add(t.Context(), fault.Rule{Name: "slow", Effect: effect}))(t)
				changes := c.Subscribe()
				defer changes.Close()
				answers := make(chan answer)
				go func() { answers <- r.do(t.Context(), "POST", "/ssh_keys", createKey) }()
				must(c.Faults().Await(t.Context(), "slow", 1))(t)
				if effect.After {
					// The write is visible before its answer arrives.
					must(changes.Next(t.Context()))(t)
				} else if n := keys(t, c); n != 0 {
					t.Error("written before the delay")
				}
				var a answer
				for waiting := true; waiting; {
					select {
					case a = <-answers:
						waiting = false
					default:
						check(t, c.Step(t.Context(), time.Hour))
					}
				}
				want := 201
				if effect.Kind == "api_error" {
					want = 423
				}
				if a.status != want {
					t.Errorf("%d %s %v", a.status, a.body, a.err)
				}
				if e, _ := c.Journal().Entries(t.Context(), journal.Filter{}); e[0].Duration < time.Hour {
					t.Errorf("took %v on the cloud's clock", e[0].Duration)
				}
			})
		})
	}
}

func TestARequestIsNotCarriedOutIfItsClientLeavesDuringTheDelay(t *testing.T) {
	t.Parallel()
	overBoth(t, fakecloud.Options{}, func(t *testing.T, c *fakecloud.Cloud, r reach) {
		check(t, c.SetSpeed(t.Context(), 0))
		must(c.Faults().Add(t.Context(), fault.Rule{Name: "slow", Effect: fault.Latency(time.Hour)}))(t)
		ctx, cancel := context.WithCancel(t.Context())
		answers := make(chan answer)
		go func() { answers <- r.do(ctx, "POST", "/ssh_keys", createKey) }()
		must(c.Faults().Await(t.Context(), "slow", 1))(t)
		cancel()
		if a := <-answers; !errors.Is(a.err, context.Canceled) {
			t.Errorf("%+v", a)
		}
		if _, err := c.Journal().Await(t.Context(), journal.Filter{Dropped: true}, 1); err != nil {
			t.Error(err)
		}
		if n := keys(t, c); n != 0 {
			t.Errorf("%d keys were written", n)
		}
	})
}

func TestTheJournalShowsTheStatusOfALateAnswer(t *testing.T) {
	t.Parallel()
	overBoth(t, fakecloud.Options{}, func(t *testing.T, c *fakecloud.Cloud, r reach) {
		check(t, c.SetSpeed(t.Context(), 0))
		late := fault.Latency(time.Hour)
		late.After = true
		must(c.Faults().Add(t.Context(), fault.Rule{Effect: late}))(t)
		changes := c.Subscribe()
		defer changes.Close()
		ctx, cancel := context.WithCancel(t.Context())
		answers := make(chan answer)
		go func() { answers <- r.do(ctx, "POST", "/ssh_keys", createKey) }()
		must(changes.Next(t.Context()))(t)
		cancel()
		if a := <-answers; !errors.Is(a.err, context.Canceled) {
			t.Errorf("%+v", a)
		}
		entries, err := c.Journal().Await(t.Context(), journal.Filter{Dropped: true}, 1)
		if err != nil || entries[0].Handled != 201 {
			t.Errorf("%+v, %v; want handled 201", entries, err)
		}
	})
}

func TestAnExhaustedRateLimitRefillsWithTime(t *testing.T) {
	t.Parallel()
	overBoth(t, fakecloud.Options{RateLimit: 3600}, func(t *testing.T, c *fakecloud.Cloud, r reach) {
		check(t, c.SetSpeed(t.Context(), 0))
		if a := r.do(t.Context(), "GET", "/ssh_keys", ""); a.status != 200 || a.header.Get("RateLimit-Remaining") != "3599" {
			t.Fatalf("%+v", a)
		}
		must(c.Faults().Add(t.Context(), fault.Rule{First: 1, Effect: fault.ExhaustRateLimit()}))(t)
		for range 2 { // the first answer is the rule's, the second the empty bucket's
			if a := r.do(t.Context(), "GET", "/ssh_keys", ""); a.status != 429 || a.header.Get("RateLimit-Remaining") != "0" {
				t.Errorf("%+v", a)
			}
		}
		check(t, c.Step(t.Context(), 2*time.Second))
		if a := r.do(t.Context(), "GET", "/ssh_keys", ""); a.status != 200 || a.header.Get("RateLimit-Remaining") != "1" {
			t.Errorf("two seconds later: %+v", a)
		}
	})
}

// Reads that an empty rule takes see nothing, as in an incident of the API or with the token of another project. Writes see what there
// is.
func TestAnEmptyProject(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c := newCloud(t, fakecloud.Options{})
	check(t, orderServer(ctx, c, "one"))
	server, _, err := c.Client().Server.GetByName(ctx, "one")
	check(t, err)
	rule := must(c.Faults().Add(ctx, fault.Rule{Resource: "server", Effect: fault.Empty()}))(t)
	if all, err := c.Client().Server.All(ctx); err != nil || len(all) != 0 {
		t.Errorf("the list has %d servers: %v", len(all), err)
	}
	if found, _, err := c.Client().Server.GetByID(ctx, server.ID); err != nil || found != nil {
		t.Errorf("the server is found: %v, %v", found, err)
	}
	if types, err := c.Client().ServerType.All(ctx); err != nil || len(types) == 0 {
		t.Errorf("%d server types, which another resource has: %v", len(types), err)
	}
	if _, _, err := c.Client().Server.Update(ctx, server, hcloud.ServerUpdateOpts{Name: "two"}); err != nil {
		t.Errorf("a write: %v", err)
	}
	status, _, err := c.Faults().Get(ctx, rule.Name)
	if err != nil || status.Matched != 2 || status.Applied != 2 {
		t.Errorf("the rule took %d of %d requests, want 2 of 2: %v", status.Applied, status.Matched, err)
	}
	must(c.Faults().Remove(ctx, rule.Name))(t)
	if all, err := c.Client().Server.All(ctx); err != nil || len(all) != 1 || all[0].Name != "two" {
		t.Errorf("after the incident, the list has %v: %v", all, err)
	}
	for _, wrong := range []fault.Rule{
		{Method: "POST", Effect: fault.Empty()}, {Operation: "delete_server", Effect: fault.Empty()}, {Writes: true, Effect: fault.Empty()},
	} {
		if _, err := c.Faults().Add(ctx, wrong); err == nil || !strings.Contains(err.Error(), "only operations that write") {
			t.Errorf("%+v: %v", wrong, err)
		}
	}
}

// Actions can take longer than the profile says. Other actions do not.
func TestASlowAction(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c := preparedCloud(t, 0, fakecloud.Options{})
	rule := fault.Rule{Operation: "create_server", First: 1, Effect: fault.SlowAction(time.Hour)}
	must(c.Faults().Add(ctx, rule))(t)
	for _, name := range []string{"slow", "usual"} {
		check(t, orderServer(ctx, c, name))
	}
	due, err := c.Timeline(ctx)
	if err != nil || len(due) != 2 || due[1].Time.Sub(due[0].Time) != time.Hour-time.Minute {
		t.Errorf("%+v, %v", due, err)
	}
	for _, d := range []time.Duration{0, -1, 25 * time.Hour} {
		rule := fault.Rule{Effect: fault.SlowAction(d)}
		if _, err := c.Faults().Add(ctx, rule); err == nil || !strings.Contains(err.Error(), "effect.duration") {
			t.Errorf("%v: %v", d, err)
		}
	}
}
