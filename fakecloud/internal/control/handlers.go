package control

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/fault"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/hypervisor"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/api"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/cloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/faults"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/store"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/wire"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/journal"
)

var done = map[string]any{}

func health(*Controller, *http.Request) (any, error) { return map[string]string{"status": "ok"}, nil }

func ready(c *Controller, _ *http.Request) (any, error) {
	if c.Ready != nil {
		if err := c.Ready(); err != nil {
			return nil, statusError{http.StatusServiceUnavailable, fmt.Errorf("not ready: %w", err)}
		}
	}
	return map[string]string{"status": "ready"}, nil
}

// kept are the parts that a reset keeps.
type kept struct {
	Keep []string `json:"keep"`
}

func reset(c *Controller, _ *http.Request, in kept) (any, error) { return done, c.Reset(in.Keep...) }

func state(c *Controller, r *http.Request) (any, error) {
	sel, err := parseSelection(c.kinds(), r.URL.Query())
	if err != nil {
		return nil, err
	}
	return streamed(func(w *listWriter) {
		w.open(`{"time":`, c.Cloud.Now(), `,"projects":[`)
		for _, p := range c.Cloud.Projects() {
			if sel.project(p.ID()) {
				c.streamProject(w, p, &sel)
			}
		}
		w.close(`]}`)
	}), nil
}

// streamProject writes one snapshot of a project's resources.
func (c *Controller) streamProject(w *listWriter, p cloud.Project, sel *selection) {
	st := p.View()
	w.next()
	w.open(`{"id":`, p.ID(), `,"name":`, p.Name(), `,"resources":{`)
	for _, s := range c.API.ShownResources() {
		if !sel.kind(s.Kind()) {
			continue
		}
		w.next()
		w.open(``, s.Plural(), `:[`)
		for _, resource := range s.All(st, c.Cloud.Now()) {
			w.next()
			w.raw(resource)
		}
		w.close(`]`)
	}
	w.close(`}}`)
}

func listJournal(c *Controller, r *http.Request) (any, error) {
	q := r.URL.Query()
	f, err := wire.ParseFilter(q, "limit")
	if err != nil {
		return nil, err
	}
	entries, err := c.Journal.Entries(r.Context(), f)
	if err != nil {
		return nil, err
	}
	count := len(entries)
	n, err := numberParam(q, "limit", count)
	if err != nil {
		return nil, err
	}
	return journalJSON(r, c, entries[max(count-n, 0):], count)
}

func getExchange(c *Controller, _ *http.Request, seq int64) (any, error) {
	e, request, response, kept, err := c.Journal.Bodies(uint64(seq))
	if err != nil {
		return nil, statusError{http.StatusNotFound, fmt.Errorf("request %d %w", seq, err)}
	}
	return map[string]any{"entry": e, "request": request, "response": response, "kept": kept}, nil
}

// journalJSON shows entries of the journal. count is the number of all matching entries.
func journalJSON(r *http.Request, c *Controller, entries []journal.Entry, count int) (any, error) {
	last, err := c.Journal.Last(r.Context())
	return streamed(func(w *listWriter) {
		w.open(`{"count":`, count, `,"last_seq":`, last, `,"entries":[`)
		for i := range entries {
			w.next()
			w.value(&entries[i])
		}
		w.close(`]}`)
	}), err
}

func countJournal(c *Controller, r *http.Request) (any, error) {
	f, err := wire.ParseFilter(r.URL.Query())
	if err != nil {
		return nil, err
	}
	count, err := c.Journal.Count(r.Context(), f)
	if err != nil {
		return nil, err
	}
	last, err := c.Journal.Last(r.Context())
	return map[string]any{"count": count, "last_seq": last}, err
}

func deleteJournal(c *Controller, r *http.Request) (any, error) {
	return done, c.Journal.Reset(r.Context())
}

func listFaults(c *Controller, r *http.Request) (any, error) {
	rules, err := c.API.Faults().List(r.Context())
	return map[string]any{"faults": rules}, err
}

func addFault(c *Controller, r *http.Request, rule fault.Rule) (any, error) {
	rule, err := c.API.Faults().Add(r.Context(), rule)
	return map[string]any{"fault": fault.Status{Rule: rule}}, err
}

func getFault(c *Controller, r *http.Request) (any, error) {
	st, ok, err := c.API.Faults().Get(r.Context(), pathParam(r, "name"))
	if err == nil && !ok {
		err = noFault(r)
	}
	return map[string]any{"fault": st}, err
}

