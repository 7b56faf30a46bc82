package faults

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/fault"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/cloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/strictjson"
)

var operations = []Operation{
	{"GET", "/servers", "list_servers"},
	{"POST", "/servers", "create_server"},
	{"GET", "/servers/{id}", "get_server"},
	{"DELETE", "/servers/{id}", "delete_server"},
	{"POST", "/servers/{id}/actions/poweron", "power_on_server"},
	{"POST", "/networks", "create_network"},
	{"GET", "/pricing", "get_pricing"},
}

func call(method, route string) *Call {
	return &Call{
		Method: method, Route: route, Resource: ResourceOf(route), Path: strings.ReplaceAll(route, "{id}", "42"),
		Client: "hcloud-go/2.52.0 ccm/1", Token: "secret", Project: 1,
	}
}

var drop = fault.Effect{Kind: fault.KindDrop}

// setOf makes a set that has some rules.
func setOf(t *testing.T, rules ...fault.Rule) *Set {
	t.Helper()
	s := NewSet(operations)
	for _, r := range rules {
		if _, err := s.Add(t.Context(), r); err != nil {
			t.Fatalf("%+v: %v", r, err)
		}
	}
	return s
}

func TestARuleSelectsRequests(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		rule     fault.Rule
		yes, not *Call
	}{
		"everything":           {fault.Rule{}, call("GET", "/servers"), nil},
		"method":               {fault.Rule{Method: "post"}, call("POST", "/servers"), call("GET", "/servers")},
		"route":                {fault.Rule{Route: "/servers/{id}"}, call("GET", "/servers/{id}"), call("GET", "/servers")},
		"route with base path": {fault.Rule{Route: "/v1/servers"}, call("GET", "/servers"), call("GET", "/servers/{id}")},
		"beginning of a route": {fault.Rule{Route: "/servers/{id}/actions/*"}, call("POST", "/servers/{id}/actions/poweron"),
			call("GET", "/servers/{id}")},
		"operation": {fault.Rule{Operation: "create_server"}, &Call{Operation: "create_server"}, &Call{Operation: "create_network"}},
		"path":      {fault.Rule{Path: "/servers/42"}, call("GET", "/servers/{id}"), call("GET", "/servers")},
		"resource":  {fault.Rule{Resource: "server"}, call("POST", "/servers/{id}/actions/poweron"), call("POST", "/networks")},
		"writes":    {fault.Rule{Writes: true}, call("DELETE", "/servers/{id}"), call("GET", "/servers/{id}")},
		"client":    {fault.Rule{Client: "ccm/"}, call("GET", "/servers"), &Call{Method: "GET", Client: "curl/8"}},
		"token":     {fault.Rule{Token: "secret"}, call("GET", "/servers"), &Call{Method: "GET", Token: "other"}},
		"project":   {fault.Rule{Project: 1}, call("GET", "/servers"), &Call{Method: "GET", Project: 2}},
		"all fields": {
			fault.Rule{Method: "POST", Route: "/servers", Resource: "server", Client: "hcloud-go", Project: 1},
			call("POST", "/servers"), call("POST", "/networks"),
		},
	} {
		tc.rule.Effect = drop
		s := setOf(t, tc.rule)
		if _, ok := s.Decide(tc.yes); !ok {
			t.Errorf("%s: %+v is not taken", name, tc.yes)
		}
		if tc.not != nil {
			if _, ok := s.Decide(tc.not); ok {
				t.Errorf("%s: %+v is taken", name, tc.not)
			}
		}
	}
}

// taken returns which of n equal requests a rule takes, as "..x.".
func taken(t *testing.T, r fault.Rule, n int) string {
	t.Helper()
	r.Effect = drop
	s := setOf(t, r)
	out := []byte(strings.Repeat(".", n))
	for i := range out {
		if _, ok := s.Decide(call("GET", "/servers")); ok {
			out[i] = 'x'
		}
	}
	all, _ := s.List(t.Context())
	st := all[0]
	if st.Matched != uint64(n) || st.Applied != uint64(strings.Count(string(out), "x")) {
		t.Errorf("%+v: matched %d, applied %d of %s", r, st.Matched, st.Applied, string(out))
	}
	return string(out)
}

