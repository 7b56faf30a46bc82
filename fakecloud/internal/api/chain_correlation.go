package api

import (
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"
	"net/http"
)

// correlate gives each request an id of 16 hex digits and sends it in the header X-Correlation-Id.
func (a *API) correlate(next Handler) Handler {
	return func(w http.ResponseWriter, r *Request) {
		var raw [8]byte
		var text [16]byte
		binary.LittleEndian.PutUint64(raw[:], rand.Uint64())
		hex.Encode(text[:], raw[:])
		r.CorrelationID = string(text[:])
		r.setHeader(w.Header(), "X-Correlation-Id", r.CorrelationID)
		next(w, r)
	}
}
