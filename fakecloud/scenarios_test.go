package fakecloud_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/catalogue"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/fault"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/scenario"
)

// incidents are the built-in scenarios. effect is what a client sees: nil without the scenario. steps, if not zero, is when it is over
// by itself.
var incidents = map[string]struct {
	start  string
	effect func(context.Context, *incident) error
	want   any // a part of the error, or an error that it wraps
	steps  time.Duration
}{
	"sold-out": {"sold-out=cx23@fsn1", func(ctx context.Context, in *incident) error { return in.ordered(ctx) }, "resource_unavailable", 0},
	"retired":  {"retired=cx23@0s", func(ctx context.Context, in *incident) error { return in.ordered(ctx) }, "is deprecated", 0},
	"limit-servers": {"limit-servers", func(ctx context.Context, in *incident) error { return in.ordered(ctx) },
		"resource_limit_exceeded", 0},
	"limit-primary-ips": {"limit-primary-ips", func(ctx context.Context, in *incident) error { return in.ordered(ctx) },
		"Primary IP limit exceeded", 0},
	"limit-load-balancers": {"limit-load-balancers", func(ctx context.Context, in *incident) error {
		created, err := in.balance(ctx, "probe")
		if err == nil {
			_, _, err = in.LoadBalancer.DeleteWithResult(ctx, created.LoadBalancer)
		}
		return err
	}, "resource_limit_exceeded", 0},
	"rate-limit": {"rate-limit", func(ctx context.Context, in *incident) error {
		_, response, err := in.Server.GetByID(ctx, in.server.ID)
		if err != nil && response.Meta.Ratelimit.Remaining != 0 {
			return errors.New("the header says that requests remain")
		}
		return err
	}, "rate_limit_exceeded", 10 * time.Minute},
	"rate-limit-no-headers": {"rate-limit-no-headers=5m", func(ctx context.Context, in *incident) error {
		_, response, err := in.Server.GetByID(ctx, in.server.ID)
		if err != nil && response != nil && response.Header.Get("RateLimit-Limit") != "" {
			return errors.New("the answer has a header")
		}
		return err
	}, "429", 5 * time.Minute},
	"token-revoked": {"token-revoked", func(ctx context.Context, in *incident) error { return in.listed(ctx) }, "unauthorized",
		10 * time.Minute},
	"token-of-another-project": {"token-of-another-project", func(ctx context.Context, in *incident) error { return in.listed(ctx) },
		"not one server", 0},
	"token-read-only": {"token-read-only", func(ctx context.Context, in *incident) error {
		if err := in.listed(ctx); err != nil {
			return errors.New("it cannot read")
		}
		return in.relabelled(ctx)
	}, "(forbidden", 0},
	"answers-lost": {"answers-lost", func(ctx context.Context, in *incident) error { return each(ctx, 20, in.relabelled) }, "EOF", 0},
	"actions-hang": {"actions-hang", func(ctx context.Context, in *incident) error { return in.ran(ctx) }, "the action runs", 0},
	"actions-fail": {"actions-fail=load_balancer@server_not_stopped", func(ctx context.Context, in *incident) error { return in.ran(ctx) },
		"server_not_stopped", 0},
	"actions-slow": {"actions-slow", func(ctx context.Context, in *incident) error {
		err := in.ran(ctx)
		return errors.Join(err, in.Step(ctx, time.Hour)) // for the lock
	}, "the action runs", 0},
	"guests-slow": {"guests-slow=40s", func(ctx context.Context, in *incident) error { return in.shutDown(ctx) }, "is running", 0},
	"guests-ignore-shutdown": {"guests-ignore-shutdown", func(ctx context.Context, in *incident) error {
		return in.shutDown(ctx)
	}, "is running", 0},
	"servers-stay-off": {"servers-stay-off", func(ctx context.Context, in *incident) error {
		created, err := in.order(ctx, "probe")
		if err != nil {
			return err
		}
		status := errors.Join(in.Step(ctx, 15*time.Second), in.status(ctx, created.Server, hcloud.ServerStatusRunning))
		_, _, err = in.Server.DeleteWithResult(ctx, created.Server)
		return errors.Join(status, err, in.Step(ctx, 15*time.Second))
	}, "is off", 0},
	"server-errors": {"server-errors=502@1m@10m", func(ctx context.Context, in *incident) error { return in.listed(ctx) }, "502", 0},
	"conflicts":     {"conflicts", func(ctx context.Context, in *incident) error { return each(ctx, 20, in.relabelled) }, "(conflict", 0},
	"connections-refused": {"connections-refused", func(ctx context.Context, in *incident) error { return in.listed(ctx) },
		syscall.ECONNRESET, 5 * time.Minute},
	"connections-cut": {"connections-cut", func(ctx context.Context, in *incident) error { return each(ctx, 20, in.listed) }, "EOF", 0},
	"lists-empty": {
		"lists-empty", func(ctx context.Context, in *incident) error { return in.listed(ctx) }, "not one server", 10 * time.Minute,
	},
	"server-vanishes": {"server-vanishes=web-1@1h", func(ctx context.Context, in *incident) error {
		s, _, err := in.Server.GetByID(ctx, in.server.ID)
		if err == nil && (s == nil) != (in.listed(ctx) != nil) {
			err = errors.New("list and server disagree")
		}
		if err == nil && s == nil {
			err = errors.New("gone")
		}
		return err
	}, "gone", time.Hour},
	"certificate-not-issued": {"certificate-not-issued", func(ctx context.Context, in *incident) error {
		in.certified++
		name := strings.Repeat("x", in.certified)
		created, _, err := in.Certificate.CreateCertificate(ctx, hcloud.CertificateCreateOpts{
			Name: name, Type: hcloud.CertificateTypeManaged, DomainNames: []string{name + ".example.com"},
		})
		if err != nil {
			return err
		}
		if err := in.Step(ctx, time.Hour); err != nil {
			return err
		}
		now, _, err := in.Certificate.GetByID(ctx, created.Certificate.ID)
		if err == nil && now.Status.IsFailed() {
			return now.Status.Error
		}
		return err
	}, "dns_zone_not_found", 0},
	"load-balancer-full": {"load-balancer-full", func(ctx context.Context, in *incident) error {
		_, _, err := in.LoadBalancer.AddServerTarget(ctx, in.balancer, hcloud.LoadBalancerAddServerTargetOpts{Server: in.server})
		if err == nil {
			_, _, err = in.LoadBalancer.RemoveServerTarget(ctx, in.balancer, in.server)
		}
		return err
	}, "resource_limit_exceeded", 0},
	"api-of-next-month": {"api-of-next-month=2026-07-01", func(ctx context.Context, in *incident) error {
		request, err := in.NewRequest(ctx, http.MethodGet, "/servers", nil)
		if err != nil {
			return err
		}
		var body bytes.Buffer
		_, err = in.Do(request, &body)
		if err == nil && !strings.Contains(body.String(), `"datacenter"`) {
			err = errors.New("servers have no datacenter")
		}
		return err
	}, "no datacenter", 0},
}

