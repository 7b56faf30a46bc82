package api

import (
	"net/http"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/cloud"
)

// existsSince answers as for an unknown path until the day of the change that added the operation. The zero day means
// always.
func existsSince(day Date) Middleware {
	return func(next Handler) Handler {
		if day == (Date{}) {
			return next
		}
		return func(w http.ResponseWriter, r *Request) {
			if r.date.Before(day) {
				writeError(w, r, cloud.ErrNoRoute())
				return
			}
			next(w, r)
		}
	}
}
