package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/hypervisor"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/cloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/wire"
)

// minPing is the shortest interval of pings, so that a client cannot ask for too many.
const minPing = 10 * time.Millisecond

type hypervisorJSON struct {
	cloud.HypervisorStatus
	TaskTimeout string `json:"task_timeout"`
	Grace       string `json:"grace"`
}

func listHypervisors(c *Controller, _ *http.Request) (any, error) {
	out := []hypervisorJSON{}
	for _, h := range c.Cloud.Hypervisors() {
		out = append(out, hypervisorJSON{h, h.TaskTimeout.String(), h.Grace.String()})
	}
	return map[string]any{"hypervisors": out}, nil
}

// attachHypervisor streams tasks until the client leaves. The client may come back.
func attachHypervisor(c *Controller, w http.ResponseWriter, r *http.Request) {
	var in wire.AttachRequest
	if err := decode(r, &in); err != nil {
		writeJSON(w, http.StatusBadRequest, errorBody{err.Error()})
		return
	}
	ping := wire.DefaultPing
	if in.Ping != 0 {
		ping = max(time.Duration(in.Ping), minPing)
	}
	o := in.Options
	o.TaskTimeout, o.Grace = time.Duration(in.TaskTimeout), time.Duration(in.Grace)
	h, err := c.Cloud.AttachHypervisor(o)
	if err != nil {
		writeJSON(w, http.StatusBadRequest, errorBody{err.Error()})
		return
	}
	// Only DELETE closes the session: a client that left may have lost its connection.
	defer h.Suspend()
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusOK)
	s := &stream{w: w, rc: http.NewResponseController(w)}
	for _, m := range h.Guests() {
		if s.message(wire.Message{Type: wire.MessageGuest, Guest: &m}) != nil {
			return
		}
	}
	if s.message(wire.Message{Type: wire.MessageSynced}) != nil {
		return
	}
	for {
		line := nextMessage(r.Context(), h, ping)
		if r.Context().Err() != nil || s.message(line) != nil || line.Type == wire.MessageEnd {
			return
		}
	}
}

func nextMessage(ctx context.Context, h hypervisor.Session, ping time.Duration) wire.Message {
	ctx, cancel := context.WithTimeout(ctx, ping)
	defer cancel()
	task, err := h.Next(ctx)
	switch {
	case err == nil:
		return wire.Message{Type: wire.MessageTask, Task: &task}
	case ctx.Err() != nil:
		return wire.Message{Type: wire.MessagePing}
	}
	return wire.Message{Type: wire.MessageEnd, Reason: err.Error(), Replaced: errors.Is(err, hypervisor.ErrReplaced)}
}

func (s *stream) message(m wire.Message) error {
	line, err := json.Marshal(m)
	if err != nil {
		return err
	}
	s.add("", 0, line)
	s.flush()
	return s.err
}

func detachHypervisor(c *Controller, r *http.Request) (any, error) {
	return done, c.Cloud.DetachHypervisor(chi.URLParam(r, "hypervisor"))
}

// numbered returns a handler that reads an id in the path of its requests.
func numbered(name string, handle func(*Controller, *http.Request, int64) (any, error)) func(*Controller, *http.Request) (any, error) {
	return func(c *Controller, r *http.Request) (any, error) {
		id, err := idParam(r, name)
		if err != nil {
			return nil, err
		}
		return handle(c, r, id)
	}
}

// numberedBody returns a handler that decodes the body of its requests, and then reads an id in their path.
func numberedBody[T any](name string, handle func(*Controller, *http.Request, int64, T) (any, error),
) func(*Controller, *http.Request) (any, error) {
	return body(func(c *Controller, r *http.Request, in T) (any, error) {
		return numbered(name, func(c *Controller, r *http.Request, id int64) (any, error) { return handle(c, r, id, in) })(c, r)
	})
}

func idParam(r *http.Request, name string) (int64, error) {
	text := chi.URLParam(r, name)
	id, ok := cloud.ParseID(text)
	if !ok {
		return 0, fmt.Errorf("%s %.64q: must be an id", name, text)
	}
	return id, nil
}

func completeTask(c *Controller, r *http.Request, action int64, in wire.CompleteRequest) (any, error) {
	var failure error
	if in.Error != nil {
		failure = in.Error
	}
	return done, c.Cloud.CompleteTask(chi.URLParam(r, "hypervisor"), action, failure)
}

func reportGuest(c *Controller, r *http.Request, server int64, in wire.ReportRequest) (any, error) {
	if in.Running == nil {
		return nil, errors.New(`running: is required, such as {"running": false}`)
	}
	return done, c.Cloud.ReportGuest(chi.URLParam(r, "hypervisor"), server, *in.Running)
}
