package example

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
)

// ControlPath is how the paths of [Cloud.ControlHandler] begin.
const ControlPath = "/control"

// ControlHandler returns the API of tests in another process. It offers operations that no CCM may use. It asks for no token, and its
// requests are neither recorded nor do they meet faults.
//
//	GET    /control/requests?after=7  {"requests": [Request, …]}
//	GET    /control/faults            {"faults": [Fault, …]}
//	POST   /control/faults            Fault → 201 {"name": "fault-1"}
//	DELETE /control/faults/{name}     {}
//	PUT    /control/limit             {"most": 2}, or a negative number for no limit
func (c *Cloud) ControlHandler() http.Handler {
	mux := http.NewServeMux()
	handle := func(method, path string, do func(*http.Request) (int, any, error)) {
		mux.HandleFunc(method+" "+ControlPath+path, func(w http.ResponseWriter, r *http.Request) {
			status, body, err := do(r)
			if e, ok := errors.AsType[*Error](err); ok {
				status, body = e.Status, map[string]any{"error": e}
			}
			answer(w, status, body)
		})
	}
	handle("GET", "/requests", func(r *http.Request) (int, any, error) {
		after, err := strconv.ParseUint(r.URL.Query().Get("after"), 10, 64)
		if err != nil {
			return 0, nil, badRequest("after: must be the number of a request, or 0")
		}
		return one(http.StatusOK, "requests", c.Requests(after), nil)
	})
	handle("GET", "/faults", func(*http.Request) (int, any, error) { return one(http.StatusOK, "faults", c.Faults(), nil) })
	handle("POST", "/faults", func(r *http.Request) (int, any, error) {
		f, err := decode[Fault](r.Body)
		if err != nil {
			return 0, nil, err
		}
		name, err := c.AddFault(f)
		return one(http.StatusCreated, "name", name, err)
	})
	handle("DELETE", "/faults/{name}", func(r *http.Request) (int, any, error) {
		if !c.RemoveFault(r.PathValue("name")) {
			return 0, nil, fail(http.StatusNotFound, "fault_not_found")("there is not a fault %q", r.PathValue("name"))
		}
		return done(nil)
	})
	handle("PUT", "/limit", func(r *http.Request) (int, any, error) {
		in, err := decode[struct{ Most *int }](r.Body)
		if err == nil && in.Most == nil {
			err = badRequest("most: is missing")
		}
		if err != nil {
			return 0, nil, err
		}
		c.LimitLoadBalancers(*in.Most)
		return done(nil)
	})
	return mux
}

// MarshalJSON adds fields that programs in other languages would have to compute.
func (r Request) MarshalJSON() ([]byte, error) {
	type plain Request
	return json.Marshal(struct {
		plain
		Write bool   `json:"write"`
		Text  string `json:"text"`
	}{plain(r), r.Write(), r.String()})
}
