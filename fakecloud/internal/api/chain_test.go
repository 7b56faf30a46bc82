package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	testclock "k8s.io/utils/clock/testing"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/cloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/requestlog"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/journal"
)

// fixture is an API with two projects: tokens "one", "one-readonly" and "two".
type fixture struct {
	*API
	clock   *testclock.FakeClock
	journal *requestlog.Log
}

func newFixture(t *testing.T, set func(*Options)) fixture {
	t.Helper()
	f := fixture{
		clock:   testclock.NewFakeClock(time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)),
		journal: &requestlog.Log{},
	}
	c := cloud.New(cloud.Options{Clock: f.clock})
	t.Cleanup(c.Close)
	two := c.AddProject("two")
	c.AddToken("one", cloud.Token{Project: 1})
	c.AddToken("one-readonly", cloud.Token{Project: 1, ReadOnly: true})
	c.AddToken("two", cloud.Token{Project: two.ID()})
	o := Options{Cloud: c, Journal: f.journal}
	if set != nil {
		set(&o)
	}
	f.API = New(o)
	return f
}

// entries returns the journal's entries that match.
func (f *fixture) entries(t *testing.T, filter journal.Filter) []journal.Entry {
	t.Helper()
	entries, err := f.journal.Entries(t.Context(), filter)
	if err != nil {
		t.Fatal(err)
	}
	return entries
}

// metaJSON and paginationJSON are a list's meta.
type metaJSON struct {
	Pagination paginationJSON `json:"pagination"`
}

type paginationJSON struct {
	Page         int  `json:"page"`
	PerPage      int  `json:"per_page"`
	PreviousPage *int `json:"previous_page"`
	NextPage     *int `json:"next_page"`
	LastPage     *int `json:"last_page"`
	TotalEntries *int `json:"total_entries"`
}

type answer struct {
	status int
	header http.Header
	body   string
	Error  *struct {
		Code, Message string
		Details       map[string]any
	}
	SSHKeys []struct {
		ID   int64
		Name string
	} `json:"ssh_keys"`
	Meta metaJSON
}

func (f fixture) do(t *testing.T, token, method, path, body string) answer {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	w := httptest.NewRecorder()
	f.ServeHTTP(w, r)
	a := answer{status: w.Code, header: w.Header(), body: w.Body.String()}
	if a.body != "" {
		if err := json.Unmarshal(w.Body.Bytes(), &a); err != nil {
			t.Fatalf("%s %s: %v in %s", method, path, err, a.body)
		}
		if got := a.header.Get("Content-Type"); got != "application/json" {
			t.Errorf("%s %s: Content-Type %q", method, path, got)
		}
	}
	if !regexp.MustCompile(`^[0-9a-f]{32}$`).MatchString(a.header.Get("X-Correlation-Id")) {
		t.Errorf("%s %s: X-Correlation-Id %q", method, path, a.header.Get("X-Correlation-Id"))
	}
	return a
}

func (a answer) code() string {
	if a.Error == nil {
		return ""
	}
	return a.Error.Code
}

// addKeys creates SSH keys directly in the cloud.
func (f fixture) addKeys(t *testing.T, names ...string) {
	t.Helper()
	p, _ := f.cloud.Project(1)
	for i, name := range names {
		labels := map[string]string{"parity": []string{"even", "odd"}[i%2]}
		if _, _, err := p.CreateSSHKey(cloud.CreateSSHKey{Name: name, PublicKey: publicKey(t), Labels: labels}); err != nil {
			t.Fatal(err)
		}
	}
}

