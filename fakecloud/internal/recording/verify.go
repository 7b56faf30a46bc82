package recording

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/fault"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/api"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/simclock"
)

// rateLimit is so high that a replay never reaches it. Its headers are there, as in the real cloud.
const rateLimit = 1_000_000_000

// maxWait is how much longer than recorded something may take in the simulation, on its clock.
const maxWait = time.Hour

// The tokens of a replay.
const (
	writeToken   = fakecloud.DefaultToken
	readToken    = "recording-read-only"
	unknownToken = "recording-unknown"
)

// player replays a recording.
type player struct {
	*mapping
	recording *Recording
	report    *Report
	cloud     *fakecloud.Cloud
	client    *http.Client
	start     time.Time
	keys      *keyring
	seeded    map[resourceID]bool
	unseeded  map[resourceID]string
	actions   actionLives
	hanging   bool      // actions run of which the recording shows no end
	current   *Exchange // of which differences are reported
	pattern   string
}

// Verify replays a recording against a new simulated cloud. It steps the cloud's clock to the time of each request. It returns the
// differences, and ErrNothing with the report if it could replay nothing. FIDELITY.md says what it compares, and what it does not.
func Verify(ctx context.Context, rec *Recording) (*Report, error) {
	start := rec.Started
	o := fakecloud.Options{Clock: simclock.NewAt(start, 0), Actions: "realistic", RandomSeed: 1}
	if rec.Target == RealHost {
		o.APIDate = start.UTC().Format(time.DateOnly)
	}
	limited := func(e Exchange) bool { return e.ResponseHeaders["Ratelimit-Limit"] != "" }
	if rec.Target == RealHost || slices.ContainsFunc(rec.Exchanges, limited) {
		o.RateLimit = rateLimit
	}
	cloud, err := fakecloud.Open(o)
	if err != nil {
		return nil, err
	}
	defer cloud.Close()
	if _, err := cloud.AddToken(ctx, fakecloud.DefaultProject, readToken, true); err != nil {
		return nil, err
	}
	p := &player{
		mapping: newMapping(), recording: rec, cloud: cloud, client: &http.Client{Transport: cloud.Transport()}, start: start,
		keys:   &keyring{start, map[string]string{}, map[string][2]string{}},
		seeded: map[resourceID]bool{}, unseeded: map[resourceID]string{}, actions: newActionLives(rec),
		report: &Report{
			Target: rec.Target, Exchanges: len(rec.Exchanges), CutOff: rec.CutOff, Operations: map[string]int{},
			NotReplayable: []Skipped{}, Undecided: []Skipped{}, Differences: []Difference{},
		},
	}
	if err := p.seed(ctx); err != nil {
		return nil, err
	}
	tokens := tokensOf(rec)
	for _, e := range order(rec) {
		if err := p.replay(ctx, e, tokens); err != nil {
			return nil, fmt.Errorf("replay of #%d: %w", e.Seq, err)
		}
	}
	first := func(d Difference) string { return fmt.Sprint(d.What != DiffLocked) } // false comes before true
	slices.SortStableFunc(p.report.Differences, func(a, b Difference) int { return strings.Compare(first(a), first(b)) })
	if p.report.Replayed == 0 {
		return p.report, ErrNothing
	}
	return p.report, nil
}

// order returns the exchanges in the order of the replay: that of their beginnings. Of overlapping requests that created resources or
// actions of the same kind, the one with the lower id comes first.
func order(rec *Recording) []*Exchange {
	var all []*Exchange
	created := map[*Exchange]resourceID{}
	for i := range rec.Exchanges {
		e := &rec.Exchanges[i]
		all = append(all, e)
		if e.Method != http.MethodPost || e.Status/100 != 2 {
			continue
		}
		kind, _, action := strings.Cut(strings.TrimPrefix(e.Path, "/"), "/")
		if kind = strings.TrimSuffix(kind, "s"); action {
			kind = "action"
		}
		id, _ := number(at(membersOf(e.Response)[kind], "id"))
		created[e] = resourceID{kind, id}
		for j := len(all) - 1; j > 0 && all[j-1].End >= e.At; j-- {
			before := created[all[j-1]]
			if before.kind != kind || before.id <= id {
				break
			}
			all[j-1], all[j] = all[j], all[j-1]
		}
	}
	return all
}

