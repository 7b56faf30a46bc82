package fakecloud_test

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/fault"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/hypervisor"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/journal"
)

// stateOf returns all that a cloud shows.
func stateOf(t *testing.T, c *fakecloud.Cloud) []byte {
	t.Helper()
	return must(c.State(t.Context(), fakecloud.Selection{}))(t)
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// must returns what a call has returned. An error ends the test: must(call())(t).
func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		check(t, err)
		return v
	}
}

// did returns the error of a call of hcloud-go.
func did(_ any, _ *hcloud.Response, err error) error { return err }

// newCloud returns a cloud that ends with the test.
func newCloud(t testing.TB, o fakecloud.Options) *fakecloud.Cloud {
	t.Helper()
	c := must(fakecloud.Open(o))(t)
	t.Cleanup(c.Close)
	return c
}

// preparedCloud returns a cloud that stands still, with some servers and with actions that take a minute.
func preparedCloud(t testing.TB, servers int, o fakecloud.Options) *fakecloud.Cloud {
	t.Helper()
	c := newCloud(t, o)
	check(t, c.SetSpeed(context.Background(), 0))
	for i := range servers {
		check(t, orderServer(context.Background(), c, fmt.Sprintf("server-%d", i)))
	}
	check(t, c.SetProfile(context.Background(), "1m"))
	return c
}

// serverOpts are those of a usual server.
func serverOpts(name string) hcloud.ServerCreateOpts {
	return hcloud.ServerCreateOpts{
		Name: name, ServerType: &hcloud.ServerType{Name: "cx23"}, Image: &hcloud.Image{Name: "debian-13"},
	}
}

func orderServer(ctx context.Context, c *fakecloud.Cloud, name string) error {
	_, _, err := c.Client().Server.Create(ctx, serverOpts(name))
	return err
}

func TestAForkIsAlone(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	original := preparedCloud(t, 10, fakecloud.Options{RateLimit: 1000})
	before := stateOf(t, original)
	var wait sync.WaitGroup
	for i := range 8 {
		fork := original.Fork()
		defer fork.Close()
		wait.Go(func() {
			for j := range 40 {
				if err := orderServer(ctx, fork, fmt.Sprintf("new-%d-%d", i, j)); err != nil {
					t.Error(err)
				}
			}
			if err := fork.Step(ctx, time.Hour); err != nil {
				t.Error(err)
			}
			if servers, err := fork.Client().Server.All(ctx); err != nil || len(servers) != 50 {
				t.Errorf("fork %d has %d servers, want 50: %v", i, len(servers), err)
			}
		})
	}
	wait.Wait()
	if after := stateOf(t, original); !bytes.Equal(before, after) {
		t.Errorf("the original has changed:\n%s", after)
	}
	if n, err := original.Journal().Count(ctx, journal.Filter{}); err != nil || n != 10 {
		t.Errorf("the original's journal has %d requests, want 10: %v", n, err)
	}
}

// A rule for the first two requests takes one before the fork, and one in each of the two clouds after it.
func TestAForkHasTheFaultRulesWithTheirCounters(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	original := preparedCloud(t, 0, fakecloud.Options{RateLimit: 100})
	rule := fault.Rule{Operation: "create_server", First: 2, Effect: fault.APIError("protected")}
	must(original.Faults().Add(ctx, rule))(t)
	refused := func(c *fakecloud.Cloud) bool { return orderServer(ctx, c, "one") != nil }
	if !refused(original) {
		t.Fatal("the rule took no request")
	}
	fork := original.Fork()
	defer fork.Close()
	for _, c := range []*fakecloud.Cloud{original, fork} {
		if !refused(c) || refused(c) {
			t.Error("want one more request refused, and then none")
		}
	}
	_, resp, err := fork.Client().Server.List(ctx, hcloud.ServerListOpts{})
	if err != nil || resp.Meta.Ratelimit.Remaining != 100-4 {
		t.Errorf("%d requests remain of 100 after 4: %v", resp.Meta.Ratelimit.Remaining, err)
	}
}

// Each subtest gets a copy of one prepared cloud.
func ExampleCloud_Fork() {
	ctx := context.Background()
	prepared := fakecloud.New(fakecloud.Options{})
	defer prepared.Close()
	createExample(ctx, prepared, "web-1")

	for _, name := range []string{"web-2", "web-3"} {
		cloud := prepared.Fork()
		createExample(ctx, cloud, name)
		servers, err := cloud.Client().Server.All(ctx)
		fmt.Println(len(servers), servers[1].Name, err)
		cloud.Close()
	}
	// Output:
	// 2 web-2 <nil>
	// 2 web-3 <nil>
}

// A fork of a cloud without reports can get some: the copy of an empty history was one that nothing could be added to.
func TestAForkGetsReports(t *testing.T) {
	t.Parallel()
	fork := preparedCloud(t, 1, fakecloud.Options{}).Fork()
	defer fork.Close()
	server, _, err := fork.Client().Server.GetByName(t.Context(), "server-0")
	check(t, err)
	if err := fork.ReportServerUsage(t.Context(), server.ID, hypervisor.Usage{CPU: 5}); err != nil {
		t.Error(err)
	}
}
