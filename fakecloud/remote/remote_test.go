package remote_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/catalogue"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/fault"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/hypervisor"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/journal"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/remote"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/scenario"
)

// controls are the methods that a cloud and a client of its control API have in common.
type controls interface {
	Journal() journal.Journal
	Faults() fault.Rules
	Scenarios() scenario.Scenarios
	AttachHypervisor(context.Context, hypervisor.Options) (hypervisor.Session, error)
	ReportServerUsage(context.Context, int64, hypervisor.Usage) error
	Ready(context.Context) error
	State(context.Context, fakecloud.Selection) (json.RawMessage, error)
	Reset(context.Context, ...string) error
	Now(context.Context) (time.Time, error)
	Step(context.Context, time.Duration) error
	Speed(context.Context) (float64, error)
	SetSpeed(context.Context, float64) error
	Profile(context.Context) (string, error)
	SetProfile(context.Context, string) error
	RateLimit(context.Context) (int, error)
	SetRateLimit(context.Context, int) error
	Catalogue(context.Context) (json.RawMessage, error)
	OfferServerType(context.Context, string, string, catalogue.Offer) error
	AddServerType(context.Context, catalogue.NewServerType) error
	ResetCatalogue(context.Context) error
	Limits(context.Context, int64) (map[string]int, error)
	SetLimits(context.Context, int64, map[string]int) error
	Timeline(context.Context) ([]fakecloud.Due, error)
	Save(context.Context, io.Writer) error
	Restore(context.Context, io.Reader) error
	ResumeActions(context.Context) (int, error)
	AwaitIdle(context.Context) error
	CARoots(context.Context) ([]byte, error)
	Projects(context.Context) ([]fakecloud.Project, error)
	AddProject(context.Context, string, string) (int64, string, error)
	ResetProject(context.Context, int64, ...string) error
	DropProject(context.Context, int64) error
	TokenProject(context.Context, string) (fakecloud.Project, error)
	AddToken(context.Context, int64, string, bool) (string, error)
	SetTokenDate(context.Context, string, string) error
	RevokeToken(context.Context, string) error
}

// ways are the ways to control a cloud. They must agree.
var ways = map[string]func(*testing.T, *fakecloud.Cloud) controls{
	"direct": func(_ *testing.T, c *fakecloud.Cloud) controls { return c },
	"remote": func(t *testing.T, c *fakecloud.Cloud) controls { return remote.New(controlURL(t, c) + "/") },
}

// each runs a test with a new cloud for each way to control it.
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
		ok(t, err)
		return v
	}
}

func ok(t testing.TB, err error) {
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
			entries, err := is.Journal().Await(ctx, journal.Filter{Operation: "create_server"}, 2)
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
		f := journal.Filter{Method: "post", Route: "/servers", Project: 1, Since: 1, Writes: true}
		entries := must[[]journal.Entry](t)(is.Journal().Entries(ctx, f))
		if len(entries) != 2 || entries[0] != must[[]journal.Entry](t)(c.Journal().Entries(ctx, f))[0] ||
			entries[1].ErrorCode != "uniqueness_error" {
			t.Errorf("%+v", entries)
		}
		if n := must[int](t)(is.Journal().Count(ctx, f)); n != 2 {
			t.Errorf("count %d", n)
		}
		done, cancel := context.WithCancelCause(ctx)
		cancel(errTooLate)
		if entries, err := is.Journal().Await(done, f, 3); !errors.Is(err, errTooLate) || len(entries) != 2 {
			t.Errorf("%d entries, %v", len(entries), err)
		}
		last := must[uint64](t)(is.Journal().Last(ctx))
		ok(t, is.Journal().Reset(ctx))
		if n := must[int](t)(is.Journal().Count(ctx, journal.Filter{})); n != 0 || last != 3 {
			t.Errorf("%d after Reset, last was %d", n, last)
		}
	})
}

var errTooLate = errors.New("too late")