// TestEachIncidentEndsWithoutATrace starts each built-in scenario, sees what it does, ends it, and compares the cloud with that of before.
func TestEachIncidentEndsWithoutATrace(t *testing.T) {
	t.Parallel()
	available, err := fakecloud.New(fakecloud.Options{}).Scenarios().Available(t.Context())
	if err != nil || len(available) != len(incidents) {
		t.Errorf("%d scenarios are built in, %d are tested: %v", len(available), len(incidents), err)
	}
	for _, a := range available {
		t.Run(a.Name, func(t *testing.T) {
			t.Parallel()
			test, ok := incidents[a.Name]
			if !ok {
				t.Fatal("the scenario has no test")
			}
			o := fakecloud.Options{RandomSeed: 1, RateLimit: 1_000_000}
			if a.Name == "api-of-next-month" {
				o.APIDate = "2026-06-30"
			}
			in := startIncident(t, o)
			settle := func() {
				t.Helper()
				check(t, in.SetProfile(t.Context(), "instant"))
				if err := test.effect(t.Context(), in); err != nil {
					t.Errorf("without the scenario: %v", err)
				}
				check(t, in.SetProfile(t.Context(), "10s"))
			}
			settle()
			before := settingsOf(t, in.Cloud)
			running, err := in.Scenarios().Start(t.Context(), test.start)
			if err != nil || running.InForce != 1 || running.Error != "" || strings.Contains(running.Description, "$") {
				t.Fatalf("%+v, %v", running, err)
			}
			sees(t, test.effect(t.Context(), in), test.want)
			if test.steps > 0 {
				check(t, in.Step(t.Context(), test.steps))
				if err := in.Scenarios().End(t.Context(), running.ID); !errors.Is(err, scenario.ErrNotFound) {
					t.Errorf("it is not over by itself: %v", err)
				}
			} else if err := in.Scenarios().End(t.Context(), running.ID); err != nil {
				t.Fatal(err)
			}
			if after := settingsOf(t, in.Cloud); after != before {
				t.Errorf("before:\n%s\nafter:\n%s", before, after)
			}
			settle()
		})
	}
}

func sees(t *testing.T, err error, want any) {
	t.Helper()
	if target, ok := want.(error); ok {
		if !errors.Is(err, target) {
			t.Errorf("the client sees %v, want %v", err, target)
		}
		return
	}
	if err == nil || !strings.Contains(err.Error(), want.(string)) {
		t.Errorf("the client sees %v, want %q", err, want)
	}
}

