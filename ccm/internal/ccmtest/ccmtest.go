// Package ccmtest holds helpers for the tests of several packages: an API with a test's answers, a clock, and a Node.
package ccmtest

import (
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/nodeinfo"
)

// Call is a request that reached the API.
type Call struct{ Method, Path, Token, UserAgent string }

// API is an API with the answers of a test's handler.
type API struct {
	*httptest.Server
	mu    sync.Mutex
	calls []Call
}

// NewAPI serves handler and records the calls.
func NewAPI(t *testing.T, handler http.HandlerFunc) *API {
	t.Helper()
	api := &API{}
	api.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		api.mu.Lock()
		api.calls = append(api.calls, Call{r.Method, r.URL.RequestURI(), r.Header.Get("Authorization"), r.Header.Get("User-Agent")})
		api.mu.Unlock()
		handler(w, r)
	}))
	t.Cleanup(api.Close)
	return api
}

// Recorded returns the calls so far.
func (a *API) Recorded() []Call {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]Call(nil), a.calls...)
}

// Reply writes a JSON answer.
func Reply(w http.ResponseWriter, status int, body string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(body))
}

// ReplyError writes an API error.
func ReplyError(w http.ResponseWriter, status int, code string) {
	Reply(w, status, `{"error":{"code":"`+code+`","message":"as the test wants","details":null}}`)
}

// ProviderID returns the provider ID of a server by the default convention.
func ProviderID(serverID int64) string { return nodeinfo.ConventionOwn.ProviderID(serverID) }

// Node returns a Node with this provider ID.
func Node(name, providerID string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{ProviderID: providerID}}
}