func TestTheGeneralErrors(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	for name, tc := range map[string]struct {
		token, method, path, body string
		status                    int
		code, message             string
	}{
		"no token":                       {"", "GET", "/v1/ssh_keys", "", 401, "unauthorized", "token is required"},
		"unknown token":                  {"x", "GET", "/v1/ssh_keys", "", 401, "unauthorized", "the token you have provided is invalid"},
		"unknown path":                   {"one", "GET", "/v1/nope", "", 404, "not_found", ""},
		"unknown path without a token":   {"", "GET", "/v1/nope", "", 404, "not_found", ""},
		"outside the base path":          {"one", "GET", "/ssh_keys", "", 404, "not_found", ""},
		"another method":                 {"one", "PATCH", "/v1/ssh_keys", "", 405, "method_not_allowed", ""},
		"another method without a token": {"", "PATCH", "/v1/ssh_keys/1", "", 405, "method_not_allowed", ""},
		"unknown id":                     {"one", "GET", "/v1/ssh_keys/42", "", 404, "not_found", ""},
		"an id that is not a number":     {"one", "GET", "/v1/ssh_keys/abc", "", 404, "not_found", ""},
		"an enormous id":                 {"one", "DELETE", "/v1/ssh_keys/99999999999999999999", "", 404, "not_found", ""},
		"a negative id":                  {"one", "GET", "/v1/ssh_keys/-1", "", 404, "not_found", ""},
		"no JSON":                        {"one", "POST", "/v1/ssh_keys", "{", 400, "json_error", ""},
		"too large": {"one", "POST", "/v1/ssh_keys", `{"name":"` + strings.Repeat("a", MaxBodyBytes) + `"}`, 400,
			"json_error", ""},
		"missing fields":                {"one", "POST", "/v1/ssh_keys", "{}", 422, "invalid_input", ""},
		"a read-only token that writes": {"one-readonly", "POST", "/v1/ssh_keys", "{}", 403, "forbidden", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := f.do(t, tc.token, tc.method, tc.path, tc.body)
			if a.status != tc.status || a.code() != tc.code || tc.message != "" && a.Error.Message != tc.message {
				t.Errorf("%d %s", a.status, a.body)
			}
			if !strings.Contains(a.body, `"details":`) {
				t.Errorf("the error has no details: %s", a.body)
			}
		})
	}
}

func TestPages(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	f.addKeys(t, "k01", "k02", "k03", "k04", "k05", "k06", "k07")
	ptr := func(n int) *int { return &n }
	for name, tc := range map[string]struct {
		query string
		names string
		meta  paginationJSON
		rels  string
	}{
		"first":               {"per_page=3", "k01 k02 k03", paginationJSON{1, 3, nil, ptr(2), ptr(3), ptr(7)}, "next last"},
		"middle":              {"per_page=3&page=2", "k04 k05 k06", paginationJSON{2, 3, ptr(1), ptr(3), ptr(3), ptr(7)}, "prev next last"},
		"last":                {"per_page=3&page=3", "k07", paginationJSON{3, 3, ptr(2), nil, ptr(3), ptr(7)}, "prev last"},
		"beyond":              {"per_page=3&page=9", "", paginationJSON{9, 3, ptr(3), nil, ptr(3), ptr(7)}, "prev last"},
		"far beyond":          {"page=9223372036854775807", "", paginationJSON{1<<63 - 1, 25, ptr(1), nil, ptr(1), ptr(7)}, "prev last"},
		"exactly full":        {"per_page=7", "k01 k02 k03 k04 k05 k06 k07", paginationJSON{1, 7, nil, nil, ptr(1), ptr(7)}, "last"},
		"default size":        {"", "k01 k02 k03 k04 k05 k06 k07", paginationJSON{1, 25, nil, nil, ptr(1), ptr(7)}, "last"},
		"larger than allowed": {"per_page=1000", "k01 k02 k03 k04 k05 k06 k07", paginationJSON{1, 50, nil, nil, ptr(1), ptr(7)}, "last"},
		"filtered": {"label_selector=parity%3Dodd&per_page=2&page=2", "k06", paginationJSON{2, 2, ptr(1), nil, ptr(2), ptr(3)},
			"prev last"},
		"no match":  {"label_selector=parity%3Dnone", "", paginationJSON{1, 25, nil, nil, ptr(1), ptr(0)}, "last"},
		"backwards": {"sort=id:desc&per_page=2", "k07 k06", paginationJSON{1, 2, nil, ptr(2), ptr(4), ptr(7)}, "next last"},
		"by name, backwards": {"sort=name:desc&per_page=2&page=2", "k05 k04", paginationJSON{2, 2, ptr(1), ptr(3), ptr(4), ptr(7)},
			"prev next last"},
		"two sort keys": {"sort=name:asc&sort=id:desc&per_page=2", "k01 k02", paginationJSON{1, 2, nil, ptr(2), ptr(4), ptr(7)},
			"next last"},
		"by one name":        {"name=k03", "k03", paginationJSON{1, 25, nil, nil, ptr(1), ptr(1)}, "last"},
		"by two names":       {"name=k03&name=k05", "k03 k05", paginationJSON{1, 25, nil, nil, ptr(1), ptr(2)}, "last"},
		"by an unknown name": {"name=k99", "", paginationJSON{1, 25, nil, nil, ptr(1), ptr(0)}, "last"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := f.do(t, "one", "GET", "/v1/ssh_keys?"+tc.query, "")
			var names []string
			for _, k := range a.SSHKeys {
				names = append(names, k.Name)
			}
			if got := strings.Join(names, " "); a.status != 200 || got != tc.names {
				t.Errorf("%d: %q, want %q", a.status, got, tc.names)
			}
			got, _ := json.Marshal(a.Meta.Pagination)
			want, _ := json.Marshal(tc.meta)
			if string(got) != string(want) {
				t.Errorf("meta %s\nwant %s", got, want)
			}
			var rels []string
			for _, m := range regexp.MustCompile(`<http://example\.com/v1/ssh_keys\?[^>]*>; rel=(\w+)`).
				FindAllStringSubmatch(a.header.Get("Link"), -1) {
				rels = append(rels, m[1])
			}
			if got := strings.Join(rels, " "); got != tc.rels {
				t.Errorf("Link %q has %q, want %q", a.header.Get("Link"), got, tc.rels)
			}
		})
	}
}

