package remote_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/remote"
)

// controls is what a cloud and a client of its control API have in common.
type controls interface {
	Entries(context.Context, fakecloud.JournalFilter) ([]fakecloud.JournalEntry, error)
	Count(context.Context, fakecloud.JournalFilter) (int, error)
	Last(context.Context) (uint64, error)
	AwaitRequests(context.Context, fakecloud.JournalFilter, int) ([]fakecloud.JournalEntry, error)
	ResetJournal(context.Context) error
	AddFault(context.Context, fakecloud.Fault) (fakecloud.Fault, error)
	RemoveFault(context.Context, string) (bool, error)
	ClearFaults(context.Context) error
	ListFaults(context.Context) ([]fakecloud.FaultStatus, error)
	GetFault(context.Context, string) (fakecloud.FaultStatus, bool, error)
	AwaitFault(context.Context, string, uint64) (fakecloud.FaultStatus, error)
	Now(context.Context) (time.Time, error)
	Step(context.Context, time.Duration) error
	SetSpeed(context.Context, float64) error
	SetProfile(context.Context, string) error
	SetRateLimit(context.Context, int) error
	ResumeActions(context.Context) (int, error)
	AwaitIdle(context.Context) error
	Reset(context.Context, ...string) error
	CARoots(context.Context) ([]byte, error)
	AddProject(context.Context, string, string) (int64, string, error)
	AddToken(context.Context, int64, string, bool) (string, error)
	RevokeToken(context.Context, string) error
}

// direct are the methods of a cloud itself.
type direct struct{ c *fakecloud.Cloud }

func (d direct) Entries(_ context.Context, f fakecloud.JournalFilter) ([]fakecloud.JournalEntry, error) {
	return d.c.Journal().Entries(f), nil
}
func (d direct) Count(_ context.Context, f fakecloud.JournalFilter) (int, error) {
	return d.c.Journal().Count(f), nil
}
func (d direct) Last(context.Context) (uint64, error) { return d.c.Journal().Last(), nil }
func (d direct) AwaitRequests(ctx context.Context, f fakecloud.JournalFilter, n int) ([]fakecloud.JournalEntry, error) {
	return d.c.Journal().Await(ctx, f, n)
}
func (d direct) ResetJournal(context.Context) error { d.c.Journal().Reset(); return nil }
func (d direct) AddFault(_ context.Context, f fakecloud.Fault) (fakecloud.Fault, error) {
	return d.c.Faults().Add(f)
}
func (d direct) RemoveFault(_ context.Context, name string) (bool, error) {
	return d.c.Faults().Remove(name), nil
}
func (d direct) ClearFaults(context.Context) error { d.c.Faults().Clear(); return nil }
func (d direct) ListFaults(context.Context) ([]fakecloud.FaultStatus, error) {
	return d.c.Faults().List(), nil
}
func (d direct) GetFault(_ context.Context, name string) (fakecloud.FaultStatus, bool, error) {
	st, ok := d.c.Faults().Get(name)
	return st, ok, nil
}
func (d direct) AwaitFault(ctx context.Context, name string, n uint64) (fakecloud.FaultStatus, error) {
	return d.c.Faults().Await(ctx, name, n)
}
func (d direct) Now(context.Context) (time.Time, error)             { return d.c.Now(), nil }
func (d direct) Step(_ context.Context, by time.Duration) error     { return d.c.Step(by) }
func (d direct) SetSpeed(_ context.Context, x float64) error        { return d.c.SetSpeed(x) }
func (d direct) SetProfile(_ context.Context, actions string) error { return d.c.SetProfile(actions) }
func (d direct) SetRateLimit(_ context.Context, n int) error        { return d.c.SetRateLimit(n) }
func (d direct) ResumeActions(context.Context) (int, error)         { return d.c.ResumeActions(), nil }
func (d direct) AwaitIdle(ctx context.Context) error                { return d.c.AwaitIdle(ctx) }
func (d direct) Reset(_ context.Context, keep ...string) error      { d.c.Reset(keep...); return nil }
func (d direct) CARoots(context.Context) ([]byte, error)            { return d.c.CARoots(), nil }
func (d direct) RevokeToken(_ context.Context, token string) error  { return d.c.RevokeToken(token) }
func (d direct) AddProject(_ context.Context, name, token string) (int64, string, error) {
	return d.c.AddProject(name, token)
}
func (d direct) AddToken(_ context.Context, project int64, token string, readOnly bool) (string, error) {
	return d.c.AddToken(project, token, readOnly)
}