func TestFaultsAreTheSame(t *testing.T) {
	each(t, func(t *testing.T, c *fakecloud.Cloud, is controls) {
		ctx := t.Context()
		effect := fault.APIError("conflict")
		effect.Latency = fault.Duration(time.Millisecond)
		rule := must[fault.Rule](t)(is.Faults().Add(ctx, fault.Rule{Method: "post", Route: "/v1/servers", First: 1, Effect: effect}))
		if rule.Name == "" || rule.Method != "POST" || rule.Route != "/servers" || rule.Effect != effect {
			t.Errorf("%+v", rule)
		}
		awaited := make(chan fault.Status, 1)
		go func() {
			st, err := is.Faults().Await(ctx, rule.Name, 1)
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
		if st, err := is.Faults().Await(done, rule.Name, 5); !errors.Is(err, errTooLate) || st.Applied != 1 {
			t.Errorf("%+v, %v", st, err)
		}
		for _, name := range []string{"a/b", "50%", "%2f", "ü ?#", ".."} {
			must[fault.Rule](t)(is.Faults().Add(ctx, fault.Rule{Name: name, Effect: fault.DropConnection()}))
			if st, found, err := is.Faults().Get(ctx, name); err != nil || !found || st.Name != name {
				t.Errorf("%q: %+v, %v, %v", name, st, found, err)
			}
			if st, err := is.Faults().Await(ctx, name, 0); err != nil || st.Name != name {
				t.Errorf("%q: %+v, %v", name, st, err)
			}
			if removed := must[bool](t)(is.Faults().Remove(ctx, name)); !removed {
				t.Errorf("%q is not removed", name)
			}
			if removed := must[bool](t)(is.Faults().Remove(ctx, name)); removed {
				t.Errorf("%q is removed twice", name)
			}
			if _, found, err := is.Faults().Get(ctx, name); err != nil || found {
				t.Errorf("%q: %v, %v", name, found, err)
			}
			if _, err := is.Faults().Await(ctx, name, 0); !errors.Is(err, fault.ErrNotFound) {
				t.Errorf("%q: %v", name, err)
			}
		}
		if l := must[[]fault.Status](t)(is.Faults().List(ctx)); len(l) != 1 || l[0].Rule != rule {
			t.Errorf("%+v", l)
		}
		if _, err := is.Faults().Add(ctx, fault.Rule{Route: "/keys", Effect: fault.DropConnection()}); err == nil ||
			!strings.Contains(err.Error(), "/ssh_keys…") {
			t.Errorf("%v", err)
		}
		ok(t, is.Faults().Clear(ctx))
		if l := must[[]fault.Status](t)(is.Faults().List(ctx)); len(l) != 0 {
			t.Errorf("%+v", l)
		}
	})
}

func TestSnapshotsAreTheSame(t *testing.T) {
	each(t, func(t *testing.T, c *fakecloud.Cloud, is controls) {
		ctx := t.Context()
		ok(t, is.SetSpeed(ctx, 0))
		ok(t, createServer(ctx, c, "one"))
		var text bytes.Buffer
		ok(t, is.Save(ctx, &text))
		saved := must[json.RawMessage](t)(is.State(ctx, fakecloud.Selection{}))
		ok(t, is.Step(ctx, time.Hour))
		ok(t, createServer(ctx, c, "two"))
		changed := must[json.RawMessage](t)(is.State(ctx, fakecloud.Selection{}))
		if err := is.Restore(ctx, strings.NewReader(text.String()[:text.Len()-20])); err == nil || !strings.Contains(err.Error(), "line ") {
			t.Errorf("half a snapshot: %v", err)
		}
		if now := must[json.RawMessage](t)(is.State(ctx, fakecloud.Selection{})); !bytes.Equal(now, changed) {
			t.Errorf("half a snapshot changed the cloud to %s", now)
		}
		ok(t, is.Restore(ctx, &text))
		if now := must[json.RawMessage](t)(is.State(ctx, fakecloud.Selection{})); !bytes.Equal(now, saved) {
			t.Errorf("%s, want %s", now, saved)
		}
	})
}

func TestForksAreClouds(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c := fakecloud.New(fakecloud.Options{})
	t.Cleanup(c.Close)
	original := ways["remote"](t, c).(*remote.Client)
	ok(t, createServer(ctx, c, "one"))
	fork := must[*remote.Fork](t)(original.Fork(ctx))
	ok(t, fork.Ready(ctx))
	client := hcloud.NewClient(hcloud.WithEndpoint(fork.Endpoint), hcloud.WithToken(fakecloud.DefaultToken))
	_, _, err := client.Server.Create(ctx, hcloud.ServerCreateOpts{
		Name: "two", ServerType: &hcloud.ServerType{Name: "cx23"}, Image: &hcloud.Image{Name: "debian-13"},
	})
	ok(t, err)
	for _, test := range []struct {
		client *hcloud.Client
		is     *remote.Client
		want   int
	}{{client, fork.Client, 2}, {c.Client(), original, 1}} {
		if servers := must[[]*hcloud.Server](t)(test.client.Server.All(ctx)); len(servers) != test.want {
			t.Errorf("%d servers, want %d", len(servers), test.want)
		}
		if n := must[int](t)(test.is.Journal().Count(ctx, journal.Filter{Operation: "create_server"})); n != 1 {
			t.Errorf("%d creations in the journal, want 1", n)
		}
	}
	ok(t, fork.Close(ctx))
	for _, err := range []error{fork.Ready(ctx), fork.Close(ctx)} {
		e, is := errors.AsType[*remote.Error](err)
		if !is || e.Status != http.StatusNotFound || !strings.Contains(e.Message, "GET /forks") {
			t.Errorf("a fork that was removed: %v", err)
		}
	}
	outer := must[*remote.Fork](t)(original.Fork(ctx))
	for range 99 {
		must[*remote.Fork](t)(outer.Fork(ctx))
	}
	if _, err := original.Fork(ctx); err == nil || !strings.Contains(err.Error(), "delete one") {
		t.Errorf("fork 101: %v", err)
	}
	ok(t, outer.Close(ctx)) // with the other 99
	for range 100 {
		must[*remote.Fork](t)(original.Fork(ctx))
	}
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
		due := must[[]fakecloud.Due](t)(is.Timeline(ctx))
		if len(due) != 1 || due[0].What != "action_ends" || due[0].Command != "create_server" ||
			!due[0].Time.Equal(before.Add(time.Hour)) || due[0].Resources[0].Kind != "server" {
			t.Errorf("%+v", due)
		}
		for range 2 { // create_server, and then start_server
			ok(t, is.Step(ctx, time.Hour))
		}
		ok(t, is.AwaitIdle(ctx))
		if now := must[time.Time](t)(is.Now(ctx)); !now.Equal(before.Add(2*time.Hour)) || now.Location() != time.UTC {
			t.Errorf("%v, before %v", now, before)
		}
		must[fault.Rule](t)(is.Faults().Add(ctx, fault.Rule{Method: "POST", Effect: fault.HangAction()}))
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
			"revoked twice":  is.RevokeToken(ctx, "unknown"),
			"date's token":   is.SetTokenDate(ctx, "unknown", "2026-06-01"),
			"token's date":   is.SetTokenDate(ctx, c.Token(), "June"),
			"project's name": errorOf(is.AddProject(ctx, "", "")),
		} {
			if err == nil {
				t.Errorf("%s: no error", name)
			}
		}
	})
}

