package cloudtest_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/cloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/cloud/cloudtest"
	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/cloud/example"
)

// broken are drivers that each break one promise, and the test that must fail. Each changes the cloud of a driver that is right.
var broken = map[string]struct {
	breaks func(right) cloud.Cloud
	test   string
}{
	"a server does not run":           {func(r right) cloud.Cloud { return off{r} }, "a server that is created runs"},
	"two servers of one name":         {func(r right) cloud.Cloud { return twins{r} }, "names of servers are unique"},
	"a deleted server stays":          {func(r right) cloud.Cloud { return keeps{r} }, "a server that is deleted is gone"},
	"stop does nothing":               {func(r right) cloud.Cloud { return awake{r} }, "a server is off from its stop"},
	"no ErrNotFound":                  {func(r right) cloud.Cloud { return vague{r} }, "what does not exist is not found"},
	"never returns":                   {func(r right) cloud.Cloud { return hangs{r} }, "a method ends with its context"},
	"a rename makes another server":   {func(r right) cloud.Cloud { return remade{r} }, "Renamer"},
	"a route is deleted by its range": {func(r right) cloud.Cloud { return careless{r} }, "Router: a route that leads elsewhere"},
	"every effect is another error":   {func(r right) cloud.Cloud { return vaguer{r} }, "Faulty: what the driver does not have"},
}

// right is what the cloud of the example driver implements.
type right interface {
	cloud.Cloud
	cloud.Renamer
	cloud.Router
	cloud.Faulty
}

type off struct{ right }

func (c off) CreateServer(ctx context.Context, name string) (cloud.Server, error) {
	s, err := c.right.CreateServer(ctx, name)
	if err == nil {
		err = c.StopServer(ctx, s.ID)
	}
	s.Running = false
	return s, err
}

type twins struct{ right }

func (c twins) CreateServer(ctx context.Context, name string) (cloud.Server, error) {
	s, err := c.right.CreateServer(ctx, name)
	if err != nil {
		s, err = c.right.CreateServer(ctx, name+"-2")
	}
	return s, err
}

type keeps struct{ right }

func (c keeps) DeleteServer(ctx context.Context, id string) error { return c.StopServer(ctx, id) }

type awake struct{ right }

func (c awake) StopServer(context.Context, string) error { return nil }

type vague struct{ right }

func (c vague) StopServer(ctx context.Context, id string) error {
	if err := c.right.StopServer(ctx, id); err != nil {
		return errors.New("something is wrong")
	}
	return nil
}

type hangs struct{ right }

func (c hangs) Servers(ctx context.Context) ([]cloud.Server, error) {
	if ctx.Err() != nil {
		select {}
	}
	return c.right.Servers(ctx)
}

type remade struct{ right }

func (c remade) RenameServer(ctx context.Context, id, name string) error {
	_, err := c.CreateServer(ctx, name)
	return errors.Join(err, c.DeleteServer(ctx, id))
}

type careless struct{ right }

func (c careless) DeleteRoute(ctx context.Context, r cloud.Route) error {
	r.Server = ""
	return c.right.DeleteRoute(ctx, r)
}

type vaguer struct{ right }

func (c vaguer) AddFault(ctx context.Context, f cloud.Fault) (string, error) {
	name, err := c.right.AddFault(ctx, f)
	if err != nil {
		err = errors.New("something is wrong")
	}
	return name, err
}

// breaker is a driver that makes clouds which break a promise.
type breaker struct {
	example.Driver
	breaks func(right) cloud.Cloud
}

func (b breaker) Start(ctx context.Context, o cloud.Options) (cloud.Cloud, error) {
	c, err := b.Driver.Start(ctx, o)
	if err != nil {
		return nil, err
	}
	return b.breaks(c.(right)), nil
}

// variable says which broken driver the process tests.
const variable = "CLOUDTEST_BROKEN"

// TestBroken runs the tests of a broken driver, in a process of TestEachBrokenPromiseIsNoticed.
func TestBroken(t *testing.T) {
	t.Parallel()
	name := os.Getenv(variable)
	if name == "" {
		t.Skip("TestEachBrokenPromiseIsNoticed runs this test")
	}
	cloudtest.Run(t, breaker{breaks: broken[name].breaks}, cloudtest.Config{Slow: 2e9})
}

func TestEachBrokenPromiseIsNoticed(t *testing.T) {
	t.Parallel()
	for name, b := range broken {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			command := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestBroken$", "-test.v")
			command.Env = append(os.Environ(), variable+"="+name)
			out, err := command.CombinedOutput()
			if err == nil {
				t.Fatalf("all tests pass:\n%s", out)
			}
			want := "--- FAIL: TestBroken/" + strings.ReplaceAll(b.test, " ", "_")
			if !strings.Contains(string(out), want) {
				t.Errorf("want %q in:\n%s", want, out)
			}
		})
	}
}