// over is a client with the names of controls.
type over struct{ *remote.Client }

func (o over) Entries(ctx context.Context, f fakecloud.JournalFilter) ([]fakecloud.JournalEntry, error) {
	return o.Journal().Entries(ctx, f)
}
func (o over) Count(ctx context.Context, f fakecloud.JournalFilter) (int, error) {
	return o.Journal().Count(ctx, f)
}
func (o over) Last(ctx context.Context) (uint64, error) { return o.Journal().Last(ctx) }
func (o over) AwaitRequests(ctx context.Context, f fakecloud.JournalFilter, n int) ([]fakecloud.JournalEntry, error) {
	return o.Journal().Await(ctx, f, n)
}
func (o over) ResetJournal(ctx context.Context) error { return o.Journal().Reset(ctx) }
func (o over) AddFault(ctx context.Context, f fakecloud.Fault) (fakecloud.Fault, error) {
	return o.Faults().Add(ctx, f)
}
func (o over) RemoveFault(ctx context.Context, name string) (bool, error) {
	return o.Faults().Remove(ctx, name)
}
func (o over) ClearFaults(ctx context.Context) error { return o.Faults().Clear(ctx) }
func (o over) ListFaults(ctx context.Context) ([]fakecloud.FaultStatus, error) {
	return o.Faults().List(ctx)
}
func (o over) GetFault(ctx context.Context, name string) (fakecloud.FaultStatus, bool, error) {
	return o.Faults().Get(ctx, name)
}
func (o over) AwaitFault(ctx context.Context, name string, n uint64) (fakecloud.FaultStatus, error) {
	return o.Faults().Await(ctx, name, n)
}

// ways are the ways to control a cloud, which have to agree.
var ways = map[string]func(*testing.T, *fakecloud.Cloud) controls{
	"direct": func(_ *testing.T, c *fakecloud.Cloud) controls { return direct{c} },
	"remote": func(t *testing.T, c *fakecloud.Cloud) controls {
		url, err := c.StartControl(t.Context(), "")
		if err != nil {
			t.Fatal(err)
		}
		return over{remote.New(url + "/")}
	},
	"in process": func(_ *testing.T, c *fakecloud.Cloud) controls { return over{remote.InProcess(c)} },
}

// each runs a test for each way to control a cloud, with a cloud of its own.
func each(t *testing.T, test func(*testing.T, *fakecloud.Cloud, controls)) {
	t.Helper()
	t.Parallel()
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := fakecloud.New(fakecloud.Options{})
			t.Cleanup(c.Close)
			test(t, c, way(t, c))
		})
	}
}

func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

const testKey = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl test"

func createServer(ctx context.Context, c *fakecloud.Cloud, name string, opts ...hcloud.ClientOption) error {
	_, _, err := c.Client(opts...).Server.Create(ctx, hcloud.ServerCreateOpts{
		Name: name, ServerType: &hcloud.ServerType{Name: "cx23"}, Image: &hcloud.Image{Name: "debian-13"},
	})
	return err
}

func TestTheJournalIsTheSame(t *testing.T) {
	each(t, func(t *testing.T, c *fakecloud.Cloud, is controls) {
		ctx := t.Context()
		awaited := make(chan int, 1)
		go func() {
			entries, err := is.AwaitRequests(ctx, fakecloud.JournalFilter{Operation: "create_server"}, 2)
			if err != nil {
				t.Error(err)
			}
			awaited <- len(entries)
		}()
		for _, name := range []string{"one", "two", "two"} { // the third is not unique
			err := createServer(ctx, c, name)
			if err != nil && !hcloud.IsError(err, hcloud.ErrorCodeUniquenessError) {
				t.Fatal(err)
			}
		}
		if n := <-awaited; n < 2 {
			t.Errorf("awaited %d", n)
		}
		f := fakecloud.JournalFilter{Method: "post", Route: "/servers", Project: 1, Since: 1, Writes: true}
		entries := must[[]fakecloud.JournalEntry](t)(is.Entries(ctx, f))
		if len(entries) != 2 || entries[0] != c.Journal().Entries(f)[0] || entries[1].ErrorCode != "uniqueness_error" {
			t.Errorf("%+v", entries)
		}
		if n := must[int](t)(is.Count(ctx, f)); n != 2 {
			t.Errorf("count %d", n)
		}
		done, cancel := context.WithCancelCause(ctx)
		cancel(errTooLate)
		if entries, err := is.AwaitRequests(done, f, 3); !errors.Is(err, errTooLate) || len(entries) != 2 {
			t.Errorf("%d entries, %v", len(entries), err)
		}
		last := must[uint64](t)(is.Last(ctx))
		ok(t, is.ResetJournal(ctx))
		if n := must[int](t)(is.Count(ctx, fakecloud.JournalFilter{})); n != 0 || last != 3 {
			t.Errorf("%d after Reset, last was %d", n, last)
		}
	})
}

