package api

import (
	"encoding/hex"
	"math/rand/v2"
	"net/http"
)

// correlate gives each request its X-Correlation-Id, 16 hex digits, and each response the header.
func (a *API) correlate(next Handler) Handler {
	return func(w http.ResponseWriter, r *Request) {
		var b [8]byte
		n := rand.Uint64()
		for i := range b {
			b[i] = byte(n >> (8 * i))
		}
		r.CorrelationID = hex.EncodeToString(b[:])
		w.Header()["X-Correlation-Id"] = []string{r.CorrelationID}
		next(w, r)
	}
}
