package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/fault"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/cloud"
)

// DefaultPing is how often the stream of a hypervisor says that it is alive, in the machine's time:
// a connection that was lost shows when nothing comes any more.
const DefaultPing = 5 * time.Second

// minPing keeps a stream from being nothing but pings.
const minPing = 10 * time.Millisecond

// AttachRequest is the body of POST /hypervisors.
type AttachRequest struct {
	cloud.HypervisorOptions
	TaskTimeout fault.Duration `json:"task_timeout,omitempty"`
	Grace       fault.Duration `json:"grace,omitempty"`
	// Ping is how often the stream has at least one line. Default: DefaultPing.
	Ping fault.Duration `json:"ping,omitempty"`
}

// The types of a HypervisorLine.
const (
	LineMachine = "machine" // a server that the hypervisor has
	LineSynced  = "synced"  // there are no more; tasks follow
	LineTask    = "task"
	LinePing    = "ping"
	LineEnd     = "end" // the last line, if there is time for one; Reason says why
)

// HypervisorLine is one line of a hypervisor's stream.
type HypervisorLine struct {
	Type    string             `json:"type"`
	Machine *cloud.Machine     `json:"machine,omitempty"`
	Task    *cloud.MachineTask `json:"task,omitempty"`
	Reason  string             `json:"reason,omitempty"`
	// Replaced is true when another hypervisor has taken the place of this one.
	Replaced bool `json:"replaced,omitempty"`
}

// CompleteRequest is the body of POST /hypervisors/{hypervisor}/tasks/{action}.
type CompleteRequest struct {
	Error *cloud.MachineError `json:"error,omitempty"`
}

// ReportRequest is the body of POST /hypervisors/{hypervisor}/servers/{server}.
type ReportRequest struct {
	Running *bool `json:"running"`
}

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

// attachHypervisor streams tasks until the client goes away, which it may come back from.
func attachHypervisor(c *Controller, w http.ResponseWriter, r *http.Request) {
	var in AttachRequest
	if err := decode(r, &in); err != nil {
		writeJSON(w, http.StatusBadRequest, errorBody{err.Error()})
		return
	}
	ping := DefaultPing
	if in.Ping != 0 {
		ping = max(time.Duration(in.Ping), minPing)
	}
	o := in.HypervisorOptions
	o.TaskTimeout, o.Grace = time.Duration(in.TaskTimeout), time.Duration(in.Grace)
	h, err := c.Cloud.AttachHypervisor(o)
	if err != nil {
		writeJSON(w, http.StatusBadRequest, errorBody{err.Error()})
		return
	}
	// Closed it is only by DELETE: a client that is gone may just have lost its connection.
	defer h.Suspend()
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusOK)
	s := &stream{w: w, rc: http.NewResponseController(w)}
	for _, m := range h.Machines() {
		if s.hypervisorLine(HypervisorLine{Type: LineMachine, Machine: &m}) != nil {
			return
		}
	}
	if s.hypervisorLine(HypervisorLine{Type: LineSynced}) != nil {
		return
	}
	for {
		line := nextLine(r.Context(), h, ping)
		if r.Context().Err() != nil || s.hypervisorLine(line) != nil || line.Type == LineEnd {
			return
		}
	}
}

func nextLine(ctx context.Context, h *cloud.Hypervisor, ping time.Duration) HypervisorLine {
	ctx, cancel := context.WithTimeout(ctx, ping)
	defer cancel()
	task, err := h.Next(ctx)
	switch {
	case err == nil:
		return HypervisorLine{Type: LineTask, Task: &task}
	case ctx.Err() != nil:
		return HypervisorLine{Type: LinePing}
	}
	return HypervisorLine{Type: LineEnd, Reason: err.Error(), Replaced: errors.Is(err, cloud.ErrReplaced)}
}

func (s *stream) hypervisorLine(l HypervisorLine) error {
	line, err := json.Marshal(l)
	if err != nil {
		return err
	}
	return s.write(line)
}

func detachHypervisor(c *Controller, r *http.Request) (any, error) {
	return done, c.Cloud.DetachHypervisor(chi.URLParam(r, "hypervisor"))
}

func idParam(r *http.Request, name string) (int64, error) {
	text := chi.URLParam(r, name)
	id, ok := cloud.ParseID(text)
	if !ok {
		return 0, fmt.Errorf("%s: %.64q is not an id", name, text)
	}
	return id, nil
}

func completeTask(c *Controller, r *http.Request) (any, error) {
	action, err := idParam(r, "action")
	if err != nil {
		return nil, err
	}
	var in CompleteRequest
	if err := decode(r, &in); err != nil {
		return nil, err
	}
	var failure error
	if in.Error != nil {
		if in.Error.Code == "" {
			in.Error.Code = cloud.ActionFailedCode
		}
		failure = in.Error
	}
	return done, c.Cloud.CompleteTask(chi.URLParam(r, "hypervisor"), action, failure)
}

func reportMachine(c *Controller, r *http.Request) (any, error) {
	server, err := idParam(r, "server")
	if err != nil {
		return nil, err
	}
	var in ReportRequest
	if err := decode(r, &in); err != nil {
		return nil, err
	}
	if in.Running == nil {
		return nil, errors.New(`running: is required, as in {"running": false}`)
	}
	return done, c.Cloud.ReportMachine(chi.URLParam(r, "hypervisor"), server, *in.Running)
}