// tokensOf returns the simulation's token for each Authorization of a recording: what it may do follows from the answers.
func tokensOf(rec *Recording) map[string]string {
	tokens := map[string]string{}
	for i := range rec.Exchanges {
		e := &rec.Exchanges[i]
		scheme, _, _ := strings.Cut(e.RequestHeaders["Authorization"], " ")
		token := e.RequestHeaders["Authorization"]
		switch code := errorCode(e.Response); {
		case code == "token_readonly" || code == "forbidden" && e.Method != http.MethodGet:
			tokens[token] = scheme + " " + readToken
		case code == "unauthorized":
			tokens[token] = scheme + " " + unknownToken
		case tokens[token] == "":
			tokens[token] = scheme + " " + writeToken
		}
	}
	tokens[""] = ""
	return tokens
}

func errorCode(body json.RawMessage) string {
	code, _ := at(membersOf(body), "error", "code").(string) // without a code, it is not an error of the API
	return code
}

// skip returns why an exchange is not replayed, or "".
func skip(e *Exchange) string {
	switch code := errorCode(e.Response); {
	case e.Status == 0:
		return "no answer came"
	case e.Status == http.StatusTooManyRequests:
		return "the rate limit depends on what else used the project"
	case e.Status >= 500 || code == "maintenance":
		return "the cloud had a failure: " + strconv.Itoa(e.Status)
	case code == "resource_limit_exceeded":
		return "the limits of the project are not in the recording"
	case e.Method == "OTHER":
		return "its method was redacted"
	}
	return ""
}

// replay sends one request to the simulation and compares the answers.
func (p *player) replay(ctx context.Context, e *Exchange, tokens map[string]string) error {
	route := match(e.Method, e.Path)
	p.current, p.pattern = e, e.Path
	if route != nil {
		p.pattern = route.pattern
	}
	reason := skip(e)
	t := p.translator(e)
	path, query, body := t.path(route, e.Path), t.query(e.Query), t.body(e.Request)
	if reason == "" {
		reason = t.reason
	}
	if _, err := url.ParseRequestURI(path); reason == "" && err != nil {
		reason = "its path cannot be read"
	}
	if code := errorCode(e.Response); reason == "" && t.secrets && (code == "invalid_input" || code == "json_error") {
		reason = "the error may be about a value that was redacted"
	}
	if reason != "" {
		p.report.NotReplayable = append(p.report.NotReplayable, Skipped{e.Seq, e.Method, e.Path, reason})
		return nil
	}
	if err := p.stepTo(ctx, e); err != nil {
		return err
	}
	if err := p.setDuration(ctx, e, route); err != nil {
		return err
	}
	if query != "" {
		path += "?" + query
	}
	send := func() (*answer, error) {
		return p.send(ctx, e.Method, path, tokens[e.RequestHeaders["Authorization"]], e.RequestHeaders["Content-Type"], body)
	}
	a, err := send()
	if err == nil {
		a, err = p.settle(ctx, e, a, t.named, send)
	}
	if err != nil {
		return err
	}
	if n := len(p.report.Undecided); n == 0 || p.report.Undecided[n-1].Seq != e.Seq {
		p.report.Replayed++
		if route != nil {
			p.report.Operations[route.operation]++
		}
	}
	p.compare(e, a)
	return p.follow(ctx, e)
}

func (p *player) translator(e *Exchange) *translator {
	t := &translator{mapping: p.mapping, keys: p.keys, unseeded: p.unseeded, refused: e.Status >= 400, domains: []string{"name.example"}}
	if names := texts(at(membersOf(e.Response), "certificate", "domain_names")); len(names) > 0 {
		t.domains = names
	}
	return t
}

// answer is an answer of the simulation.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// busy reports whether an answer refuses a request because an action is running.
func busy(body json.RawMessage) bool {
	code := errorCode(body)
	return code == "locked" || code == "conflict"
}

func (p *player) send(ctx context.Context, method, path, authorization, contentType string, body []byte) (*answer, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://fakecloud.invalid"+api.Prefix+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if authorization != "" {
		req.Header.Set("Authorization", authorization)
	}
	if contentType != "" && contentType != markerString {
		req.Header.Set("Content-Type", contentType)
	}
	resp, err := p.client.Do(req)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(resp.Body)
	return &answer{resp.StatusCode, resp.Header, text}, errors.Join(err, resp.Body.Close())
}

