package ccmtest

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// ServerJSON returns the fields of a server that the provider reads, as JSON.
func ServerJSON(id int, name, status string) string {
	return fmt.Sprintf(`{"id":%d,"name":%q,"status":%q,"server_type":{"id":1,"name":"cx22"},
		"location":{"id":1,"name":"fsn1","network_zone":"eu-central"},
		"public_net":{"ipv4":{"ip":"203.0.113.%d"},"ipv6":{"ip":"2001:db8:%d::/64"}},
		"private_net":[{"network":5,"ip":"10.0.0.%d"}]}`, id, name, status, id%250, id, id%250)
}

// ServersAPI answers for servers 1 to n, named node-1 to node-n.
func ServersAPI(t *testing.T, n int, statusOf func(id int) string) *API {
	t.Helper()
	return NewAPI(t, func(w http.ResponseWriter, r *http.Request) {
		var id int
		if _, err := fmt.Sscanf(r.URL.Path, "/servers/%d", &id); err == nil {
			if id > n || statusOf(id) == "" {
				ReplyError(w, 404, "not_found")
				return
			}
			Reply(w, 200, `{"server":`+ServerJSON(id, fmt.Sprintf("node-%d", id), statusOf(id))+`}`)
			return
		}
		page := 1
		_, _ = fmt.Sscan(r.URL.Query().Get("page"), &page)
		var list []string
		for id := 1; id <= n; id++ {
			name := fmt.Sprintf("node-%d", id)
			if want := r.URL.Query().Get("name"); (want == "" || want == name) && statusOf(id) != "" {
				list = append(list, ServerJSON(id, name, statusOf(id)))
			}
		}
		from := min((page-1)*50, len(list))
		to := min(from+50, len(list))
		next := "null"
		if to < len(list) {
			next = fmt.Sprint(page + 1)
		}
		Reply(w, 200, fmt.Sprintf(`{"servers":[%s],"meta":{"pagination":{"page":%d,"per_page":50,"next_page":%s}}}`,
			strings.Join(list[from:to], ","), page, next))
	})
}

// Running is the status of each server for ServersAPI.
func Running(int) string { return "running" }

// Abort closes the connection without an answer.
func Abort(http.ResponseWriter) { panic(http.ErrAbortHandler) }

// Status answers with an API error.
func Status(code int, apiCode string) func(http.ResponseWriter) {
	return func(w http.ResponseWriter) { ReplyError(w, code, apiCode) }
}

// Bare answers with a status and no body.
func Bare(code int) func(http.ResponseWriter) {
	return func(w http.ResponseWriter) { w.WriteHeader(code) }
}

// CutOff sends less than its Content-Length.
func CutOff(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", "1000")
	_, _ = w.Write([]byte(`{"server": {"id": 1`))
	_ = http.NewResponseController(w).Flush()
	panic(http.ErrAbortHandler)
}
