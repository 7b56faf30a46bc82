package contract

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
)

// answering returns a handler with fixed answers by method and path. Others are 404.
func answering(t *testing.T, document *Document) http.Handler {
	t.Helper()
	mux := http.NewServeMux()
	reply := func(pattern string, status int, body []byte) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			maps.Copy(w.Header(), headers())
			w.WriteHeader(status)
			_, _ = w.Write(body)
		})
	}
	failure := func(code string) []byte {
		return fmt.Appendf(nil, `{"error": {"code": %q, "message": "no", "details": null}}`, code)
	}
	reply("/", 404, failure("not_found"))
	reply("GET /v1/servers/{id}", 200, answer(t, document.Operation("get_server")))
	reply("GET /v1/servers/404", 404, failure("not_found"))
	reply("POST /v1/networks", 201, answer(t, document.Operation("create_network")))
	reply("GET /v1/zones", 501, failure("not_implemented"))
	reply("GET /v1/volumes/1", 404, failure("not_found"))
	reply("GET /v1/ssh_keys", 200, []byte(`{"ssh_keys": null}`))
	reply("GET /v1/datacenters", 410,
		[]byte(`{"error": {"code": "deprecated_api_endpoint", "message": "gone", "details": {"announcement": "https://example.com"}}}`))
	mux.HandleFunc("GET /v1/isos", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	return mux
}

// send makes a request and returns status and body, or zero if the connection broke.
func send(t *testing.T, client *http.Client, method, url, body string) (int, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	response, err := client.Do(request)
	if err != nil {
		return 0, ""
	}
	defer func() { _ = response.Body.Close() }()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(content)
}

func TestARecorderRecordsTheSameOnBothSides(t *testing.T) {
	t.Parallel()
	document := ForTest(t)
	pages := make(map[string]string)
	for _, side := range []string{"middleware", "transport"} {
		t.Run(side, func(t *testing.T) {
			recorder := NewRecorder(document)
			handler, client := answering(t, document), &http.Client{}
			if side == "middleware" {
				handler = recorder.Middleware(handler)
			} else {
				client.Transport = recorder.Transport(nil)
			}
			server := httptest.NewServer(handler)
			defer server.Close()
			if status, body := send(t, client, "GET", server.URL+"/v1/servers/1", ""); status != 200 ||
				body != string(answer(t, document.Operation("get_server"))) {
				t.Errorf("the recorder changed the answer: %d %s", status, body)
			}
			send(t, client, "GET", server.URL+"/v1/servers/404", "")
			send(t, client, "POST", server.URL+"/v1/networks", `{"name": "n", "ip_range": "10.0.0.0/8"}`)
			send(t, client, "POST", server.URL+"/v1/networks", `{"name": 5}`)
			send(t, client, "GET", server.URL+"/v1/zones", "")
			send(t, client, "GET", server.URL+"/v1/volumes/1", "")
			send(t, client, "GET", server.URL+"/v1/ssh_keys?page=1", "")
			send(t, client, "GET", server.URL+"/v1/datacenters", "")
			send(t, client, "GET", server.URL+"/v1/nothing", "")
			if status, _ := send(t, client, "GET", server.URL+"/v1/isos", ""); status != 0 {
				t.Errorf("a dropped connection became %d", status)
			}

			violations := recorder.Violations()
			if len(violations) != 1 || violations[0].URL != "/v1/ssh_keys?page=1" || violations[0].Status != 200 {
				t.Errorf("violations: %v", violations)
			}
			if err := recorder.Err(); err == nil || !strings.Contains(err.Error(), "/ssh_keys: want array, got null") {
				t.Errorf("as an error: %v", err)
			}
			if recorder.Exchanges() != 9 {
				t.Errorf("%d exchanges, want 9: all but the dropped connection", recorder.Exchanges())
			}
			for _, seen := range []struct {
				op   *Operation
				code string
				want bool
			}{
				{document.Operation("get_server"), "not_found", true}, {document.Operation("get_server"), "locked", false},
				{document.Operation("list_isos"), "not_found", false}, {nil, "not_found", true},
			} {
				if got := recorder.Saw(seen.op, 404, seen.code); got != seen.want {
					t.Errorf("saw %s of %v: %t, want %t", seen.code, seen.op, got, seen.want)
				}
			}
			undocumented := recorder.Undocumented()
			if len(undocumented) != 1 || !strings.Contains(undocumented[0].String(), `/name: want string, got number 5`) {
				t.Errorf("accepted outside the document: %v", undocumented)
			}
			for id, want := range map[string]State{
				"get_server": Implemented, "create_network": Implemented, "list_zones": NotImplemented,
				"get_volume": OnlyErrors, "list_isos": NotExercised, "list_datacenters": Implemented,
			} {
				if got := recorder.State(document.Operation(id)); got != want {
					t.Errorf("%s: %s, want %s", id, got, want)
				}
			}
			if got := recorder.Statuses(document.Operation("get_server")); !slices.Equal(got, []int{200, 404}) {
				t.Errorf("statuses of get_server: %v", got)
			}
			var page bytes.Buffer
			if err := recorder.WriteCoverage(&page); err != nil {
				t.Fatal(err)
			}
			pages[side] = page.String()
		})
	}
	if pages["middleware"] != pages["transport"] {
		t.Error("the coverage pages differ")
	}
	for _, want := range []string{
		fmt.Sprintf("Of the %d operations of the official document, 4 are implemented and were exercised, 1 answer 501, 1 gave only errors",
			len(document.Operations())),
		"| Servers | 6 | 1 | 0 |",
		"| Zones | 6 | 0 | 1 |",
		"| 2026-09-22 | GET /networks/{id}/members |",
	} {
		if !strings.Contains(pages["transport"], want) {
			t.Errorf("the coverage page lacks %q", want)
		}
	}
}

