package inventory

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"github.com/prometheus/client_golang/prometheus"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/apicall"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/ccmtest"
)

// labelledAPI answers for servers 1 to n, of which the first few have the labels cluster=ours and role=node, and the others
// role=node. It answers lists by the selectors of the provider.
func labelledAPI(t *testing.T, n, ours int, also func(id int) bool) *ccmtest.API {
	t.Helper()
	server := func(id int) string {
		labels := `{"role":"node"}`
		if id <= ours {
			labels = fmt.Sprintf(`{"cluster":"ours","role":"node","name":"n%d"}`, id)
		}
		return strings.Replace(ccmtest.ServerJSON(id, fmt.Sprintf("node-%d", id), "running"), `{`, `{"labels":`+labels+`,`, 1)
	}
	return ccmtest.NewAPI(t, func(w http.ResponseWriter, r *http.Request) {
		var id int
		if _, err := fmt.Sscanf(r.URL.Path, "/servers/%d", &id); err == nil {
			ccmtest.Reply(w, 200, `{"server":`+server(id)+`}`)
			return
		}
		page, selector := 1, r.URL.Query().Get("label_selector")
		_, _ = fmt.Sscan(r.URL.Query().Get("page"), &page)
		var list []string
		for id := 1; id <= n; id++ {
			if selector == "" || strings.Contains(selector, "cluster=ours") && (id <= ours || also != nil && also(id)) {
				list = append(list, server(id))
			}
		}
		from, pages := min((page-1)*serversPerPage, len(list)), (len(list)+serversPerPage-1)/serversPerPage
		next := "null"
		if page < pages {
			next = fmt.Sprint(page + 1)
		}
		ccmtest.Reply(w, 200, fmt.Sprintf(`{"servers":[%s],"meta":{"pagination":{"page":%d,"per_page":50,"next_page":%s,"last_page":%d}}}`,
			strings.Join(list[from:min(from+serversPerPage, len(list))], ","), page, next, pages))
	})
}

// serversOf returns the servers of the API, on an AutoClock and without randomness.
func serversOf(a *ccmtest.API, ttl time.Duration) (*Servers, *ccmtest.AutoClock) {
	clk, reg := ccmtest.NewAutoClock(), prometheus.NewRegistry()
	token := apicall.NewTokenSource("secret", "")
	return NewServers(testClientOf(a, token, clk, reg), clk, ttl, NewEvidence(clk, reg, false, token.Token)), clk
}

func testClientOf(a *ccmtest.API, token *apicall.TokenSource, clk clock.Clock, reg prometheus.Registerer) *hcloud.Client {
	return apicall.NewClient(apicall.ClientSettings{Endpoint: a.URL, RequestTimeout: 10 * time.Second}, token, clk, reg,
		http.DefaultTransport,
		func() float64 { return 1 }, func(context.Context) error { return nil })
}

// knowNodes makes the evidence know the Nodes of the servers 1 to n.
func knowNodes(e *Evidence, n int) {
	nodes := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	for id := 1; id <= n; id++ {
		_ = nodes.Add(ccmtest.Node(fmt.Sprintf("node-%d", id), ccmtest.ProviderID(int64(id)))) // the index takes any Node
	}
	e.SetListers(corelisters.NewNodeLister(nodes), nil)
}

// lists returns the requests for lists of servers, without the size of a page.
func lists(api *ccmtest.API) (all []string) {
	for _, c := range api.Recorded() {
		all = append(all, strings.NewReplacer("per_page=50", "", "page=", "", "label_selector=", "", "%3D", "=", "%2C", ",", "&",
			" ").Replace(c.Path))
	}
	return all
}