func TestTheRateLimitIsPerProjectAndRefills(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(o *Options) { o.RateLimit = 3600 })
	for i := range 3600 {
		a := f.do(t, []string{"one", "one-readonly"}[i%2], "GET", "/v1/ssh_keys/1", "")
		if a.status != 404 {
			t.Fatalf("request %d: %d", i, a.status)
		}
		if want := fmt.Sprint(3600 - i - 1); a.header.Get("RateLimit-Remaining") != want || a.header.Get("RateLimit-Limit") != "3600" {
			t.Fatalf("request %d: remaining %s, want %s", i, a.header.Get("RateLimit-Remaining"), want)
		}
	}
	a := f.do(t, "one", "GET", "/v1/ssh_keys", "")
	if a.status != 429 || a.code() != "rate_limit_exceeded" {
		t.Fatalf("over the limit: %d %s", a.status, a.body)
	}
	if want := fmt.Sprint(f.clock.Now().Unix() + 3600); a.header.Get("RateLimit-Reset") != want {
		t.Errorf("reset %s, want %s", a.header.Get("RateLimit-Reset"), want)
	}
	if a := f.do(t, "two", "GET", "/v1/ssh_keys", ""); a.status != 200 {
		t.Errorf("the other project: %d", a.status)
	}
	f.clock.Step(time.Second)
	if a := f.do(t, "one", "GET", "/v1/ssh_keys", ""); a.status != 200 {
		t.Errorf("one second later: %d", a.status)
	}
	if a := f.do(t, "one", "GET", "/v1/ssh_keys", ""); a.status != 429 {
		t.Errorf("the second request of that second: %d", a.status)
	}
	f.SetRateLimit(0)
	if a := f.do(t, "one", "GET", "/v1/ssh_keys", ""); a.status != 200 || a.header.Get("RateLimit-Limit") != "" {
		t.Errorf("without a limit: %d, %v", a.status, a.header)
	}
}

func TestRequestsWithoutATokenAreLimitedToo(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(o *Options) { o.RateLimit = 2 })
	for i, want := range []int{401, 404, 429, 429} {
		path := []string{"/v1/ssh_keys", "/v1/nope", "/v1/ssh_keys", "/v1/nope"}[i]
		if a := f.do(t, "", "GET", path, ""); a.status != want {
			t.Errorf("request %d: %d, want %d", i, a.status, want)
		}
	}
}

// The real API leaves details out of one error (hcloud-go pull request 507). Clients must survive that.
func TestDetailsOfErrorsWithoutAny(t *testing.T) {
	t.Parallel()
	for want, err := range map[string]*cloud.Error{
		`{"code":"invalid_input","message":"certificate must use larger key size"}`: {Code: "invalid_input",
			Message: "certificate must use larger key size"},
		`{"code":"locked","message":"m","details":null}`: {Code: "locked", Message: "m"},
	} {
		if got := string(marshal(errorJSON{err.Code, err.Message, errorDetails(err)})); strings.TrimSpace(got) != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}