func TestARuleTakesTheNthRequests(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		rule fault.Rule
		want string
	}{
		{fault.Rule{}, "xxxxxxxx"},
		{fault.Rule{First: 2}, "xx......"},
		{fault.Rule{Every: 3}, "..x..x.."},
		{fault.Rule{From: 3}, "..xxxxxx"},
		{fault.Rule{To: 3}, "xxx....."},
		{fault.Rule{From: 3, To: 4}, "..xx...."},
		{fault.Rule{From: 2, To: 7, Every: 2}, ".x.x.x.."},
		{fault.Rule{Max: 3}, "xxx....."},
		{fault.Rule{Every: 2, Max: 2}, ".x.x...."},
		{fault.Rule{Probability: 1}, "xxxxxxxx"},
	} {
		if got := taken(t, tc.rule, len(tc.want)); got != tc.want {
			t.Errorf("%+v: %s, want %s", tc.rule, got, tc.want)
		}
	}
}

func TestChanceIsReproducible(t *testing.T) {
	t.Parallel()
	one := taken(t, fault.Rule{Probability: 0.3, Seed: 1}, 1000)
	if again := taken(t, fault.Rule{Probability: 0.3, Seed: 1}, 1000); one != again {
		t.Error("the same seed takes other requests")
	}
	if other := taken(t, fault.Rule{Probability: 0.3, Seed: 2}, 1000); one == other {
		t.Error("another seed takes the same requests")
	}
	// 300 are expected; 6 standard deviations are 87.
	if n := strings.Count(one, "x"); n < 213 || n > 387 {
		t.Errorf("%d of 1000 taken, want about 300", n)
	}
}

func TestDelaysAddUpAndTheFirstOtherEffectWins(t *testing.T) {
	t.Parallel()
	s := setOf(t, []fault.Rule{
		{Name: "slow", Effect: fault.Effect{Kind: fault.KindLatency, Latency: fault.Duration(time.Second)}},
		{Name: "slower", Effect: fault.Effect{Kind: fault.KindLatency, Latency: fault.Duration(2 * time.Second), After: true}},
		{Name: "conflict", Effect: fault.Effect{Kind: fault.KindAPIError, Code: "conflict", Latency: fault.Duration(4 * time.Second)}},
		{Name: "never", Effect: drop},
	}...)
	d, ok := s.Decide(call("GET", "/servers"))
	if !ok || d.Before != 5*time.Second || d.After != 2*time.Second || d.Effect.Code != "conflict" || d.Names != "slow,slower,conflict" {
		t.Errorf("%+v", d)
	}
	if st, _, _ := s.Get(t.Context(), "never"); st.Matched != 0 {
		t.Errorf("a rule after the effect counted the request: %+v", st)
	}
}