// A cluster of 60 servers in a project of 400: their common labels select them, in 2 pages instead of 8.
func TestOtherServersOfTheProjectAreNotListed(t *testing.T) {
	t.Parallel()
	api := labelledAPI(t, 400, 60, nil)
	servers, clk := serversOf(api, 10*time.Second)
	knowNodes(servers.Evidence, 60)
	ask := func() int {
		before := len(api.Recorded())
		likely := func() (all []Ask) {
			for id := range int64(60) {
				all = append(all, Ask{ID: id + 1})
			}
			return all
		}
		for id := range int64(60) {
			if s, err := servers.ByID(t.Context(), Ask{ID: id + 1, Likely: likely}); err != nil || s == nil || s.ID != id+1 {
				t.Fatal(s, err)
			}
		}
		return len(api.Recorded()) - before
	}
	if n := ask(); n != 8 { // shows how large the project is, and what the labels are
		t.Errorf("the first round takes %d calls: %v", n, lists(api))
	}
	for range 3 {
		clk.Step(time.Minute)
		if n := ask(); n != 2 {
			all := lists(api)
			t.Fatalf("a later round takes %d calls: %v", n, all[len(all)-n:])
		}
	}
	if last := api.Recorded()[len(api.Recorded())-1].Path; !strings.Contains(last, "label_selector=cluster%3Dours%2Crole%3Dnode") {
		t.Errorf("the last list is %s, want one by the common labels", last)
	}
	// What the list by label lacks is still known.
	if all, err := servers.All(t.Context(), time.Hour); err != nil || len(all) != 400 || all[0].ID != 1 {
		t.Errorf("%d servers are known; %v", len(all), err)
	}
	if all, err := servers.All(t.Context(), 0); err != nil || len(all) != 60 {
		t.Errorf("%d servers are known whose data are young, want the cluster's 60; %v", len(all), err)
	}
}

// Servers of other clusters have the same labels: that the list by label is longer than it could be costs one page.
// A cluster of 5 servers in a project of 2,000: that one is gone costs a question for each, and not 40 pages.
func TestAServerThatIsGoneCostsNoListOfALargeProject(t *testing.T) {
	t.Parallel()
	var broken, missing atomic.Bool
	api := ccmtest.NewAPI(t, func(w http.ResponseWriter, r *http.Request) {
		var id, page int
		if _, err := fmt.Sscanf(r.URL.Path, "/servers/%d", &id); err == nil {
			if broken.Load() || missing.Load() && id == 3 {
				ccmtest.ReplyError(w, http.StatusNotFound, "not_found")
				return
			}
			ccmtest.Reply(w, 200, `{"server":`+ccmtest.ServerJSON(id, fmt.Sprintf("node-%d", id), "running")+`}`)
			return
		}
		_, _ = fmt.Sscan(r.URL.Query().Get("page"), &page)
		next := fmt.Sprint(page + 1)
		if page == 40 {
			next = "null"
		}
		ccmtest.Reply(w, 200, fmt.Sprintf(`{"servers":[%s],"meta":{"pagination":{"page":%d,"per_page":50,"next_page":%s,"last_page":40}}}`,
			ccmtest.ServerJSON(page, fmt.Sprintf("node-%d", page), "running"), page, next))
	})
	servers, clk := serversOf(api, 10*time.Second)
	knowNodes(servers.Evidence, 5)
	if err := servers.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	missing.Store(true)
	clk.Step(time.Minute)
	before := len(api.Recorded())
	if s, err := servers.ByID(t.Context(), Ask{ID: 3}); s != nil || err != nil {
		t.Errorf("got %v, %v", s, err)
	}
	if n := len(api.Recorded()) - before; n != 5 {
		t.Errorf("it took %d requests: %v", n, lists(api)[before:])
	}
	broken.Store(true) // it knows no ID, and the list shows them all
	clk.Step(time.Minute)
	if s, err := servers.ByID(t.Context(), Ask{ID: 4}); s == nil || err != nil {
		t.Errorf("got %v, %v", s, err)
	}
}

func TestALongerListThanWasGuessedCostsOnePage(t *testing.T) {
	t.Parallel()
	api := labelledAPI(t, 400, 60, func(id int) bool { return id <= 300 })
	servers, clk := serversOf(api, 10*time.Second)
	knowNodes(servers.Evidence, 60)
	for _, tc := range []struct{ questions, calls int }{{60, 8}, {60, 6}, {1, 1}, {3, 1 + 3}, {6, 6}} {
		likely := func() (all []Ask) {
			for id := range int64(tc.questions) {
				all = append(all, Ask{ID: 60 - id})
			}
			return all
		}
		before := len(api.Recorded())
		for _, ask := range likely() {
			ask.Likely = likely
			if s, err := servers.ByID(t.Context(), ask); err != nil || s == nil {
				t.Fatal(s, err)
			}
		}
		if calls := lists(api)[before:]; len(calls) != tc.calls {
			t.Errorf("%d questions took %d calls, want %d: %v", tc.questions, len(calls), tc.calls, calls)
		}
		clk.Step(time.Minute)
	}
}

