package remote_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/hypervisor"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/remote"
)

func controlURL(t *testing.T, c *fakecloud.Cloud) string {
	t.Helper()
	if url := c.ControlURL(); url != "" {
		return url
	}
	return must[string](t)(c.StartControl(t.Context(), ""))
}

// eachHypervisor runs a test with both kinds of sessions.
func eachHypervisor(t *testing.T, test func(*testing.T, *world)) {
	t.Helper()
	each(t, func(t *testing.T, c *fakecloud.Cloud, is controls) { test(t, &world{t, c, is}) })
}

type world struct {
	*testing.T
	*fakecloud.Cloud
	is controls
}

func (w *world) attach() hypervisor.Session {
	w.Helper()
	s, err := w.is.AttachHypervisor(w.Context(), hypervisor.Options{Name: "test"})
	ok(w, err)
	w.T.Cleanup(s.Close)
	return s
}

func (w *world) create(name string) hcloud.ServerCreateResult {
	w.Helper()
	res, _, err := w.Client().Server.Create(w.Context(), hcloud.ServerCreateOpts{
		Name: name, ServerType: &hcloud.ServerType{Name: "cpx22"}, Image: &hcloud.Image{Name: "debian-12"}, UserData: "#!/bin/sh",
		Location: &hcloud.Location{Name: "nbg1"}, Labels: map[string]string{"role": "worker"},
	})
	ok(w, err)
	return res
}

func (w *world) powerOff(s *hcloud.Server) *hcloud.Action {
	w.Helper()
	a, _, err := w.Client().Server.Poweroff(w.Context(), s)
	ok(w, err)
	return a
}

func (w *world) next(s hypervisor.Session, command string) hypervisor.Task {
	w.Helper()
	task, err := s.Next(w.Context())
	if err != nil || task.Command != command {
		w.Fatalf("next task: %+v, %v; want %s", task, err, command)
	}
	return task
}

func (w *world) complete(s hypervisor.Session, command string, failure error) {
	w.Helper()
	ok(w, s.Complete(w.Context(), w.next(s, command).Action, failure))
}

func (w *world) wantStatus(s *hcloud.Server, want hcloud.ServerStatus) {
	w.Helper()
	got, _, err := w.Client().Server.GetByID(w.Context(), s.ID)
	if err != nil || got == nil || got.Status != want {
		w.Fatalf("server: %+v, %v; want it %s", got, err, want)
	}
}

func TestActionsEndAsTheHypervisorSays(t *testing.T) {
	eachHypervisor(t, func(t *testing.T, w *world) {
		h := w.attach()
		if len(h.Guests()) != 0 {
			t.Errorf("%+v", h.Guests())
		}
		res := w.create("a")
		if res.Action.Status != hcloud.ActionStatusRunning {
			t.Errorf("%+v", res.Action)
		}
		task := w.next(h, hypervisor.CommandCreate)
		m := task.Guest
		if m.Name != "a" || m.UserData != "#!/bin/sh" || m.Labels["role"] != "worker" || m.ServerType != "cpx22" || m.Cores == 0 ||
			m.PublicIPv4.String() != res.Server.PublicNet.IPv4.IP.String() || task.Action != res.Action.ID || task.Deadline.IsZero() ||
			task.Runs {
			t.Errorf("%+v", task)
		}
		ok(t, h.Complete(t.Context(), task.Action, nil))
		w.wantStatus(res.Server, hcloud.ServerStatusStarting)
		if task = w.next(h, hypervisor.CommandStart); !task.Runs {
			t.Errorf("%+v", task)
		}
		ok(t, h.Complete(t.Context(), task.Action, nil))
		w.wantStatus(res.Server, hcloud.ServerStatusRunning)
		if err := h.Complete(t.Context(), task.Action, nil); !errors.Is(err, hypervisor.ErrNoTask) {
			t.Errorf("completed twice: %v", err)
		}

		off := w.powerOff(res.Server)
		w.complete(h, hypervisor.CommandStop, &hypervisor.Error{Code: "server_error", Message: "the switch is stuck"})
		err := w.Client().Action.WaitFor(t.Context(), off)
		if e := (hcloud.ActionError{}); !errors.As(err, &e) || e.Code != "server_error" || e.Message != "the switch is stuck" {
			t.Errorf("%v", err)
		}
		off = w.powerOff(res.Server)
		w.complete(h, hypervisor.CommandStop, errors.New("stuck again"))
		err = w.Client().Action.WaitFor(t.Context(), off)
		if e := (hcloud.ActionError{}); !errors.As(err, &e) || e.Code != "action_failed" || e.Message != "stuck again" {
			t.Errorf("%v", err)
		}
		w.wantStatus(res.Server, hcloud.ServerStatusRunning)
	})
}

func TestGuestsThatStartAndStopByThemselves(t *testing.T) {
	eachHypervisor(t, func(t *testing.T, w *world) {
		server := w.create("a").Server
		h := w.attach()
		if ms := h.Guests(); len(ms) != 1 || ms[0].Server != server.ID || ms[0].Status != "running" {
			t.Errorf("%+v", ms)
		}
		for _, running := range []bool{false, true} {
			ok(t, h.Report(t.Context(), server.ID, running))
			w.wantStatus(server, map[bool]hcloud.ServerStatus{false: hcloud.ServerStatusOff, true: hcloud.ServerStatusRunning}[running])
		}
		if err := h.Report(t.Context(), 7, true); !errors.Is(err, hypervisor.ErrNoGuest) {
			t.Errorf("no such server: %v", err)
		}
		ok(t, w.Reset(t.Context()))
		if task := w.next(h, hypervisor.CommandForget); task.Action != 0 || task.Guest.Server != server.ID {
			t.Errorf("%+v", task)
		}
	})
}