var errTooLate = errors.New("too late")

func TestFaultsAreTheSame(t *testing.T) {
	each(t, func(t *testing.T, c *fakecloud.Cloud, is controls) {
		ctx := t.Context()
		effect := fakecloud.APIError("conflict")
		effect.Latency = fakecloud.Duration(time.Millisecond)
		rule := must[fakecloud.Fault](t)(is.AddFault(ctx, fakecloud.Fault{Method: "post", Route: "/v1/servers", First: 1, Effect: effect}))
		if rule.Name == "" || rule.Method != "POST" || rule.Route != "/servers" || rule.Effect != effect {
			t.Errorf("%+v", rule)
		}
		awaited := make(chan fakecloud.FaultStatus, 1)
		go func() {
			st, err := is.AwaitFault(ctx, rule.Name, 1)
			if err != nil {
				t.Error(err)
			}
			awaited <- st
		}()
		if err := createServer(ctx, c, "one"); !hcloud.IsError(err, hcloud.ErrorCodeConflict) {
			// hcloud-go tries a conflict again, the second time without the fault.
			ok(t, err)
		}
		if st := <-awaited; st.Applied != 1 || st.Rule != rule {
			t.Errorf("%+v", st)
		}
		done, cancel := context.WithCancelCause(ctx)
		cancel(errTooLate)
		if st, err := is.AwaitFault(done, rule.Name, 5); !errors.Is(err, errTooLate) || st.Applied != 1 {
			t.Errorf("%+v, %v", st, err)
		}
		for _, name := range []string{"a/b", "50%", "%2f", "ü ?#", ".."} {
			must[fakecloud.Fault](t)(is.AddFault(ctx, fakecloud.Fault{Name: name, Effect: fakecloud.DropConnection()}))
			if st, found, err := is.GetFault(ctx, name); err != nil || !found || st.Name != name {
				t.Errorf("%q: %+v, %v, %v", name, st, found, err)
			}
			if st, err := is.AwaitFault(ctx, name, 0); err != nil || st.Name != name {
				t.Errorf("%q: %+v, %v", name, st, err)
			}
			if removed := must[bool](t)(is.RemoveFault(ctx, name)); !removed {
				t.Errorf("%q is not removed", name)
			}
			if removed := must[bool](t)(is.RemoveFault(ctx, name)); removed {
				t.Errorf("%q is removed twice", name)
			}
			if _, found, err := is.GetFault(ctx, name); err != nil || found {
				t.Errorf("%q: %v, %v", name, found, err)
			}
			if _, err := is.AwaitFault(ctx, name, 0); err == nil || !strings.Contains(err.Error(), "fault rule") {
				t.Errorf("%q: %v", name, err)
			}
		}
		if l := must[[]fakecloud.FaultStatus](t)(is.ListFaults(ctx)); len(l) != 1 || l[0].Rule != rule {
			t.Errorf("%+v", l)
		}
		if _, err := is.AddFault(ctx, fakecloud.Fault{Route: "/keys", Effect: fakecloud.DropConnection()}); err == nil || !strings.Contains(err.Error(), "/ssh_keys…") {
			t.Errorf("%v", err)
		}
		ok(t, is.ClearFaults(ctx))
		if l := must[[]fakecloud.FaultStatus](t)(is.ListFaults(ctx)); len(l) != 0 {
			t.Errorf("%+v", l)
		}
	})
}