// One question is not worth a list of many pages: the first page shows how many there are.
func TestOneQuestionCostsOneCall(t *testing.T) {
	t.Parallel()
	api := labelledAPI(t, 200, 200, nil)
	servers, clk := serversOf(api, 10*time.Second)
	ask := func(id int64) {
		likely := func() []Ask { return []Ask{{ID: id}} }
		if s, err := servers.ByID(t.Context(), Ask{ID: id, Likely: likely}); err != nil || s == nil || s.ID != id {
			t.Fatal(s, err)
		}
		clk.Step(time.Minute)
	}
	ask(150)
	if calls := lists(api); len(calls) != 2 || calls[1] != "/servers/150" {
		t.Errorf("the first question: %v, want a page and the server", calls)
	}
	ask(150)
	if calls := lists(api); len(calls) != 3 || calls[2] != "/servers/150" {
		t.Errorf("the second question: %v, want the server only", calls)
	}
}

func TestWhatIsForgottenIsAskedAgain(t *testing.T) {
	t.Parallel()
	api := ccmtest.ServersAPI(t, 2, ccmtest.Running)
	servers, _ := serversOf(api, time.Hour)
	get := func() int {
		before := len(api.Recorded())
		if s, err := servers.ByID(t.Context(), Ask{ID: 1}); err != nil || s == nil {
			t.Fatal(s, err)
		}
		return len(api.Recorded()) - before
	}
	get()
	if n := get(); n != 0 {
		t.Errorf("a known server costs %d calls", n)
	}
	servers.ForgetOne(1)
	servers.ForgetOne(99) // is not known
	if n := get(); n != 1 {
		t.Errorf("a forgotten server costs %d calls, want 1", n)
	}
}

// A server that has got another one's name: the old name leads nowhere.
func TestANameFollowsARenamedServer(t *testing.T) {
	t.Parallel()
	name := "node-1"
	api := ccmtest.NewAPI(t, func(w http.ResponseWriter, r *http.Request) {
		want := r.URL.Query().Get("name")
		list := ccmtest.ServerJSON(1, name, "running")
		if want != "" && want != name {
			list = ""
		}
		ccmtest.Reply(w, 200, `{"servers":[`+list+`],"meta":{"pagination":{"page":1}}}`)
	})
	servers, clk := serversOf(api, time.Minute)
	find := func(name string) bool {
		t.Helper()
		s, err := servers.ByName(t.Context(), Ask{Name: name})
		if err != nil {
			t.Fatal(err)
		}
		return s != nil
	}
	if !find("node-1") || !find("NODE-1") || find("other") {
		t.Error("before")
	}
	name = "other"
	clk.Step(2 * time.Minute)
	if !find("other") || find("node-1") {
		t.Error("after the server was renamed")
	}
	renamed, err := servers.ByID(t.Context(), Ask{ID: 1})
	if err != nil {
		t.Fatal(err)
	}
	another := *renamed
	another.Name = "third"
	servers.keep([]*hcloud.Server{&another}, clk.Now()) // the answer to a question about this server only
	if servers.lookup(Ask{Name: "other"}) != nil || servers.lookup(Ask{Name: "third"}) == nil {
		t.Error("the old name leads to the renamed server")
	}
}

func TestAFetchEndsWithItsContext(t *testing.T) {
	t.Parallel()
	api := ccmtest.ServersAPI(t, 1, ccmtest.Running)
	servers, _ := serversOf(api, 0)
	servers.fetching.TryLock("") // another caller's fetch hangs
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, errByID := servers.ByID(ended, Ask{ID: 1})
	_, errByName := servers.findByName(ended, Ask{Name: "node-1"})
	_, errAll := servers.All(ended, 0)
	if slices.Contains([]error{errByID, errByName, errAll, servers.Refresh(ended)}, nil) {
		t.Error("a caller that gives up gets no error")
	}
}