func TestTasksOutliveASession(t *testing.T) {
	eachHypervisor(t, func(t *testing.T, w *world) {
		server := w.create("a").Server
		h := w.attach()
		off := w.powerOff(server)
		w.next(h, hypervisor.CommandStop)
		h.Suspend()
		if _, err := h.Next(t.Context()); !errors.Is(err, hypervisor.ErrDetached) {
			t.Errorf("Next: %v", err)
		}
		if err := h.Complete(t.Context(), off.ID, nil); !errors.Is(err, hypervisor.ErrDetached) {
			t.Errorf("Complete: %v", err)
		}
		second := w.attach()
		third := w.attach()
		var err error
		for err == nil { // it may have got the task before it was replaced
			_, err = second.Next(t.Context())
		}
		if !errors.Is(err, hypervisor.ErrReplaced) {
			t.Errorf("Next of a replaced session: %v", err)
		}
		second.Close() // must not end the third
		w.complete(third, hypervisor.CommandStop, nil)
		w.wantStatus(server, hcloud.ServerStatusOff)
	})
}

func TestClosingFailsUnfinishedActions(t *testing.T) {
	eachHypervisor(t, func(t *testing.T, w *world) {
		server := w.create("a").Server
		h := w.attach()
		off := w.powerOff(server)
		h.Close()
		if err := w.Client().Action.WaitFor(t.Context(), off); err == nil {
			t.Error("the action succeeded, but its task was not done")
		}
		if err := h.Report(t.Context(), server.ID, false); !errors.Is(err, hypervisor.ErrDetached) {
			t.Errorf("Report: %v", err)
		}
		if off = w.powerOff(server); off.Status != hcloud.ActionStatusSuccess {
			t.Errorf("%+v", off)
		}
		h.Close()
	})
}

func TestTheEndOfTheCloudEndsASession(t *testing.T) {
	eachHypervisor(t, func(t *testing.T, w *world) {
		h := w.attach()
		w.Close()
		if _, err := h.Next(t.Context()); err == nil || errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
	})
}

func TestWrongOptionsAreRefused(t *testing.T) {
	eachHypervisor(t, func(t *testing.T, w *world) {
		for text, o := range map[string]hypervisor.Options{
			"name":     {},
			"selector": {Name: "a", Selector: "!"},
			"project":  {Name: "a", Project: 42},
			"1 to 63":  {Name: strings.Repeat("a", 64)},
			"a/b":      {Name: "a/b"},
			"timeout":  {Name: "h", TaskTimeout: -1},
		} {
			if _, err := w.is.AttachHypervisor(t.Context(), o); err == nil || !strings.Contains(err.Error(), text) {
				t.Errorf("%+v: %v", o, err)
			}
		}
	})
}

func TestALostConnectionIsNoticedOnBothSides(t *testing.T) {
	t.Parallel()
	c := fakecloud.New(fakecloud.Options{})
	t.Cleanup(c.Close)
	w := &world{t, c, remote.New(controlURL(t, c))}
	server := w.create("a").Server

	// The test can cut this connection.
	cut, stop := context.WithCancel(t.Context())
	transport := roundTripper(func(r *http.Request) (*http.Response, error) {
		if r.URL.Path == "/hypervisors" {
			r = r.WithContext(cut)
		}
		return http.DefaultTransport.RoundTrip(r)
	})
	h, err := remote.New(c.ControlURL(), remote.WithHTTPClient(&http.Client{Transport: transport})).AttachHypervisor(t.Context(),
		hypervisor.Options{Name: "test"})
	ok(t, err)
	w.powerOff(server)
	w.next(h, hypervisor.CommandStop)
	stop()
	if _, err := h.Next(t.Context()); err == nil || errors.Is(err, hypervisor.ErrDetached) {
		t.Errorf("%v", err)
	}
	again := w.attach()
	w.complete(again, hypervisor.CommandStop, nil)
	w.wantStatus(server, hcloud.ServerStatusOff)
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestSilenceIsALostConnection(t *testing.T) {
	t.Parallel()
	silent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, `{"type":"synced"}`+"\n")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}))
	t.Cleanup(silent.Close)
	h, err := remote.New(silent.URL).AttachHypervisor(t.Context(), hypervisor.Options{Name: "test", Ping: 300 * time.Millisecond})
	ok(t, err)
	if _, err := h.Next(t.Context()); err == nil || !strings.Contains(err.Error(), "no message for") {
		t.Errorf("%v", err)
	}
	h.Suspend()
}

func TestAttachingEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	enough := errors.New("enough")
	silent := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		cancel(enough)
		<-r.Context().Done()
	}))
	t.Cleanup(silent.Close)
	if _, err := remote.New(silent.URL).AttachHypervisor(ctx, hypervisor.Options{Name: "test"}); !errors.Is(err, enough) {
		t.Errorf("%v", err)
	}
}