// settingsOf returns the lines of a snapshot that are not resources and actions.
func settingsOf(t *testing.T, c *fakecloud.Cloud) string {
	t.Helper()
	var text bytes.Buffer
	check(t, c.Save(t.Context(), &text))
	var out strings.Builder
	for line := range strings.Lines(text.String()) {
		for _, kind := range []string{"server_type", "project", "token", "scenario", "fault", "timer"} {
			if strings.HasPrefix(line, `{"kind":"`+kind+`"`) && !strings.Contains(line, `"renewal`) {
				out.WriteString(line)
			}
		}
	}
	return out.String()
}

// ExampleCloud_Scenarios rehearses a server type that is sold out.
func ExampleCloud_Scenarios() {
	ctx := context.Background()
	cloud := fakecloud.New(fakecloud.Options{})
	defer cloud.Close()
	running, err := cloud.Scenarios().Start(ctx, "sold-out=cx23@fsn1")
	if err != nil {
		panic(err)
	}
	fmt.Println(running.Description)
	// … see what your program does …
	if err := cloud.Scenarios().End(ctx, running.ID); err != nil {
		panic(err)
	}
	// Output: Server type cx23 is sold out in fsn1.
}

// TestWhatSomebodyElseChangedStays ends scenarios that overlap each other and the changes of others.
func TestWhatSomebodyElseChangedStays(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c := newCloud(t, fakecloud.Options{})
	before := settingsOf(t, c)
	start := func(text string) int64 {
		t.Helper()
		s := must(c.Scenarios().Start(ctx, text))(t)
		return s.ID
	}
	end := func(id int64) {
		t.Helper()
		check(t, c.Scenarios().End(ctx, id))
	}
	for _, order := range [][]int{{0, 1, 2}, {2, 1, 0}, {1, 0, 2}, {0, 2, 1}} {
		ids := []int64{start("limit-servers=3"), start("limit-servers=2"), start("limit-servers=1")}
		for _, i := range order[:2] {
			end(ids[i])
		}
		if l, err := c.Limits(ctx, 1); err != nil || l["server"] != 3-order[2] {
			t.Errorf("order %v: with the last one the limit is %v, %v", order, l, err)
		}
		end(ids[order[2]])
		if after := settingsOf(t, c); after != before {
			t.Errorf("order %v: %s", order, after)
		}
	}
	limits, soldOut, revoked := start("limit-servers=3"), start("sold-out"), start("token-revoked")
	check(t, c.SetLimits(ctx, 1, map[string]int{"server": 7}))
	check(t, c.OfferServerType(ctx, "cx23", "fsn1", catalogue.Offer{PriceMonthly: new(9.0)}))
	must(c.AddToken(ctx, 1, c.Token(), true))(t)
	must(c.Faults().Add(ctx, fault.Rule{Name: "mine", Effect: fault.Latency(1)}))(t)
	end(limits)
	end(soldOut)
	end(revoked)
	after := settingsOf(t, c)
	for _, want := range []string{`"limits":{"server":7}`, `"available":true`, `"net":"9.0000"`, `"read_only":true`, `"mine"`} {
		if !strings.Contains(after, want) {
			t.Errorf("%s is gone: %s", want, after)
		}
	}
}

// TestAScenarioGoesOnElsewhere copies, saves and loads a cloud between two steps of a scenario.
func TestAScenarioGoesOnElsewhere(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c := newCloud(t, fakecloud.Options{})
	check(t, c.SetSpeed(ctx, 0))
	before := settingsOf(t, c)
	for _, text := range []string{"server-errors=500@1m@3m", "token-revoked=10m", "sold-out"} {
		must(c.Scenarios().Start(ctx, text))(t)
	}
	check(t, c.Step(ctx, 30*time.Second))
	var text bytes.Buffer
	check(t, c.Save(ctx, &text))
	loaded := must(fakecloud.Load(bytes.NewReader(text.Bytes()), fakecloud.Options{}))(t)
	check(t, loaded.SetSpeed(ctx, 0))
	for name, other := range map[string]*fakecloud.Cloud{"fork": c.Fork(), "loaded": loaded} {
		defer other.Close()
		if name == "loaded" { // Load has made the token valid again
			check(t, other.RevokeToken(ctx, other.Token()))
		}
		for i, rules := range []int{1, 0, 0, 1, 0, 0, 1, 0, 0, 1, 0} { // each minute
			all, _ := other.Faults().List(ctx)
			if _, err := other.TokenProject(ctx, c.Token()); len(all) != rules || (err == nil) != (i >= 10) {
				t.Errorf("%s, after %d minutes: %d rules, token: %v", name, i, len(all), err)
			}
			check(t, other.Step(ctx, time.Minute))
		}
		all, err := other.Scenarios().List(ctx)
		if err != nil || len(all) != 2 {
			t.Fatalf("%s: %+v, %v", name, all, err)
		}
		for _, s := range all {
			check(t, other.Scenarios().End(ctx, s.ID))
		}
		if after := settingsOf(t, other); after != before {
			t.Errorf("%s: before:\n%s\nafter:\n%s", name, before, after)
		}
	}
	if all, _ := c.Faults().List(ctx); len(all) != 1 {
		t.Errorf("the original has %d rules", len(all))
	}
}

