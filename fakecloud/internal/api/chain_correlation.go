package api

import (
	"fmt"
	"math/rand/v2"
	"net/http"
)

// correlate gives each request an id of 32 hex digits (terraform-provider-hcloud issue 1371) and sends it in the header X-Correlation-Id.
func (a *API) correlate(next Handler) Handler {
	return func(w http.ResponseWriter, r *Request) {
		r.CorrelationID = fmt.Sprintf("%016x%016x", rand.Uint64(), rand.Uint64())
		r.setHeader(w.Header(), "X-Correlation-Id", r.CorrelationID)
		next(w, r)
	}
}