func TestTheErrorOfAWrongRuleListsThePossibleValues(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		rule fault.Rule
		say  string
	}{
		"unknown route":              {fault.Rule{Route: "/servers/{id}/actions/fly", Effect: drop}, "/servers/{id}/actions/poweron"},
		"route of nothing":           {fault.Rule{Route: "/clusters", Effect: drop}, "/networks…"},
		"unknown path":               {fault.Rule{Path: "/servers/42/fly", Effect: drop}, "/servers/{id}"},
		"unknown operation":          {fault.Rule{Operation: "make_server", Effect: drop}, "create_server"},
		"unknown resource":           {fault.Rule{Resource: "servers", Effect: drop}, "network, pricing, server"},
		"method of another route":    {fault.Rule{Method: "PUT", Route: "/servers/{id}", Effect: drop}, "DELETE, GET"},
		"writes of a read operation": {fault.Rule{Writes: true, Resource: "pricing", Effect: drop}, "only operations that read"},
		"route of another resource":  {fault.Rule{Resource: "network", Route: "/servers", Effect: drop}, "/networks"},
		"unknown code":               {fault.Rule{Effect: fault.Effect{Kind: fault.KindAPIError, Code: "conflikt"}}, "conflict"},
		"no code":                    {fault.Rule{Effect: fault.Effect{Kind: fault.KindAPIError}}, "conflict"},
		"no kind":                    {fault.Rule{}, "api_error"},
		"unknown kind":               {fault.Rule{Effect: fault.Effect{Kind: "explode"}}, "cut_body"},
		"field of another kind": {fault.Rule{Effect: fault.Effect{Kind: fault.KindDrop, Code: "conflict"}},
			"effect.code: not a field of drop; it has only latency, after"},
		"after for actions":     {fault.Rule{Effect: fault.Effect{Kind: fault.KindHangAction, After: true}}, "effect.after"},
		"latency of nothing":    {fault.Rule{Effect: fault.Effect{Kind: fault.KindLatency}}, "required"},
		"negative latency":      {fault.Rule{Effect: fault.Effect{Kind: fault.KindLatency, Latency: -1}}, "latency"},
		"status 100":            {fault.Rule{Effect: fault.Effect{Kind: fault.KindHTTPStatus, Status: 100}}, "200 to 599"},
		"error with status 200": {fault.Rule{Effect: fault.Effect{Kind: fault.KindAPIError, Code: "conflict", Status: 200}}, "400 to 599"},
		"body of a 204":         {fault.Rule{Effect: fault.Effect{Kind: fault.KindHTTPStatus, Status: 204, Body: "x"}}, "204"},
		"header injection": {fault.Rule{Effect: fault.Effect{Kind: fault.KindHTTPStatus, Status: 500, ContentType: "a\r\nb: c"}},
			"content_type"},
		"code with spaces": {fault.Rule{Effect: fault.Effect{Kind: fault.KindFailAction, Code: "no way"}}, "effect.code"},
		"negative bytes":   {fault.Rule{Effect: fault.Effect{Kind: fault.KindCutBody, Bytes: -1}}, "bytes"},
		"negative count":   {fault.Rule{Every: -1, Effect: drop}, "every"},
		"empty range":      {fault.Rule{From: 3, To: 2, Effect: drop}, "not be greater"},
		"first and from":   {fault.Rule{First: 1, From: 2, Effect: drop}, "first"},
		"probability of 2": {fault.Rule{Probability: 2, Effect: drop}, "0 to 1"},
		"negative project": {fault.Rule{Project: -1, Effect: drop}, "project"},
		"endless name":     {fault.Rule{Name: strings.Repeat("n", 200), Effect: drop}, "name"},
		"several at once": {fault.Rule{Max: -1, Effect: fault.Effect{Kind: fault.KindHTTPStatus}},
			"max -1: must not be negative\neffect.status"},
	} {
		s := NewSet(operations)
		if _, err := s.Add(t.Context(), tc.rule); err == nil || !strings.Contains(err.Error(), tc.say) {
			t.Errorf("%s: %v\nwant an error that says %q", name, err, tc.say)
		}
		if !s.Empty() {
			t.Errorf("%s: the rule was added", name)
		}
	}
}

func TestTheTextsOfARuleHaveLimits(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a", 1<<20+1)
	fails := fault.Effect{Kind: fault.KindFailAction, Message: long}
	for field, rule := range map[string]fault.Rule{
		"name": {Name: long, Effect: drop}, "path": {Path: "/servers/" + long, Effect: drop}, "client": {Client: long, Effect: drop},
		"token": {Token: long, Effect: drop}, "effect.message": {Effect: fails},
		"effect.server":       {Effect: fault.Effect{Kind: fault.KindHide, Server: long}},
		"effect.body":         {Effect: fault.Effect{Kind: fault.KindHTTPStatus, Status: 500, Body: long}},
		"effect.content_type": {Effect: fault.Effect{Kind: fault.KindHTTPStatus, Status: 500, ContentType: long}},
	} {
		_, err := NewSet(operations).Add(t.Context(), rule)
		if err == nil || !strings.Contains(err.Error(), field+": must have at most") || len(err.Error()) > 1000 {
			t.Errorf("%s: %.300v", field, err)
		}
	}
}