func TestReportsOfUsageAreTheSame(t *testing.T) {
	each(t, func(t *testing.T, c *fakecloud.Cloud, is controls) {
		ctx := t.Context()
		ok(t, c.SetSpeed(ctx, 0))
		ok(t, createServer(ctx, c, "one"))
		server, _, err := c.Client().Server.GetByName(ctx, "one")
		ok(t, err)
		start := must[time.Time](t)(c.Now(ctx))
		ok(t, is.ReportServerUsage(ctx, server.ID, hypervisor.Usage{
			CPU: 150.5, DiskReadOps: 1, DiskWriteOps: 2, DiskReadBytes: 3, DiskWriteBytes: 4, PacketsIn: 5, PacketsOut: 6, BytesIn: 7,
			BytesOut: 8,
		}))
		for name, err := range map[string]error{
			"cpu: NaN":        is.ReportServerUsage(ctx, server.ID, hypervisor.Usage{CPU: math.NaN(), BytesIn: 9}),
			"bytes_out: +Inf": is.ReportServerUsage(ctx, server.ID, hypervisor.Usage{BytesOut: math.Inf(1)}),
			"bytes_in: -1":    is.ReportServerUsage(ctx, server.ID, hypervisor.Usage{CPU: 9, BytesIn: -1}),
			"does not exist":  is.ReportServerUsage(ctx, 5, hypervisor.Usage{}),
		} {
			if err == nil || !strings.Contains(err.Error(), name) {
				t.Errorf("%s: %v", name, err)
			}
		}
		ok(t, c.Step(ctx, 10*time.Second))
		metrics, _, err := c.Client().Server.GetMetrics(ctx, server, hcloud.ServerGetMetricsOpts{
			Types: []hcloud.ServerMetricType{hcloud.ServerMetricCPU, hcloud.ServerMetricDisk, hcloud.ServerMetricNetwork},
			Start: start.Add(2 * time.Second), End: start.Add(3 * time.Second), Step: 1,
		})
		ok(t, err)
		for series, want := range map[string]string{
			"cpu": "150.5", "disk.0.iops.read": "1", "disk.0.iops.write": "2", "disk.0.bandwidth.read": "3", "disk.0.bandwidth.write": "4",
			"network.0.pps.in": "5", "network.0.pps.out": "6", "network.0.bandwidth.in": "7", "network.0.bandwidth.out": "8",
		} {
			if got := metrics.TimeSeries[series]; len(got) != 1 || got[0].Value != want {
				t.Errorf("%s is %v, want %s", series, got, want)
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
		ok(t, is.SetTokenDate(ctx, reader, "2026-10-04"))
		if err := createServer(ctx, c, "two", hcloud.WithToken(reader)); !hcloud.IsError(err, "token_readonly") {
			t.Errorf("a read-only token of an earlier day: %v", err)
		}
		ok(t, is.RevokeToken(ctx, reader))
		if err := createServer(ctx, c, "two", hcloud.WithToken(reader)); !hcloud.IsError(err, hcloud.ErrorCodeUnauthorized) {
			t.Errorf("a revoked token: %v", err)
		}
		if pem := must[[]byte](t)(is.CARoots(ctx)); !bytes.Equal(pem, must[[]byte](t)(c.CARoots(ctx))) ||
			!bytes.HasPrefix(pem, []byte("-----BEGIN")) {
			t.Errorf("%s", pem)
		}
		ok(t, is.Reset(ctx, fakecloud.KeepJournal))
		servers := must[[]*hcloud.Server](t)(c.Client(hcloud.WithToken(token)).Server.All(ctx))
		if n := must[int](t)(is.Journal().Count(ctx, journal.Filter{})); len(servers) != 0 || n == 0 {
			t.Errorf("%d servers, %d requests", len(servers), n)
		}
		ok(t, is.SetRateLimit(ctx, 1))
		_, err = c.Client(hcloud.WithRetryOpts(hcloud.RetryOpts{})).Server.All(ctx)
		ok(t, err)
		if _, err = c.Client(hcloud.WithRetryOpts(hcloud.RetryOpts{})).Server.All(ctx); !hcloud.IsError(err,
			hcloud.ErrorCodeRateLimitExceeded) {
			t.Errorf("%v", err)
		}
	})
}

func TestDropsAndResetsOfOneProjectAreTheSame(t *testing.T) {
	each(t, func(t *testing.T, c *fakecloud.Cloud, is controls) {
		ctx := t.Context()
		id, token, err := is.AddProject(ctx, "staging", "a/token%")
		ok(t, err)
		ok(t, createServer(ctx, c, "one"))
		ok(t, createServer(ctx, c, "one", hcloud.WithToken(token)))
		want := fakecloud.Project{ID: id, Name: "staging"}
		if p := must[fakecloud.Project](t)(is.TokenProject(ctx, token)); p != want {
			t.Errorf("%+v", p)
		}
		ok(t, is.ResetProject(ctx, id, fakecloud.KeepResources))
		if n := must[int](t)(is.Journal().Count(ctx, journal.Filter{})); n != 1 {
			t.Errorf("%d requests in the journal, want that of the other project", n)
		}
		ok(t, is.ResetProject(ctx, id))
		servers := must[[]*hcloud.Server](t)(c.Client(hcloud.WithToken(token)).Server.All(ctx))
		others := must[[]*hcloud.Server](t)(c.Client().Server.All(ctx))
		if len(servers) != 0 || len(others) != 1 {
			t.Errorf("%d servers after the reset, and %d of the other project", len(servers), len(others))
		}
		ok(t, is.DropProject(ctx, id))
		if _, err := c.Client(hcloud.WithToken(token)).Server.All(ctx); !hcloud.IsError(err, hcloud.ErrorCodeUnauthorized) {
			t.Errorf("the token of a dropped project: %v", err)
		}
		_, noToken := is.TokenProject(ctx, token)
		for what, err := range map[string]error{
			"drop twice": is.DropProject(ctx, id), "reset after the drop": is.ResetProject(ctx, id), "token": noToken,
			"drop of the first": is.DropProject(ctx, fakecloud.DefaultProject), "part": is.ResetProject(ctx, fakecloud.DefaultProject, "x"),
		} {
			if err == nil {
				t.Errorf("%s: no error", what)
			}
		}
	})
}

func TestSettingsAndStateAreTheSame(t *testing.T) {
	each(t, func(t *testing.T, c *fakecloud.Cloud, r controls) {
		ctx := t.Context()
		ok(t, c.SetProfile(ctx, "250ms"))
		ok(t, c.SetRateLimit(ctx, 70))
		if p, n := must[string](t)(r.Profile(ctx)), must[int](t)(r.RateLimit(ctx)); p != "250ms" || n != 70 {
			t.Errorf("%s, %d", p, n)
		}
		if x := must[float64](t)(r.Speed(ctx)); x != 1 {
			t.Errorf("speed %v", x)
		}
		if err := r.Ready(ctx); err == nil || !strings.Contains(err.Error(), "not ready") {
			t.Errorf("%v", err)
		}
		_, err := c.Start(ctx, "")
		ok(t, err)
		ok(t, r.Ready(ctx))
		if _, _, err := r.AddProject(ctx, "other", c.Token()); err == nil || !strings.Contains(err.Error(), "exists already") {
			t.Errorf("a project with the token of another one: %v", err)
		}
		if l := must[[]fakecloud.Project](t)(r.Projects(ctx)); len(l) != 1 || l[0].ID != fakecloud.DefaultProject {
			t.Errorf("%+v", l)
		}
		_, _, err = c.Client().SSHKey.Create(ctx, hcloud.SSHKeyCreateOpts{Name: "mine", PublicKey: testKey})
		ok(t, err)
		selection := fakecloud.Selection{Projects: []int64{1}, Kinds: []string{"ssh_key"}}
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
		if _, err := r.State(ctx, fakecloud.Selection{Kinds: []string{"cluster"}}); err == nil ||
			!strings.Contains(err.Error(), "ssh_key") {
			t.Errorf("unknown kind: %v", err)
		}
	})
}

func TestErrorsNameTheURLTheStatusAndTheMessage(t *testing.T) {
	t.Parallel()
	c := fakecloud.New(fakecloud.Options{})
	t.Cleanup(c.Close)
	var e *remote.Error
	err := remote.New(controlURL(t, c)).SetProfile(t.Context(), "quick")
	if url := c.ControlURL() + "/profile"; !errors.As(err, &e) || e.Status != 400 || e.URL != url ||
		!strings.Contains(err.Error(), "quick") ||
		!strings.Contains(err.Error(), "PUT "+url+": 400") {
		t.Errorf("%v", err)
	}
	for name, body := range map[string]string{"text": "no such page", "another API": `{"error": {"code": "not_found"}}`} {
		other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusNotFound)
			_, _ = w.Write([]byte(body))
		}))
		t.Cleanup(other.Close)
		if _, found, err := remote.New(other.URL).Faults().Get(t.Context(), "f"); found || !errors.As(err, &e) ||
			!strings.Contains(err.Error(), "check the URL") {
			t.Errorf("%s: %v, %v", name, found, err)
		}
		if removed, err := remote.New(other.URL).Faults().Remove(t.Context(), "f"); removed || err == nil {
			t.Errorf("%s: %v, %v", name, removed, err)
		}
	}
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) }))
	if _, err := remote.New(page.URL).Now(t.Context()); err == nil ||
		!strings.Contains(err.Error(), page.URL+"/clock: this is not an answer of the control API; check the URL") {
		t.Errorf("%v", err)
	}
	page.Close()
	if _, err := remote.New(page.URL).Now(t.Context()); err == nil || !strings.Contains(err.Error(), page.URL) {
		t.Errorf("no listener: %v", err)
	}
	if _, err := remote.New("http://[").Now(t.Context()); err == nil {
		t.Error("a malformed URL is accepted")
	}
}

func TestAwaitAsksAgain(t *testing.T) {
	t.Parallel()
	c := fakecloud.New(fakecloud.Options{})
	t.Cleanup(c.Close)
	asked := 0
	impatient := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asked++; asked <= 2 { // the answer after 30 s without an entry
			q := r.URL.Query()
			q.Set("timeout", "0s")
			r.URL.RawQuery = q.Encode()
		} else if err := createServer(r.Context(), c, "one"); err != nil {
			t.Error(err)
		}
		c.ControlHandler().ServeHTTP(w, r)
	})
	r := remote.New("http://fakecloud.invalid", remote.WithHTTPClient(&http.Client{Transport: fakecloud.InProcess(impatient)}))
	entries, err := r.Journal().Await(t.Context(), journal.Filter{Operation: "create_server"}, 1)
	if err != nil || len(entries) != 1 || asked != 3 {
		t.Errorf("%d entries, %v, asked %d times", len(entries), err, asked)
	}
}