// The answer that a server is gone serves the load balancers that are compared together, and no later ones.
func TestThatAServerIsGoneIsKnownForAMoment(t *testing.T) {
	t.Parallel()
	api := ccmtest.ServersAPI(t, 1, ccmtest.Running)
	servers, clk := serversOf(api, time.Minute)
	servers.Evidence.SawOne("secret") // the project is the cluster's
	ask := func(when string, asks bool) {
		t.Helper()
		before := len(api.Recorded())
		if s, err := servers.ByID(t.Context(), Ask{ID: 2}); err != nil || s != nil {
			t.Errorf("%s: %v, %v", when, s, err)
		}
		if n := len(api.Recorded()) - before; (n > 0) != asks {
			t.Errorf("%s: %d calls", when, n)
		}
	}
	ask("the first time", true)
	ask("at once", false)
	clk.Step(MaxLoadBalancerAge - time.Millisecond)
	ask("a moment later", false)
	clk.Step(time.Millisecond)
	ask("later", true)
}

// Of another project's token nothing is believed, and each load balancer would ask again for each of its servers.
func TestADoubtAboutAServerCostsNothingForAMoment(t *testing.T) {
	t.Parallel()
	api := ccmtest.ServersAPI(t, 0, ccmtest.Running)
	servers, _ := serversOf(api, time.Minute)
	knowNodes(servers.Evidence, 2)
	for i := range 3 {
		before := len(api.Recorded())
		if s, err := servers.ByID(t.Context(), Ask{ID: 1, MaxAge: time.Minute}); err == nil || s != nil {
			t.Errorf("question %d: %v, %v; want a doubt", i, s, err)
		}
		if calls := len(api.Recorded()) - before; i == 0 && calls == 0 || i > 0 && calls > 0 {
			t.Errorf("question %d: %d calls", i, calls)
		}
	}
}

// New Nodes have no provider ID yet: one list answers for all of them.
func TestOneListAnswersForAllNames(t *testing.T) {
	t.Parallel()
	api := ccmtest.ServersAPI(t, 40, ccmtest.Running)
	servers, _ := serversOf(api, time.Minute)
	if s, err := servers.ByName(t.Context(), Ask{Name: "not-yet"}); s != nil || err != nil {
		t.Fatal(s, err)
	}
	for id := 1; id <= 40; id++ {
		if s, err := servers.ByName(t.Context(), Ask{Name: fmt.Sprintf("node-%d", id)}); err != nil || s == nil {
			t.Fatal(s, err)
		}
	}
	if calls := lists(api); len(calls) != 1 {
		t.Errorf("got %v, want one list", calls)
	}
}

// Each answer to an ID is not_found, as from a wrong path of the API, and only the token "right" lists server 1.
func TestAbsenceIsNotConfirmedByAnotherToken(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		before, during string // the token of an earlier list, and of the answer to the ID
		found          bool   // else an error says that the answers are about another project
	}{
		"the list was read with another token":     {"another", "right", true},
		"the right token returns after the answer": {"another", "another", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "token")
			rotate := func(token string) {
				if err := os.WriteFile(file, []byte(token), 0o600); err != nil { // the source notices the other size
					t.Error(err)
				}
			}
			api := ccmtest.NewAPI(t, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/servers" {
					rotate("right")
					ccmtest.ReplyError(w, http.StatusNotFound, "not_found")
					return
				}
				list := ""
				if r.Header.Get("Authorization") == "Bearer right" {
					list = ccmtest.ServerJSON(1, "node-1", "running")
				}
				ccmtest.Reply(w, http.StatusOK, `{"servers":[`+list+`],"meta":{"pagination":{"page":1}}}`)
			})
			clk, reg, token := ccmtest.NewAutoClock(), prometheus.NewRegistry(), apicall.NewTokenSource("", file)
			servers := NewServers(testClientOf(api, token, clk, reg), clk, time.Minute, NewEvidence(clk, reg, false, token.Token))
			servers.Evidence.SawOne("right")
			rotate(tc.before)
			if err := servers.Refresh(t.Context()); err != nil {
				t.Fatal(err)
			}
			rotate(tc.during)
			if s, err := servers.ByID(t.Context(), Ask{ID: 1}); (s != nil) != tc.found || (err == nil) != tc.found {
				t.Errorf("got %v, %v", s, err)
			}
		})
	}
}
