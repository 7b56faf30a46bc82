package fakecloud_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/fault"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/cputime"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/journal"
)

// keysOf returns the number of SSH keys that a token sees.
func keysOf(t *testing.T, c *fakecloud.Cloud, token string) int {
	t.Helper()
	all := must(c.Client(hcloud.WithToken(token)).SSHKey.All(t.Context()))(t)
	return len(all)
}

func addKey(t *testing.T, c *fakecloud.Cloud, token string) {
	t.Helper()
	check(t, did(c.Client(hcloud.WithToken(token)).SSHKey.Create(t.Context(), hcloud.SSHKeyCreateOpts{Name: "mine", PublicKey: testKey})))
}

// Faults, the journal, the rate limit and a reset concern one project each.
func TestAutomaticProjectsAreControlledOneByOne(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c := startControlled(t, fakecloud.Options{AutoProjects: true, RateLimit: 10})
	for _, token := range []string{"job-1", "job-2"} {
		addKey(t, c.Cloud, token)
		addKey(t, c.Cloud, token+"-other")
	}
	one, err := c.TokenProject(ctx, "job-1")
	if err != nil || !one.Auto || !strings.HasPrefix(one.Name, "auto-") {
		t.Fatalf("%+v, %v", one, err)
	}
	path := fmt.Sprintf("/projects/%d", one.ID)
	if p := c.call(t, "GET", "/tokens/job-1", "", 200)["project"].(map[string]any); p["id"] != float64(one.ID) || p["auto"] != true {
		t.Errorf("%v", p)
	}
	rule := fault.Rule{Project: one.ID, Method: "DELETE", Effect: fault.DropConnection()}
	other := fault.Rule{Project: one.ID + 1, Method: "DELETE", Effect: fault.DropConnection()}
	for _, r := range []fault.Rule{rule, other} {
		must(c.Faults().Add(ctx, r))(t)
	}
	left := func() (rules, entries int) {
		list, _ := c.Faults().List(ctx)                                      // in this process, there is no error
		entries, _ = c.Journal().Count(ctx, journal.Filter{Project: one.ID}) // nor here
		return len(list), entries
	}
	c.call(t, "POST", path+"/reset", `{"keep": ["resources", "faults", "journal"]}`, 200)
	if rules, entries := left(); rules != 2 || entries != 1 || keysOf(t, c.Cloud, "job-1") != 1 {
		t.Errorf("%d rules, %d requests are kept", rules, entries)
	}
	c.call(t, "POST", path+"/reset", "", 200)
	if rules, entries := left(); rules != 1 || entries != 0 || keysOf(t, c.Cloud, "job-1") != 0 || keysOf(t, c.Cloud, "job-2") != 1 {
		t.Errorf("%d rules, %d requests are left", rules, entries)
	}
	_, resp, err := c.Client(hcloud.WithToken("job-1")).SSHKey.List(ctx, hcloud.SSHKeyListOpts{})
	if err != nil || resp.Meta.Ratelimit.Remaining != 8 {
		t.Errorf("%d requests remain of 10 after a reset and 2: %v", resp.Meta.Ratelimit.Remaining, err)
	}
	must(c.Faults().Add(ctx, rule))(t)
	c.call(t, "DELETE", path, "", 200)
	if rules, entries := left(); rules != 1 || entries != 2 {
		t.Errorf("%d rules, %d requests are left after the drop", rules, entries)
	}
	c.call(t, "DELETE", path, "", 404)
	c.call(t, "GET", "/tokens/job-1", "", 404)
	if n := keysOf(t, c.Cloud, "job-1"); n != 0 {
		t.Errorf("the token's next project has %d keys", n)
	}
	if next, err := c.TokenProject(ctx, "job-1"); err != nil || next.ID == one.ID {
		t.Errorf("%+v, %v", next, err)
	}
}

// An idle program gives the memory back, with all that is kept outside of the project.
func TestAnUnusedProjectIsForgottenEverywhere(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		c := newCloud(t, fakecloud.Options{AutoProjects: true, ProjectTTL: time.Minute, RateLimit: 10})
		addKey(t, c, "job-1")
		p := must(c.TokenProject(ctx, "job-1"))(t)
		must(c.Faults().Add(ctx, fault.Rule{Project: p.ID, Effect: fault.DropConnection()}))(t)
		time.Sleep(time.Minute + 6*time.Second)
		synctest.Wait()
		if rules, _ := c.Faults().List(ctx); len(rules) != 0 {
			t.Errorf("%d fault rules are left", len(rules))
		}
		if all, err := c.Projects(ctx); err != nil || len(all) != 1 || all[0].Auto {
			t.Errorf("%+v, %v", all, err)
		}
	})
}