func noFault(r *http.Request) error {
	return fmt.Errorf("fault rule %.128q %w; GET /faults lists them", pathParam(r, "name"), ErrNotFound)
}

func deleteFault(c *Controller, r *http.Request) (any, error) {
	removed, err := c.API.Faults().Remove(r.Context(), pathParam(r, "name"))
	if err == nil && !removed {
		err = noFault(r)
	}
	return done, err
}

func deleteFaults(c *Controller, r *http.Request) (any, error) {
	return done, c.API.Faults().Clear(r.Context())
}

type operationJSON struct {
	Operation string `json:"operation"`
	Method    string `json:"method"`
	Route     string `json:"route"`
	Resource  string `json:"resource"`
}

func listOperations(*Controller, *http.Request) (any, error) {
	out := []operationJSON{}
	for _, r := range api.Routes() {
		out = append(out, operationJSON{r.OperationID, r.Method, r.Pattern, faults.ResourceOf(r.Pattern)})
	}
	return map[string]any{"operations": out}, nil
}

func listCodes(*Controller, *http.Request) (any, error) {
	return map[string]any{"error_codes": faults.Codes}, nil
}

type clockJSON struct {
	Time  time.Time `json:"time"`
	Speed float64   `json:"speed"`
}

func getClock(c *Controller, _ *http.Request) (any, error) {
	return clockJSON{c.Cloud.Now(), c.Speed()}, nil
}

func stepClock(c *Controller, r *http.Request, in struct {
	By *fault.Duration `json:"by"`
}) (any, error) {
	if in.By == nil {
		return nil, errors.New(`by: is required, such as {"by": "30s"}`)
	}
	if err := c.Step(time.Duration(*in.By)); err != nil {
		return nil, err
	}
	return getClock(c, r)
}

func setSpeed(c *Controller, r *http.Request, in struct {
	Speed *float64 `json:"speed"`
}) (any, error) {
	if in.Speed == nil {
		return nil, errors.New(`speed: is required, such as {"speed": 10}`)
	}
	if err := c.SetSpeed(*in.Speed); err != nil {
		return nil, err
	}
	return getClock(c, r)
}

func getProfile(c *Controller, _ *http.Request) (any, error) {
	return map[string]string{"actions": c.Profile()}, nil
}

func setProfile(c *Controller, r *http.Request, in struct {
	Actions string `json:"actions"`
}) (any, error) {
	if err := c.SetProfile(in.Actions); err != nil {
		return nil, err
	}
	return getProfile(c, r)
}

func timeline(c *Controller, r *http.Request) (any, error) {
	due := c.Cloud.Timeline()
	n, err := numberParam(r.URL.Query(), "limit", len(due))
	return map[string]any{"time": c.Cloud.Now(), "count": len(due), "timeline": due[:min(n, len(due))]}, err
}

func resumeActions(c *Controller, _ *http.Request) (any, error) {
	return map[string]int{"resumed": c.Cloud.ResumeActions()}, nil
}

func reportServerUsage(c *Controller, _ *http.Request, server int64, in hypervisor.Usage) (any, error) {
	return done, c.ReportServerUsage(server, in)
}

func getRateLimit(c *Controller, _ *http.Request) (any, error) {
	return map[string]int{"limit": c.RateLimit()}, nil
}

func setRateLimit(c *Controller, r *http.Request, in struct {
	Limit *int `json:"limit"`
}) (any, error) {
	if in.Limit == nil {
		return nil, errors.New(`limit: is required, such as {"limit": 3600}; 0 means no limit`)
	}
	if err := c.SetRateLimit(*in.Limit); err != nil {
		return nil, err
	}
	return getRateLimit(c, r)
}

// caRoots answers in PEM, because clients need a PEM file.
func caRoots(c *Controller, w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/x-pem-file")
	_, _ = w.Write(c.Cloud.CARoots()) // the client may be gone
}

// kinds returns the kinds of resources that can be selected.
func (c *Controller) kinds() []store.Kind {
	var out []store.Kind
	for _, s := range c.API.ShownResources() {
		out = append(out, s.Kind())
	}
	return out
}

func listLoadBalancerEndpoints(c *Controller, _ *http.Request) (any, error) {
	endpoints := []wire.LoadBalancerEndpoint{}
	if c.Endpoints != nil {
		endpoints = c.Endpoints()
	}
	return map[string]any{"load_balancer_endpoints": endpoints}, nil
}