func TestRulesHaveNamesAndCanBeRemoved(t *testing.T) {
	t.Parallel()
	s := setOf(t, fault.Rule{Name: "fault-1", Effect: drop})
	r, err := s.Add(t.Context(), fault.Rule{Effect: drop})
	if err != nil || r.Name != "fault-2" {
		t.Fatalf("%+v, %v", r, err)
	}
	if _, err := s.Add(t.Context(), fault.Rule{Name: "fault-2", Effect: drop}); !errors.Is(err, fault.ErrExists) {
		t.Errorf("second of a name: %v", err)
	}
	first, _ := s.Remove(t.Context(), "fault-1")
	second, _ := s.Remove(t.Context(), "fault-1")
	if !first || second {
		t.Error("Remove does not report whether the rule existed")
	}
	if l, _ := s.List(t.Context()); len(l) != 1 || l[0].Name != "fault-2" {
		t.Errorf("%+v", l)
	}
	_ = s.Clear(t.Context())
	if !s.Empty() {
		t.Error("Clear left a rule")
	}
}

func TestAwaitReturnsWhenARuleWasApplied(t *testing.T) {
	t.Parallel()
	s := setOf(t, fault.Rule{Name: "x", Effect: drop}, fault.Rule{Name: "y", Effect: drop})
	result := make(chan error)
	await := func(n uint64) {
		_, err := s.Await(t.Context(), "x", n)
		result <- err
	}
	go await(2)
	s.Decide(call("GET", "/servers"))
	s.Decide(call("GET", "/servers"))
	if err := <-result; err != nil {
		t.Error(err)
	}
	go await(3)
	_, _ = s.Remove(t.Context(), "x")
	if err := <-result; err == nil {
		t.Error("no error for a removed rule")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Await(ctx, "y", 1); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want the context's error", err)
	}
}

func TestCodesAgreeWithTheErrorCatalogue(t *testing.T) {
	t.Parallel()
	for _, e := range []*cloud.Error{
		cloud.ErrJSON(""), cloud.ErrUnauthorized(""), cloud.ErrTokenReadonly(), cloud.ErrForbidden(""),
		cloud.ErrLimitExceeded("", ""), cloud.ErrNoRoute(), cloud.ErrMethodNotAllowed(""), cloud.ErrUniqueness("", ""),
		cloud.ErrConflict(""), cloud.ErrDeprecatedEndpoint(""), cloud.ErrResourceUnavailable(""), cloud.ErrField("", ""),
		cloud.ErrServiceError(""), cloud.ErrUnsupported(""), cloud.ErrResourceInUse(""), cloud.ErrLocked(""),
		cloud.ErrProtected(""), cloud.ErrRateLimit(0), cloud.ErrServer(""),
	} {
		if Codes[string(e.Code)] != e.Status {
			t.Errorf("%s: %d here, %d in the catalogue", e.Code, Codes[string(e.Code)], e.Status)
		}
	}
}

func FuzzARuleInJSON(f *testing.F) {
	f.Add([]byte(`{"name":"x","method":"POST","route":"/servers","first":2,"effect":{"kind":"api_error","code":"conflict"}}`))
	f.Add([]byte(`{"effect":{"kind":"latency","latency":"1s"}}`))
	f.Add([]byte(`{"effect":{"kind":"http_status","status":503,"body":"{}"}}`))
	f.Add([]byte(`{"probability":1e-9,"effect":{"kind":"cut_body","bytes":99999}}`))
	f.Add([]byte(`{"effect":{"kind":"latency","latency":1}}`))
	f.Add([]byte(`{}{}`))
	f.Add([]byte(`[`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var r, again fault.Rule
		if err := strictjson.Decode(data, &r); err != nil {
			return
		}
		s := NewSet(operations)
		added, err := s.Add(t.Context(), r)
		if err != nil {
			if !s.Empty() {
				t.Error("a refused rule was added")
			}
			return
		}
		for range 3 {
			if d, _ := s.Decide(call("POST", "/servers")); d.Before < 0 || d.After < 0 {
				t.Errorf("negative delay: %+v", d)
			}
		}
		// A rule is accepted again in its listed form.
		text, err := json.Marshal(added)
		if err != nil {
			t.Fatal(err)
		}
		if err := strictjson.Decode(text, &again); err != nil || again != added {
			t.Errorf("%s was read back as %+v, %v", text, again, err)
		}
	})
}
