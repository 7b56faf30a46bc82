package fakecloud_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/fault"
)

func TestALoadedCloudGoesOn(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	original := preparedCloud(t, 5, fakecloud.Options{RandomSeed: 1, RateLimit: 1000})
	rule := fault.Rule{Operation: "get_ssh_key", Probability: 0.5, Seed: 3, Effect: fault.APIError("forbidden")}
	must(original.Faults().Add(ctx, rule))(t)
	for range 7 {
		_, _, _ = original.Client().SSHKey.GetByID(ctx, 1) // the rule takes some of these
	}
	check(t, orderServer(ctx, original, "coming"))
	var text bytes.Buffer
	check(t, original.Save(ctx, &text))
	loaded := must(fakecloud.Load(&text, fakecloud.Options{RandomSeed: 1, RateLimit: 1000, Actions: "1m"}))(t)
	defer loaded.Close()
	check(t, loaded.SetSpeed(ctx, 0))
	now := must(original.Now(ctx))(t)
	if then, err := loaded.Now(ctx); err != nil || then.Before(now) || then.Sub(now) > time.Hour {
		t.Errorf("the loaded cloud shows %v, the original %v: %v", then, now, err)
	}
	for _, c := range []*fakecloud.Cloud{original, loaded} {
		check(t, c.Step(ctx, 10*time.Minute))
		if server, _, err := c.Client().Server.GetByName(ctx, "coming"); err != nil || server == nil || server.Status != "running" {
			t.Errorf("the server that was being created: %v, %v", server, err)
		}
	}
	var answers [2]string
	for i, c := range []*fakecloud.Cloud{original, loaded} {
		for range 20 {
			_, _, err := c.Client().SSHKey.GetByID(ctx, 1)
			answers[i] += fmt.Sprintln(err != nil)
		}
	}
	if answers[0] != answers[1] || !strings.Contains(answers[0], "true") || !strings.Contains(answers[0], "false") {
		t.Errorf("the fault rule took other requests:\n%s\n%s", answers[0], answers[1])
	}
}

// A snapshot of a cloud with projects of unknown tokens has them. A project that both clouds have stays the same one; what came after the
// snapshot is gone, and its token is that of a new project.
func TestTheAutomaticProjectsOfASnapshot(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c := newCloud(t, fakecloud.Options{AutoProjects: true})
	addKey(t, c, "job-1")
	var text bytes.Buffer
	check(t, c.Save(ctx, &text))
	saved := bytes.Clone(text.Bytes())
	addKey(t, c, "job-2")
	gone := must(c.TokenProject(ctx, "job-2"))(t)
	check(t, c.Restore(ctx, &text))
	if one, two := keysOf(t, c, "job-1"), keysOf(t, c, "job-2"); one != 1 || two != 0 {
		t.Errorf("%d and %d keys, want 1 and none", one, two)
	}
	if again, err := c.TokenProject(ctx, "job-2"); err != nil || again.ID <= gone.ID {
		t.Errorf("the new project %d has an id that was used, such as %d: %v", again.ID, gone.ID, err)
	}
	loaded := must(fakecloud.Load(bytes.NewReader(saved), fakecloud.Options{AutoProjects: true}))(t)
	defer loaded.Close()
	if n := keysOf(t, loaded, "job-1"); n != 1 {
		t.Errorf("the loaded cloud has %d keys", n)
	}
}

// A cloud continues where a file of another one ends.
func ExampleLoad() {
	ctx := context.Background()
	cloud := fakecloud.New(fakecloud.Options{})
	createExample(ctx, cloud, "web-1")
	var file bytes.Buffer
	if err := cloud.Save(ctx, &file); err != nil {
		fmt.Println(err)
	}
	cloud.Close()

	cloud, err := fakecloud.Load(&file, fakecloud.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer cloud.Close()
	servers, err := cloud.Client().Server.All(ctx)
	fmt.Println(len(servers), servers[0].Name, err)
	// Output: 1 web-1 <nil>
}

// fullDisk is a disk that is empty, and has room or not.
type fullDisk struct{ full atomic.Bool }

func (d *fullDisk) Read(func(key, value []byte) error) error { return nil }
func (d *fullDisk) Close() error                             { return nil }
func (d *fullDisk) Write(bool, func(put func(key, value []byte) error, deleteAll func(prefix []byte) error) error) error {
	return d.Room()
}

func (d *fullDisk) Room() error {
	if d.full.Load() {
		return syscall.ENOSPC
	}
	return nil
}

func TestACloudThatCannotSaveIsNotReady(t *testing.T) {
	t.Parallel()
	d := &fullDisk{}
	c := startControlled(t, fakecloud.Options{Disk: d, Logger: slog.New(slog.DiscardHandler)})
	must(c.Start(t.Context(), ""))(t)
	n := 0
	order := func() bool {
		n++
		return orderServer(t.Context(), c.Cloud, fmt.Sprint("server-", n)) == nil
	}
	for _, full := range []bool{true, false} {
		d.full.Store(full)
		for order() == full { // a write may come before the first that fails
		}
		resp, body := ask(t, http.MethodGet, c.url+"/ready", nil)
		if full != (resp.StatusCode == http.StatusServiceUnavailable) || full != strings.Contains(body, "changes cannot be saved") {
			t.Errorf("full is %v: %d %s", full, resp.StatusCode, body)
		}
		c.call(t, "POST", "/faults", `{"name": "one", "effect": {"kind": "drop"}}`, map[bool]int{true: 500, false: 201}[full])
	}
}