// TestAWrongScenarioChangesNothing shows the errors of starts.
func TestAWrongScenarioChangesNothing(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c := newCloud(t, fakecloud.Options{})
	before := settingsOf(t, c)
	head := "name: mine\ndescription: A test.\n"
	good := "\n  - limit: {project: 1, kind: server, most: 1}\n"
	first := head + "changes:" + good
	for text, want := range map[string]string{
		"":                              "is empty",
		"- a":                           "mine.yaml:1: must be an object",
		"name: [":                       "mine.yaml: yaml: line 1",
		head:                            "changes: is required",
		head + "changes: []":            "mine.yaml:3: changes: is required",
		"name: A b\nchanges: [{}]":      "mine.yaml:1: name:",
		"name: a\nchanges: [{}]":        "description: is required",
		head + "changs: []":             `mine.yaml:3: json: unknown field "changs"`,
		head + "changes:\n  - {}":       "mine.yaml:4: changes[0]: must have exactly one of offer, limit, tokens, fault",
		head + "changes:\n  - {at: 1x}": "mine.yaml:4: changes[0].duration",
		head + "changes:\n  - {at: -1s, limit: {project: 1, kind: server, most: 1}}":  "at -1s: must be at least 0s",
		head + "changes:\n  - {at: 2s, until: 1s, limit: {project: 1, kind: server}}": "until 1s: must be after at",
		head + "repeat: 1ms\nchanges:\n  - {limit: {project: 1, kind: server}}":       "repeat 1ms: must be 1s to",
		first + "  - limit: {project: 1, kind: moon, most: 1}":                        `mine.yaml:5: changes[1]: limit of "moon"`,
		first + "  - limit: {project: 9, kind: server, most: 1}":                      "changes[1]: limit: project 9 does not exist",
		first + "  - limit: {project: one, kind: server, most: 1}":                    "changes[1].limit.project: must be a whole number",
		first + "  - {at: 1h, fault: {effect: {kind: explode}}}":                      `mine.yaml:5: changes[1]: fault: effect.kind "explode": must be one of`,
		first + "  - fault:\n      frist: 1\n      effect: {kind: drop}":              `mine.yaml:6: changes[1].json: unknown field "frist"`,
		first + "  - offer: {server_type: cx99, available: false}":                    "GET /catalogue lists them",
		first + "  - offer: {server_type: cx23}":                                      "offer: must change something",
		first + "  - offer: {server_type: cx23, retires: soon}":                       `retires: "soon": must be a day such as`,
		first + "  - tokens: {project: 1}":                                            "tokens: must have one of revoked",
		first + "  - tokens: {project: 1, api_date: never}":                           "tokens.api_date",
		first + "  - limit: {project: $p, kind: server, most: 1}":                     "mine.yaml:5: $p: must be one of the parameters []",
		head + "parameters: [{name: p, default: a}]\nchanges:" + good:                 "mine.yaml:3: parameters: $p is used nowhere",
		head + "parameters: [{name: p, name: p}]\nchanges:" + good:                    "already defined",
		head + "changes: &a\n  - *a\n":                                                "contains itself",
		head + "changes:" + good + "---\nname: b":                                     "must be one document",
	} {
		path := filepath.Join(t.TempDir(), "mine.yaml")
		check(t, os.WriteFile(path, []byte(text), 0o600))
		if _, err := c.Scenarios().Start(ctx, path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	for text, want := range map[string]string{
		"sold-in":             "must be one of actions-fail,",
		"sold-out=cx99":       "does not exist; GET /catalogue",
		"sold-out=cx23@moon":  "must be one of fsn1",
		"sold-out=a@b@c":      "has more than 2 values; they are type@location",
		"sold-out=zone=b":     `parameter "zone": must be one of type, location`,
		"limit-servers=many":  "limit.most: must be a whole number, not a string",
		"token-revoked=x":     "must be a number with a unit",
		"./missing.yaml":      "no such file",
		"answers-lost=1.5":    "probability 1.5: must be 0 to 1",
		"api-of-next-month=x": "must be a day",
	} {
		if _, err := c.Scenarios().Start(ctx, text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	if after := settingsOf(t, c); after != before {
		t.Errorf("before:\n%s\nafter:\n%s", before, after)
	}
}