func TestARecorderIsUsedFromManyGoroutines(t *testing.T) {
	t.Parallel()
	document := ForTest(t)
	recorder := NewRecorder(document)
	handler := recorder.Middleware(answering(t, document))
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			for range 50 {
				path := []string{"/v1/servers/1", "/v1/ssh_keys"}[i%2]
				handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, path, nil))
				recorder.Violations()
			}
		})
	}
	group.Wait()
	if got := len(recorder.Violations()); got != maxExchanges {
		t.Errorf("%d violations kept, want %d", got, maxExchanges)
	}
	handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/v1/ssh_keys", nil))
	if err := recorder.Err(); err == nil || !strings.HasPrefix(err.Error(), "201 answers that the API document does not allow (1 "+
		"different)") {
		t.Errorf("as an error: %v", err)
	}
}

func TestARecorderIgnoresExchanges(t *testing.T) {
	t.Parallel()
	document := ForTest(t)
	recorder := NewRecorder(document)
	recorder.Ignore(func(_ *http.Request, status int) bool { return status == 200 })
	recorder.Middleware(answering(t, document)).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/v1/ssh_keys", nil))
	if err := recorder.Err(); err != nil {
		t.Error(err)
	}
	if got := recorder.State(document.Operation("list_ssh_keys")); got != NotExercised {
		t.Errorf("an ignored exchange counts as %s", got)
	}
}

func TestTheClientGetsABodyThatBreaksOff(t *testing.T) {
	t.Parallel()
	document := ForTest(t)
	recorder := NewRecorder(document)
	broken := errors.New("connection reset")
	transport := recorder.Transport(roundTripper(func(*http.Request) (*http.Response, error) {
		body := io.MultiReader(strings.NewReader(`{"server`), failingReader{broken})
		return &http.Response{StatusCode: http.StatusOK, Header: headers(), Body: io.NopCloser(body)}, nil
	}))
	response, err := transport.RoundTrip(httptest.NewRequest(http.MethodGet, "/v1/servers/1", nil))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	got, err := io.ReadAll(response.Body)
	if string(got) != `{"server` || !errors.Is(err, broken) {
		t.Errorf("got %q, %v", got, err)
	}
	if err := recorder.Err(); err != nil {
		t.Errorf("an answer that broke off was validated: %v", err)
	}
}
