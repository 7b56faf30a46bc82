package api

import (
	"context"
	"net/http"
	"strings"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/cloud"
)

// projectKey is the key of the project in the context of a request without a token.
type projectKey struct{}

// As serves the API to clients of a project that need no token, since another handler has admitted them.
func (a *API) As(p cloud.Project) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), projectKey{}, p)))
	})
}

// identify looks up the request's token and its project. A token may create its project. If the token has an API date, the request gets it.
func (r *Request) identify() {
	if p, ok := r.HTTP.Context().Value(projectKey{}).(cloud.Project); ok {
		r.token, r.Project, r.known = cloud.Token{Project: p.ID()}, p, true
		return
	}
	r.token, r.Project, r.refusal = r.api.cloud.Enter(r.bearer())
	r.known = r.refusal == nil
	if !r.token.APIDate.IsZero() {
		r.date = Date{r.token.APIDate}
	}
}

func (r *Request) bearer() string {
	scheme, text, _ := strings.Cut(first(r.HTTP.Header["Authorization"]), " ")
	if scheme != "Bearer" && !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(text)
}

// authenticate refuses unknown tokens, and writes with a read-only token.
func (a *API) authenticate(next Handler) Handler {
	return func(w http.ResponseWriter, r *Request) {
		if !r.known {
			if r.bearer() == "" {
				writeError(w, r, cloud.ErrUnauthorized("token is required"))
			} else {
				writeError(w, r, r.refusal)
			}
			return
		}
		if r.token.ReadOnly && r.HTTP.Method != http.MethodGet && r.HTTP.Method != http.MethodHead {
			if r.date.Before(ReadonlyTokenForbidden) {
				writeError(w, r, cloud.ErrTokenReadonly())
			} else {
				writeError(w, r, cloud.ErrForbidden("the token is only allowed to perform GET requests"))
			}
			return
		}
		next(w, r)
	}
}