// stepTo steps the clock to the time of a request, and beyond it until all actions end that its answer shows as finished.
func (p *player) stepTo(ctx context.Context, e *Exchange) error {
	now, err := p.cloud.Now(ctx)
	if err != nil {
		return err
	}
	if d := p.start.Add(time.Duration(e.At) * time.Millisecond).Sub(now); d > 0 {
		if err := p.cloud.Step(ctx, d); err != nil {
			return err
		}
	}
	return p.awaitEnds(ctx, e)
}

// setDuration makes the actions of a request take as long as recorded. Those whose end the recording does not show run until a later
// request needs their end.
func (p *player) setDuration(ctx context.Context, e *Exchange, route *route) error {
	if route == nil || e.Method == http.MethodGet {
		return nil
	}
	if err := p.cloud.Faults().Clear(ctx); err != nil {
		return err
	}
	if code := p.actions.fate(e); code != "" {
		_, err := p.cloud.Faults().Add(ctx, fault.Rule{Operation: route.operation, Effect: fault.FailAction(code, "as recorded")})
		return err
	}
	d, began := p.actions.duration(e)
	switch {
	case !began:
		return p.cloud.SetProfile(ctx, "realistic")
	case d == 0:
		return p.cloud.SetProfile(ctx, "instant")
	}
	rule := fault.Rule{Operation: route.operation, Effect: fault.SlowAction(d)}
	if d < 0 {
		p.hanging, rule.Effect = true, fault.HangAction()
	}
	_, err := p.cloud.Faults().Add(ctx, rule)
	return err
}

// differ reports a difference of the current exchange.
func (p *player) differ(what, place, recorded, fake string) {
	p.report.Differences = append(p.report.Differences,
		Difference{p.current.Seq, p.current.Method, p.pattern, what, place, recorded, fake})
}

// compare compares the answers.
func (p *player) compare(e *Exchange, a *answer) {
	recorded, _ := decode(e.Response)
	fake, _ := decode(a.body)
	want, got := errorCode(e.Response), errorCode(a.body)
	if e.Status != a.status {
		p.differ(DiffStatus, "", strings.TrimSpace(strconv.Itoa(e.Status)+" "+want), strings.TrimSpace(strconv.Itoa(a.status)+" "+got))
		if e.Status/100 != a.status/100 {
			p.forget(e)
			return // the bodies have nothing in common
		}
	} else if want != got {
		p.differ(DiffCode, "error.code", want, got)
	}
	p.compareHeaders(e.ResponseHeaders, responseHeaders(a.header))
	switch {
	case len(e.Response) == 0 && len(a.body) == 0:
	case len(e.Response) == 0 || len(a.body) == 0:
		there := map[bool]string{true: "present", false: "absent"}
		p.differ(DiffType, "the body", there[len(e.Response) > 0], there[len(a.body) > 0])
	case recorded == any(markerNotJSON) || fake == nil:
		if recorded != any(markerNotJSON) || fake != nil {
			p.differ(DiffType, "the body", "not JSON", "JSON")
		}
	default:
		c := &comparer{mapping: p.mapping, seeded: p.seeded, unseeded: p.unseeded, report: p.differ, reads: e.Method == http.MethodGet}
		c.body(recorded, fake)
	}
}

// forget marks what a request created as missing in the simulation: later requests about it are not replayed.
func (p *player) forget(e *Exchange) {
	if e.Method == http.MethodGet {
		return
	}
	for id := range resourcesOf(e.Response) {
		if _, known := p.ids[id]; !known {
			p.unseeded[id] = fmt.Sprintf("the simulation's answer to #%d differs", e.Seq)
		}
	}
}

func (p *player) compareHeaders(recorded, fake map[string]string) {
	for _, name := range sorted(recorded) {
		if fake[name] == "" {
			p.differ(DiffHeader, name, recorded[name], "absent")
		} else if fake[name] != recorded[name] {
			p.differ(DiffHeader, name, recorded[name], fake[name])
		}
	}
	for _, name := range sorted(fake) {
		if recorded[name] == "" {
			p.differ(DiffHeader, name, "absent", fake[name])
		}
	}
}
