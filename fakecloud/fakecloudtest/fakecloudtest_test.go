package fakecloudtest_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/fakecloudtest"
)

// TestMyController is what a user's test looks like.
func TestMyController(t *testing.T) {
	cloud := fakecloudtest.New(t)
	fakecloudtest.Env(t, cloud)

	client := hcloud.NewClient(hcloud.WithEndpoint(os.Getenv("HCLOUD_ENDPOINT")), hcloud.WithToken(os.Getenv("HCLOUD_TOKEN")))
	server, _, err := client.Server.Create(t.Context(), hcloud.ServerCreateOpts{
		Name: "web-1", ServerType: &hcloud.ServerType{Name: "cx23"}, Image: &hcloud.Image{Name: "debian-13"},
	})
	if err != nil || server.Server.Name != "web-1" {
		t.Fatal(server, err)
	}
}

// recorder is a test that records what is done to it.
type recorder struct {
	testing.TB
	failed   bool
	logs     []string
	cleanups []func()
}

func (r *recorder) Helper()                  {}
func (r *recorder) Context() context.Context { return context.Background() }
func (r *recorder) Failed() bool             { return r.failed }
func (r *recorder) Log(args ...any)          { r.logs = append(r.logs, fmt.Sprint(args...)) }
func (r *recorder) Cleanup(f func())         { r.cleanups = append(r.cleanups, f) }
func (r *recorder) Errorf(format string, args ...any) {
	r.failed = true
	r.Log(fmt.Sprintf(format, args...))
}
func (r *recorder) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

func (r *recorder) end() {
	for _, f := range r.cleanups {
		f()
	}
}

func get(t *testing.T, url string) error {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err == nil {
		_ = resp.Body.Close()
	}
	return err
}

func TestTheCloudEndsWithTheTest(t *testing.T) {
	t.Parallel()
	for _, failed := range []bool{false, true} {
		r := &recorder{failed: failed}
		cloud := fakecloudtest.New(r)
		for i := range 60 {
			if err := get(t, fmt.Sprintf("%s/servers?page=%d", cloud.Endpoint(), i)); err != nil {
				t.Fatal(err)
			}
		}
		r.end()
		if err := get(t, cloud.Endpoint()); err == nil {
			t.Error("the cloud still listens")
		}
		logs := strings.Join(r.logs, "\n")
		switch {
		case !failed && logs != "":
			t.Errorf("a test that passed logs %s", logs)
		case failed && (!strings.HasPrefix(logs, "fakecloud: 60 requests; the latest 50\n") || strings.Contains(logs, "page=9 ") ||
			!strings.Contains(logs, "page=10 401 unauthorized") || !strings.Contains(logs, "page=59 ")):
			t.Errorf("a test that failed logs %s", logs)
		}
	}
}

func TestATestFailsIfARequestHasUnknownFields(t *testing.T) {
	t.Parallel()
	for _, allowed := range [][]fakecloudtest.Option{nil, {fakecloudtest.AllowUnknownFields}} {
		r := &recorder{}
		cloud := fakecloudtest.NewWith(r, fakecloud.Options{Logger: slog.New(slog.DiscardHandler)}, allowed...)
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, cloud.Endpoint()+"/firewalls",
			strings.NewReader(`{"name": "f", "label": {}}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+cloud.Token())
		resp, err := http.DefaultClient.Do(req)
		if err != nil || resp.StatusCode != http.StatusCreated || resp.Body.Close() != nil {
			t.Fatal(resp, err)
		}
		r.end()
		logs := strings.Join(r.logs, "\n")
		if r.failed != (allowed == nil) || r.failed && !strings.Contains(logs, "does not read label of POST") {
			t.Errorf("failed %t: %s", r.failed, logs)
		}
	}
}

func TestAWrongOptionEndsTheTest(t *testing.T) {
	t.Parallel()
	defer func() {
		if p := fmt.Sprint(recover()); !strings.Contains(p, "fakecloud: ") || !strings.Contains(p, "must be instant") {
			t.Errorf("%s", p)
		}
	}()
	fakecloudtest.NewWith(&recorder{}, fakecloud.Options{Actions: "soon"})
}