func TestTheClockAndActionsAreTheSame(t *testing.T) {
	each(t, func(t *testing.T, c *fakecloud.Cloud, is controls) {
		ctx := t.Context()
		ok(t, is.SetSpeed(ctx, 0))
		before := must[time.Time](t)(is.Now(ctx))
		ok(t, is.SetProfile(ctx, "1h"))
		ok(t, createServer(ctx, c, "one"))
		done, cancel := context.WithCancelCause(ctx)
		cancel(errTooLate)
		if err := is.AwaitIdle(done); !errors.Is(err, errTooLate) || !strings.Contains(err.Error(), "still running") {
			t.Errorf("%v", err)
		}
		for range 2 { // create_server, and then start_server
			ok(t, is.Step(ctx, time.Hour))
		}
		ok(t, is.AwaitIdle(ctx))
		if now := must[time.Time](t)(is.Now(ctx)); !now.Equal(before.Add(2*time.Hour)) || now.Location() != time.UTC {
			t.Errorf("%v, before %v", now, before)
		}
		must[fakecloud.Fault](t)(is.AddFault(ctx, fakecloud.Fault{Method: "POST", Effect: fakecloud.HangAction()}))
		ok(t, is.SetProfile(ctx, "instant"))
		ok(t, createServer(ctx, c, "two"))
		if n := must[int](t)(is.ResumeActions(ctx)); n == 0 {
			t.Error("no action hangs")
		}
		ok(t, is.AwaitIdle(ctx))
		for name, err := range map[string]error{
			"step back":      is.Step(ctx, -1),
			"speed":          is.SetSpeed(ctx, -1),
			"profile":        is.SetProfile(ctx, "quick"),
			"rate limit":     is.SetRateLimit(ctx, -1),
			"revoked twice":  is.RevokeToken(ctx, "nobody's"),
			"project's name": errorOf(is.AddProject(ctx, "", "")),
		} {
			if err == nil {
				t.Errorf("%s: no error", name)
			}
		}
	})
}

func errorOf(_ int64, _ string, err error) error { return err }

func TestProjectsAndResetAreTheSame(t *testing.T) {
	each(t, func(t *testing.T, c *fakecloud.Cloud, is controls) {
		ctx := t.Context()
		id, token, err := is.AddProject(ctx, "staging", "")
		ok(t, err)
		if id == fakecloud.DefaultProject || len(token) != 64 {
			t.Errorf("%d %q", id, token)
		}
		ok(t, createServer(ctx, c, "one", hcloud.WithToken(token)))
		reader := must[string](t)(is.AddToken(ctx, id, "a/token%", true))
		if err := createServer(ctx, c, "two", hcloud.WithToken(reader)); !hcloud.IsError(err, hcloud.ErrorCodeForbidden) {
			t.Errorf("a read-only token: %v", err)
		}
		ok(t, is.RevokeToken(ctx, reader))
		if err := createServer(ctx, c, "two", hcloud.WithToken(reader)); !hcloud.IsError(err, hcloud.ErrorCodeUnauthorized) {
			t.Errorf("a revoked token: %v", err)
		}
		if pem := must[[]byte](t)(is.CARoots(ctx)); !bytes.Equal(pem, c.CARoots()) || !bytes.HasPrefix(pem, []byte("-----BEGIN")) {
			t.Errorf("%s", pem)
		}
		ok(t, is.Reset(ctx, fakecloud.KeepJournal))
		servers := must[[]*hcloud.Server](t)(c.Client(hcloud.WithToken(token)).Server.All(ctx))
		if n := must[int](t)(is.Count(ctx, fakecloud.JournalFilter{})); len(servers) != 0 || n == 0 {
			t.Errorf("%d servers, %d requests", len(servers), n)
		}
		ok(t, is.SetRateLimit(ctx, 1))
		_, err = c.Client(hcloud.WithRetryOpts(hcloud.RetryOpts{})).Server.All(ctx)
		ok(t, err)
		if _, err = c.Client(hcloud.WithRetryOpts(hcloud.RetryOpts{})).Server.All(ctx); !hcloud.IsError(err, hcloud.ErrorCodeRateLimitExceeded) {
			t.Errorf("%v", err)
		}
	})
}