// Tests that run at the same time each take a token of their own, and see an empty cloud.
func ExampleOptions_autoProjects() {
	cloud := fakecloud.New(fakecloud.Options{AutoProjects: true})
	defer cloud.Close()
	for _, token := range []string{"test-1", "test-2"} {
		client := cloud.Client(hcloud.WithToken(token))
		_, _, err := client.Server.Create(context.Background(), hcloud.ServerCreateOpts{
			Name: "web", ServerType: &hcloud.ServerType{Name: "cx23"}, Image: &hcloud.Image{Name: "debian-13"},
		})
		servers, _ := client.Server.All(context.Background())
		fmt.Println(token, len(servers), err)
	}
	// Output:
	// test-1 1 <nil>
	// test-2 1 <nil>
}

// projectCloud returns a cloud in which n tokens have made a project each.
func projectCloud(b *testing.B, n int) *fakecloud.Cloud {
	b.Helper()
	c := newCloud(b, fakecloud.Options{AutoProjects: true, JournalSize: 1})
	for i := range n {
		serveAs(b, c, i, apiRequest(b, "GET", "/v1/servers", ""))
	}
	return c
}

// serveAs sends a request with the i-th token, which has the usual length.
func serveAs(b *testing.B, c *fakecloud.Cloud, i int, r *http.Request) {
	b.Helper()
	r.Header.Set("Authorization", fmt.Sprintf("Bearer %064d", i))
	c.Handler().ServeHTTP(&discard{header: http.Header{}}, r)
}

// BenchmarkRequestAmongProjects must cost about the same with 1 and with 10,000 projects. If each request is that of another project,
// the machine's caches help less.
func BenchmarkRequestAmongProjects(b *testing.B) {
	for _, c := range []struct{ projects, used int }{{1, 1}, {10_000, 1}, {10_000, 10_000}} {
		b.Run(fmt.Sprintf("%d projects, %d in use", c.projects, c.used), func(b *testing.B) {
			cloud := projectCloud(b, c.projects)
			tokens := make([]string, c.used)
			for i := range tokens {
				tokens[i] = fmt.Sprintf("Bearer %064d", i)
			}
			r, w := apiRequest(b, "GET", "/v1/servers", ""), &discard{header: http.Header{}}
			b.ReportAllocs()
			for i := 0; b.Loop(); i += 7919 {
				w.reset()
				r.Header["Authorization"][0] = tokens[i%c.used]
				cloud.Handler().ServeHTTP(w, r)
			}
		})
	}
}

// BenchmarkProjects makes 10,000 projects with one request each and drops them. It reports the bytes of heap per project: empty, with a
// server, after a reset, and when they are gone.
func BenchmarkProjects(b *testing.B) {
	const n = 10_000
	for b.Loop() {
		before := heap()
		start := cputime.Used()
		c := projectCloud(b, n)
		b.ReportMetric(float64(cputime.Used()-start)/n, "cpu-ns/project")
		b.ReportMetric(float64(heap()-before)/n, "heap-B/empty-project")
		for i := range n {
			serveAs(b, c, i, apiRequest(b, "POST", "/v1/servers", serverBody(i)))
		}
		b.ReportMetric(float64(heap()-before)/n, "heap-B/project-of-a-server")
		all, err := c.Projects(b.Context())
		if err != nil || len(all) != n+1 {
			b.Fatal(len(all), err)
		}
		for _, p := range all[1:] {
			check(b, c.ResetProject(b.Context(), p.ID))
		}
		b.ReportMetric(float64(heap()-before)/n, "heap-B/reset-project")
		for i := range n {
			serveAs(b, c, i, apiRequest(b, "POST", "/v1/servers", serverBody(i)))
		}
		start = cputime.Used()
		for _, p := range all[1:] {
			check(b, c.DropProject(b.Context(), p.ID))
		}
		b.ReportMetric(float64(cputime.Used()-start)/n, "cpu-ns/drop")
		b.ReportMetric(float64(heap()-before)/n, "heap-B/dropped-project")
		c.Close()
	}
}
