package api

import (
	"net/http"
	"slices"
)

// crossOrigin lets web pages of the allowed origins call the API, and reports whether the request was a browser's question for that. The
// real API lets pages of every origin do so. Here, a page that somebody only visits could change the cloud with the default token.
func (a *API) crossOrigin(w http.ResponseWriter, r *http.Request) (answered bool) {
	origin := first(r.Header["Origin"])
	if !slices.Contains(a.origins, origin) {
		return false
	}
	h := w.Header()
	h.Set("Access-Control-Allow-Origin", origin)
	h.Add("Vary", "Origin")
	h.Set("Access-Control-Expose-Headers", "Link, RateLimit-Limit, RateLimit-Remaining, RateLimit-Reset, X-Correlation-Id")
	if r.Method != http.MethodOptions || r.Header.Get("Access-Control-Request-Method") == "" {
		return false
	}
	h.Set("Access-Control-Allow-Methods", "GET, POST, PUT, DELETE")
	h.Set("Access-Control-Allow-Headers", "Authorization, Content-Type, User-Agent")
	h.Set("Access-Control-Max-Age", "600")
	w.WriteHeader(http.StatusNoContent)
	return true
}