// TestWhatACloudTellsOnlyToClients is about what the Cloud type has no method for.
func TestWhatACloudTellsOnlyToClients(t *testing.T) {
	t.Parallel()
	c := fakecloud.New(fakecloud.Options{Actions: "250ms", RateLimit: 70})
	t.Cleanup(c.Close)
	r, ctx := remote.InProcess(c), t.Context()
	if p, n := must[string](t)(r.Profile(ctx)), must[int](t)(r.RateLimit(ctx)); p != "250ms" || n != 70 {
		t.Errorf("%s, %d", p, n)
	}
	if x := must[float64](t)(r.Speed(ctx)); x != 1 {
		t.Errorf("speed %v", x)
	}
	if err := r.Ready(ctx); err == nil || !strings.Contains(err.Error(), "503") {
		t.Errorf("%v", err)
	}
	_, err := c.Start(ctx, "")
	ok(t, err)
	ok(t, r.Ready(ctx))
	if l := must[[]remote.Project](t)(r.Projects(ctx)); len(l) != 1 || l[0].ID != fakecloud.DefaultProject {
		t.Errorf("%+v", l)
	}
	_, _, err = c.Client().SSHKey.Create(ctx, hcloud.SSHKeyCreateOpts{Name: "mine", PublicKey: testKey})
	ok(t, err)
	selection := remote.Selection{Projects: []int64{1}, Kinds: []fakecloud.Kind{fakecloud.KindSSHKey}}
	raw := must[json.RawMessage](t)(r.State(ctx, selection))
	var state struct {
		Projects []struct {
			Resources map[string][]struct {
				Name string `json:"name"`
			} `json:"resources"`
		} `json:"projects"`
	}
	ok(t, json.Unmarshal(raw, &state))
	if got := state.Projects[0].Resources; len(got) != 1 || got["ssh_keys"][0].Name != "mine" {
		t.Errorf("%+v", got)
	}
}

func TestErrorsNameTheURLTheStatusAndTheMessage(t *testing.T) {
	t.Parallel()
	c := fakecloud.New(fakecloud.Options{})
	t.Cleanup(c.Close)
	var e *remote.Error
	err := remote.InProcess(c).SetProfile(t.Context(), "quick")
	if !errors.As(err, &e) || e.Status != 400 || e.URL != "http://fakecloud.invalid/profile" || !strings.Contains(err.Error(), "quick") ||
		!strings.Contains(err.Error(), "PUT http://fakecloud.invalid/profile: 400") {
		t.Errorf("%v", err)
	}
	for name, body := range map[string]string{"text": "no such page", "another API": `{"error": {"code": "not_found"}}`} {
		other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusNotFound)
			_, _ = w.Write([]byte(body))
		}))
		t.Cleanup(other.Close)
		if _, found, err := remote.New(other.URL).Faults().Get(t.Context(), "f"); found || !errors.As(err, &e) || !strings.Contains(err.Error(), "is the URL right?") {
			t.Errorf("%s: %v, %v", name, found, err)
		}
		if removed, err := remote.New(other.URL).Faults().Remove(t.Context(), "f"); removed || err == nil {
			t.Errorf("%s: %v, %v", name, removed, err)
		}
	}
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) }))
	if _, err := remote.New(page.URL).Now(t.Context()); err == nil || !strings.Contains(err.Error(), page.URL+"/clock: the answer is none of a control API") {
		t.Errorf("%v", err)
	}
	page.Close()
	if _, err := remote.New(page.URL).Now(t.Context()); err == nil || !strings.Contains(err.Error(), page.URL) {
		t.Errorf("nobody listens: %v", err)
	}
	if _, err := remote.New("http://[").Now(t.Context()); err == nil {
		t.Error("a URL that is none is accepted")
	}
}

func TestWhoeverAwaitsAsksAgain(t *testing.T) {
	t.Parallel()
	c := fakecloud.New(fakecloud.Options{})
	t.Cleanup(c.Close)
	asked := 0
	impatient := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asked++; asked <= 2 { // as if nothing came for 30 s
			q := r.URL.Query()
			q.Set("timeout", "0s")
			r.URL.RawQuery = q.Encode()
		} else if err := createServer(r.Context(), c, "one"); err != nil {
			t.Error(err)
		}
		c.ControlHandler().ServeHTTP(w, r)
	})
	r := remote.New("http://fakecloud.invalid", remote.WithHTTPClient(&http.Client{Transport: fakecloud.InProcess(impatient)}))
	entries, err := r.Journal().Await(t.Context(), fakecloud.JournalFilter{Operation: "create_server"}, 1)
	if err != nil || len(entries) != 1 || asked != 3 {
		t.Errorf("%d entries, %v, asked %d times", len(entries), err, asked)
	}
}
