package control

import (
	"fmt"
	"net/http"
	"runtime/pprof"
	"runtime/trace"
	"strconv"
	"time"
)

// maxProfile is the longest time of a profile, in seconds.
const maxProfile = 300

// showProfile answers with a profile of the program. net/http/pprof would do it, but a program that imports it serves its profiles on
// the default mux, too.
func showProfile(_ *Controller, w http.ResponseWriter, r *http.Request) {
	name := pathParam(r, "profile")
	seconds := 30
	if text := r.URL.Query().Get("seconds"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > maxProfile {
			writeJSON(w, http.StatusBadRequest, errorBody{fmt.Sprintf("parameter seconds=%.64q: must be 1 to %d", text, maxProfile)})
			return
		}
		seconds = n
	}
	during := func(start func() error, stop func()) {
		if err := start(); err != nil {
			writeJSON(w, http.StatusConflict, errorBody{name + ": " + err.Error() + "; wait until it has ended"})
			return
		}
		defer stop()
		select {
		case <-time.After(time.Duration(seconds) * time.Second):
		case <-r.Context().Done():
		}
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	switch p := pprof.Lookup(name); {
	case name == "profile":
		during(func() error { return pprof.StartCPUProfile(w) }, pprof.StopCPUProfile)
	case name == "trace":
		during(func() error { return trace.Start(w) }, trace.Stop)
	case p != nil:
		debug, _ := strconv.Atoi(r.URL.Query().Get("debug")) // go tool pprof wants none
		_ = p.WriteTo(w, min(max(debug, 0), 2))              // the client may be gone
	default:
		writeJSON(w, http.StatusNotFound, errorBody{fmt.Sprintf("profile %.64q does not exist; GET / lists them", name)})
	}
}
